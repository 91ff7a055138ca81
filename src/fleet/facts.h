// All that is known about one run, as one value: the state machines read and change it, the server
// loads it and saves what differs. No clock, no file, no thread: time and randomness are arguments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "fleet/types.h"

namespace anychip::fleet {

struct Limits {
  Duration queued = minutes(30);    // no agent took it
  Duration prepare = minutes(120);  // an image may have to be built
  Duration start = minutes(10);
  Duration stop_grace = seconds(120);  // SIGTERM to SIGKILL, on the node
  Duration stop_extra = seconds(30);   // for the node to say so; then it is removed by force
  Duration at_step = hours(24);
  Duration inherit = minutes(5);
  Duration resume = minutes(10);
  Duration verify = minutes(20);
  Duration capacity = minutes(15);  // a restart waits so long for an equal device
  Duration drain = seconds(5);      // last lines of log and metrics after the exit
};

struct Context {
  WallTime now;
  Random& random;
  const Limits& limits;
};

struct Node {
  NodeId id;
  bool is_ready = false;
  WallTime ready_since;  // limits of a state do not run while its node is away
};

struct Device {
  NodeId node;
  std::string id, chip;
  bool is_healthy = true;
  InstanceId lessee;  // empty = free
};

struct Event {
  std::string kind, message;
};

struct Facts {
  Run run;
  std::vector<Leg> legs;  // by index
  std::vector<Instance> instances;
  std::vector<Volume> volumes;
  std::vector<Snapshot> snapshots;
  std::optional<Switch> active;  // the switch under way (or ended in this very pass)
  std::vector<Node> nodes;
  std::vector<Device> devices;  // of the whole installation
  // For step 7 of a switch: the target leg's first losses (NaN = not finite), and the last ones of
  // the curve before it.
  std::vector<double> target_losses, baseline_losses;

  std::vector<Event> events;  // out: what happened, in words
  bool has_moved = false;     // out of each round: another round may have more to do

  Instance* instance(const InstanceId& id);
  Leg* leg_of(const Instance& of);
  Leg* last_leg();
  Volume* volume(const VolumeId& id);
  Snapshot* snapshot(const SnapshotId& id);
  const Node* node(const NodeId& id) const;
  bool has_active_switch() const { return active && active->state == SwitchState::kActive; }
  void tell(std::string_view kind, std::string message);
};

// Moves shared by run and switch. All are no-ops when there is nothing to change.
void set_state(Facts& facts, const Context& context, RunState state, std::string reason);
void set_desired(Facts& facts, const Context& context, Instance& instance, Desired desired);
void set_stop_at_step(Facts& facts, Instance& instance, std::optional<int64_t> step);
void end_leg(Facts& facts, const Context& context, Leg& leg, std::string reason);
void end_run(Facts& facts, const Context& context, RunState state, std::string reason);

struct Launch {
  Target target;
  NodeId node;
  std::vector<std::string> device_ids;
  VolumeId system_disk, checkpoint;  // both exist in facts
};
// A new instance with desired `run`, its leg, the volumes under a new attach generation.
// Precondition (CHECK): no other instance of the run may be alive with these volumes.
Instance& launch(Facts& facts, const Context& context, const Launch& launch);
// An existing, prepared instance gets its disks and its leg and starts: the same precondition.
void start_prepared(Facts& facts, const Context& context, Instance& instance, VolumeId system_disk,
                    VolumeId checkpoint);

Volume& create_volume(Facts& facts, const Context& context, std::string_view kind,
                      const NodeId& node, int64_t size_bytes, const SnapshotId& from);
Snapshot& create_snapshot(Facts& facts, const Context& context, const Volume& of);

// True when `limit` has passed since `since`, not counting time before the node came back.
bool is_overdue(const Facts& facts, const Context& context, const NodeId& node, WallTime since,
                Duration limit);
// "it ran out of memory", "exit code 1", ...: why an ended or failed instance is no longer there.
std::string cause_of(const Facts& facts, const Instance& instance);
// After an exit: the last lines have come, or will not.
bool is_drained(Facts& facts, const Context& context, const Instance& instance);
// "" while all its devices are healthy; else which one is not.
std::string missing_device(const Facts& facts, const Instance& instance);

}  // namespace anychip::fleet
