#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/local/bundle.h"
#include "agent/local/container.h"
#include "agent/local/overlay.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "sys/files.h"
#include "sys/mounts.h"

namespace anychip::agent {
namespace {

int64_t open_files_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return 1 << 20;
  return static_cast<int64_t>(limit.rlim_max);
}

Result<sys::Fd> idmapped(const std::string& path, const sys::Fd& user_namespace) {
  TRY(sys::Fd tree, sys::clone_tree(path));
  if (auto mapped = sys::idmap_tree(tree, user_namespace); !mapped) {
    return tl::unexpected(std::move(mapped).error().within(path));
  }
  return tree;
}

Status attach_at(const sys::Fd& tree, const std::string& target) {
  TRY_VOID(sys::make_folders(target));
  return sys::attach_tree(tree, target);
}

}  // namespace

// Sets is_done when there is nothing to do: this generation has been started already.
Status Container::admit(const ContainerSpec& spec, bool& is_done) {
  bool is_older_there = false;
  {
    const std::lock_guard lock(mutex_);
    if (!is_known_) return {};
    if (spec.generation < status_.generation) {
      return fail(Code::kAborted, "generation_stale",
                  "generation " + std::to_string(status_.generation) + " of " + instance_.text +
                      " is here, " + std::to_string(spec.generation) + " was asked for");
    }
    if (spec.generation == status_.generation) {
      switch (status_.step) {
        case ContainerStep::kStarted: is_done = !is_command_pending_; return {};
        case ContainerStep::kExited: is_done = true; return {};
        case ContainerStep::kRemoving:
        case ContainerStep::kRemoved:
          return fail(Code::kFailedPrecondition, "instance_removed",
                      instance_.text + " was removed; it is never started again");
        default: return {};
      }
    }
    is_older_there = true;
  }
  return is_older_there ? remove() : Status{};
}

Status Container::start(const ContainerSpec& spec, uint32_t first_host_id) {
  TRY_VOID(check_container_spec(spec));
  bool is_done = false;
  TRY_VOID(admit(spec, is_done));
  if (is_done) return {};
  // Created and recorded as started, but we were killed before `runc start` came back.
  if (is_command_pending()) return run_command();
  TRY_VOID(undo());  // what an attempt before this one left
  {
    const std::lock_guard lock(mutex_);
    spec_ = spec;
    status_ = ContainerStatus{.generation = spec.generation, .boot_id = parts_.boot_id,
                              .first_host_id = first_host_id};
    TRY_VOID(sys::make_folders(paths_.folder, 0700));
    TRY_VOID(save_spec(paths_, spec));
    is_known_ = true;
    // Not durable: a power cut ends whatever is begun below, and what is left has our label.
    TRY_VOID(note_status(paths_, status_));
  }
  Status built = build(spec, first_host_id);
  if (built) return {};
  if (const Status undone = undo(); !undone) {
    log::warn("agent.container_undo_failed",
              {{"instance", instance_.text}, {"error", undone.error().to_string()}});
  }
  const std::lock_guard lock(mutex_);
  set_step_locked(ContainerStep::kFailed);
  if (const Status saved = save_locked(); !saved) {
    log::warn("agent.container_save_failed",
              {{"instance", instance_.text}, {"error", saved.error().to_string()}});
  }
  return built;
}

Status Container::build(const ContainerSpec& spec, uint32_t first_host_id) {
  FAILPOINT("container.intended");
  TRY(const auto layers, parts_.images.layer_paths(spec.image, spec.variant));
  TRY_VOID(sys::remove_file(paths_.log));
  TRY_VOID(sys::remove_file(paths_.metrics));
  {
    const std::lock_guard lock(mutex_);
    log_ = std::make_shared<ContainerLog>(paths_.log, parts_.log_bytes_max);
  }
  TRY(const auto disk, parts_.pool.attach(spec.system_disk, instance_, spec.generation));
  FAILPOINT("container.disk_attached");
  TRY_VOID(prepare_system_disk(disk.path, spec, layers));
  TRY_VOID(sys::make_folders(paths_.run, 0711));
  if (chmod(paths_.run.c_str(), 0711) != 0) return fail_errno("chmod " + paths_.run, errno);
  TRY(const sys::Fd user_namespace, sys::make_user_namespace(first_host_id));
  TRY_VOID(mount_root(spec, disk.path, user_namespace));
  FAILPOINT("container.overlay_mounted");
  TRY_VOID(mount_volumes(spec, user_namespace));
  FAILPOINT("container.volumes_mounted");
  TRY_VOID(write_bundle(spec, first_host_id, sys::is_folder(paths_.opt)));
  FAILPOINT("container.bundle_written");
  TRY(const auto cgroup, parts_.cgroups.open_supervisor(instance_));
  FAILPOINT("container.supervisor_ready");
  TRY_VOID(parts_.runc.create({.id = instance_.text,
                               .bundle = paths_.bundle,
                               .log_path = paths_.log,
                               .exit_folder = parts_.paths.exits,
                               .pid_file = paths_.pid,
                               .conmon_pid_file = paths_.conmon_pid,
                               .log_bytes_max = parts_.log_bytes_max,
                               .cgroup = cgroup}));
  FAILPOINT("container.created");
  {
    const std::lock_guard lock(mutex_);
    set_step_locked(ContainerStep::kStarted);
    is_command_pending_ = true;
    // Before the effect: whoever finds this record after a kill asks runc whether it came to it.
    status_.started_us = status_.last_seen_us = parts_.clock.mono_now().us;
    TRY_VOID(save_locked());
  }
  FAILPOINT("container.start_intended");
  return run_command();
}

Status Container::run_command() {
  TRY_VOID(parts_.runc.start(instance_.text));
  FAILPOINT("container.started");
  const std::lock_guard lock(mutex_);
  is_command_pending_ = false;
  return {};
}

Status Container::mount_root(const ContainerSpec& spec, const std::string& disk,
                             const sys::Fd& user_namespace) {
  TRY(const auto layers, parts_.images.layer_paths(spec.image, spec.variant));
  TRY_VOID(sys::make_folders(paths_.rootfs));
  OverlayInput input;
  input.meeting_point = paths_.rootfs;
  for (const std::string& layer : layers) {
    TRY(sys::Fd tree, idmapped(layer, user_namespace));
    input.layers.push_back(std::move(tree));
  }
  TRY(input.disk, idmapped(disk, user_namespace));
  TRY(const sys::Fd overlay, make_overlay(input, user_namespace));
  TRY_VOID(sys::attach_tree(overlay, paths_.rootfs));
  TRY(const sys::Fd io, idmapped(disk + "/io", user_namespace));
  TRY_VOID(attach_at(io, paths_.io));
  // The image's own packages stay as they are, whatever root inside does.
  TRY(const sys::Fd root, sys::open_file(paths_.rootfs, O_RDONLY | O_DIRECTORY));
  const auto opt = sys::open_beneath(root.get(), "opt/anychip", O_RDONLY | O_DIRECTORY);
  if (!opt) return {};
  TRY(const sys::Fd tree, sys::clone_tree("/proc/self/fd/" + std::to_string(opt->get())));
  TRY_VOID(sys::set_tree_read_only(tree));
  return attach_at(tree, paths_.opt);
}

Status Container::mount_volumes(const ContainerSpec& spec, const sys::Fd& user_namespace) {
  for (size_t i = 0; i < spec.volumes.size(); ++i) {
    const VolumeMount& mount = spec.volumes[i];
    TRY(const auto volume, parts_.pool.attach(mount.volume, instance_, mount.attach_generation));
    TRY(const sys::Fd tree, idmapped(volume.path, user_namespace));
    if (mount.is_read_only) TRY_VOID(sys::set_tree_read_only(tree));
    TRY_VOID(attach_at(tree, paths_.volume(i)));
  }
  return {};
}

Status Container::write_bundle(const ContainerSpec& spec, uint32_t first_host_id, bool has_opt) {
  TRY_VOID(sys::make_folders(paths_.bundle, 0700));
  TRY_VOID(sys::make_folders(paths_.control));
  TRY_VOID(sys::write_file_atomic(paths_.hosts, bundle_hosts_file(instance_)));
  TRY(const auto nodes, parts_.devices.nodes_of(spec.device_ids));
  BundleInput input{.spec = spec,
                    .image_environment = parts_.images.environment(spec.image, spec.variant),
                    .rootfs = paths_.rootfs,
                    .mounts = {{paths_.io, "/run/anychip", false},
                               {paths_.control, "/run/anychip/control", true},
                               {paths_.hosts, "/etc/hosts", true}},
                    .devices = {},
                    .first_host_id = first_host_id,
                    .cgroup_path = parts_.cgroups.container_path(instance_),
                    .open_files_max = open_files_limit(),
                    .seccomp = parts_.seccomp};
  for (const DeviceNode& node : nodes) {
    input.devices.push_back({node.path, node.is_block, node.major, node.minor});
  }
  if (has_opt) input.mounts.push_back({paths_.opt, "/opt/anychip", true});
  for (size_t i = 0; i < spec.volumes.size(); ++i) {
    input.mounts.push_back(
        {paths_.volume(i), spec.volumes[i].path, spec.volumes[i].is_read_only});
  }
  // 0600: it carries the environment.
  return sys::write_file_atomic(paths_.bundle + "/config.json", bundle_config(input), 0600);
}

}  // namespace anychip::agent
