#include "server/resolve.h"

#include <fmt/format.h>

#include "server/rows.h"

namespace anychip::server {
namespace {

constexpr int64_t kCountMax = 1'000'000;

void refuse(std::vector<fleet::Refusal>& refusals, const Error& error, std::string pointer) {
  refusals.push_back({error.code, error.reason, error.message, error.hint, std::move(pointer)});
}

}  // namespace

std::optional<fleet::Target> resolve_target(const catalog::Catalog& catalog,
                                            const std::string& image_id, const std::string& chip_id,
                                            int64_t count, std::vector<fleet::Refusal>& refusals) {
  const size_t before = refusals.size();
  const auto chip = catalog.chip(chip_id);
  if (chip_id.empty()) {
    refuse(refusals, Error{Code::kInvalidArgument, "chip_missing", "no chip is named",
                           "`anychip offer` lists the chips that can be had", {}}, "/chip");
  } else if (!chip) {
    refuse(refusals, chip.error(), "/chip");
  }
  const auto image = catalog.image(image_id);
  if (!image) refuse(refusals, image.error(), "/image");
  if (count < 1 || count > kCountMax) {
    refuse(refusals,
           Error{Code::kInvalidArgument,
                 "count_invalid",
                 fmt::format("count must be at least 1, not {}", count),
                 {},
                 {}},
           "/count");
  }
  if (!chip || !image) return std::nullopt;
  const auto variant = catalog.variant_for(**image, **chip);
  if (!variant) refuse(refusals, variant.error(), "/chip");
  if ((*chip)->price.micros == 0) {
    refuse(refusals,
           Error{Code::kFailedPrecondition,
                 "price_unknown",
                 fmt::format("{} has no price here, so it is not offered", (*chip)->id),
                 {},
                 {}},
           "/chip");
  }
  if (refusals.size() != before) return std::nullopt;
  fleet::Target target;
  target.chip = (*chip)->id;
  target.back_end = (*chip)->back_end;
  target.count = count;
  target.price = RatePerHour{(*chip)->price.micros * count};
  target.is_simulated = (*chip)->is_simulated;
  target.image = (*image)->id;
  target.variant = (*variant)->id;
  target.digest = (*variant)->digest;
  return target;
}

Result<fleet::Run> get_run_row(Call& call, const std::string& id_or_name) {
  const bool is_id = is_id_text(RunId::kPrefix, id_or_name);
  TRY(auto found,
      rows::select_one<fleet::Run>(call.db,
                                   is_id ? "project_id = ? AND deleted_at IS NULL AND id = ?"
                                         : "project_id = ? AND deleted_at IS NULL AND name = ?",
                                   call.who.project, id_or_name));
  if (!found) {
    return fail(Code::kNotFound, "run_unknown", fmt::format("there is no run {}", id_or_name),
                "see `anychip ps`");
  }
  return std::move(*found);
}

Result<RunId> find_run(Call& call, const std::string& id_or_name) {
  TRY(const fleet::Run run, get_run_row(call, id_or_name));
  return run.id;
}

std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const std::string& back_end) {
  std::vector<std::string> replaced = command;
  constexpr std::string_view kFlag = "--backend";
  for (size_t i = 0; i < replaced.size(); ++i) {
    if (replaced[i] == kFlag && i + 1 < replaced.size()) replaced[i + 1] = back_end;
    if (replaced[i].starts_with("--backend=")) replaced[i] = std::string(kFlag) + "=" + back_end;
  }
  return replaced;
}

}  // namespace anychip::server
