#include "fleet/switch.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "fleet/curve.h"
#include "fleet/run.h"

namespace anychip::fleet {
namespace {

void go_to(Facts& facts, const Context& context, SwitchStep step, std::string words) {
  Switch& active = *facts.active;
  CHECK(step > active.step);
  active.step = step;
  active.step_at = context.now;
  facts.has_moved = true;
  facts.tell(
      "switch." + std::string(name_of(step)),
      fmt::format("switch, step {} of 8 ({}): {}", static_cast<int>(step), name_of(step), words));
}

void finish(Facts& facts, const Context& context, SwitchState state, std::string reason) {
  Switch& active = *facts.active;
  CHECK(active.state == SwitchState::kActive);
  active.state = state;
  active.ended_at = context.now;
  if (active.reason.empty()) active.reason = std::move(reason);
  facts.has_moved = true;
  facts.tell("switch." + std::string(name_of(state)),
             active.reason.empty()
                 ? fmt::format("the switch to {} is done", active.to.chip)
                 : fmt::format("the switch to {}: {}", active.to.chip, active.reason));
}

// Before step 4 has had an effect: the old leg was never touched and goes on.
void give_up(Facts& facts, const Context& context, SwitchState state, std::string reason) {
  Switch& active = *facts.active;
  if (Instance* target = facts.instance(active.target_instance)) {
    set_desired(facts, context, *target, Desired::kGone);
  }
  if (Instance* old = facts.instance(active.old_instance)) {
    set_stop_at_step(facts, *old, facts.run.stop_at_step);
  }
  finish(facts, context, state, std::move(reason));
}

void fall_back(Facts& facts, const Context& context, std::string reason, bool is_host_cause) {
  Switch& active = *facts.active;
  if (active.is_falling_back) return;
  active.is_falling_back = true;
  active.reason = reason;
  active.step_at = context.now;
  facts.has_moved = true;
  facts.tell("switch.falling_back", fmt::format("back to {}: {}", active.from.chip, active.reason));
  Instance* target = facts.instance(active.target_instance);
  if (target == nullptr) return;
  set_desired(facts, context, *target, Desired::kGone);
  if (Leg* leg = facts.leg_of(*target)) {
    // A switch target that gave no step, or fell back through no fault of the script, costs nothing
    // (design §5). Every other leg is billed for what it ran: not all commands count steps.
    if (is_host_cause || leg->steps == 0) leg->is_voided = true;
    end_leg(facts, context, *leg, std::move(reason));
  }
}

void measure(Facts& facts) {
  Switch& active = *facts.active;
  const Instance* old = facts.instance(active.old_instance);
  const Instance* target = facts.instance(active.target_instance);
  const Leg* from = old == nullptr ? nullptr : facts.leg_of(*old);
  if (from == nullptr || !from->last_step || old->phase < Phase::kExited) return;
  active.stopped_at_step = from->last_step;
  const Leg* to = target == nullptr ? nullptr : facts.leg_of(*target);
  if (to == nullptr || !to->first_step) return;
  active.lost_steps = std::max<int64_t>(*from->last_step - (*to->first_step - 1), 0);
  if (from->t_last && to->t_first) {
    active.down_time_ms = static_cast<int64_t>((*to->t_first - *from->t_last) * 1000.0);
  }
}

std::string minutes_text(Duration limit) {
  return fmt::format("{} minutes", limit.us / minutes(1).us);
}

// Steps 3 and 4: the old leg runs. True when it has come to its end and step 5 may begin.
bool old_leg_has_stopped(Facts& facts, const Context& context, Instance& old) {
  if (old.phase < Phase::kExited) return false;
  if (old.phase == Phase::kExited && old.exit_code == 0 && !old.is_oom) {
    give_up(facts, context, SwitchState::kRefused,
            "the run came to its end before the switch could take place");
    return false;
  }
  return true;
}

void step_prepare(Facts& facts, const Context& context, Instance& old, Instance& target) {
  Switch& active = *facts.active;
  if (target.phase == Phase::kFailed) {
    return give_up(
        facts, context, SwitchState::kFailed,
        fmt::format("{} could not be made ready: {}", active.to.chip, cause_of(facts, target)));
  }
  if (old_leg_has_stopped(facts, context, old)) {
    const bool is_checkpointed = old.phase == Phase::kExited && old.exit_code == 75;
    if (!is_checkpointed || !active.at_step) {
      return give_up(facts, context, SwitchState::kFailed,
                     fmt::format("the leg on {} ended by itself before it was asked: {}",
                                 active.from.chip, cause_of(facts, old)));
    }
  }
  if (!facts.has_active_switch()) return;
  const std::string device = missing_device(facts, target);
  if (!device.empty()) {
    return give_up(facts, context, SwitchState::kFailed, fmt::format("device {} is gone", device));
  }
  if (target.phase >= Phase::kPrepared) {
    go_to(facts, context, SwitchStep::kCheckpoint,
          active.at_step
              ? fmt::format("the leg on {} stops with a checkpoint at step {}", active.from.chip,
                            *active.at_step)
              : fmt::format("the leg on {} is asked for its checkpoint", active.from.chip));
    if (!active.at_step) set_desired(facts, context, old, Desired::kStop);
    return;
  }
  if (is_overdue(facts, context, target.node, active.step_at, context.limits.prepare)) {
    give_up(facts, context, SwitchState::kFailed,
            fmt::format("{} was not ready within {}", active.to.chip,
                        minutes_text(context.limits.prepare)));
  }
}

void begin_inherit(Facts& facts, const Context& context, Instance& old) {
  Switch& active = *facts.active;
  const Volume* system_disk = facts.volume(old.system_disk);
  const Volume* checkpoint = facts.volume(old.checkpoint);
  CHECK(system_disk != nullptr && checkpoint != nullptr);
  const VolumeId system_id = system_disk->id, checkpoint_id = checkpoint->id;
  active.system_snapshot = create_snapshot(facts, context, *facts.volume(system_id)).id;
  active.checkpoint_snapshot = create_snapshot(facts, context, *facts.volume(checkpoint_id)).id;
  const bool is_clean = old.phase == Phase::kExited && old.exit_code == 75;
  if (Leg* leg = facts.leg_of(old)) {
    end_leg(facts, context, *leg,
            is_clean ? fmt::format("switched to {}", active.to.chip)
                     : fmt::format("switched to {} without a last checkpoint: {}", active.to.chip,
                                   cause_of(facts, old)));
  }
  set_desired(facts, context, old, Desired::kGone);
  go_to(facts, context, SwitchStep::kInherit,
        is_clean ? "the checkpoint is written; the disks move"
                 : "the last periodic checkpoint counts; the disks move");
}

void step_checkpoint(Facts& facts, const Context& context, Instance& old, Instance& target) {
  Switch& active = *facts.active;
  const bool was_asked = old.desired >= Desired::kStop;
  if (target.phase == Phase::kFailed || !missing_device(facts, target).empty()) {
    const std::string cause = target.phase == Phase::kFailed
                                  ? cause_of(facts, target)
                                  : fmt::format("device {} is gone", missing_device(facts, target));
    if (!was_asked && old.phase < Phase::kExited) {
      return give_up(facts, context, SwitchState::kFailed, cause);
    }
    return fall_back(facts, context, cause, true);
  }
  if (old_leg_has_stopped(facts, context, old)) return begin_inherit(facts, context, old);
  if (!facts.has_active_switch()) return;
  if (was_asked) {
    const Duration limit = context.limits.stop_grace + context.limits.stop_extra;
    // Removing it by force ends as `gone`, which is proof enough for step 5.
    if (is_overdue(facts, context, old.node, active.step_at, limit)) {
      set_desired(facts, context, old, Desired::kGone);
    }
  } else if (is_overdue(facts, context, old.node, active.step_at, context.limits.at_step)) {
    give_up(facts, context, SwitchState::kFailed,
            fmt::format("step {} was not reached within {}", *active.at_step,
                        minutes_text(context.limits.at_step)));
  }
}

void step_inherit(Facts& facts, const Context& context, Instance& old, Instance& target) {
  Switch& active = *facts.active;
  const Snapshot* system = facts.snapshot(active.system_snapshot);
  const Snapshot* checkpoint = facts.snapshot(active.checkpoint_snapshot);
  CHECK(system != nullptr && checkpoint != nullptr);
  for (const Snapshot* snapshot : {system, checkpoint}) {
    if (snapshot->state == SnapshotState::kFailed) {
      return fall_back(facts, context, "the snapshot failed: " + snapshot->error, true);
    }
  }
  if (target.phase == Phase::kFailed || target.phase == Phase::kGone) {
    return fall_back(facts, context, cause_of(facts, target), true);
  }
  const bool is_ready =
      system->state == SnapshotState::kReady && checkpoint->state == SnapshotState::kReady;
  if (is_ready && old.phase == Phase::kGone) {
    const int64_t size_bytes = facts.volume(old.system_disk)->size_bytes;
    const VolumeId disk =
        create_volume(facts, context, "system", target.node, size_bytes, system->id).id;
    start_prepared(facts, context, target, disk, old.checkpoint);
    go_to(facts, context, SwitchStep::kResume,
          fmt::format("the same command starts on {} with --backend {}", active.to.chip,
                      active.to.back_end));
    return;
  }
  if (is_overdue(facts, context, old.node, active.step_at, context.limits.inherit)) {
    fall_back(facts, context,
              "the disks did not move within " + minutes_text(context.limits.inherit), true);
  }
}

// Steps 6 and 7: whether the target is still alive; falls back when not.
bool target_is_alive(Facts& facts, const Context& context, Instance& target) {
  if (const std::string device = missing_device(facts, target); !device.empty()) {
    fall_back(facts, context, fmt::format("device {} is gone", device), true);
    return false;
  }
  if (target.phase < Phase::kExited) return true;
  const bool has_ended_well = target.phase == Phase::kExited && !target.is_oom &&
                              (target.exit_code == 0 || target.exit_code == 75);
  if (has_ended_well) return true;  // the run's own rules decide after the switch is settled
  if (target.phase == Phase::kExited && !is_drained(facts, context, target)) return false;
  const bool is_host_cause = target.phase != Phase::kExited || target.is_supervisor_lost;
  fall_back(facts, context,
            fmt::format("the leg on {} failed: {}", facts.active->to.chip, cause_of(facts, target)),
            is_host_cause);
  return false;
}

void step_resume(Facts& facts, const Context& context, Instance& target) {
  if (!target_is_alive(facts, context, target)) return;
  if (target.phase >= Phase::kRunning) {
    go_to(facts, context, SwitchStep::kVerify,
          fmt::format("the first {} steps are compared with the old curve",
                      facts.active->verify_steps));
  } else if (is_overdue(facts, context, target.node, facts.active->step_at,
                        context.limits.resume)) {
    fall_back(facts, context,
              fmt::format("{} did not start within {}", facts.active->to.chip,
                          minutes_text(context.limits.resume)),
              true);
  }
}

void settle(Facts& facts, const Context& context, Instance& target) {
  go_to(facts, context, SwitchStep::kSettle,
        fmt::format("{} carries the run; the old chip is given back", facts.active->to.chip));
  measure(facts);
  // The snapshot keeps the old system disk; the checkpoints as they were are no longer needed.
  if (const Instance* old = facts.instance(facts.active->old_instance)) {
    if (Volume* disk = facts.volume(old->system_disk)) disk->is_wanted = false;
  }
  if (Snapshot* checkpoint = facts.snapshot(facts.active->checkpoint_snapshot)) {
    checkpoint->is_wanted = false;
  }
  facts.run.instance = target.id;
  finish(facts, context, SwitchState::kDone, "");
}

void step_verify(Facts& facts, const Context& context, Instance& target) {
  if (!target_is_alive(facts, context, target)) return;
  const Switch& active = *facts.active;
  const Verification seen =
      verify_curve(facts.baseline_losses, facts.target_losses, active.verify_steps);
  if (seen.verdict == Verdict::kFailed) return fall_back(facts, context, seen.reason, false);
  const bool has_ended = target.phase == Phase::kExited && is_drained(facts, context, target);
  if (seen.verdict == Verdict::kPassed || has_ended) return settle(facts, context, target);
  if (is_overdue(facts, context, target.node, active.step_at, context.limits.verify)) {
    const Leg* leg = facts.leg_of(target);
    fall_back(facts, context,
              fmt::format("{} made {} of the first {} steps within {}", active.to.chip,
                          leg == nullptr ? 0 : leg->steps, active.verify_steps,
                          minutes_text(context.limits.verify)),
              false);
  }
}

// The disks for the way back: as they were when nobody has written since, else from the snapshots.
std::pair<VolumeId, VolumeId> disks_for_return(Facts& facts, const Context& context,
                                               const Instance& old, const Instance& target) {
  const Switch& active = *facts.active;
  if (facts.leg_of(target) == nullptr) return {old.system_disk, old.checkpoint};
  const auto from = [&](VolumeId id, SnapshotId snapshot) {
    const Volume before = *facts.volume(id);
    return create_volume(facts, context, before.kind, before.node, before.size_bytes, snapshot).id;
  };
  const VolumeId system_disk = from(old.system_disk, active.system_snapshot);
  const VolumeId checkpoint = from(old.checkpoint, active.checkpoint_snapshot);
  for (const VolumeId& id : {old.system_disk, target.system_disk, old.checkpoint}) {
    facts.volume(id)->is_wanted = false;
  }
  return {system_disk, checkpoint};
}

void advance_fall_back(Facts& facts, const Context& context, Instance& old, Instance& target) {
  const Switch& active = *facts.active;
  if (old.phase == Phase::kExited && old.exit_code == 0 && facts.leg_of(target) == nullptr) {
    return give_up(facts, context, SwitchState::kRefused, "the run came to its end");
  }
  set_desired(facts, context, target, Desired::kGone);
  const bool is_out_of_time = is_overdue(facts, context, old.node, active.step_at,
                                         context.limits.stop_grace + context.limits.stop_extra);
  if (old.phase >= Phase::kExited || is_out_of_time) {
    if (Leg* leg = facts.leg_of(old)) end_leg(facts, context, *leg, "stopped for a switch");
    set_desired(facts, context, old, Desired::kGone);
  }
  if (old.phase != Phase::kGone || target.phase != Phase::kGone) return;
  // Its own devices are free for it: the switch has held them.
  std::vector<Device> devices = facts.devices;
  for (Device& device : devices) {
    if (device.lessee == old.id) device.lessee = {};
  }
  const auto placed =
      place({old.target.chip, old.target.count, old.node, old.device_ids}, devices, facts.nodes);
  const Instance before = old;  // launch() may move the list
  if (!placed) {
    facts.run.restart_cause = active.reason;  // waits for an equal device like any restart
    const auto [system_disk, checkpoint] = disks_for_return(facts, context, before, target);
    Instance* stays = facts.instance(before.id);
    stays->system_disk = system_disk;
    stays->checkpoint = checkpoint;
    facts.run.instance = before.id;
    return finish(facts, context, active.falls_to, "");
  }
  facts.instance(before.id)->holds_devices = false;
  for (Device& device : facts.devices) {
    if (device.lessee == before.id) device.lessee = {};
  }
  const auto [system_disk, checkpoint] = disks_for_return(facts, context, before, target);
  launch(facts, context,
         {before.target, placed->node, placed->device_ids, system_disk, checkpoint});
  finish(facts, context, active.falls_to, "");
}

}  // namespace

std::vector<Refusal> check_switch(const Facts& facts, const Target* target,
                                  const SwitchWish& wish) {
  std::vector<Refusal> refusals;
  const Run& run = facts.run;
  const auto refuse = [&](Code code, std::string reason, std::string message, std::string pointer,
                          std::string hint = {}) {
    refusals.push_back(
        {code, std::move(reason), std::move(message), std::move(hint), std::move(pointer)});
  };
  constexpr Code kConflict = Code::kFailedPrecondition;
  if (is_ended(run.state)) {
    refuse(kConflict, "run_ended", fmt::format("run {} is {}", run.name, name_of(run.state)), "");
  } else if (facts.has_active_switch()) {
    refuse(kConflict, "switch_active",
           fmt::format("run {} is being switched to {} already", run.name, facts.active->to.chip),
           "", "wait for it, or cancel it");
  } else if (run.state != RunState::kRunning) {
    refuse(kConflict, run.state == RunState::kLost ? "node_lost" : "run_not_running",
           fmt::format("run {} is {}; only a running one can be switched", run.name,
                       name_of(run.state)),
           "", "try again once it runs");
  }
  if (wish.verify_steps < 1 || wish.verify_steps > 1000) {
    refuse(Code::kInvalidArgument, "verify_steps_invalid", "verify_steps must be 1 to 1000",
           "/verify_steps");
  }
  const Leg* leg = facts.legs.empty() ? nullptr : &facts.legs.back();
  if (wish.at_step && leg != nullptr && *wish.at_step <= leg->last_step.value_or(0)) {
    refuse(Code::kInvalidArgument, "at_step_passed",
           fmt::format("step {} is past: the run is at step {}", *wish.at_step,
                       leg->last_step.value_or(0)),
           "/at_step");
  }
  if (wish.at_step && run.stop_at_step && *wish.at_step >= *run.stop_at_step) {
    refuse(Code::kInvalidArgument, "at_step_after_stop",
           fmt::format("the run stops at step {}", *run.stop_at_step), "/at_step");
  }
  if (target == nullptr) return refusals;
  if (target->count < 1) {
    refuse(Code::kInvalidArgument, "count_invalid", "count must be at least 1", "/count");
    return refusals;
  }
  if (leg != nullptr && leg->target.chip == target->chip && leg->target.count == target->count) {
    refuse(kConflict, "switch_to_same",
           fmt::format("run {} is on {} × {} already", run.name, target->count, target->chip),
           "/chip");
    return refusals;
  }
  for (const Instance& current : facts.instances) {
    if (current.id != run.instance) continue;
    const auto placed =
        place({target->chip, target->count, current.node, {}}, facts.devices, facts.nodes);
    if (!placed) {
      const Error& error = placed.error();
      refuse(error.code, error.reason, error.message, "/count", error.hint);
    }
  }
  return refusals;
}

Status begin_switch(Facts& facts, const Context& context, const Target& target,
                    const SwitchWish& wish) {
  const Instance* current = facts.instance(facts.run.instance);
  CHECK(current != nullptr && !facts.has_active_switch());
  TRY(const Placement placement,
      place({target.chip, target.count, current->node, {}}, facts.devices, facts.nodes));
  Switch active;
  active.id = SwitchId::make(context.now, context.random);
  active.run = facts.run.id;
  active.from = current->target;
  active.to = target;
  active.at_step = wish.at_step;
  active.verify_steps = wish.verify_steps;
  active.old_instance = current->id;
  active.created_at = active.step_at = context.now;

  Instance instance;
  instance.id = InstanceId::make(context.now, context.random);
  instance.run = facts.run.id;
  instance.leg = LegId::make(context.now, context.random);
  instance.node = placement.node;
  instance.target = target;
  instance.device_ids = placement.device_ids;
  instance.desired = Desired::kPrepare;
  instance.stop_at_step = facts.run.stop_at_step;
  instance.created_at = instance.desired_at = context.now;
  instance.phase_at = instance.reported_at = context.now;
  active.target_instance = instance.id;
  for (Device& device : facts.devices) {
    const auto& ids = placement.device_ids;
    if (device.node == placement.node &&
        std::find(ids.begin(), ids.end(), device.id) != ids.end()) {
      CHECK(device.lessee.empty());
      device.lessee = instance.id;
    }
  }
  if (wish.at_step) set_stop_at_step(facts, *facts.instance(facts.run.instance), wish.at_step);
  facts.instances.push_back(std::move(instance));
  facts.active = std::move(active);
  facts.tell("switch.check", fmt::format("switch, step 1 of 8 (check): {} × {} to {} × {}",
                                         facts.active->from.count, facts.active->from.chip,
                                         target.count, target.chip));
  facts.tell("switch.reserve", fmt::format("switch, step 2 of 8 (reserve): {} is held",
                                           fmt::join(placement.device_ids, ", ")));
  go_to(facts, context, SwitchStep::kPrepare,
        fmt::format("the image for {} is made ready while the run goes on", target.chip));
  return {};
}

void advance_switch(Facts& facts, const Context& context) {
  Switch& active = *facts.active;
  Instance* old = facts.instance(active.old_instance);
  Instance* target = facts.instance(active.target_instance);
  CHECK(old != nullptr && target != nullptr);
  measure(facts);
  if (active.is_falling_back) return advance_fall_back(facts, context, *old, *target);
  switch (active.step) {
    case SwitchStep::kCheck:
    case SwitchStep::kReserve:
    case SwitchStep::kSettle: CHECK_MSG(false, "a switch rests in a step that never rests");
    case SwitchStep::kPrepare: return step_prepare(facts, context, *old, *target);
    case SwitchStep::kCheckpoint: return step_checkpoint(facts, context, *old, *target);
    case SwitchStep::kInherit: return step_inherit(facts, context, *old, *target);
    case SwitchStep::kResume: return step_resume(facts, context, *target);
    case SwitchStep::kVerify: return step_verify(facts, context, *target);
  }
}

Status cancel_switch(Facts& facts, const Context& context) {
  if (!facts.has_active_switch()) {
    return fail(Code::kFailedPrecondition, "switch_not_active",
                "the switch has ended; there is nothing to cancel");
  }
  Switch& active = *facts.active;
  const Instance* old = facts.instance(active.old_instance);
  CHECK(old != nullptr);
  const bool is_untouched = old->phase < Phase::kExited && old->desired == Desired::kRun;
  if (is_untouched && active.step <= SwitchStep::kCheckpoint) {
    give_up(facts, context, SwitchState::kCancelled, "cancelled as asked");
  } else {
    active.falls_to = SwitchState::kCancelled;
    fall_back(facts, context, "cancelled as asked", false);
  }
  advance(facts, context);
  return {};
}

void abandon_switch(Facts& facts, const Context& context, std::string reason) {
  Switch& active = *facts.active;
  Instance* target = facts.instance(active.target_instance);
  CHECK(target != nullptr);
  if (facts.leg_of(*target) != nullptr && !active.is_falling_back) {
    facts.run.instance = target->id;  // it carries the run now; the old one is gone
  } else {
    set_desired(facts, context, *target, Desired::kGone);
  }
  finish(facts, context, SwitchState::kCancelled, std::move(reason));
}

}  // namespace anychip::fleet
