#include "sim/runtime.h"

#include <csignal>

#include <fmt/format.h>

namespace anychip::sim {
namespace {

using agent::ContainerPhase;

std::string object_of(const agent::EnsureImage& o) { return o.image + "/" + o.variant; }
std::string object_of(const agent::EnsureVolume& o) { return o.volume.text; }
std::string object_of(const agent::RemoveVolume& o) { return o.volume.text; }
std::string object_of(const agent::TakeSnapshot& o) { return o.snapshot.text; }
std::string object_of(const agent::RemoveSnapshot& o) { return o.snapshot.text; }
std::string object_of(const agent::StartContainer& o) { return o.spec.instance.text; }
std::string object_of(const agent::RemoveContainer& o) { return o.instance.text; }
std::string object_of(const agent::ForgetInstance& o) { return o.instance.text; }

constexpr const char* kVerbs[] = {"image",  "volume", "volume-", "snapshot", "snapshot-",
                                  "start",  "remove", "forget"};

}  // namespace

SimRuntime::SimRuntime(std::string name, RuntimeParts parts, std::vector<agent::DeviceSeen> devices)
    : name_(std::move(name)), parts_(parts), devices_(std::move(devices)) {}

Duration SimRuntime::time_of(const agent::Operation& operation) {
  const auto between = [&](int64_t least_ms, int64_t most_ms) {
    return milliseconds(least_ms + static_cast<int64_t>(parts_.random.below(
                                       static_cast<uint64_t>(most_ms - least_ms))));
  };
  if (std::holds_alternative<agent::EnsureImage>(operation)) {
    return parts_.faults.is_image_slow ? between(20'000, 90'000) : between(500, 4000);
  }
  if (std::holds_alternative<agent::StartContainer>(operation)) return between(100, 900);
  if (std::holds_alternative<agent::RemoveContainer>(operation)) return between(50, 500);
  return between(20, 300);
}

agent::OperationId SimRuntime::begin(agent::Operation operation) {
  const std::string object = std::visit([](const auto& o) { return object_of(o); }, operation);
  const agent::OperationId id = ++last_id_;
  MonoTime& busy_until = busy_until_[object];
  MonoTime when = parts_.queue.now() + time_of(operation);
  if (when < busy_until) when = busy_until;
  busy_until = when;
  parts_.trace.add(name_, fmt::format("begin {} {}", kVerbs[operation.index()], object));
  pending_.emplace(id, Pending{std::move(operation)});
  parts_.queue.at(when, [this, id] { finish(id); });
  return id;
}

void SimRuntime::finish(agent::OperationId id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  Status status = std::visit([this](const auto& o) { return apply(o); }, found->second.operation);
  const std::string object =
      std::visit([](const auto& o) { return object_of(o); }, found->second.operation);
  parts_.trace.add(name_, fmt::format("done {} {} {}", kVerbs[found->second.operation.index()],
                                      object, status ? "ok" : status.error().reason));
  if (!found->second.is_dropped) done_.push_back({id, std::move(status)});
  pending_.erase(found);
  changed();
}

std::vector<agent::OperationDone> SimRuntime::take_done() { return std::exchange(done_, {}); }

void SimRuntime::agent_killed() {
  done_.clear();
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    // Half of them had got so far that they end by themselves, the others leave nothing.
    if (parts_.random.chance(50)) {
      entry->second.is_dropped = true;
      ++entry;
    } else {
      entry = pending_.erase(entry);
    }
  }
}

agent::Inventory SimRuntime::inventory() {
  agent::Inventory seen;
  for (const auto& [key, image] : images_) {
    const size_t slash = key.find('/');
    seen.images.push_back({key.substr(0, slash), key.substr(slash + 1), image.digest,
                           image.is_ready, image.percent, image.is_ready ? "" : "building"});
  }
  for (const auto& [id, disk] : volumes_) {
    seen.volumes.push_back({id, disk.size_bytes, 1 << 20, disk.attached_to, disk.attach_generation});
  }
  for (const auto& [id, taken] : snapshots_) {
    seen.snapshots.push_back({id, taken.volume, 1 << 20, 40'000});
  }
  for (const auto& [id, container] : containers_) {
    agent::ContainerSeen one;
    one.instance = id;
    one.generation = container.spec.generation;
    one.phase = container.phase;
    one.exit_code = container.exit_code;
    one.is_oom = container.is_oom;
    one.is_supervisor_lost = container.is_supervisor_lost;
    one.started = container.started;
    one.ended = container.ended;
    const bool is_late = parts_.faults.planted == Planted::kLateEnd;
    if (is_late && one.ended) one.ended = *one.ended + seconds(2);
    one.memory_peak_bytes = 200 << 20;
    one.cpu_time_us = container.step * 1000;
    one.volumes = container.spec.volumes;
    seen.containers.push_back(std::move(one));
  }
  for (agent::DeviceSeen device : devices_) {
    if (vanished_.contains(device.id)) {
      device.is_healthy = false;
      device.note = "it does not answer";
    }
    seen.devices.push_back(std::move(device));
  }
  seen.pool_bytes = 1LL << 40;
  seen.pool_free_bytes = seen.pool_bytes - (static_cast<int64_t>(volumes_.size()) << 20);
  return seen;
}

Status SimRuntime::apply(const agent::EnsureImage& operation) {
  Image& image = images_[object_of(operation)];
  image.digest = operation.digest;
  if (image.is_ready) return {};
  image.percent = 50;
  if (is_injected(parts_.faults.image_fail_percent)) {
    return fail(Code::kUnavailable, "image_build_failed", "the build failed (simulated)");
  }
  image.percent = 100;
  image.is_ready = true;
  return {};
}

Status SimRuntime::apply(const agent::EnsureVolume& operation) {
  if (volumes_.contains(operation.volume)) return {};
  if (is_injected(parts_.faults.volume_fail_percent)) {
    return fail(Code::kInternal, "volume_failed", "mkfs failed (simulated)");
  }
  Disk disk;
  if (!operation.from_snapshot.empty()) {
    const auto source = snapshots_.find(operation.from_snapshot);
    if (source == snapshots_.end()) {
      return fail(Code::kFailedPrecondition, "snapshot_missing", "no such snapshot here");
    }
    disk = source->second.content;
  }
  disk.size_bytes = operation.size_bytes;
  disk.attached_to = {};
  disk.attach_generation = 0;
  volumes_[operation.volume] = disk;
  return {};
}

Status SimRuntime::apply(const agent::RemoveVolume& operation) {
  const auto found = volumes_.find(operation.volume);
  if (found == volumes_.end()) return {};
  if (!found->second.attached_to.empty()) {
    return fail(Code::kFailedPrecondition, "volume_in_use", "attached");
  }
  volumes_.erase(found);
  return {};
}

Status SimRuntime::apply(const agent::TakeSnapshot& operation) {
  if (snapshots_.contains(operation.snapshot)) return {};
  const auto source = volumes_.find(operation.volume);
  if (source == volumes_.end()) return fail(Code::kNotFound, "volume_missing", "no such volume");
  if (is_injected(parts_.faults.snapshot_fail_percent)) {
    return fail(Code::kInternal, "snapshot_failed", "the clone failed (simulated)");
  }
  snapshots_[operation.snapshot] = Taken{operation.volume, source->second};
  return {};
}

Status SimRuntime::apply(const agent::RemoveSnapshot& operation) {
  snapshots_.erase(operation.snapshot);
  return {};
}

Status SimRuntime::apply(const agent::StartContainer& operation) {
  const agent::ContainerSpec& spec = operation.spec;
  const auto old = containers_.find(spec.instance);
  if (old != containers_.end()) {
    if (old->second.spec.generation > spec.generation) {
      return fail(Code::kFailedPrecondition, "generation_stale", "a newer one is here");
    }
    if (old->second.spec.generation == spec.generation) return {};
    TRY_VOID(apply(agent::RemoveContainer{spec.instance}));
  }
  const auto image = images_.find(spec.image + "/" + spec.variant);
  if (image == images_.end() || !image->second.is_ready || image->second.digest != spec.digest) {
    return fail(Code::kFailedPrecondition, "image_missing", "the image is not ready");
  }
  if (is_injected(parts_.faults.start_fail_percent)) {
    return fail(Code::kInternal, "container_create_failed", "runc failed (simulated)");
  }
  for (const agent::VolumeMount& mount : spec.volumes) {
    const auto disk = volumes_.find(mount.volume);
    if (disk == volumes_.end()) return fail(Code::kNotFound, "volume_missing", "no such volume");
    const bool is_free = disk->second.attached_to.empty() || disk->second.attached_to == spec.instance;
    if (!is_free) return fail(Code::kFailedPrecondition, "volume_in_use", "attached elsewhere");
    if (mount.attach_generation < disk->second.attach_generation) {
      return fail(Code::kFailedPrecondition, "generation_stale", "it was attached since");
    }
  }
  for (const agent::VolumeMount& mount : spec.volumes) {
    volumes_[mount.volume].attached_to = spec.instance;
    volumes_[mount.volume].attach_generation = mount.attach_generation;
  }
  if (const auto system = volumes_.find(spec.system_disk); system != volumes_.end()) {
    system->second.attached_to = spec.instance;
  }
  Container& container = containers_[spec.instance];
  container = Container{};
  container.spec = spec;
  launch(container);
  return {};
}

Status SimRuntime::apply(const agent::RemoveContainer& operation) {
  const auto found = containers_.find(operation.instance);
  if (found != containers_.end()) {
    if (found->second.phase != ContainerPhase::kExited) end(found->second, 137, false);
    containers_.erase(found);
  }
  for (auto& [id, disk] : volumes_) {
    if (disk.attached_to == operation.instance) disk.attached_to = {};
  }
  return {};
}

Status SimRuntime::apply(const agent::ForgetInstance& operation) {
  if (containers_.contains(operation.instance)) {
    return fail(Code::kFailedPrecondition, "container_exists", "remove it first");
  }
  folders_.erase(operation.instance);
  return {};
}

Status SimRuntime::signal(const InstanceId& instance, int signal_number) {
  const auto found = containers_.find(instance);
  if (found == containers_.end() || found->second.phase != ContainerPhase::kRunning) {
    return fail(Code::kNotFound, "container_not_running", "no such process");
  }
  parts_.trace.add(name_, fmt::format("signal {} {}", signal_number, instance.text));
  if (signal_number == SIGKILL) end(found->second, 128 + SIGKILL, false);
  if (signal_number == SIGTERM) found->second.is_term_sent = true;
  return {};
}

Result<std::string> SimRuntime::read_stream(const InstanceId& instance, agent::Stream stream,
                                            int64_t offset, int64_t bytes_max) {
  const auto found = folders_.find(instance);
  if (found == folders_.end()) return fail(Code::kNotFound, "no_such_log", "no such log");
  const std::string& text =
      stream == agent::Stream::kLog ? found->second->log : found->second->metrics;
  const bool is_skipping = parts_.faults.planted == Planted::kLogSkipsAByte;
  if (is_skipping && offset > 0 && stream == agent::Stream::kLog) ++offset;
  if (offset >= static_cast<int64_t>(text.size())) return std::string();
  return text.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes_max));
}

void SimRuntime::crash_some_process() {
  const std::vector<Container*> all = running();
  if (all.empty()) return;
  Container& victim = *all[parts_.random.below(all.size())];
  victim.is_oom = parts_.random.chance(30);
  end(victim, victim.is_oom ? 137 : 1, true);
}

void SimRuntime::lose_some_supervisor() {
  const std::vector<Container*> all = running();
  if (all.empty()) return;
  Container& victim = *all[parts_.random.below(all.size())];
  victim.is_supervisor_lost = true;
  end(victim, 0, true);
}

void SimRuntime::vanish_some_device(Duration for_how_long) {
  const std::string id = devices_[parts_.random.below(devices_.size())].id;
  if (!vanished_.insert(id).second) return;
  parts_.trace.add(name_, "device vanishes " + id);
  for (Container* container : running()) {
    for (const std::string& used : container->spec.device_ids) {
      if (used == id && parts_.random.chance(70)) {
        write_metrics(*container, {{"event", "error"}, {"reason", "device_lost"},
                                   {"message", "the device does not answer"}});
        end(*container, 1, true);
        break;
      }
    }
  }
  parts_.queue.after(for_how_long, [this, id] {
    vanished_.erase(id);
    parts_.trace.add(name_, "device returns " + id);
    changed();
  });
  changed();
}

std::vector<SimRuntime::Container*> SimRuntime::running() {
  std::vector<Container*> all;
  for (auto& [id, container] : containers_) {
    if (container.phase == ContainerPhase::kRunning) all.push_back(&container);
  }
  return all;
}

int64_t SimRuntime::count_live() const {
  int64_t count = 0;
  for (const auto& [id, container] : containers_) {
    count += container.phase != ContainerPhase::kExited ? 1 : 0;
  }
  return count;
}

}  // namespace anychip::sim
