#include "fleet/facts.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "fleet/instance.h"

namespace anychip::fleet {
namespace {

template <class Items, class Id>
auto* find_by_id(Items& items, const Id& id) {
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.id == id; });
  return found == items.end() || id.empty() ? nullptr : &*found;
}

// The heart of "at most one live leg": whoever had the disks before is proved gone.
void check_disks_are_free(const Facts& facts, const Instance* except) {
  for (const Instance& other : facts.instances) {
    const bool has_leg = std::any_of(facts.legs.begin(), facts.legs.end(),
                                     [&](const Leg& leg) { return leg.id == other.leg; });
    if (&other == except || !has_leg) continue;
    CHECK_MSG(other.phase == Phase::kGone, "an earlier instance of the run is not proved gone");
  }
}

void lease(Facts& facts, const Instance& instance) {
  for (Device& device : facts.devices) {
    if (device.node != instance.node) continue;
    const auto& ids = instance.device_ids;
    if (std::find(ids.begin(), ids.end(), device.id) == ids.end()) continue;
    CHECK_MSG(device.lessee.empty() || device.lessee == instance.id, "a device is leased twice");
    device.lessee = instance.id;
  }
}

}  // namespace

Instance* Facts::instance(const InstanceId& id) { return find_by_id(instances, id); }
Leg* Facts::leg_of(const Instance& of) { return find_by_id(legs, of.leg); }
Leg* Facts::last_leg() { return legs.empty() ? nullptr : &legs.back(); }
Volume* Facts::volume(const VolumeId& id) { return find_by_id(volumes, id); }
Snapshot* Facts::snapshot(const SnapshotId& id) { return find_by_id(snapshots, id); }
const Node* Facts::node(const NodeId& id) const { return find_by_id(nodes, id); }

void Facts::tell(std::string_view kind, std::string message) {
  events.push_back({std::string(kind), std::move(message)});
}

void set_state(Facts& facts, const Context& context, RunState state, std::string reason) {
  Run& run = facts.run;
  if (run.state == state && run.state_reason == reason) return;
  CHECK_MSG(!is_ended(run.state), "an ended run stays ended");
  if (run.state != state) {
    run.state = state;
    run.state_at = context.now;
    facts.tell("run." + std::string(name_of(state)),
               reason.empty() ? fmt::format("the run is {}", name_of(state))
                              : fmt::format("the run is {}: {}", name_of(state), reason));
  }
  run.state_reason = std::move(reason);
  facts.has_moved = true;
}

void set_desired(Facts& facts, const Context& context, Instance& instance, Desired desired) {
  if (instance.desired >= desired) return;  // only ever moves right
  instance.desired = desired;
  instance.desired_at = context.now;
  facts.has_moved = true;
  if (desired >= Desired::kStop && !instance.stop_cap_us) cap_at_stop(instance, context.now);
}

void set_stop_at_step(Facts& facts, Instance& instance, std::optional<int64_t> step) {
  if (instance.stop_at_step == step) return;
  instance.stop_at_step = step;
  facts.has_moved = true;
}

void end_leg(Facts& facts, const Context& context, Leg& leg, std::string reason) {
  if (leg.state == LegState::kEnded) return;
  leg.state = LegState::kEnded;
  leg.ended_at = context.now;
  leg.end_reason = std::move(reason);
  if (const Instance* instance = facts.instance(leg.instance)) leg.exit_code = instance->exit_code;
  facts.tell("leg.ended",
             fmt::format("leg {} on {} ended: {}", leg.index, leg.target.chip, leg.end_reason));
  facts.has_moved = true;
}

void end_run(Facts& facts, const Context& context, RunState state, std::string reason) {
  CHECK(is_ended(state));
  if (Instance* current = facts.instance(facts.run.instance)) {
    facts.run.exit_code = current->exit_code;
    if (Leg* leg = facts.leg_of(*current)) {
      end_leg(facts, context, *leg, reason.empty() ? std::string(name_of(state)) : reason);
    }
  }
  facts.run.ended_at = context.now;
  facts.run.restart_cause.clear();
  set_state(facts, context, state, std::move(reason));
}

void start_prepared(Facts& facts, const Context& context, Instance& instance, VolumeId system_disk,
                    VolumeId checkpoint) {
  check_disks_are_free(facts, &instance);
  Leg leg;
  leg.id = instance.leg;
  leg.run = facts.run.id;
  leg.index = facts.legs.empty() ? 0 : facts.legs.back().index + 1;
  leg.target = instance.target;
  leg.instance = instance.id;
  leg.created_at = context.now;
  Volume* system = facts.volume(system_disk);
  Volume* data = facts.volume(checkpoint);
  CHECK(system != nullptr && data != nullptr);
  system->attached_to = instance.id;
  data->attached_to = instance.id;
  data->attach_generation += 1;
  instance.system_disk = system_disk;
  instance.checkpoint = checkpoint;
  instance.attach_generation = data->attach_generation;
  instance.desired = Desired::kRun;
  instance.desired_at = context.now;
  facts.tell("leg.opened",
             fmt::format("leg {} starts on {} × {}", leg.index, leg.target.count, leg.target.chip));
  facts.legs.push_back(std::move(leg));
  facts.has_moved = true;
}

Instance& launch(Facts& facts, const Context& context, const Launch& launch) {
  Instance instance;
  instance.id = InstanceId::make(context.now, context.random);
  instance.run = facts.run.id;
  instance.leg = LegId::make(context.now, context.random);
  instance.node = launch.node;
  instance.target = launch.target;
  instance.device_ids = launch.device_ids;
  instance.stop_at_step = facts.run.stop_at_step;
  instance.created_at = instance.phase_at = instance.reported_at = context.now;
  facts.instances.push_back(std::move(instance));
  Instance& placed = facts.instances.back();
  lease(facts, placed);
  start_prepared(facts, context, placed, launch.system_disk, launch.checkpoint);
  facts.run.instance = placed.id;
  facts.run.restart_cause.clear();
  return placed;
}

Volume& create_volume(Facts& facts, const Context& context, std::string_view kind,
                      const NodeId& node, int64_t size_bytes, const SnapshotId& from) {
  Volume volume;
  volume.id = VolumeId::make(context.now, context.random);
  volume.run = facts.run.id;
  volume.node = node;
  volume.kind = kind;
  volume.size_bytes = size_bytes;
  volume.from_snapshot = from;
  volume.created_at = context.now;
  facts.volumes.push_back(std::move(volume));
  facts.has_moved = true;
  return facts.volumes.back();
}

Snapshot& create_snapshot(Facts& facts, const Context& context, const Volume& of) {
  Snapshot snapshot;
  snapshot.id = SnapshotId::make(context.now, context.random);
  snapshot.run = facts.run.id;
  snapshot.node = of.node;
  snapshot.volume = of.id;
  snapshot.created_at = context.now;
  facts.snapshots.push_back(std::move(snapshot));
  facts.has_moved = true;
  return facts.snapshots.back();
}

bool is_overdue(const Facts& facts, const Context& context, const NodeId& node_id, WallTime since,
                Duration limit) {
  const Node* node = facts.node(node_id);
  if (node == nullptr || !node->is_ready) return false;
  return context.now - std::max(since, node->ready_since) > limit;
}

std::string cause_of(const Facts& facts, const Instance& instance) {
  if (instance.is_oom) return "it ran out of memory";
  if (instance.is_supervisor_lost) return "its supervisor died, so its exit code is unknown";
  if (instance.phase == Phase::kFailed) {
    return instance.error_message.empty() ? "it could not be started" : instance.error_message;
  }
  for (const Leg& leg : facts.legs) {
    if (leg.id == instance.leg && !leg.error_message.empty() && instance.exit_code) {
      return fmt::format("{} (exit code {})", leg.error_message, *instance.exit_code);
    }
  }
  if (instance.exit_code && *instance.exit_code > 128) {
    return fmt::format("it was killed by signal {}", *instance.exit_code - 128);
  }
  if (instance.exit_code) return fmt::format("it ended with exit code {}", *instance.exit_code);
  return "its container is gone";
}

bool is_drained(Facts& facts, const Context& context, const Instance& instance) {
  if (instance.are_streams_sent) return true;
  const Leg* leg = facts.leg_of(instance);
  if (leg == nullptr) return true;
  // The script's last word has come, and it is the one that goes with how it ended.
  const std::string_view last_word = instance.exit_code == 0    ? "finished"
                                     : instance.exit_code == 75 ? "stopped"
                                                                : "error";
  if (instance.exit_code && leg->ended_event == last_word) return true;
  return context.now - instance.phase_at >= context.limits.drain;
}

std::string missing_device(const Facts& facts, const Instance& instance) {
  for (const std::string& id : instance.device_ids) {
    for (const Device& device : facts.devices) {
      if (device.node == instance.node && device.id == id && !device.is_healthy) return id;
    }
  }
  return {};
}

}  // namespace anychip::fleet
