// Names to things: the catalogue's answer for an image on a chip, a run by id or name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fleet/switch.h"
#include "server/shared.h"

namespace anychip::server {

// What a leg on `count` of the chip is; empty when something is refused (added to `refusals`).
std::optional<fleet::Target> resolve_target(const catalog::Catalog& catalog,
                                            const std::string& image, const std::string& chip,
                                            int64_t count, std::vector<fleet::Refusal>& refusals);

// A run of the caller's project by id or name; 404 "run_unknown", also for foreign ones.
Result<RunId> find_run(Call& call, const std::string& id_or_name);
Result<fleet::Run> get_run_row(Call& call, const std::string& id_or_name);

// The command with the word after --backend (or in --backend=X) replaced.
std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const std::string& back_end);

}  // namespace anychip::server
