#include "agent/local/runtime_local.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agent/local/bundle.h"
#include "base/log.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

constexpr int kWatchMs = 500;
constexpr uint32_t kFirstHostId = 200'000;
constexpr uint32_t kIdsEach = 65'536;
constexpr int64_t kKeepRemovedS = 7 * 86'400;

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

Result<std::string> read_boot_id() {
  TRY(std::string text, sys::read_file("/proc/sys/kernel/random/boot_id", 64));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

LocalRuntime::LocalRuntime(ImageSource& images, std::unique_ptr<Pool> pool, Devices devices,
                           NodePaths paths, Cgroups cgroups, const Clock& clock)
    : images_(images), pool_(std::move(pool)), devices_(std::move(devices)),
      parts_{.paths = paths,
             .pool = *pool_,
             .images = images,
             .cgroups = std::move(cgroups),
             .runc = Runc(paths.runc),
             .devices = devices_,
             .clock = clock,
             .boot_id = {},
             .seccomp = {}} {}

Result<std::unique_ptr<LocalRuntime>> LocalRuntime::open(LocalRuntimeOptions options,
                                                         ImageSource& images,
                                                         std::vector<catalog::Chip> chips,
                                                         std::vector<catalog::BackEnd> back_ends,
                                                         const Clock& clock) {
  if (geteuid() != 0) {
    return fail(Code::kPermissionDenied, "root_needed", "containers and disks need root",
                "run the agent as root");
  }
  const NodePaths paths = NodePaths::of(options.data, options.run_root);
  TRY(auto pool, Pool::open(options.data, options.pool));  // also keeps a second agent out
  TRY_VOID(paths.make());
  TRY(auto roots, CgroupRoots::of_this_machine());
  Devices devices(paths.devices, std::move(chips), std::move(back_ends));
  TRY_VOID(devices.prepare());
  std::unique_ptr<LocalRuntime> runtime(
      new LocalRuntime(images, std::move(pool), std::move(devices), paths,
                       Cgroups(std::move(roots), paths.label), clock));
  runtime->parts_.log_bytes_max = options.log_bytes_max;
  TRY(runtime->parts_.boot_id, read_boot_id());
  TRY(runtime->parts_.seccomp, load_seccomp());
  TRY_VOID(runtime->adopt());
  runtime->sweep_orphans();
  runtime->refresh_disks();
  runtime->wake_ = sys::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!runtime->wake_.is_open()) return fail_errno("eventfd", errno);
  runtime->queue_ = std::make_unique<OperationQueue>(options.workers);
  for (const auto& container : runtime->all()) {
    // Half-started by an agent that was killed: gone on with, so that it can be seen and stopped.
    if (container->needs_start()) runtime->enqueue(StartContainer{container->spec()}, false);
  }
  runtime->watcher_ = std::thread([raw = runtime.get()] { raw->watch(); });
  return runtime;
}

LocalRuntime::~LocalRuntime() {
  images_.cancel();
  if (queue_) queue_->stop();
  if (watcher_.joinable()) {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
    watcher_.join();
  }
}

Status LocalRuntime::close() {
  queue_->stop();
  parts_.cgroups.remove_label();
  rmdir(parts_.paths.run.c_str());
  return pool_->close();
}

// --- finding what is there ------------------------------------------------------------------------

Status LocalRuntime::adopt() {
  TRY(const auto names, sys::list_folder(parts_.paths.instances));
  for (const std::string& name : names) {
    const InstanceId instance{name};
    if (!InstanceId::parse(name)) continue;  // not ours
    auto container = std::make_shared<Container>(parts_, instance);
    if (const Status loaded = container->load(); !loaded) {
      // Killed between making the folder and its first record: nothing was begun.
      log::warn("agent.instance_unreadable",
                {{"instance", name}, {"error", loaded.error().to_string()}});
      if (const Status gone = container->forget(); !gone) {
        log::warn("agent.instance_sweep_failed",
                  {{"instance", name}, {"error", gone.error().to_string()}});
      }
      continue;
    }
    struct stat info{};
    const std::string status_path = parts_.paths.instance(instance).status;
    if (container->is_removed() && stat(status_path.c_str(), &info) == 0 &&
        parts_.clock.wall_now().us / 1'000'000 - info.st_mtim.tv_sec > kKeepRemovedS) {
      (void)container->forget();
      continue;
    }
    container->observe();
    containers_.emplace(instance, std::move(container));
  }
  return {};
}

// Whatever carries our label, wherever it is: runc's state, cgroups, mount points, exit files, disks.
std::set<InstanceId> LocalRuntime::traces_of_instances() {
  std::set<InstanceId> found;
  const auto add = [&](const std::string& name) {
    if (InstanceId::parse(name)) found.insert(InstanceId{name});
  };
  for (const std::string& folder : {parts_.paths.run, parts_.paths.exits, parts_.paths.runc}) {
    for (const std::string& name : sys::list_folder(folder).value_or(std::vector<std::string>{})) {
      add(name);
    }
  }
  for (const InstanceId& instance : parts_.cgroups.instances()) add(instance.text);
  for (const VolumeSeen& volume : pool_->volumes()) add(volume.attached_to.text);
  return found;
}

void LocalRuntime::sweep_orphans() {
  for (const InstanceId& instance : traces_of_instances()) {
    if (containers_.contains(instance)) continue;
    log::warn("agent.orphan_removed", {{"instance", instance.text}});
    if (const Status gone = Container(parts_, instance).remove(); !gone) {
      log::warn("agent.orphan_sweep_failed",
                {{"instance", instance.text}, {"error", gone.error().to_string()}});
    }
  }
}

std::shared_ptr<Container> LocalRuntime::find(const InstanceId& instance) {
  const std::lock_guard lock(mutex_);
  const auto found = containers_.find(instance);
  return found == containers_.end() ? nullptr : found->second;
}

std::shared_ptr<Container> LocalRuntime::find_or_add(const InstanceId& instance) {
  const std::lock_guard lock(mutex_);
  auto& container = containers_[instance];
  if (container == nullptr) container = std::make_shared<Container>(parts_, instance);
  return container;
}

std::vector<std::shared_ptr<Container>> LocalRuntime::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Container>> all;
  for (const auto& [instance, container] : containers_) all.push_back(container);
  return all;
}

// The lowest range that no living container holds.
uint32_t LocalRuntime::choose_host_ids() {
  std::set<uint32_t> taken;
  for (const auto& [instance, first] : chosen_ids_) taken.insert(first);
  for (const auto& [instance, container] : containers_) {
    if (const auto first = container->host_ids_in_use()) taken.insert(*first);
  }
  uint32_t first = kFirstHostId;
  while (taken.contains(first)) first += kIdsEach;
  return first;
}

// --- operations -----------------------------------------------------------------------------------

std::set<std::string> LocalRuntime::keys_of(const Operation& operation) {
  std::set<std::string> keys;
  const auto add_disks = [&](const ContainerSpec& spec) {
    if (!spec.system_disk.empty()) keys.insert(spec.system_disk.text);
    for (const VolumeMount& mount : spec.volumes) keys.insert(mount.volume.text);
  };
  std::visit(Overloaded{[&](const EnsureImage& it) { keys.insert(it.image + ":" + it.variant); },
                        [&](const EnsureVolume& it) {
                          keys.insert(it.volume.text);
                          if (!it.from_snapshot.empty()) keys.insert(it.from_snapshot.text);
                        },
                        [&](const RemoveVolume& it) { keys.insert(it.volume.text); },
                        [&](const TakeSnapshot& it) {
                          keys.insert(it.volume.text);
                          keys.insert(it.snapshot.text);
                        },
                        [&](const RemoveSnapshot& it) { keys.insert(it.snapshot.text); },
                        [&](const StartContainer& it) {
                          keys.insert(it.spec.instance.text);
                          keys.insert(it.spec.image + ":" + it.spec.variant);
                          add_disks(it.spec);
                        },
                        [&](const RemoveContainer& it) {
                          keys.insert(it.instance.text);
                          // Its disks too: what is asked of them next comes after their detach.
                          if (const auto known = find(it.instance)) add_disks(known->spec());
                        },
                        [&](const ForgetInstance& it) { keys.insert(it.instance.text); }},
             operation);
  return keys;
}

OperationId LocalRuntime::enqueue(Operation operation, bool is_reported) {
  std::set<std::string> keys = keys_of(operation);
  const std::string kind = std::holds_alternative<EnsureImage>(operation) ? "image" : "";
  return queue_->begin(
      std::move(keys), kind,
      [this, operation = std::move(operation)] {
        Status status = perform(operation);
        refresh_disks();  // before the operation is told of as done
        return status;
      },
      is_reported);
}

OperationId LocalRuntime::begin(Operation operation) { return enqueue(std::move(operation), true); }

std::vector<OperationDone> LocalRuntime::take_done() { return queue_->take_done(); }

Status LocalRuntime::start(const ContainerSpec& spec) {
  TRY_VOID(check_container_spec(spec));
  const auto container = find_or_add(spec.instance);
  uint32_t first_host_id = 0;
  {
    const std::lock_guard lock(mutex_);
    first_host_id = choose_host_ids();
    chosen_ids_[spec.instance] = first_host_id;
  }
  Status started = container->start(spec, first_host_id);
  const std::lock_guard lock(mutex_);
  chosen_ids_.erase(spec.instance);
  return started;
}

Status LocalRuntime::perform(const Operation& operation) {
  return std::visit(
      Overloaded{
          [&](const EnsureImage& it) { return images_.ensure(it.image, it.variant, it.digest); },
          [&](const EnsureVolume& it) {
            return pool_->ensure_volume(it.volume, it.size_bytes, it.from_snapshot);
          },
          [&](const RemoveVolume& it) { return pool_->remove_volume(it.volume); },
          [&](const TakeSnapshot& it) { return pool_->take_snapshot(it.snapshot, it.volume); },
          [&](const RemoveSnapshot& it) { return pool_->remove_snapshot(it.snapshot); },
          [&](const StartContainer& it) { return start(it.spec); },
          [&](const RemoveContainer& it) -> Status {
            if (!InstanceId::parse(it.instance.text)) return {};
            if (const auto known = find(it.instance)) return known->remove();
            return Container(parts_, it.instance).remove();
          },
          [&](const ForgetInstance& it) -> Status {
            if (!InstanceId::parse(it.instance.text)) return {};
            const auto known = find(it.instance);
            if (known == nullptr) return Container(parts_, it.instance).forget();
            TRY_VOID(known->forget());
            const std::lock_guard lock(mutex_);
            containers_.erase(it.instance);
            return {};
          }},
      operation);
}

// --- seeing ---------------------------------------------------------------------------------------

void LocalRuntime::refresh_disks() {
  auto volumes = pool_->volumes();
  auto snapshots = pool_->snapshots();
  auto devices = devices_.seen();
  const PoolSpace space = pool_->space();
  const std::lock_guard lock(cache_mutex_);
  volumes_ = std::move(volumes);
  snapshots_ = std::move(snapshots);
  devices_seen_ = std::move(devices);
  space_ = space;
}

void LocalRuntime::watch() {
  // An exit file appears in this folder at the instant a container ends.
  const sys::Fd notice(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (notice.is_open()) {
    inotify_add_watch(notice.get(), parts_.paths.exits.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO);
  }
  pollfd waiting[] = {{wake_.get(), POLLIN, 0}, {notice.get(), POLLIN, 0}};
  for (int64_t round = 0;; ++round) {
    const int ready = poll(waiting, 2, kWatchMs);
    if ((waiting[0].revents & POLLIN) != 0) return;
    if (ready > 0) {
      alignas(inotify_event) char events[4096];
      while (read(notice.get(), events, sizeof events) > 0) {
      }
    }
    for (const auto& container : all()) container->observe();
    if (round % 2 == 0) refresh_disks();
  }
}

Inventory LocalRuntime::inventory() {
  Inventory inventory;
  inventory.images = images_.seen();
  for (const auto& container : all()) {
    if (auto seen = container->seen()) inventory.containers.push_back(std::move(*seen));
  }
  const std::lock_guard lock(cache_mutex_);
  inventory.volumes = volumes_;
  inventory.snapshots = snapshots_;
  inventory.devices = devices_seen_;
  inventory.pool_bytes = space_.total_bytes;
  inventory.pool_free_bytes = space_.free_bytes;
  return inventory;
}

Status LocalRuntime::signal(const InstanceId& instance, int signal_number) {
  const auto container = find(instance);
  if (container == nullptr) {
    return fail(Code::kNotFound, "instance_unknown", instance.text + " is not on this node");
  }
  return container->signal(signal_number);
}

Result<std::string> LocalRuntime::read_stream(const InstanceId& instance, Stream stream,
                                              int64_t offset, int64_t bytes_max) {
  const auto container = find(instance);
  if (container == nullptr) {
    return fail(Code::kNotFound, "instance_unknown", instance.text + " is not on this node");
  }
  return container->read_stream(stream, offset, bytes_max);
}

Status LocalRuntime::write_control(const InstanceId& instance, std::string_view json_text) {
  const auto container = find(instance);
  if (container == nullptr) {
    return fail(Code::kNotFound, "instance_unknown", instance.text + " is not on this node");
  }
  return container->write_control(json_text);
}

}  // namespace anychip::agent
