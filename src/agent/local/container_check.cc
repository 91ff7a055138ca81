#include <set>

#include <fmt/format.h>

#include "agent/local/container.h"

namespace anychip::agent {
namespace {

constexpr int64_t kMemoryMinBytes = 16ll << 20;  // runc's own init needs some of it
constexpr std::string_view kReserved[] = {"/proc", "/sys", "/dev", "/run/anychip", "/opt/anychip",
                                          "/workspace"};

bool is_clean_absolute(std::string_view path) {
  if (path.size() < 2 || path.front() != '/' || path.back() == '/') return false;
  if (path.find('\0') != std::string_view::npos || path.find("//") != std::string_view::npos) return false;
  const std::string slashed = std::string(path) + "/";
  return slashed.find("/./") == std::string::npos && slashed.find("/../") == std::string::npos;
}

bool is_within(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

void check_volumes(const ContainerSpec& spec, std::vector<FieldError>& problems) {
  for (size_t i = 0; i < spec.volumes.size(); ++i) {
    const std::string& path = spec.volumes[i].path;
    const std::string pointer = fmt::format("/volumes/{}/path", i);
    if (!is_clean_absolute(path)) {
      problems.push_back({pointer, "'" + path + "' is not an absolute path without '.', '..', '//'"});
      continue;
    }
    for (const std::string_view reserved : kReserved) {
      if (is_within(path, reserved) || is_within(reserved, path)) {
        problems.push_back({pointer, fmt::format("{} is kept for {}", path, reserved)});
      }
    }
    for (size_t other = 0; other < i; ++other) {
      if (spec.volumes[other].path == path) problems.push_back({pointer, path + " is used twice"});
      if (spec.volumes[other].volume == spec.volumes[i].volume) {
        problems.push_back({pointer, spec.volumes[i].volume.text + " is mounted twice"});
      }
    }
    if (spec.volumes[i].volume == spec.system_disk) {
      problems.push_back({pointer, "the system disk is no volume"});
    }
  }
}

}  // namespace

Status check_container_spec(const ContainerSpec& spec) {
  std::vector<FieldError> problems;
  if (!InstanceId::parse(spec.instance.text)) {
    problems.push_back({"/instance_id", "'" + spec.instance.text + "' is not an instance id"});
  }
  if (spec.system_disk.empty()) problems.push_back({"/system_disk", "a container needs one"});
  if (spec.command.empty() || spec.command.front().empty()) {
    problems.push_back({"/command", "is empty"});
  }
  for (const std::string& word : spec.command) {
    if (word.find('\0') != std::string::npos) problems.push_back({"/command", "holds a zero byte"});
  }
  if (spec.cwd != "/" && !is_clean_absolute(spec.cwd)) {
    problems.push_back({"/cwd", "'" + spec.cwd + "' is not an absolute path"});
  }
  for (const auto& [name, text] : spec.environment) {
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos ||
        text.find('\0') != std::string::npos) {
      problems.push_back({"/environment", "'" + name + "' is no variable name, or its text is binary"});
    }
  }
  if (spec.memory_bytes < 0 || (spec.memory_bytes > 0 && spec.memory_bytes < kMemoryMinBytes)) {
    problems.push_back({"/memory_bytes", fmt::format("is less than {} MiB", kMemoryMinBytes >> 20)});
  }
  if (spec.cpu_millis < 0 || (spec.cpu_millis > 0 && spec.cpu_millis < 10)) {
    problems.push_back({"/cpu_millis", "is less than 10"});
  }
  check_volumes(spec, problems);
  if (problems.empty()) return {};
  Error error{Code::kInvalidArgument, "container_spec_invalid",
              problems.front().pointer + " " + problems.front().message, {}, {}};
  error.fields = std::move(problems);
  return tl::unexpected(std::move(error));
}

}  // namespace anychip::agent
