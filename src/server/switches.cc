#include <fmt/format.h>

#include "base/failpoint.h"
#include "fleet/run.h"
#include "fleet/switch.h"
#include "server/handlers.h"
#include "server/money.h"
#include "server/reconcile.h"
#include "server/resolve.h"
#include "server/rows.h"
#include "server/views.h"

namespace anychip::server {

Result<net::Outcome> create_switch(Call& call) {
  TRY(const json::object body, body_of(call.request));
  TRY(const std::string chip, json::get_string(body, "chip"));
  TRY(const int64_t count, json::get_int_or(body, "count", 1));
  fleet::SwitchWish wish;
  TRY(wish.verify_steps, json::get_int_or(body, "verify_steps", wish.verify_steps));
  TRY(const int64_t at_step, json::get_int_or(body, "at_step", -1));
  if (at_step != -1) wish.at_step = at_step;
  TRY(const RunId id, find_run(call, call.parameters[0]));

  TRY(const fleet::Facts before, load_facts(call.db, id));
  fleet::Facts facts = before;
  std::vector<fleet::Refusal> refusals;
  const auto target =
      resolve_target(call.shared.parts.catalog, facts.run.image, chip, count, refusals);
  // The run's own state first: it decides the status of the answer.
  auto reasons = fleet::check_switch(facts, target ? &*target : nullptr, wish);
  reasons.insert(reasons.end(), refusals.begin(), refusals.end());
  if (target) {
    TRY(const auto unfunded, refuse_unfunded(call, target->price, "/chip"));
    if (unfunded) reasons.push_back(*unfunded);
  }
  if (!reasons.empty()) return refusal(call, reasons);
  const fleet::Context context = call.shared.context();
  TRY_VOID(fleet::begin_switch(facts, context, *target, wish));
  FAILPOINT("server.switch.reserved");
  fleet::advance(facts, context);
  TRY_VOID(save_facts(call.db, call.shared, before, facts));
  TRY(const json::object view, switch_view(call.db, *facts.active));
  return ok(view, 202);
}

Result<net::Outcome> list_switches(Call& call) {
  TRY(const RunId id, find_run(call, call.parameters[0]));
  TRY(const auto found,
      rows::select<fleet::Switch>(call.db, "run_id = ? ORDER BY created_at, id", id));
  json::array items;
  for (const fleet::Switch& one : found) {
    TRY(json::object view, switch_view(call.db, one));
    items.push_back(std::move(view));
  }
  return ok(list_of(std::move(items)));
}

Result<net::Outcome> cancel_switch(Call& call) {
  TRY(const RunId id, find_run(call, call.parameters[0]));
  const std::string& switch_id = call.parameters[1];
  TRY(const auto known,
      rows::select_one<fleet::Switch>(call.db, "run_id = ? AND id = ?", id, switch_id));
  if (!known) return fail(Code::kNotFound, "switch_unknown", "there is no such switch");
  if (known->state != fleet::SwitchState::kActive) {
    return fail(Code::kFailedPrecondition, "switch_not_active",
                fmt::format("the switch is {}; there is nothing to cancel", name_of(known->state)));
  }
  TRY(const fleet::Facts facts,
      change_run(call.db, call.shared, id, [](fleet::Facts& of, const fleet::Context& context) {
        return fleet::cancel_switch(of, context);
      }));
  TRY(const json::object view, switch_view(call.db, *facts.active));
  return ok(view);
}

}  // namespace anychip::server
