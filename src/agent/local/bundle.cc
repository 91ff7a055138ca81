#include "agent/local/bundle.h"

#include <algorithm>
#include <map>

namespace anychip::agent {
namespace {

constexpr int64_t kMinShmBytes = 64ll << 20;
constexpr int64_t kUnlimitedShmBytes = 8ll << 30;
constexpr int64_t kOpenFilesWanted = 1 << 20;
constexpr int64_t kCpuPeriodUs = 100'000;
constexpr int64_t kIds = 65536;

json::array strings(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

json::object mount_of(const char* destination, const char* type, const char* source,
                      const std::vector<std::string>& options) {
  return {{"destination", destination}, {"type", type}, {"source", source}, {"options", strings(options)}};
}

json::array mounts_of(const BundleInput& input) {
  // Shared memory (data loaders, gloo) counts as the container's memory, so half of it is no gift.
  const int64_t shm = input.spec.memory_bytes > 0
                          ? std::max(input.spec.memory_bytes / 2, kMinShmBytes)
                          : kUnlimitedShmBytes;
  json::array mounts{
      mount_of("/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}),
      mount_of("/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"}),
      mount_of("/dev/pts", "devpts", "devpts",
               {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}),
      mount_of("/dev/shm", "tmpfs", "shm",
               {"nosuid", "noexec", "nodev", "mode=1777", "size=" + std::to_string(shm)}),
      mount_of("/dev/mqueue", "mqueue", "mqueue", {"nosuid", "noexec", "nodev"}),
      mount_of("/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"}),
      mount_of("/sys/fs/cgroup", "cgroup", "cgroup",
               {"nosuid", "noexec", "nodev", "relatime", "ro"})};
  for (const BundleMount& mount : input.mounts) {
    mounts.emplace_back(mount_of(mount.destination.c_str(), "bind", mount.source.c_str(),
                                 {"rbind", "rprivate", "nosuid", "nodev",
                                  mount.is_read_only ? "ro" : "rw"}));
  }
  return mounts;
}

json::array environment_of(const BundleInput& input) {
  std::map<std::string, std::string> variables{
      {"PATH",
       "/opt/anychip/env/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"PYTHONPATH", "/opt/anychip/env"},
      {"HOME", "/root"},
      {"LANG", "C.UTF-8"},
      {"PYTHONUNBUFFERED", "1"},  // else a log is seen 8 KiB at a time
      {"ANYCHIP_METRICS", "/run/anychip/metrics.jsonl"},
      {"ANYCHIP_CONTROL", "/run/anychip/control/control.json"}};
  for (const auto& [name, text] : input.image_environment) variables[name] = text;
  for (const auto& [name, text] : input.spec.environment) variables[name] = text;
  json::array environment;
  for (const auto& [name, text] : variables) environment.emplace_back(name + "=" + text);
  return environment;
}

json::object process_of(const BundleInput& input) {
  const json::array capabilities = strings(bundle_capabilities());
  const int64_t files = std::min(input.open_files_max, kOpenFilesWanted);
  return {{"terminal", false},
          {"user", {{"uid", 0}, {"gid", 0}}},
          {"args", strings(input.spec.command)},
          {"env", environment_of(input)},
          {"cwd", input.spec.cwd},
          {"noNewPrivileges", true},
          {"oomScoreAdj", 500},  // when the host is short of memory, tenants go before the agent
          {"capabilities",
           {{"bounding", capabilities}, {"effective", capabilities}, {"permitted", capabilities}}},
          {"rlimits", json::array{
               json::object{{"type", "RLIMIT_NOFILE"}, {"soft", files}, {"hard", files}},
               json::object{{"type", "RLIMIT_CORE"}, {"soft", 0}, {"hard", 0}}}}};
}

json::object resources_of(const BundleInput& input) {
  json::array devices{json::object{{"allow", false}, {"access", "rwm"}}};  // runc adds the usual six
  for (const BundleDevice& device : input.devices) {
    devices.emplace_back(json::object{{"allow", true}, {"type", device.is_block ? "b" : "c"},
                                      {"major", device.major}, {"minor", device.minor},
                                      {"access", "rw"}});
  }
  json::object resources{{"devices", std::move(devices)}};
  if (input.spec.memory_bytes > 0) {
    // The same limit for memory and swap together: no swapping around the limit.
    resources["memory"] = {{"limit", input.spec.memory_bytes}, {"swap", input.spec.memory_bytes}};
  }
  if (input.spec.cpu_millis > 0) {
    resources["cpu"] = {{"quota", input.spec.cpu_millis * kCpuPeriodUs / 1000},
                        {"period", kCpuPeriodUs}};
  }
  if (input.spec.pids_max > 0) resources["pids"] = {{"limit", input.spec.pids_max}};
  return resources;
}

json::object linux_of(const BundleInput& input) {
  json::array namespaces;
  for (const char* type : {"pid", "mount", "ipc", "uts", "network", "user", "cgroup"}) {
    namespaces.emplace_back(json::object{{"type", type}});
  }
  const json::array ids{json::object{
      {"containerID", 0}, {"hostID", input.first_host_id}, {"size", kIds}}};
  json::array devices;
  for (const BundleDevice& device : input.devices) {
    devices.emplace_back(json::object{{"path", device.path}, {"type", device.is_block ? "b" : "c"},
                                      {"major", device.major}, {"minor", device.minor},
                                      {"fileMode", 0666}, {"uid", 0}, {"gid", 0}});
  }
  json::object part{
      {"namespaces", std::move(namespaces)},
      {"uidMappings", ids},
      {"gidMappings", ids},
      {"cgroupsPath", input.cgroup_path},
      {"resources", resources_of(input)},
      {"maskedPaths",
       strings({"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
                "/proc/kallsyms", "/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing",
                "/sys/devices/virtual/powercap"})},
      {"readonlyPaths",
       strings({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})}};
  if (!devices.empty()) part["devices"] = std::move(devices);
  if (!input.seccomp.empty()) part["seccomp"] = input.seccomp;
  return part;
}

std::string host_name_of(const InstanceId& instance) {
  std::string name = instance.text;  // a host name has no underscore
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

const std::vector<std::string>& bundle_capabilities() {
  // What package managers and plain services need of "root", inside the user namespace only.
  static const std::vector<std::string> kCapabilities = {
      "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID",
      "CAP_KILL",  "CAP_SETGID",       "CAP_SETUID", "CAP_NET_BIND_SERVICE"};
  return kCapabilities;
}

std::string bundle_hosts_file(const InstanceId& instance) {
  return "127.0.0.1 localhost " + host_name_of(instance) + "\n::1 localhost ip6-localhost\n";
}

std::string bundle_config(const BundleInput& input) {
  const json::object config{{"ociVersion", "1.0.2"},
                            {"hostname", host_name_of(input.spec.instance)},
                            {"process", process_of(input)},
                            {"root", {{"path", input.rootfs}, {"readonly", false}}},
                            {"mounts", mounts_of(input)},
                            {"linux", linux_of(input)}};
  return json::serialize(config) + "\n";
}

}  // namespace anychip::agent
