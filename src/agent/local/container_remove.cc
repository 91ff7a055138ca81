#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agent/local/container.h"
#include "agent/local/container_mounts.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

constexpr Duration kKillPatience = seconds(10);
constexpr Duration kConmonPatience = seconds(2);  // to write the exit code and the last log lines
constexpr int64_t kMetricsBytesMax = 64ll << 20;
constexpr int64_t kCopyBytes = 1 << 20;

}  // namespace

Status Container::kill_everything() {
  TRY_VOID(parts_.cgroups.kill_all(instance_, CgroupPart::kContainer, kKillPatience));
  FAILPOINT("container.killed");
  bool has_begun = false;
  {
    const std::lock_guard lock(mutex_);
    has_begun = status_.started_us != 0;
  }
  if (has_begun) parts_.cgroups.wait_empty(instance_, CgroupPart::kSupervisor, kConmonPatience);
  TRY_VOID(parts_.cgroups.kill_all(instance_, CgroupPart::kSupervisor, kKillPatience));
  // A runc create that was still running may have put a process into the container meanwhile; now
  // that the supervisor's cgroup is empty nobody can any more.
  return parts_.cgroups.kill_all(instance_, CgroupPart::kContainer, kKillPatience);
}

Status Container::unmount_everything() {
  TRY_VOID(unmount_below(paths_.run));
  std::vector<std::string> folders{paths_.run};
  {
    const std::lock_guard lock(mutex_);
    folders.push_back(parts_.paths.agent + "/mounts/" + spec_.system_disk.text);
    for (const VolumeMount& mount : spec_.volumes) {
      folders.push_back(parts_.paths.agent + "/mounts/" + mount.volume.text);
    }
  }
  std::erase_if(folders, [](const std::string& folder) { return folder.ends_with('/'); });
  detach_in_other_namespaces(folders);
  return {};
}

Status Container::undo() {
  TRY_VOID(kill_everything());
  TRY_VOID(parts_.runc.remove(instance_.text));
  FAILPOINT("container.runc_deleted");
  TRY_VOID(unmount_everything());
  FAILPOINT("container.removed_mounts");
  TRY_VOID(parts_.pool.detach_all(instance_));
  FAILPOINT("container.detached");
  TRY_VOID(parts_.cgroups.remove(instance_));
  TRY_VOID(sys::remove_tree(paths_.run));
  return sys::remove_file(paths_.exit_file);
}

Status Container::remove() {
  {
    const std::lock_guard lock(mutex_);
    if (is_known_ && status_.step == ContainerStep::kRemoved) return {};
    if (is_known_) {
      // Failed and half-started ones have no end to tell.
      const bool has_run = status_.step == ContainerStep::kStarted;
      if (!has_run) set_step_locked(ContainerStep::kRemoving);
      TRY_VOID(save_locked());
    }
  }
  FAILPOINT("container.remove_intended");
  TRY_VOID(kill_everything());
  {
    const std::lock_guard lock(mutex_);
    if (is_known_ && status_.step == ContainerStep::kStarted) note_exit_locked();
    if (is_known_) {
      set_step_locked(ContainerStep::kRemoving);
      TRY_VOID(save_locked());
    }
  }
  FAILPOINT("container.exit_noted");
  if (const Status saved = save_metrics(); !saved) {  // not worth an instance that never goes
    log::warn("agent.metrics_not_saved",
              {{"instance", instance_.text}, {"error", saved.error().to_string()}});
  }
  FAILPOINT("container.metrics_saved");
  TRY_VOID(undo());
  const std::lock_guard lock(mutex_);
  if (is_known_) {
    set_step_locked(ContainerStep::kRemoved);
    TRY_VOID(save_locked());
  }
  FAILPOINT("container.removed");
  return {};
}

Status Container::forget() {
  TRY_VOID(remove());
  TRY_VOID(sys::remove_tree(paths_.folder));
  FAILPOINT("container.forgotten");
  const std::lock_guard lock(mutex_);
  is_known_ = false;
  return {};
}

// The metrics outlive the disk's attachment: the agent may not have shipped all of them.
Status Container::save_metrics() {
  ContainerSpec spec;
  {
    const std::lock_guard lock(mutex_);
    if (!is_known_ || status_.started_us == 0 || sys::exists(paths_.metrics)) return {};
    spec = spec_;
  }
  TRY(const auto disk, parts_.pool.attach(spec.system_disk, instance_, spec.generation));
  TRY(const sys::Fd folder, sys::open_file(disk.path + "/io", O_RDONLY | O_DIRECTORY));
  auto from = sys::open_beneath(folder.get(), "metrics.jsonl", O_RDONLY | O_NONBLOCK);
  if (!from) return {};  // it wrote none, or something else than a file is there
  struct stat info{};
  if (fstat(from->get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const std::string temporary = paths_.metrics + ".part";
  TRY(const sys::Fd to, sys::open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  for (int64_t offset = 0; offset < kMetricsBytesMax;) {  // a tenant chooses its size
    TRY(const std::string bytes, sys::read_range(from->get(), offset, kCopyBytes));
    if (bytes.empty()) break;
    TRY_VOID(sys::write_all(to.get(), bytes));
    offset += static_cast<int64_t>(bytes.size());
  }
  return sys::rename_durable(temporary, paths_.metrics);
}

}  // namespace anychip::agent
