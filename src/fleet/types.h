// The rows the state machines work on: run, leg, instance, volume, snapshot, switch. Plain values.
// `visit(v)` names every stored field once; the server's schema, loader and saver are made from it,
// so a field can be added in one place (and in a migration) and is never half-saved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/money.h"
#include "base/time.h"

namespace anychip::fleet {

enum class RunState {
  kQueued,
  kPreparing,
  kRunning,
  kSwitching,
  kStopping,
  kStopped,
  kFinished,
  kFailed,
  kLost
};
enum class LegState { kPreparing, kRunning, kEnded };
enum class Desired { kPrepare, kRun, kStop, kGone };  // only ever moves right
enum class Phase { kNone, kPreparing, kPrepared, kStarting, kRunning, kExited, kFailed, kGone };
enum class VolumeState { kWanted, kPresent, kFailed, kGone };
enum class SnapshotState { kWanted, kReady, kFailed, kGone };
enum class SwitchState { kActive, kDone, kFellBack, kRefused, kCancelled, kFailed };
enum class SwitchStep {  // the numbers of design §4
  kCheck = 1,
  kReserve,
  kPrepare,
  kCheckpoint,
  kInherit,
  kResume,
  kVerify,
  kSettle
};

// The words of the API and of the database. parse() of an unknown word is false.
std::string_view name_of(RunState value);
std::string_view name_of(LegState value);
std::string_view name_of(Desired value);
std::string_view name_of(Phase value);
std::string_view name_of(VolumeState value);
std::string_view name_of(SnapshotState value);
std::string_view name_of(SwitchState value);
std::string_view name_of(SwitchStep value);
bool parse(std::string_view word, RunState& value);
bool parse(std::string_view word, LegState& value);
bool parse(std::string_view word, Desired& value);
bool parse(std::string_view word, Phase& value);
bool parse(std::string_view word, VolumeState& value);
bool parse(std::string_view word, SnapshotState& value);
bool parse(std::string_view word, SwitchState& value);
bool parse(std::string_view word, SwitchStep& value);

bool is_ended(RunState state);

// What a leg runs on; resolved from the catalogue by the server, so that nothing here knows a chip.
struct Target {
  std::string chip, back_end;
  int64_t count = 1;
  RatePerHour price;  // of all `count` chips together
  bool is_simulated = false;
  std::string image, variant, digest;
  friend bool operator==(const Target&, const Target&) = default;
  template <class V>
  void visit(V&& v, const std::string& prefix = {}) {
    v(prefix + "chip", chip), v(prefix + "back_end", back_end), v(prefix + "count", count);
    v(prefix + "price_micros_per_hour", price), v(prefix + "is_simulated", is_simulated);
    v(prefix + "image", image), v(prefix + "variant", variant), v(prefix + "digest", digest);
  }
};

struct Run {
  RunId id;
  ProjectId project;
  std::string name;
  RunState state = RunState::kQueued;
  std::string state_reason;  // one sentence, "" when there is nothing to say
  std::string template_id, image;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string workdir_digest;
  int64_t memory_bytes = 0, system_disk_bytes = 0, checkpoint_bytes = 0;
  int64_t restarts = 0, restarts_max = 3;
  std::optional<int64_t> stop_at_step;
  RunId reference_of;
  InstanceId instance;        // the one that carries the run now
  std::string restart_cause;  // not empty: the old instance goes, a new one comes
  std::string stop_cause;     // not empty: asked to stop ("user", "funds_exhausted")
  WallTime created_at, state_at;
  std::optional<WallTime> started_at, ended_at, deleted_at;
  std::optional<int64_t> exit_code;
  friend bool operator==(const Run&, const Run&) = default;
  template <class V>
  void visit(V&& v) {
    v("id", id), v("project_id", project), v("name", name), v("state", state);
    v("state_reason", state_reason), v("template_id", template_id), v("image", image);
    v("command", command), v("environment", environment), v("workdir_digest", workdir_digest);
    v("memory_bytes", memory_bytes), v("system_disk_bytes", system_disk_bytes);
    v("checkpoint_bytes", checkpoint_bytes), v("restarts", restarts);
    v("restarts_max", restarts_max), v("stop_at_step", stop_at_step);
    v("reference_of", reference_of), v("instance_id", instance);
    v("restart_cause", restart_cause), v("stop_cause", stop_cause), v("created_at", created_at);
    v("state_at", state_at), v("started_at", started_at), v("ended_at", ended_at);
    v("deleted_at", deleted_at), v("exit_code", exit_code);
  }
};

struct Leg {
  LegId id;
  RunId run;
  int64_t index = 0;
  Target target;
  InstanceId instance;
  LegState state = LegState::kPreparing;
  WallTime created_at;
  std::optional<WallTime> started_at, ended_at;
  int64_t metered_us = 0;
  Money cost;
  bool is_voided = false;  // its time is not billed: a host cause, or never a first step
  std::string end_reason;
  std::optional<int64_t> exit_code;
  // From the metrics stream.
  std::optional<int64_t> first_step, last_step, checkpoint_step;
  int64_t steps = 0;
  int64_t fresh_steps = 0;  // since its program last began: an error before the first comes again
  std::optional<double> loss_first, loss_last, t_first, t_last;  // t: Unix seconds of the node
  int64_t executions = 0, compiles = 0, peak_memory_bytes = 0;
  std::string memory_source, device, ended_event, error_reason, error_message;
  std::string sample_prompt, sample_text;
  std::optional<int64_t> sample_step;
  friend bool operator==(const Leg&, const Leg&) = default;
  template <class V>
  void visit(V&& v) {
    v("id", id), v("run_id", run), v("leg_index", index);
    target.visit(v);
    v("instance_id", instance), v("state", state), v("created_at", created_at);
    v("started_at", started_at), v("ended_at", ended_at), v("metered_us", metered_us);
    v("cost_micros", cost), v("is_voided", is_voided), v("end_reason", end_reason);
    v("exit_code", exit_code), v("first_step", first_step), v("last_step", last_step);
    v("checkpoint_step", checkpoint_step), v("steps", steps), v("fresh_steps", fresh_steps);
    v("loss_first", loss_first), v("loss_last", loss_last), v("t_first", t_first),
        v("t_last", t_last);
    v("executions", executions), v("compiles", compiles);
    v("peak_memory_bytes", peak_memory_bytes), v("memory_source", memory_source);
    v("device", device), v("ended_event", ended_event), v("error_reason", error_reason);
    v("error_message", error_message), v("sample_prompt", sample_prompt);
    v("sample_text", sample_text), v("sample_step", sample_step);
  }
};

struct Instance {
  InstanceId id;
  RunId run;
  NodeId node;
  LegId leg;  // the id it will carry; the leg itself opens when it starts
  int64_t generation = 1;
  Target target;
  std::vector<std::string> device_ids;
  bool holds_devices = true;
  VolumeId system_disk, checkpoint;  // empty while it only prepares
  int64_t attach_generation = 0;     // of the checkpoint volume
  Desired desired = Desired::kRun;
  std::optional<int64_t> stop_at_step;
  WallTime created_at, desired_at;
  // Observed.
  Phase phase = Phase::kNone;
  WallTime phase_at, reported_at;
  std::optional<int64_t> exit_code;
  bool is_oom = false, is_supervisor_lost = false, are_streams_sent = false;
  int64_t ran_us = 0;
  std::optional<int64_t> stop_seen_ran_us;
  std::optional<int64_t> stop_cap_us;  // the most that may be billed once a stop was asked for
  int64_t memory_peak_bytes = 0, cpu_time_us = 0;
  std::string error_reason, error_message;
  bool is_closed = false;  // proved gone, no longer in Desired
  friend bool operator==(const Instance&, const Instance&) = default;
  template <class V>
  void visit(V&& v) {
    v("id", id), v("run_id", run), v("node_id", node), v("leg_id", leg);
    v("generation", generation);
    target.visit(v);
    v("device_ids", device_ids), v("holds_devices", holds_devices);
    v("system_disk", system_disk), v("checkpoint_volume", checkpoint);
    v("attach_generation", attach_generation), v("desired", desired);
    v("stop_at_step", stop_at_step), v("created_at", created_at), v("desired_at", desired_at);
    v("phase", phase), v("phase_at", phase_at), v("reported_at", reported_at);
    v("exit_code", exit_code), v("is_oom", is_oom);
    v("is_supervisor_lost", is_supervisor_lost), v("are_streams_sent", are_streams_sent);
    v("ran_us", ran_us), v("stop_seen_ran_us", stop_seen_ran_us);
    v("stop_cap_us", stop_cap_us), v("memory_peak_bytes", memory_peak_bytes);
    v("cpu_time_us", cpu_time_us), v("error_reason", error_reason);
    v("error_message", error_message), v("is_closed", is_closed);
  }
};

struct Volume {
  VolumeId id;
  RunId run;
  NodeId node;
  std::string kind;  // "system" or "checkpoint"
  int64_t size_bytes = 0;
  SnapshotId from_snapshot;
  bool is_wanted = true;
  VolumeState state = VolumeState::kWanted;
  int64_t used_bytes = 0;
  int64_t attach_generation = 0;
  InstanceId attached_to;  // whom it is meant for; the agent's word is only proof of release
  std::string error;
  WallTime created_at;
  friend bool operator==(const Volume&, const Volume&) = default;
  template <class V>
  void visit(V&& v) {
    v("id", id), v("run_id", run), v("node_id", node), v("kind", kind);
    v("size_bytes", size_bytes), v("from_snapshot", from_snapshot), v("is_wanted", is_wanted);
    v("state", state), v("used_bytes", used_bytes), v("attach_generation", attach_generation);
    v("attached_to", attached_to), v("error", error), v("created_at", created_at);
  }
};

struct Snapshot {
  SnapshotId id;
  RunId run;
  NodeId node;
  VolumeId volume;
  bool is_wanted = true;
  SnapshotState state = SnapshotState::kWanted;
  int64_t size_bytes = 0, freeze_us = 0;
  std::string error;
  WallTime created_at;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
  template <class V>
  void visit(V&& v) {
    v("id", id), v("run_id", run), v("node_id", node), v("volume_id", volume);
    v("is_wanted", is_wanted), v("state", state), v("size_bytes", size_bytes);
    v("freeze_us", freeze_us), v("error", error), v("created_at", created_at);
  }
};

struct Switch {
  SwitchId id;
  RunId run;
  Target from, to;
  SwitchState state = SwitchState::kActive;
  SwitchStep step = SwitchStep::kReserve;
  std::string reason;
  std::optional<int64_t> at_step;
  int64_t verify_steps = 5;
  InstanceId old_instance, target_instance;
  SnapshotId system_snapshot, checkpoint_snapshot;
  bool is_falling_back = false;
  SwitchState falls_to = SwitchState::kFellBack;  // kCancelled when the user asked
  std::optional<int64_t> stopped_at_step, lost_steps, down_time_ms;
  WallTime created_at, step_at;
  std::optional<WallTime> ended_at;
  friend bool operator==(const Switch&, const Switch&) = default;
  template <class V>
  void visit(V&& v) {
    v("id", id), v("run_id", run);
    from.visit(v, "from_"), to.visit(v, "to_");
    v("state", state), v("step", step), v("reason", reason), v("at_step", at_step);
    v("verify_steps", verify_steps), v("old_instance", old_instance);
    v("target_instance", target_instance), v("system_snapshot", system_snapshot);
    v("checkpoint_snapshot", checkpoint_snapshot), v("is_falling_back", is_falling_back);
    v("falls_to", falls_to), v("stopped_at_step", stopped_at_step);
    v("lost_steps", lost_steps), v("down_time_ms", down_time_ms), v("created_at", created_at);
    v("step_at", step_at), v("ended_at", ended_at);
  }
};

}  // namespace anychip::fleet
