#include "agent/desired.h"

#include "base/json.h"

namespace anychip::agent {
namespace {

Result<bool> is_gone(const json::object& from) {
  TRY(const std::string word, json::get_string(from, "desired"));
  if (word == "gone") return true;
  if (word == "present") return false;
  return fail(Code::kInvalidArgument, "desired_unknown", "desired '" + word + "' is not known");
}

Result<Want> want_of(const std::string& word) {
  if (word == "prepare") return Want::kPrepare;
  if (word == "run") return Want::kRun;
  if (word == "stop") return Want::kStop;
  if (word == "gone") return Want::kGone;
  return fail(Code::kInvalidArgument, "desired_unknown", "desired '" + word + "' is not known");
}

std::vector<std::string> strings(const json::array& from) {
  std::vector<std::string> texts;
  for (const json::value& item : from) {
    if (item.is_string()) texts.emplace_back(item.get_string());
  }
  return texts;
}

Result<ContainerSpec> parse_spec(const json::object& from) {
  ContainerSpec spec;
  TRY(spec.instance.text, json::get_string(from, "instance_id"));
  TRY(spec.generation, json::get_int(from, "generation"));
  TRY(spec.image, json::get_string(from, "image"));
  TRY(spec.variant, json::get_string(from, "variant"));
  TRY(spec.digest, json::get_string(from, "digest"));
  TRY(spec.system_disk.text, json::get_string_or(from, "system_disk", ""));
  TRY(spec.workdir_digest, json::get_string_or(from, "workdir_digest", ""));
  TRY(spec.cwd, json::get_string_or(from, "cwd", "/workspace"));
  TRY(spec.memory_bytes, json::get_int_or(from, "memory_bytes", 0));
  TRY(spec.cpu_millis, json::get_int_or(from, "cpu_millis", 0));
  TRY(spec.pids_max, json::get_int_or(from, "pids_max", 4096));
  spec.command = strings(json::array_at(from, "command"));
  spec.device_ids = strings(json::array_at(from, "device_ids"));
  for (const auto& [name, text] : json::object_at(from, "environment")) {
    if (text.is_string()) spec.environment.emplace(name, text.get_string());
  }
  for (const json::value& item : json::array_at(from, "volumes")) {
    if (!item.is_object()) continue;
    const json::object& mount = item.get_object();
    VolumeMount volume;
    TRY(volume.volume.text, json::get_string(mount, "volume_id"));
    TRY(volume.path, json::get_string(mount, "path"));
    TRY(volume.attach_generation, json::get_int_or(mount, "attach_generation", 0));
    TRY(volume.is_read_only, json::get_bool_or(mount, "read_only", false));
    spec.volumes.push_back(std::move(volume));
  }
  return spec;
}

Result<WantedInstance> parse_instance(const json::object& from) {
  WantedInstance wanted;
  TRY(wanted.leg_id, json::get_string(from, "leg_id"));
  TRY(const std::string word, json::get_string(from, "desired"));
  TRY(wanted.want, want_of(word));
  TRY(wanted.spec, parse_spec(from));
  if (const auto* step = from.if_contains("stop_at_step"); step != nullptr && !step->is_null()) {
    TRY(wanted.stop_at_step, json::get_int(from, "stop_at_step"));
  }
  TRY(const int64_t grace_ms, json::get_int_or(from, "stop_grace_ms", 120'000));
  wanted.stop_grace = milliseconds(grace_ms);
  return wanted;
}

Result<WantedVolume> parse_volume(const json::object& from) {
  WantedVolume wanted;
  TRY(wanted.volume.volume.text, json::get_string(from, "volume_id"));
  TRY(wanted.volume.size_bytes, json::get_int_or(from, "size_bytes", 0));
  TRY(wanted.volume.from_snapshot.text, json::get_string_or(from, "from_snapshot", ""));
  TRY(wanted.is_gone, is_gone(from));
  return wanted;
}

Result<WantedSnapshot> parse_snapshot(const json::object& from) {
  WantedSnapshot wanted;
  TRY(wanted.snapshot.snapshot.text, json::get_string(from, "snapshot_id"));
  TRY(wanted.snapshot.volume.text, json::get_string_or(from, "volume_id", ""));
  TRY(wanted.is_gone, is_gone(from));
  return wanted;
}

Result<WantedImage> parse_image(const json::object& from) {
  WantedImage wanted;
  TRY(wanted.image, json::get_string(from, "image"));
  TRY(wanted.variant, json::get_string(from, "variant"));
  TRY(wanted.digest, json::get_string(from, "digest"));
  return wanted;
}

template <class T>
Status parse_list(const json::object& from, std::string_view key, std::vector<T>& into,
                  Result<T> (*parse_one)(const json::object&)) {
  for (const json::value& item : json::array_at(from, key)) {
    if (!item.is_object()) {
      return fail(Code::kInvalidArgument, "desired_malformed", std::string(key) + " holds no object");
    }
    TRY(T one, parse_one(item.get_object()));
    into.push_back(std::move(one));
  }
  return {};
}

}  // namespace

const WantedInstance* Desired::find(const InstanceId& instance) const {
  for (const WantedInstance& wanted : instances) {
    if (wanted.spec.instance == instance) return &wanted;
  }
  return nullptr;
}

Result<Desired> parse_desired(std::string_view text) {
  TRY(const json::value root, json::parse(text));
  if (!root.is_object()) {
    return fail(Code::kInvalidArgument, "desired_malformed", "the desired state is no object");
  }
  const json::object& from = root.get_object();
  Desired desired;
  TRY(desired.version, json::get_int(from, "version"));
  TRY(desired.node_id, json::get_string(from, "node_id"));
  TRY_VOID(parse_list(from, "images", desired.images, parse_image));
  TRY_VOID(parse_list(from, "volumes", desired.volumes, parse_volume));
  TRY_VOID(parse_list(from, "snapshots", desired.snapshots, parse_snapshot));
  TRY_VOID(parse_list(from, "instances", desired.instances, parse_instance));
  return desired;
}

}  // namespace anychip::agent
