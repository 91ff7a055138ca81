#include "fleet/instance.h"

#include <algorithm>

#include "base/check.h"

namespace anychip::fleet {
namespace {

template <class T>
bool raise_to(T& value, T seen) {
  if (seen <= value) return false;
  value = seen;
  return true;
}

bool is_phase_forward(const Instance& instance, Phase seen) {
  if (seen <= instance.phase) return false;
  // An exit was proved: a later "could not start" is a stale tale of the same instance.
  return !(instance.phase == Phase::kExited && seen == Phase::kFailed);
}

bool must_hold_devices(const Facts& facts, const Instance& instance) {
  // The old chip is kept until the switch is settled, so that there is something to fall back to.
  return facts.has_active_switch() && facts.active->old_instance == instance.id;
}

void release(Facts& facts, Instance& instance) {
  instance.holds_devices = false;
  for (Device& device : facts.devices) {
    if (device.lessee == instance.id) device.lessee = {};
  }
  facts.has_moved = true;
}

}  // namespace

bool observe(Instance& instance, const Observation& seen, WallTime now) {
  if (seen.generation != instance.generation || instance.is_closed) return false;
  instance.reported_at = std::max(instance.reported_at, now);
  bool has_changed = false;
  if (is_phase_forward(instance, seen.phase)) {
    instance.phase = seen.phase;
    instance.phase_at = now;
    has_changed = true;
  }
  // A container that was never started, or whose supervisor died, has no exit code to tell.
  const bool has_exit =
      seen.phase == Phase::kExited || (seen.phase == Phase::kGone && seen.ran_us > 0);
  if (seen.exit_code && !instance.exit_code && has_exit && !seen.is_supervisor_lost &&
      !instance.is_supervisor_lost) {
    instance.exit_code = seen.exit_code;
    has_changed = true;
  }
  if (seen.stop_seen_ran_us && !instance.stop_seen_ran_us) {
    instance.stop_seen_ran_us = seen.stop_seen_ran_us;
    has_changed = true;
  }
  has_changed |= raise_to(instance.ran_us, seen.ran_us);
  has_changed |= raise_to(instance.memory_peak_bytes, seen.memory_peak_bytes);
  has_changed |= raise_to(instance.cpu_time_us, seen.cpu_time_us);
  has_changed |= raise_to(instance.is_oom, seen.is_oom);
  has_changed |= raise_to(instance.is_supervisor_lost, seen.is_supervisor_lost);
  has_changed |= raise_to(instance.are_streams_sent, seen.are_streams_sent);
  // Beside another phase than `failed` it is only the last try's word, and may pass.
  if (seen.phase == instance.phase && seen.error_message != instance.error_message) {
    instance.error_reason = seen.error_reason;
    instance.error_message = seen.error_message;
    has_changed = true;
  }
  return has_changed;
}

void cap_at_stop(Instance& instance, WallTime now) {
  // It cannot have run longer at the request than it had at the last report, plus the time since.
  const bool may_run = instance.phase < Phase::kExited;
  const Duration since_report = now - instance.reported_at;
  instance.stop_cap_us = instance.ran_us + (may_run ? std::max<int64_t>(since_report.us, 0) : 0);
}

void meter(Leg& leg, const Instance& instance) {
  int64_t billed_us = instance.ran_us;
  if (instance.desired >= Desired::kStop) {
    if (instance.stop_cap_us) billed_us = std::min(billed_us, *instance.stop_cap_us);
    if (instance.stop_seen_ran_us) billed_us = std::min(billed_us, *instance.stop_seen_ran_us);
  }
  leg.metered_us = std::max(leg.metered_us, billed_us);
  const auto cost = cost_of(leg.target.price, microseconds(leg.metered_us));
  CHECK_MSG(cost.has_value(), "the cost of a leg does not fit in 64 bits");
  leg.cost = leg.is_voided ? Money{} : *cost;
}

void settle_instances(Facts& facts, const Context& context) {
  for (Instance& instance : facts.instances) {
    Leg* leg = facts.leg_of(instance);
    if (leg != nullptr) {
      if (instance.phase >= Phase::kRunning && instance.ran_us > 0 && !leg->started_at) {
        leg->started_at = context.now - microseconds(instance.ran_us);
        facts.has_moved = true;
      }
      if (instance.phase == Phase::kRunning && leg->state == LegState::kPreparing) {
        leg->state = LegState::kRunning;
        facts.has_moved = true;
      }
      leg->peak_memory_bytes = std::max(
          leg->peak_memory_bytes, leg->memory_source.empty() ? instance.memory_peak_bytes : 0);
      meter(*leg, instance);
    }
    const bool is_gone = instance.phase == Phase::kGone && instance.desired == Desired::kGone;
    if (is_gone && !instance.is_closed && is_drained(facts, context, instance)) {
      instance.is_closed = true;
      facts.has_moved = true;
    }
    if (is_gone) {
      for (Volume& volume : facts.volumes) {
        if (volume.attached_to == instance.id) {
          volume.attached_to = {};
          facts.has_moved = true;
        }
      }
    }
    if (is_gone && instance.holds_devices && !must_hold_devices(facts, instance)) {
      release(facts, instance);
    }
  }
}

}  // namespace anychip::fleet
