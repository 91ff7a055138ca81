// Rows as the JSON of the API (contract §1).
#pragma once

#include <vector>

#include "fleet/types.h"
#include "server/shared.h"

namespace anychip::server {

// legs of a run, in order, with what their metrics say.
Result<json::array> legs_view(store::Db& db, const fleet::Run& run,
                              const std::vector<fleet::Leg>& legs);
Result<json::object> run_view(store::Db& db, const Shared& shared, const fleet::Run& run);
Result<json::object> switch_view(store::Db& db, const fleet::Switch& of);
json::object instance_view(const fleet::Instance& instance);
json::object volume_view(const fleet::Volume& volume);
json::object snapshot_view(const fleet::Snapshot& snapshot);

// The first step's time of `leg` less the last step's time of the leg before it.
std::optional<int64_t> down_time_ms(const fleet::Leg* before, const fleet::Leg& leg);

}  // namespace anychip::server
