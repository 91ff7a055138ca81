#include "fleet/run.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "fleet/instance.h"
#include "fleet/switch.h"

namespace anychip::fleet {
namespace {

constexpr int64_t kExitFinished = 0;
constexpr int64_t kExitCheckpointed = 75;

RunState live_state(Facts& facts, const Instance* current) {
  if (!facts.run.stop_cause.empty()) return RunState::kStopping;
  if (facts.has_active_switch()) return RunState::kSwitching;
  if (!facts.run.restart_cause.empty()) return RunState::kPreparing;
  if (current == nullptr || current->phase == Phase::kNone) return RunState::kQueued;
  return current->phase >= Phase::kRunning ? RunState::kRunning : RunState::kPreparing;
}

void refresh_state(Facts& facts, const Context& context) {
  Run& run = facts.run;
  if (is_ended(run.state)) return;
  const RunState state = live_state(facts, facts.instance(run.instance));
  set_state(facts, context, state, state == run.state ? run.state_reason : run.restart_cause);
}

void note_start(Facts& facts, const Instance& current) {
  if (facts.run.started_at) return;
  if (const Leg* leg = facts.leg_of(current); leg != nullptr && leg->started_at) {
    facts.run.started_at = leg->started_at;
    facts.has_moved = true;
  }
}

// The instance ended without having been asked. Another one starts from the last periodic
// checkpoint, unless that has been tried often enough or cannot help.
void restart_or_fail(Facts& facts, const Context& context, Instance& current, std::string cause) {
  Run& run = facts.run;
  Leg* leg = facts.leg_of(current);
  const bool never_ran = leg == nullptr || !leg->started_at;
  // A script that says why it ends, or ends by its own exit status, before its first step would do
  // the same again (a usage error, a foreign checkpoint); a signal or a lost supervisor may not.
  const bool is_own_exit = current.phase >= Phase::kExited && !current.is_supervisor_lost &&
                           current.exit_code.value_or(0) > 0 && current.exit_code.value_or(0) < 128;
  const bool has_own_words =
      leg != nullptr && leg->fresh_steps == 0 && (!leg->error_reason.empty() || is_own_exit);
  if (leg != nullptr) end_leg(facts, context, *leg, cause);
  set_desired(facts, context, current, Desired::kGone);
  if (has_own_words || (never_ran && leg != nullptr && leg->index == 0)) {
    end_run(facts, context, RunState::kFailed, cause);
    return;
  }
  if (run.restarts >= run.restarts_max) {
    end_run(facts, context, RunState::kFailed,
            fmt::format("{}; it was restarted {} times already", cause, run.restarts));
    return;
  }
  run.restarts += 1;
  run.restart_cause = cause;
  facts.tell("run.restart",
             fmt::format("restart {} of {}: {}", run.restarts, run.restarts_max, cause));
  set_state(facts, context, RunState::kPreparing, fmt::format("restarting: {}", cause));
}

void try_relaunch(Facts& facts, const Context& context, Instance& old) {
  set_desired(facts, context, old, Desired::kGone);
  if (old.phase != Phase::kGone || old.holds_devices) return;  // its disks and device come first
  const auto placed = place({old.target.chip, old.target.count, old.node, old.device_ids},
                            facts.devices, facts.nodes);
  if (!placed) {
    if (is_overdue(facts, context, old.node, old.phase_at, context.limits.capacity)) {
      end_run(facts, context, RunState::kFailed,
              fmt::format("{}; no equal device became free: {}", facts.run.restart_cause,
                          placed.error().message));
      return;
    }
    set_state(facts, context, RunState::kPreparing,
              fmt::format("waiting for a free {}: {}", old.target.chip, facts.run.restart_cause));
    return;
  }
  launch(facts, context,
         {old.target, placed->node, placed->device_ids, old.system_disk, old.checkpoint});
}

void on_exit(Facts& facts, const Context& context, Instance& current) {
  if (!is_drained(facts, context, current)) return;
  const bool is_clean = !current.is_oom && !current.is_supervisor_lost && current.exit_code;
  if (is_clean && *current.exit_code == kExitFinished) {
    end_run(facts, context, RunState::kFinished, "");
  } else if (is_clean && *current.exit_code == kExitCheckpointed) {
    const std::string reason =
        current.stop_at_step ? fmt::format("stopped at step {} as asked", *current.stop_at_step)
                             : "stopped by itself with a checkpoint";
    end_run(facts, context, RunState::kStopped, reason);
  } else {
    restart_or_fail(facts, context, current, cause_of(facts, current));
  }
}

std::string stop_words(const Facts& facts, const Instance& current) {
  const std::string why =
      facts.run.stop_cause == "funds_exhausted" ? "the balance is used up" : "stopped as asked";
  if (current.exit_code == kExitCheckpointed) return why + ", with a checkpoint";
  for (const Leg& leg : facts.legs) {
    if (leg.id != current.leg || !leg.checkpoint_step) continue;
    return fmt::format("{}; the last periodic checkpoint is of step {}", why, *leg.checkpoint_step);
  }
  return why + ", before a checkpoint was written";
}

void advance_stopping(Facts& facts, const Context& context, Instance& current) {
  switch (current.phase) {
    case Phase::kNone:
    case Phase::kPreparing:
    case Phase::kPrepared:
    case Phase::kStarting: set_desired(facts, context, current, Desired::kGone); return;
    case Phase::kRunning:
      set_desired(facts, context, current, Desired::kStop);
      if (is_overdue(facts, context, current.node, current.desired_at,
                     context.limits.stop_grace + context.limits.stop_extra)) {
        set_desired(facts, context, current, Desired::kGone);
      }
      return;
    case Phase::kExited:
      if (!is_drained(facts, context, current)) return;
      if (current.exit_code == kExitFinished) {
        end_run(facts, context, RunState::kFinished, "");
        return;
      }
      [[fallthrough]];
    case Phase::kFailed:
    case Phase::kGone: end_run(facts, context, RunState::kStopped, stop_words(facts, current));
  }
}

void advance_waiting(Facts& facts, const Context& context, Instance& current) {
  const Limits& limits = context.limits;
  const bool is_untouched = current.phase == Phase::kNone;
  const bool is_starting = current.phase == Phase::kStarting;
  const Duration limit = is_untouched ? limits.queued : is_starting ? limits.start : limits.prepare;
  if (is_overdue(facts, context, current.node, current.phase_at, limit)) {
    restart_or_fail(
        facts, context, current,
        fmt::format("it stayed {} for {} minutes", is_untouched ? "queued" : name_of(current.phase),
                    limit.us / minutes(1).us));
  }
}

void advance_run(Facts& facts, const Context& context) {
  Run& run = facts.run;
  Instance* current = facts.instance(run.instance);
  CHECK_MSG(current != nullptr, "a run without an instance");
  note_start(facts, *current);
  if (!run.stop_cause.empty()) return advance_stopping(facts, context, *current);
  if (!run.restart_cause.empty()) return try_relaunch(facts, context, *current);
  if (current->phase <= Phase::kRunning) {
    if (const std::string device = missing_device(facts, *current); !device.empty()) {
      return restart_or_fail(facts, context, *current, fmt::format("device {} is gone", device));
    }
  }
  switch (current->phase) {
    case Phase::kNone:
    case Phase::kPreparing:
    case Phase::kPrepared:
    case Phase::kStarting: return advance_waiting(facts, context, *current);
    case Phase::kRunning: return;
    case Phase::kExited: return on_exit(facts, context, *current);
    case Phase::kFailed:
    case Phase::kGone: return restart_or_fail(facts, context, *current, cause_of(facts, *current));
  }
}

void advance_ended(Facts& facts, const Context& context) {
  for (Instance& instance : facts.instances) {
    if (!instance.is_closed) set_desired(facts, context, instance, Desired::kGone);
  }
}

// True while nothing can be known or done because the node is away.
bool wait_for_node(Facts& facts, const Context& context) {
  const Instance* current = facts.instance(facts.run.instance);
  if (current == nullptr) return false;
  const Node* node = facts.node(current->node);
  if (node != nullptr && node->is_ready) return false;
  if (current->phase == Phase::kNone && !facts.has_active_switch()) {
    set_state(facts, context, RunState::kQueued, "waiting for its node to report");
  } else {
    set_state(facts, context, RunState::kLost,
              "its node has not reported; billing stands at the last report");
  }
  return true;
}

}  // namespace

void advance(Facts& facts, const Context& context) {
  constexpr int kRoundsMax = 64;
  for (int round = 0;; ++round) {
    CHECK_MSG(round < kRoundsMax, "a run's state machine does not come to rest");
    facts.has_moved = false;
    settle_instances(facts, context);
    if (is_ended(facts.run.state)) {
      advance_ended(facts, context);
    } else if (!wait_for_node(facts, context)) {
      if (facts.has_active_switch()) advance_switch(facts, context);
      if (!facts.has_active_switch() && !is_ended(facts.run.state)) advance_run(facts, context);
      refresh_state(facts, context);
    }
    settle_instances(facts, context);
    if (!facts.has_moved) return;
  }
}

void begin_run(Facts& facts, const Context& context, const Target& target,
               const Placement& placement) {
  Run& run = facts.run;
  const VolumeId system_disk =
      create_volume(facts, context, "system", placement.node, run.system_disk_bytes, {}).id;
  const VolumeId checkpoint =
      create_volume(facts, context, "checkpoint", placement.node, run.checkpoint_bytes, {}).id;
  facts.tell("run.created",
             fmt::format("run {} was made on {} × {}", run.name, target.count, target.chip));
  launch(facts, context, {target, placement.node, placement.device_ids, system_disk, checkpoint});
}

Status request_stop(Facts& facts, const Context& context, std::string cause) {
  Run& run = facts.run;
  if (is_ended(run.state)) {
    return fail(Code::kFailedPrecondition, "run_ended",
                fmt::format("run {} is {} already", run.name, name_of(run.state)));
  }
  if (!run.stop_cause.empty()) return {};
  run.stop_cause = std::move(cause);
  facts.tell("run.stop_requested",
             run.stop_cause == "funds_exhausted"
                 ? "the balance is used up: the run writes a checkpoint and stops"
                 : "the run was asked to write a checkpoint and stop");
  if (facts.has_active_switch()) abandon_switch(facts, context, "the run was asked to stop");
  run.restart_cause.clear();
  advance(facts, context);
  return {};
}

}  // namespace anychip::fleet
