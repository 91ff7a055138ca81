#include "agent/local/pool_record.h"

#include "base/json.h"

namespace anychip::agent {
namespace {

constexpr int64_t kFormat = 1;

std::string_view name_of(RecordState state) {
  switch (state) {
    case RecordState::kCreating: return "creating";
    case RecordState::kReady: return "ready";
    case RecordState::kRemoving: return "removing";
  }
  return "creating";
}

Result<RecordState> parse_state(const std::string& text) {
  for (const RecordState state :
       {RecordState::kCreating, RecordState::kReady, RecordState::kRemoving}) {
    if (name_of(state) == text) return state;
  }
  return fail(Code::kDataLoss, "sidecar_malformed", "unknown state '" + text + "'");
}

Result<json::object> parse_object(std::string_view text) {
  TRY(auto value, json::parse(text));
  if (!value.is_object()) return fail(Code::kDataLoss, "sidecar_malformed", "not an object");
  json::object object = std::move(value.as_object());
  TRY(const int64_t format, json::get_int(object, "format"));
  if (format != kFormat) {
    return fail(Code::kUnimplemented, "sidecar_newer",
                "written by a newer version of this program");
  }
  return object;
}

}  // namespace

PoolLayout::PoolLayout(const std::string& data_folder)
    : agent(data_folder + "/agent"),
      lock_file(agent + "/pool.lock"),
      backing(agent + "/pool.img"),
      pool(agent + "/pool"),
      volumes(pool + "/volumes"),
      snapshots(pool + "/snapshots"),
      templates(pool + "/templates"),
      mounts(agent + "/mounts") {}

std::string to_json_text(const VolumeRecord& record) {
  json::array holders;
  for (const InstanceId& holder : record.holders) holders.emplace_back(holder.text);
  return json::serialize(json::object{{"format", kFormat},
                                      {"volume", record.volume.text},
                                      {"state", name_of(record.state)},
                                      {"size_bytes", record.size_bytes},
                                      {"needs_grow", record.needs_grow},
                                      {"from_snapshot", record.from_snapshot.text},
                                      {"attach_generation", record.attach_generation},
                                      {"attached_to", std::move(holders)}}) +
         "\n";
}

std::string to_json_text(const SnapshotRecord& record) {
  return json::serialize(json::object{{"format", kFormat},
                                      {"snapshot", record.snapshot.text},
                                      {"volume", record.volume.text},
                                      {"state", name_of(record.state)},
                                      {"size_bytes", record.size_bytes},
                                      {"flush_us", record.flush_us},
                                      {"freeze_us", record.freeze_us}}) +
         "\n";
}

Result<VolumeRecord> parse_volume_record(std::string_view text) {
  TRY(const json::object object, parse_object(text));
  VolumeRecord record;
  TRY(record.volume.text, json::get_string(object, "volume"));
  TRY(const std::string state, json::get_string(object, "state"));
  TRY(record.state, parse_state(state));
  TRY(record.size_bytes, json::get_int(object, "size_bytes"));
  TRY(record.attach_generation, json::get_int(object, "attach_generation"));
  record.needs_grow = json::bool_at(object, "needs_grow");
  record.from_snapshot.text = json::string_at(object, "from_snapshot");
  for (const json::value& holder : json::array_at(object, "attached_to")) {
    if (holder.is_string()) record.holders.push_back(InstanceId{std::string(holder.as_string())});
  }
  return record;
}

Result<SnapshotRecord> parse_snapshot_record(std::string_view text) {
  TRY(const json::object object, parse_object(text));
  SnapshotRecord record;
  TRY(record.snapshot.text, json::get_string(object, "snapshot"));
  TRY(record.volume.text, json::get_string(object, "volume"));
  TRY(const std::string state, json::get_string(object, "state"));
  TRY(record.state, parse_state(state));
  TRY(record.size_bytes, json::get_int(object, "size_bytes"));
  record.flush_us = json::int_at(object, "flush_us");
  record.freeze_us = json::int_at(object, "freeze_us");
  return record;
}

}  // namespace anychip::agent
