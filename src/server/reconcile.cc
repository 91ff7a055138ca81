#include "server/reconcile.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/failpoint.h"
#include "base/log.h"
#include "fleet/run.h"
#include "server/money.h"
#include "server/rows.h"

namespace anychip::server {
namespace {

constexpr const char* kOpenRuns =
    "SELECT id FROM runs WHERE state NOT IN ('stopped', 'finished', 'failed') UNION "
    "SELECT run_id FROM instances WHERE is_closed = 0";

Result<std::vector<double>> losses_of(store::Db& db, std::string_view sql, const RunId& run,
                                      int64_t leg_index, int64_t step) {
  TRY(const auto found, db.query(sql, run, leg_index, step));
  std::vector<double> losses;
  for (const store::Row& row : found) {
    losses.push_back(row.is_null(0) ? std::numeric_limits<double>::quiet_NaN() : row.real(0));
  }
  return losses;
}

// Only step 7 of a switch looks at losses.
Status load_losses(store::Db& db, fleet::Facts& facts) {
  if (!facts.active || facts.active->step != fleet::SwitchStep::kVerify) return {};
  const fleet::Instance* target = facts.instance(facts.active->target_instance);
  const fleet::Leg* leg = target == nullptr ? nullptr : facts.leg_of(*target);
  if (leg == nullptr || !leg->first_step) return {};
  TRY(facts.target_losses,
      losses_of(db,
                "SELECT loss FROM metrics WHERE run_id = ? AND leg_index = ? AND step >= ? "
                "ORDER BY step LIMIT 1000",
                facts.run.id, leg->index, *leg->first_step));
  TRY(facts.baseline_losses,
      losses_of(db,
                "SELECT loss FROM (SELECT step, loss, MAX(leg_index) FROM metrics WHERE run_id = ? "
                "AND leg_index < ? AND step < ? GROUP BY step ORDER BY step DESC LIMIT 20) "
                "ORDER BY step",
                facts.run.id, leg->index, *leg->first_step));
  return {};
}

bool changes_desired(const fleet::Instance& a, const fleet::Instance& b) {
  return a.desired != b.desired || a.generation != b.generation || a.leg != b.leg ||
         a.stop_at_step != b.stop_at_step || a.system_disk != b.system_disk ||
         a.checkpoint != b.checkpoint || a.attach_generation != b.attach_generation ||
         a.is_closed != b.is_closed;
}
bool changes_desired(const fleet::Volume& a, const fleet::Volume& b) {
  return a.is_wanted != b.is_wanted || a.attach_generation != b.attach_generation ||
         (a.state == fleet::VolumeState::kGone) != (b.state == fleet::VolumeState::kGone);
}
bool changes_desired(const fleet::Snapshot& a, const fleet::Snapshot& b) {
  return a.is_wanted != b.is_wanted ||
         (a.state == fleet::SnapshotState::kGone) != (b.state == fleet::SnapshotState::kGone);
}

template <class T>
void collect_nodes(std::set<NodeId>& nodes, const std::vector<T>& before,
                   const std::vector<T>& after) {
  for (const T& item : after) {
    const auto same = [&](const T& other) {
      return other.id == item.id && !changes_desired(other, item);
    };
    if (std::none_of(before.begin(), before.end(), same)) nodes.insert(item.node);
  }
}

Status save_leases(store::Db& db, const fleet::Facts& before, const fleet::Facts& after) {
  const auto lessee_before = [&](const fleet::Device& device) {
    for (const fleet::Device& other : before.devices) {
      if (other.node == device.node && other.id == device.id) return other.lessee;
    }
    return InstanceId{};
  };
  for (const fleet::Device& device : after.devices) {
    const InstanceId old = lessee_before(device);
    if (old == device.lessee || old.empty()) continue;
    TRY_VOID(
        db.execute("DELETE FROM device_leases WHERE node_id = ? AND device_id = ? "
                   "AND instance_id = ?",
                   device.node, device.id, old));
  }
  for (const fleet::Device& device : after.devices) {
    if (device.lessee.empty() || lessee_before(device) == device.lessee) continue;
    // The primary key is the last guard against leasing a device twice.
    TRY_VOID(
        db.execute("INSERT INTO device_leases(node_id, device_id, instance_id) "
                   "VALUES(?, ?, ?)",
                   device.node, device.id, device.lessee));
  }
  return {};
}

Status mark_lost_nodes(store::Db& db, const Shared& shared) {
  const WallTime now = shared.now();
  // A server that was away itself does not hold its absence against the nodes.
  if (now - shared.started_at <= shared.options.node_lost_after) return {};
  TRY_VOID(db.execute("UPDATE nodes SET state = 'lost' WHERE state = 'ready' AND last_seen_at < ?",
                      now - shared.options.node_lost_after));
  if (db.changes() > 0) log::warn("server.node_lost", {{"count", db.changes()}});
  return {};
}

}  // namespace

Status load_machines(store::Db& db, fleet::Facts& facts) {
  TRY(const auto nodes, db.query("SELECT id, state, ready_since FROM nodes ORDER BY id"));
  for (const store::Row& row : nodes) {
    facts.nodes.push_back({NodeId{row.text(0)}, row.text(1) == "ready", WallTime{row.integer(2)}});
  }
  TRY(const auto devices,
      db.query("SELECT d.node_id, d.id, d.chip, d.is_healthy, l.instance_id FROM devices d "
               "LEFT JOIN device_leases l ON l.node_id = d.node_id AND l.device_id = d.id "
               "ORDER BY d.node_id, d.id"));
  for (const store::Row& row : devices) {
    facts.devices.push_back({NodeId{row.text(0)}, row.text(1), row.text(2), row.integer(3) != 0,
                             InstanceId{row.text(4)}});
  }
  return {};
}

Result<fleet::Facts> load_facts(store::Db& db, const RunId& run) {
  fleet::Facts facts;
  TRY(auto found, rows::select_one<fleet::Run>(db, "id = ?", run));
  if (!found) return fail(Code::kNotFound, "run_unknown", "there is no such run");
  facts.run = std::move(*found);
  TRY(facts.legs, rows::select<fleet::Leg>(db, "run_id = ? ORDER BY leg_index", run));
  TRY(facts.instances, rows::select<fleet::Instance>(db, "run_id = ? ORDER BY id", run));
  TRY(facts.volumes, rows::select<fleet::Volume>(db, "run_id = ? ORDER BY id", run));
  TRY(facts.snapshots, rows::select<fleet::Snapshot>(db, "run_id = ? ORDER BY id", run));
  TRY(facts.active, rows::select_one<fleet::Switch>(db, "run_id = ? AND state = 'active'", run));
  TRY_VOID(load_machines(db, facts));
  TRY_VOID(load_losses(db, facts));
  return facts;
}

Status tell(store::Db& db, const Shared& shared, const RunId& run, std::string_view kind,
            std::string_view message) {
  return db.execute(
      "INSERT INTO events(run_id, seq, at, kind, message, data) VALUES(?, "
      "(SELECT COALESCE(MAX(seq), 0) + 1 FROM events WHERE run_id = ?), ?, ?, ?, '{}')",
      run, run, shared.now(), kind, message);
}

Status bump_desired(store::Db& db, const NodeId& node) {
  return db.execute("UPDATE nodes SET desired_version = desired_version + 1 WHERE id = ?", node);
}

Status save_facts(store::Db& db, const Shared& shared, const fleet::Facts& before,
                  fleet::Facts& after) {
  if (before.run != after.run) TRY_VOID(rows::save(db, after.run));
  TRY_VOID(rows::save_changed(db, before.legs, after.legs));
  TRY_VOID(rows::save_changed(db, before.instances, after.instances));
  TRY_VOID(rows::save_changed(db, before.volumes, after.volumes));
  TRY_VOID(rows::save_changed(db, before.snapshots, after.snapshots));
  if (after.active && before.active != after.active) TRY_VOID(rows::save(db, *after.active));
  TRY_VOID(save_leases(db, before, after));
  std::set<NodeId> nodes;
  collect_nodes(nodes, before.instances, after.instances);
  collect_nodes(nodes, before.volumes, after.volumes);
  collect_nodes(nodes, before.snapshots, after.snapshots);
  for (const NodeId& node : nodes) TRY_VOID(bump_desired(db, node));
  for (const fleet::Event& event : after.events) {
    TRY_VOID(tell(db, shared, after.run.id, event.kind, event.message));
    log::info(event.kind, {{"run", after.run.id.text}, {"message", event.message}});
    FAILPOINT("server." + event.kind);
  }
  after.events.clear();
  return {};
}

Result<fleet::Facts> change_run(store::Db& db, const Shared& shared, const RunId& run,
                                const Change& change) {
  TRY(const fleet::Facts before, load_facts(db, run));
  fleet::Facts after = before;
  const fleet::Context context = shared.context();
  if (change) TRY_VOID(change(after, context));
  fleet::advance(after, context);
  TRY_VOID(save_facts(db, shared, before, after));
  return after;
}

Status reconcile_node_runs(store::Db& db, const Shared& shared, const NodeId& node) {
  TRY(const auto found,
      db.query("SELECT DISTINCT run_id FROM instances WHERE node_id = ? AND is_closed = 0 "
               "ORDER BY run_id",
               node));
  for (const store::Row& row : found) {
    TRY_VOID(change_run(db, shared, RunId{row.text(0)}, {}));
  }
  return {};
}

Status reconcile_all(store::Db& db, const Shared& shared) {
  TRY_VOID(mark_lost_nodes(db, shared));
  TRY(const auto found, db.query(kOpenRuns));
  for (const store::Row& row : found) TRY_VOID(change_run(db, shared, RunId{row.text(0)}, {}));
  return stop_what_is_not_paid(db, shared);
}

}  // namespace anychip::server
