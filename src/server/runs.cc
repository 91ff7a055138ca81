#include <fmt/format.h>

#include "fleet/run.h"
#include "server/handlers.h"
#include "server/reconcile.h"
#include "server/resolve.h"
#include "server/rows.h"
#include "server/views.h"

namespace anychip::server {
namespace {

// Newest first; the cursor is the last id shown (ids are ordered by time).
template <class T, class View>
Result<net::Outcome> page_by_id(Call& call, std::string_view from_project, View view) {
  TRY(const Page page, page_of(call.request));
  const std::string where = std::string(from_project) + " AND id < ? ORDER BY id DESC LIMIT ?";
  TRY(const auto found,
      rows::select<T>(call.db, where, call.who.project,
                      page.cursor.empty() ? std::string("~") : page.cursor, page.limit + 1));
  json::array items;
  std::string next;
  for (const T& item : found) {
    if (static_cast<int64_t>(items.size()) == page.limit) {
      next = found[static_cast<size_t>(page.limit) - 1].id.text;
      break;
    }
    TRY(json::object one, view(item));
    items.push_back(std::move(one));
  }
  return net::Outcome(ok(list_of(std::move(items), next)));
}

constexpr std::string_view kOfProject =
    "run_id IN (SELECT id FROM runs WHERE project_id = ? AND deleted_at IS NULL)";

}  // namespace

Result<net::Outcome> list_runs(Call& call) {
  const std::string state = call.request.query("state").value_or("");
  fleet::RunState parsed{};
  if (!state.empty() && !fleet::parse(state, parsed)) {
    return fail(Code::kInvalidArgument, "query_invalid",
                fmt::format("'{}' is no state of a run", state),
                "queued preparing running switching stopping stopped finished failed lost");
  }
  // `state` is one of our own words by now, so it may stand in the text.
  const std::string where = "project_id = ? AND deleted_at IS NULL" +
                            (state.empty() ? std::string() : " AND state = '" + state + "'");
  return page_by_id<fleet::Run>(
      call, where, [&](const fleet::Run& run) { return run_view(call.db, call.shared, run); });
}

Result<net::Outcome> get_run(Call& call) {
  TRY(const fleet::Run run, get_run_row(call, call.parameters[0]));
  TRY(const json::object view, run_view(call.db, call.shared, run));
  return ok(view);
}

Result<net::Outcome> stop_run(Call& call) {
  TRY(const RunId id, find_run(call, call.parameters[0]));
  TRY(const fleet::Facts facts,
      change_run(call.db, call.shared, id, [](fleet::Facts& of, const fleet::Context& context) {
        return fleet::request_stop(of, context, "user");
      }));
  TRY(const json::object view, run_view(call.db, call.shared, facts.run));
  return ok(view);
}

Result<net::Outcome> delete_run(Call& call) {
  TRY(const RunId id, find_run(call, call.parameters[0]));
  TRY_VOID(change_run(
      call.db, call.shared, id, [](fleet::Facts& facts, const fleet::Context& context) -> Status {
        if (!fleet::is_ended(facts.run.state)) {
          return fail(Code::kFailedPrecondition, "run_active",
                      fmt::format("run {} is {}", facts.run.name, name_of(facts.run.state)),
                      "stop it first: `anychip stop`");
        }
        facts.run.deleted_at = context.now;
        for (fleet::Volume& volume : facts.volumes) volume.is_wanted = false;
        for (fleet::Snapshot& snapshot : facts.snapshots) snapshot.is_wanted = false;
        return {};
      }));
  // Legs stay: what was spent stays spent. The run's row stays with them, nameless to everybody.
  TRY_VOID(
      call.db.execute("DELETE FROM log_chunks WHERE leg_id IN "
                      "(SELECT id FROM legs WHERE run_id = ?)",
                      id));
  TRY_VOID(call.db.execute("DELETE FROM metrics WHERE run_id = ?", id));
  TRY_VOID(call.db.execute("DELETE FROM events WHERE run_id = ?", id));
  return empty_answer();
}

Result<net::Outcome> list_instances(Call& call) {
  return page_by_id<fleet::Instance>(call, kOfProject, [](const fleet::Instance& instance) {
    return Result<json::object>(instance_view(instance));
  });
}

Result<net::Outcome> get_instance(Call& call) {
  TRY(const auto found,
      rows::select_one<fleet::Instance>(call.db, std::string(kOfProject) + " AND id = ?",
                                        call.who.project, call.parameters[0]));
  if (!found) return fail(Code::kNotFound, "instance_unknown", "there is no such instance");
  return ok(instance_view(*found));
}

Result<net::Outcome> list_volumes(Call& call) {
  return page_by_id<fleet::Volume>(call, kOfProject, [](const fleet::Volume& volume) {
    return Result<json::object>(volume_view(volume));
  });
}

Result<net::Outcome> list_snapshots(Call& call) {
  return page_by_id<fleet::Snapshot>(call, kOfProject, [](const fleet::Snapshot& snapshot) {
    return Result<json::object>(snapshot_view(snapshot));
  });
}

}  // namespace anychip::server
