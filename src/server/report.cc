// What an agent saw, applied once: late, repeated and reordered reports change nothing.
#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "fleet/instance.h"
#include "server/handlers.h"
#include "server/reconcile.h"
#include "server/rows.h"

namespace anychip::server {
namespace {

// False when the report is not newer than what is known already.
Result<bool> is_news(store::Db& db, const NodeId& node, const std::string& boot, int64_t sequence) {
  TRY(const auto found, db.query_one("SELECT boot_id, sequence FROM nodes WHERE id = ?", node));
  if (!found) return false;
  if (found->text(0) == boot) return sequence > found->integer(1);
  TRY(const auto old,
      db.query_one("SELECT 1 FROM node_boots WHERE node_id = ? AND boot_id = ?", node, boot));
  return !old.has_value();  // a boot before the present one speaks no more
}

Status apply_node(store::Db& db, const Shared& shared, const NodeId& node,
                  const json::object& report) {
  const WallTime now = shared.now();
  const std::string boot = json::string_at(report, "boot_id");
  TRY_VOID(db.execute(
      "INSERT INTO node_boots(node_id, boot_id) VALUES(?, ?) ON CONFLICT DO NOTHING", node, boot));
  TRY(const auto before, db.query_one("SELECT state FROM nodes WHERE id = ?", node));
  const bool was_lost = before && before->text(0) != "ready";
  if (was_lost) log::info("server.node_returned", {{"node", node.text}});
  return db.execute(
      "UPDATE nodes SET state = 'ready', boot_id = ?, sequence = ?, last_seen_at = ?, ready_since "
      "= "
      "CASE WHEN state = 'ready' THEN ready_since ELSE ? END, applied_version = ?, pool_bytes = ?, "
      "pool_free_bytes = ?, instant_snapshot = ? WHERE id = ?",
      boot, json::int_at(report, "sequence"), now, now, json::int_at(report, "applied_version"),
      json::int_at(report, "pool_bytes"), json::int_at(report, "pool_free_bytes"),
      json::bool_at(report, "instant_snapshot"), node);
}

// The list of devices is whole: one that is not in it is gone.
Status apply_devices(store::Db& db, const NodeId& node, const json::object& report) {
  if (!report.contains("devices")) return {};
  TRY_VOID(
      db.execute("UPDATE devices SET is_healthy = 0, note = 'not reported any more' "
                 "WHERE node_id = ?",
                 node));
  for (const json::value& item : json::array_at(report, "devices")) {
    if (!item.is_object()) continue;
    const json::object& device = item.get_object();
    const std::string id = json::string_at(device, "id"), chip = json::string_at(device, "chip");
    if (id.empty()) continue;
    TRY_VOID(db.execute(
        "INSERT INTO devices(node_id, id, chip, is_healthy, note) VALUES(?, ?, ?, ?, ?) ON "
        "CONFLICT("
        "node_id, id) DO UPDATE SET chip = excluded.chip, is_healthy = excluded.is_healthy, "
        "note = excluded.note",
        node, id, chip, json::bool_at(device, "healthy") && !chip.empty(),
        json::string_at(device, "note")));
  }
  return {};
}

Status apply_images(store::Db& db, const NodeId& node, const json::object& report) {
  for (const json::value& item : json::array_at(report, "images")) {
    if (!item.is_object()) continue;
    const json::object& image = item.get_object();
    TRY_VOID(db.execute(
        "INSERT INTO node_images(node_id, image, variant, digest, is_ready, progress_percent, "
        "progress_text, error) VALUES(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(node_id, image, variant) "
        "DO UPDATE SET digest = excluded.digest, is_ready = excluded.is_ready, progress_percent = "
        "excluded.progress_percent, progress_text = excluded.progress_text, error = excluded.error",
        node, json::string_at(image, "image"), json::string_at(image, "variant"),
        json::string_at(image, "digest"), json::bool_at(image, "ready"),
        json::int_at(image, "progress_percent"), json::string_at(image, "progress_text"),
        json::string_at(image, "error")));
  }
  return {};
}

Status apply_volumes(store::Db& db, const NodeId& node, const json::object& report) {
  for (const json::value& item : json::array_at(report, "volumes")) {
    if (!item.is_object()) continue;
    const json::object& seen = item.get_object();
    TRY(auto volume, rows::select_one<fleet::Volume>(db, "id = ? AND node_id = ?",
                                                     json::string_at(seen, "volume_id"), node));
    fleet::VolumeState state{};
    if (!volume || !fleet::parse(json::string_at(seen, "state"), state)) continue;
    const fleet::Volume before = *volume;
    // "gone" of one that is still wanted is its not yet being there.
    if (state == fleet::VolumeState::kGone && volume->is_wanted) continue;
    volume->state = state;
    volume->used_bytes = json::int_at(seen, "used_bytes");
    volume->error = json::string_at(seen, "error");
    if (*volume == before) continue;
    TRY_VOID(rows::save(db, *volume));
    if (state == fleet::VolumeState::kGone) TRY_VOID(bump_desired(db, node));
  }
  return {};
}

Status apply_snapshots(store::Db& db, const NodeId& node, const json::object& report) {
  for (const json::value& item : json::array_at(report, "snapshots")) {
    if (!item.is_object()) continue;
    const json::object& seen = item.get_object();
    TRY(auto snapshot,
        rows::select_one<fleet::Snapshot>(db, "id = ? AND node_id = ?",
                                          json::string_at(seen, "snapshot_id"), node));
    fleet::SnapshotState state{};
    if (!snapshot || !fleet::parse(json::string_at(seen, "state"), state)) continue;
    const fleet::Snapshot before = *snapshot;
    if (state == fleet::SnapshotState::kGone && snapshot->is_wanted) continue;
    snapshot->state = state;
    snapshot->size_bytes = json::int_at(seen, "size_bytes");
    snapshot->freeze_us = json::int_at(seen, "freeze_us");
    snapshot->error = json::string_at(seen, "error");
    if (*snapshot == before) continue;
    TRY_VOID(rows::save(db, *snapshot));
    if (state == fleet::SnapshotState::kGone) TRY_VOID(bump_desired(db, node));
  }
  return {};
}

std::optional<int64_t> optional_int(const json::object& from, std::string_view key) {
  const json::value* found = from.if_contains(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  return json::int_at(from, key);
}

bool read_observation(const json::object& seen, fleet::Observation& into) {
  if (!fleet::parse(json::string_at(seen, "phase"), into.phase)) return false;
  into.generation = json::int_at(seen, "generation");
  into.exit_code = optional_int(seen, "exit_code");
  into.is_oom = json::bool_at(seen, "oom");
  into.is_supervisor_lost = json::bool_at(seen, "supervisor_lost");
  into.are_streams_sent = json::bool_at(seen, "streams_complete");
  into.ran_us = json::int_at(seen, "ran_us");
  into.stop_seen_ran_us = optional_int(seen, "stop_seen_ran_us");
  into.memory_peak_bytes = json::int_at(seen, "memory_peak_bytes");
  into.cpu_time_us = json::int_at(seen, "cpu_time_us");
  const json::object& error = json::object_at(seen, "error");
  into.error_reason = json::string_at(error, "reason");
  into.error_message = json::string_at(error, "message");
  return true;
}

Status apply_instances(store::Db& db, const Shared& shared, const NodeId& node,
                       const json::object& report) {
  for (const json::value& item : json::array_at(report, "instances")) {
    if (!item.is_object()) continue;
    const json::object& seen = item.get_object();
    TRY(auto instance,
        rows::select_one<fleet::Instance>(db, "id = ? AND node_id = ?",
                                          json::string_at(seen, "instance_id"), node));
    fleet::Observation observation;
    if (!instance || !read_observation(seen, observation)) continue;
    const fleet::Instance before = *instance;
    fleet::observe(*instance, observation, shared.now());
    if (*instance != before) TRY_VOID(rows::save(db, *instance));
  }
  return {};
}

}  // namespace

Result<net::Outcome> take_report(Call& call) {
  TRY(const json::object report, body_of(call.request));
  const NodeId& node = call.who.node;
  if (json::string_at(report, "node_id") != node.text) {
    return fail(Code::kPermissionDenied, "node_mismatch", "a node reports for itself only");
  }
  TRY(const int64_t sequence, json::get_int(report, "sequence"));
  TRY(const std::string boot, json::get_string(report, "boot_id"));
  TRY(const bool is_new, is_news(call.db, node, boot, sequence));
  if (is_new) {
    FAILPOINT("server.report.applying");
    TRY_VOID(apply_node(call.db, call.shared, node, report));
    TRY_VOID(apply_devices(call.db, node, report));
    TRY_VOID(apply_images(call.db, node, report));
    TRY_VOID(apply_volumes(call.db, node, report));
    TRY_VOID(apply_snapshots(call.db, node, report));
    TRY_VOID(apply_instances(call.db, call.shared, node, report));
    TRY_VOID(reconcile_node_runs(call.db, call.shared, node));
    FAILPOINT("server.report.applied");
  }
  TRY(const auto found, call.db.query_one("SELECT desired_version FROM nodes WHERE id = ?", node));
  return ok(json::object{{"version", found ? found->integer(0) : 0}});
}

}  // namespace anychip::server
