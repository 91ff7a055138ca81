// What agents ask for: their identity and what shall be on their node (contract §2).
#include <set>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/hash.h"
#include "server/auth.h"
#include "server/handlers.h"
#include "server/resolve.h"
#include "server/rows.h"

namespace anychip::server {
namespace {

constexpr int64_t kProtocol = 1;
constexpr int64_t kPidsMax = 4096;
constexpr std::string_view kMetrics = "/run/anychip/metrics.jsonl";
constexpr std::string_view kControl = "/run/anychip/control/control.json";
constexpr std::string_view kCheckpoints = "/checkpoints";

json::object environment_of(const Shared& shared, const fleet::Run& run,
                            const fleet::Instance& instance, int64_t leg_index) {
  std::map<std::string, std::string> variables;
  const fleet::Target& target = instance.target;
  const auto& catalog = shared.parts.catalog;
  if (const auto back_end = catalog.back_end(target.back_end)) {
    for (const auto& [name, text] : (*back_end)->environment) variables[name] = text;
  }
  if (const auto image = catalog.image(target.image)) {
    for (const auto& variant : (*image)->variants) {
      if (variant.id != target.variant) continue;
      for (const auto& [name, text] : variant.environment) variables[name] = text;
    }
  }
  for (const auto& [name, text] : run.environment) variables[name] = text;
  variables["ANYCHIP_BACKEND"] = target.back_end;
  variables["ANYCHIP_CHIP"] = target.chip;
  variables["ANYCHIP_COUNT"] = std::to_string(target.count);
  variables["ANYCHIP_RUN"] = run.name;
  variables["ANYCHIP_LEG"] = instance.leg.text;
  variables["ANYCHIP_LEG_INDEX"] = std::to_string(leg_index);
  variables["ANYCHIP_SIMULATED"] = target.is_simulated ? "1" : "0";
  variables["ANYCHIP_CKPT"] = kCheckpoints;
  variables["ANYCHIP_METRICS"] = kMetrics;
  variables["ANYCHIP_CONTROL"] = kControl;
  json::object view;
  for (const auto& [name, text] : variables) view[name] = text;
  return view;
}

Result<json::object> instance_spec(Call& call, const fleet::Instance& instance) {
  TRY(const auto run, rows::select_one<fleet::Run>(call.db, "id = ?", instance.run));
  if (!run) return fail(Code::kDataLoss, "run_missing", "an instance without its run");
  TRY(const auto leg, call.db.query_one("SELECT leg_index FROM legs WHERE id = ?", instance.leg));
  json::array command, devices, volumes;
  for (const std::string& word : command_for(run->command, instance.target.back_end)) {
    command.emplace_back(word);
  }
  for (const std::string& id : instance.device_ids) devices.emplace_back(id);
  if (!instance.checkpoint.empty()) {
    volumes.push_back(json::object{{"volume_id", instance.checkpoint.text},
                                   {"path", kCheckpoints},
                                   {"attach_generation", instance.attach_generation},
                                   {"read_only", false}});
  }
  return json::object{
      {"instance_id", instance.id.text},
      {"generation", instance.generation},
      {"run_id", instance.run.text},
      {"leg_id", instance.leg.text},
      {"desired", name_of(instance.desired)},
      {"image", instance.target.image},
      {"variant", instance.target.variant},
      {"digest", instance.target.digest},
      {"command", std::move(command)},
      {"environment", environment_of(call.shared, *run, instance, leg ? leg->integer(0) : 0)},
      {"cwd", "/workspace"},
      {"workdir_digest", text_or_null(run->workdir_digest)},
      {"system_disk", text_or_null(instance.system_disk.text)},
      {"volumes", std::move(volumes)},
      {"memory_bytes", run->memory_bytes},
      {"cpu_millis", 0},
      {"pids_max", kPidsMax},
      {"device_ids", std::move(devices)},
      {"stop_at_step", number_or_null(instance.stop_at_step)},
      {"stop_grace_ms", call.shared.options.limits.stop_grace.ms()}};
}

Result<json::object> desired_document(Call& call, int64_t version) {
  const NodeId& node = call.who.node;
  TRY(const auto instances,
      rows::select<fleet::Instance>(call.db, "node_id = ? AND is_closed = 0 ORDER BY id", node));
  TRY(const auto volumes,
      rows::select<fleet::Volume>(call.db, "node_id = ? AND state <> 'gone' ORDER BY id", node));
  TRY(const auto snapshots,
      rows::select<fleet::Snapshot>(call.db, "node_id = ? AND state <> 'gone' ORDER BY id", node));
  json::array image_list, volume_list, snapshot_list, instance_list;
  std::set<std::string> images;
  for (const fleet::Instance& instance : instances) {
    TRY(json::object spec, instance_spec(call, instance));
    instance_list.push_back(std::move(spec));
    const fleet::Target& target = instance.target;
    if (instance.desired >= fleet::Desired::kStop) continue;
    if (!images.insert(target.image + "/" + target.variant).second) continue;
    image_list.push_back(json::object{
        {"image", target.image}, {"variant", target.variant}, {"digest", target.digest}});
  }
  for (const fleet::Volume& volume : volumes) {
    volume_list.push_back(json::object{{"volume_id", volume.id.text},
                                       {"size_bytes", volume.size_bytes},
                                       {"from_snapshot", text_or_null(volume.from_snapshot.text)},
                                       {"desired", volume.is_wanted ? "present" : "gone"}});
  }
  for (const fleet::Snapshot& snapshot : snapshots) {
    snapshot_list.push_back(json::object{{"snapshot_id", snapshot.id.text},
                                         {"volume_id", snapshot.volume.text},
                                         {"desired", snapshot.is_wanted ? "present" : "gone"}});
  }
  return json::object{{"version", version},
                      {"node_id", node.text},
                      {"images", std::move(image_list)},
                      {"volumes", std::move(volume_list)},
                      {"snapshots", std::move(snapshot_list)},
                      {"instances", std::move(instance_list)}};
}

}  // namespace

Result<net::Outcome> enrol(Call& call) {
  TRY(const json::object body, body_of(call.request));
  TRY(const std::string join_token, json::get_string(body, "join_token"));
  TRY(const std::string name, json::get_string(body, "name"));
  TRY(const int64_t protocol, json::get_int(body, "protocol"));
  const Shared& shared = call.shared;
  if (shared.options.join_token.empty() ||
      !equal_in_constant_time(join_token, shared.options.join_token)) {
    return fail(Code::kUnauthenticated, "join_token_invalid", "the join token is not valid here",
                "it is in server/join.token of the server's data folder");
  }
  if (protocol != kProtocol) {
    return fail(Code::kFailedPrecondition, "protocol_unknown",
                fmt::format("the agent speaks protocol {}, this server {}", protocol, kProtocol),
                "install the same version on both");
  }
  if (name.empty() || name.size() > 100) {
    return fail(Code::kInvalidArgument, "name_invalid", "a node's name has 1 to 100 bytes");
  }
  const WallTime now = shared.now();
  const std::string key = make_secret(shared.parts.random);
  TRY(const auto known, call.db.query_one("SELECT id FROM nodes WHERE name = ?", name));
  const NodeId node = known ? NodeId{known->text(0)} : NodeId::make(now, shared.parts.random);
  FAILPOINT("server.node.enrol");
  TRY_VOID(call.db.execute(
      "INSERT INTO nodes(id, name, key_hash, state, boot_id, sequence, last_seen_at, ready_since, "
      "enrolled_at, desired_version, applied_version, pool_bytes, pool_free_bytes, "
      "instant_snapshot) "
      "VALUES(?, ?, ?, 'ready', '', 0, ?, ?, ?, 1, 0, 0, 0, 0) "
      "ON CONFLICT(id) DO UPDATE SET key_hash = excluded.key_hash, "
      "last_seen_at = excluded.last_seen_at",
      node, name, sha256_hex(key), now, now, now));
  return ok(json::object{{"node_id", node.text}, {"node_key", key}}, 201);
}

Result<net::Outcome> get_desired(Call& call) {
  TRY(const int64_t after, query_int(call.request, "after", 0, 0, INT64_MAX / 2));
  TRY(const int64_t wait_s, query_int(call.request, "wait_s", 20, 0, 60));
  TRY(const auto found,
      call.db.query_one("SELECT desired_version FROM nodes WHERE id = ?", call.who.node));
  const int64_t version = found ? found->integer(0) : 0;
  // A version from the future is one of a database that is no more: the whole state, at once.
  if (version != after) {
    TRY(const json::object document, desired_document(call, version));
    return ok(document);
  }
  if (call.is_last_try || wait_s == 0) return empty_answer();
  return net::Waiting{seconds(wait_s), empty_answer()};
}

}  // namespace anychip::server
