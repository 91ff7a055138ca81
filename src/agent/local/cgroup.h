// The cgroups of one data folder: /<label>/<instance>/{container,supervisor} in every hierarchy.
// runc makes `container`; conmon is born in `supervisor` (so a kill of us at any instant leaves no
// process that cannot be found). cgroup v1 (one hierarchy per controller) and v2 (one in all).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"
#include "sys/files.h"

namespace anychip::agent {

struct CgroupUsage {
  int64_t memory_bytes = 0;  // without the page cache of files
  int64_t cpu_time_us = 0;
  int64_t oom_kills = 0;
  bool is_known = false;     // false: the cgroup is gone
};

// Where the hierarchies are mounted.
struct CgroupRoots {
  std::vector<std::string> all;
  std::string memory, cpuacct, pids;  // v2: the same folder three times
  bool is_unified = false;
  static Result<CgroupRoots> of_this_machine();
};

enum class CgroupPart { kContainer, kSupervisor };

class Cgroups {
 public:
  Cgroups(CgroupRoots roots, std::string label) : roots_(std::move(roots)), label_(std::move(label)) {}

  std::string container_path(const InstanceId& instance) const;  // as config.json wants it
  // Made if absent; a process that writes "0" to each descriptor is in it.
  Result<std::vector<sys::Fd>> open_supervisor(const InstanceId& instance) const;
  // Of all hierarchies together (a process enters them one after the other).
  std::vector<pid_t> processes(const InstanceId& instance, CgroupPart part) const;
  bool holds(const InstanceId& instance, CgroupPart part, pid_t pid) const;
  // SIGKILL until nothing is left; "processes_left" when something still lives after `patience`.
  Status kill_all(const InstanceId& instance, CgroupPart part, Duration patience) const;
  bool wait_empty(const InstanceId& instance, CgroupPart part, Duration patience) const;
  CgroupUsage usage(const InstanceId& instance) const;
  Status remove(const InstanceId& instance) const;  // all of its empty cgroups; absent = done
  std::vector<InstanceId> instances() const;        // that have any cgroup under our label
  void remove_label() const;                        // the label's own folders, when empty

 private:
  std::string folder(const std::string& root, const InstanceId& instance) const;
  std::string folder(const std::string& root, const InstanceId& instance, CgroupPart part) const;

  CgroupRoots roots_;
  std::string label_;
};

}  // namespace anychip::agent
