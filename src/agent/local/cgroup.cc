#include "agent/local/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <ctime>
#include <set>

#include <fmt/format.h>

#include "sys/mounts.h"

namespace anychip::agent {
namespace {

constexpr Duration kPause = milliseconds(2);

void sleep_for(Duration duration) {
  const timespec wait{duration.us / 1'000'000, duration.us % 1'000'000 * 1000};
  nanosleep(&wait, nullptr);
}

int64_t number_of(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "key number" lines: the number of `key`, 0 when it is not there.
int64_t field_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ') {
      return number_of(line.substr(key.size() + 1));
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return 0;
}

std::string text_or_empty(const std::string& path) { return sys::read_file(path).value_or(""); }

void collect_processes(const std::string& folder, std::set<pid_t>& into) {
  const std::string text = text_or_empty(folder + "/cgroup.procs");
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const int64_t pid = number_of(rest.substr(0, end));
    if (pid > 0) into.insert(static_cast<pid_t>(pid));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
}

Status remove_folders(const std::string& folder) {
  if (DIR* listing = opendir(folder.c_str()); listing != nullptr) {
    std::vector<std::string> below;
    while (const dirent* entry = readdir(listing)) {
      if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
        below.push_back(folder + "/" + entry->d_name);
      }
    }
    closedir(listing);
    for (const std::string& child : below) TRY_VOID(remove_folders(child));
  }
  // A cgroup whose last process has just gone can be busy for a moment.
  for (int tries = 0; rmdir(folder.c_str()) != 0; ++tries) {
    if (errno == ENOENT) break;
    if (errno != EBUSY || tries == 250) return fail_errno("rmdir " + folder, errno);
    sleep_for(kPause);
  }
  return {};
}

}  // namespace

Result<CgroupRoots> CgroupRoots::of_this_machine() {
  TRY(const auto table, sys::mount_table());
  CgroupRoots roots;
  std::string unified;
  for (const sys::MountEntry& entry : table) {
    if (entry.type == "cgroup2") unified = entry.target;
    if (entry.type != "cgroup" && entry.type != "cgroup2") continue;
    roots.all.push_back(entry.target);
    const std::string name = entry.target.substr(entry.target.rfind('/') + 1);
    const std::string names = "," + name + ",";  // "cpu,cpuacct"
    if (entry.type != "cgroup") continue;
    if (names.find(",memory,") != std::string::npos) roots.memory = entry.target;
    if (names.find(",cpuacct,") != std::string::npos) roots.cpuacct = entry.target;
    if (names.find(",pids,") != std::string::npos) roots.pids = entry.target;
  }
  if (roots.memory.empty() && !unified.empty()) {
    roots.is_unified = true;
    roots.memory = roots.cpuacct = roots.pids = unified;
  }
  if (roots.memory.empty() || roots.cpuacct.empty() || roots.pids.empty()) {
    return fail(Code::kFailedPrecondition, "cgroups_missing",
                "the memory, cpuacct and pids controllers are not mounted",
                "mount cgroup2 at /sys/fs/cgroup, or the cgroup v1 controllers below it");
  }
  return roots;
}

std::string Cgroups::container_path(const InstanceId& instance) const {
  return "/" + label_ + "/" + instance.text + "/container";
}

std::string Cgroups::folder(const std::string& root, const InstanceId& instance) const {
  return root + "/" + label_ + "/" + instance.text;
}

std::string Cgroups::folder(const std::string& root, const InstanceId& instance,
                            CgroupPart part) const {
  return folder(root, instance) + (part == CgroupPart::kContainer ? "/container" : "/supervisor");
}

Result<std::vector<sys::Fd>> Cgroups::open_supervisor(const InstanceId& instance) const {
  std::vector<std::string> wanted{roots_.pids};
  if (roots_.memory != roots_.pids) wanted.push_back(roots_.memory);
  std::vector<sys::Fd> opened;
  for (const std::string& root : wanted) {
    const std::string path = folder(root, instance, CgroupPart::kSupervisor);
    TRY_VOID(sys::make_folders(path));
    TRY(sys::Fd file, sys::open_file(path + "/cgroup.procs", O_WRONLY));
    opened.push_back(std::move(file));
  }
  return opened;
}

std::vector<pid_t> Cgroups::processes(const InstanceId& instance, CgroupPart part) const {
  std::set<pid_t> found;
  for (const std::string& root : roots_.all) collect_processes(folder(root, instance, part), found);
  return {found.begin(), found.end()};
}

bool Cgroups::holds(const InstanceId& instance, CgroupPart part, pid_t pid) const {
  std::set<pid_t> found;
  collect_processes(folder(roots_.pids, instance, part), found);
  return found.contains(pid);
}

Status Cgroups::kill_all(const InstanceId& instance, CgroupPart part, Duration patience) const {
  for (Duration waited; ; waited = waited + kPause) {
    const std::vector<pid_t> left = processes(instance, part);
    if (left.empty()) return {};
    if (waited >= patience) {
      return fail(Code::kUnavailable, "processes_left",
                  fmt::format("{} processes of {} are still there after SIGKILL", left.size(),
                              instance.text),
                  "a process in an uninterruptible wait ends with its I/O; try again");
    }
    // Read and killed within microseconds; pids are reused only after a whole round of pid_max.
    for (const pid_t pid : left) kill(pid, SIGKILL);
    sleep_for(kPause);
  }
}

bool Cgroups::wait_empty(const InstanceId& instance, CgroupPart part, Duration patience) const {
  for (Duration waited; waited < patience; waited = waited + kPause) {
    if (processes(instance, part).empty()) return true;
    sleep_for(kPause);
  }
  return processes(instance, part).empty();
}

CgroupUsage Cgroups::usage(const InstanceId& instance) const {
  CgroupUsage usage;
  const std::string memory = folder(roots_.memory, instance, CgroupPart::kContainer);
  const std::string cpu = folder(roots_.cpuacct, instance, CgroupPart::kContainer);
  const std::string stat = text_or_empty(memory + "/memory.stat");
  if (stat.empty()) return usage;
  usage.is_known = true;
  if (roots_.is_unified) {
    usage.memory_bytes = field_of(stat, "anon") + field_of(stat, "shmem") + field_of(stat, "kernel");
    usage.cpu_time_us = field_of(text_or_empty(cpu + "/cpu.stat"), "usage_usec");
    usage.oom_kills = field_of(text_or_empty(memory + "/memory.events"), "oom_kill");
  } else {
    usage.memory_bytes = field_of(stat, "total_rss") + field_of(stat, "total_shmem");
    usage.cpu_time_us = number_of(text_or_empty(cpu + "/cpuacct.usage")) / 1000;
    usage.oom_kills = field_of(text_or_empty(memory + "/memory.oom_control"), "oom_kill");
  }
  return usage;
}

Status Cgroups::remove(const InstanceId& instance) const {
  for (const std::string& root : roots_.all) TRY_VOID(remove_folders(folder(root, instance)));
  return {};
}

std::vector<InstanceId> Cgroups::instances() const {
  std::set<InstanceId> found;
  for (const std::string& root : roots_.all) {
    const std::string path = root + "/" + label_;
    DIR* listing = opendir(path.c_str());
    if (listing == nullptr) continue;
    while (const dirent* entry = readdir(listing)) {
      if (entry->d_type == DT_DIR && entry->d_name[0] != '.') found.insert(InstanceId{entry->d_name});
    }
    closedir(listing);
  }
  return {found.begin(), found.end()};
}

void Cgroups::remove_label() const {
  for (const std::string& root : roots_.all) rmdir((root + "/" + label_).c_str());
}

}  // namespace anychip::agent
