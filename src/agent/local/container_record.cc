#include "agent/local/container_record.h"

#include <array>

#include "base/json.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

constexpr int64_t kFormat = 1;
constexpr std::array<std::string_view, 7> kStepNames = {"preparing", "created", "started", "exited",
                                                        "removing", "removed", "failed"};

json::array strings(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

std::vector<std::string> strings_of(const json::array& array) {
  std::vector<std::string> texts;
  for (const json::value& item : array) {
    if (item.is_string()) texts.emplace_back(item.get_string());
  }
  return texts;
}

Result<json::object> load_object(const std::string& path) {
  TRY(const std::string text, sys::read_file(path, 4 << 20));
  TRY(json::value root, json::parse(text));
  if (!root.is_object() || json::int_at(root.get_object(), "format") != kFormat) {
    return fail(Code::kDataLoss, "record_malformed", path + " is not a record of format 1");
  }
  return std::move(root.get_object());
}

std::string text_of(const ContainerStatus& status) {
  json::object to;
  to["format"] = kFormat;
  to["step"] = kStepNames[static_cast<size_t>(status.step)];
  to["generation"] = status.generation;
  to["boot_id"] = status.boot_id;
  to["first_host_id"] = status.first_host_id;
  to["started_us"] = status.started_us;
  to["ended_us"] = status.ended_us;
  to["last_seen_us"] = status.last_seen_us;
  to["exit_code"] = status.exit_code;
  to["oom"] = status.is_oom;
  to["supervisor_lost"] = status.is_supervisor_lost;
  to["memory_peak_bytes"] = status.memory_peak_bytes;
  to["cpu_time_us"] = status.cpu_time_us;
  return json::serialize(to) + "\n";
}

}  // namespace

Status save_spec(const InstancePaths& paths, const ContainerSpec& spec) {
  json::object to;
  to["format"] = kFormat;
  to["instance_id"] = spec.instance.text;
  to["generation"] = spec.generation;
  to["image"] = spec.image;
  to["variant"] = spec.variant;
  to["digest"] = spec.digest;
  to["system_disk"] = spec.system_disk.text;
  to["workdir_path"] = spec.workdir_path;
  to["workdir_digest"] = spec.workdir_digest;
  json::array volumes;
  for (const VolumeMount& mount : spec.volumes) {
    volumes.emplace_back(json::object{{"volume_id", mount.volume.text},
                                      {"path", mount.path},
                                      {"attach_generation", mount.attach_generation},
                                      {"read_only", mount.is_read_only}});
  }
  to["volumes"] = std::move(volumes);
  to["command"] = strings(spec.command);
  json::object environment;
  for (const auto& [name, text] : spec.environment) environment[name] = text;
  to["environment"] = std::move(environment);
  to["cwd"] = spec.cwd;
  to["memory_bytes"] = spec.memory_bytes;
  to["cpu_millis"] = spec.cpu_millis;
  to["pids_max"] = spec.pids_max;
  to["device_ids"] = strings(spec.device_ids);
  // 0600: the environment may carry a project's secrets.
  return sys::write_file_durable(paths.spec, json::serialize(to) + "\n", 0600);
}

Result<ContainerSpec> load_spec(const InstancePaths& paths) {
  TRY(const json::object from, load_object(paths.spec));
  ContainerSpec spec;
  spec.instance.text = json::string_at(from, "instance_id");
  spec.generation = json::int_at(from, "generation");
  spec.image = json::string_at(from, "image");
  spec.variant = json::string_at(from, "variant");
  spec.digest = json::string_at(from, "digest");
  spec.system_disk.text = json::string_at(from, "system_disk");
  spec.workdir_path = json::string_at(from, "workdir_path");
  spec.workdir_digest = json::string_at(from, "workdir_digest");
  for (const json::value& item : json::array_at(from, "volumes")) {
    if (!item.is_object()) continue;
    const json::object& mount = item.get_object();
    spec.volumes.push_back({VolumeId{json::string_at(mount, "volume_id")},
                            json::string_at(mount, "path"),
                            json::int_at(mount, "attach_generation"),
                            json::bool_at(mount, "read_only")});
  }
  spec.command = strings_of(json::array_at(from, "command"));
  for (const auto& [name, text] : json::object_at(from, "environment")) {
    if (text.is_string()) spec.environment.emplace(name, text.get_string());
  }
  spec.cwd = json::string_at(from, "cwd");
  spec.memory_bytes = json::int_at(from, "memory_bytes");
  spec.cpu_millis = json::int_at(from, "cpu_millis");
  spec.pids_max = json::int_at(from, "pids_max");
  spec.device_ids = strings_of(json::array_at(from, "device_ids"));
  return spec;
}

Status save_status(const InstancePaths& paths, const ContainerStatus& status) {
  return sys::write_file_durable(paths.status, text_of(status), 0600);
}

Status note_status(const InstancePaths& paths, const ContainerStatus& status) {
  return sys::write_file_atomic(paths.status, text_of(status), 0600);
}

Result<ContainerStatus> load_status(const InstancePaths& paths) {
  TRY(const json::object from, load_object(paths.status));
  ContainerStatus status;
  const std::string step = json::string_at(from, "step");
  size_t index = 0;
  while (index < kStepNames.size() && kStepNames[index] != step) ++index;
  if (index == kStepNames.size()) {
    return fail(Code::kDataLoss, "record_malformed", paths.status + ": step '" + step + "'");
  }
  status.step = static_cast<ContainerStep>(index);
  status.generation = json::int_at(from, "generation");
  status.boot_id = json::string_at(from, "boot_id");
  status.first_host_id = static_cast<uint32_t>(json::int_at(from, "first_host_id"));
  status.started_us = json::int_at(from, "started_us");
  status.ended_us = json::int_at(from, "ended_us");
  status.last_seen_us = json::int_at(from, "last_seen_us");
  status.exit_code = static_cast<int>(json::int_at(from, "exit_code"));
  status.is_oom = json::bool_at(from, "oom");
  status.is_supervisor_lost = json::bool_at(from, "supervisor_lost");
  status.memory_peak_bytes = json::int_at(from, "memory_peak_bytes");
  status.cpu_time_us = json::int_at(from, "cpu_time_us");
  return status;
}

}  // namespace anychip::agent
