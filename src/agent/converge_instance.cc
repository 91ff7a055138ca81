// One instance: started once, stopped in order, removed with its last numbers kept.
#include <csignal>

#include "agent/converge.h"
#include "base/json.h"
#include "base/log.h"

namespace anychip::agent {
namespace {

constexpr Duration kKillAgainAfter = seconds(1);
constexpr Duration kKillPatience = seconds(5);  // then RemoveContainer without an exit code
constexpr Duration kLogPatience = minutes(10);  // of a removed instance that nobody wants any more

}  // namespace

void Converger::converge_instance(const WantedInstance& wanted, const Desired& desired,
                                  const Inventory& inventory) {
  const InstanceId& instance = wanted.spec.instance;
  const Record* record = records_.find(instance);
  if (record == nullptr || record->generation > wanted.spec.generation) return;  // stale
  const ContainerSeen* seen = find_container(inventory, instance);
  const bool is_current = seen != nullptr && seen->generation >= wanted.spec.generation;
  waiting_.erase(instance);
  switch (wanted.want) {
    case Want::kPrepare: {
      const Step step = ensure_all(wanted, desired, inventory);
      if (step.readiness == Readiness::kGivenUp) give_up(instance, *step.error);
      if (step.error) waiting_[instance] = *step.error;
      break;
    }
    case Want::kRun:
      if (is_current) pass_control(wanted);
      else start(wanted, desired, inventory);
      break;
    case Want::kStop: stop(wanted, is_current ? seen : nullptr); break;
    case Want::kGone: remove(instance, seen); break;
  }
}

void Converger::start(const WantedInstance& wanted, const Desired& desired,
                      const Inventory& inventory) {
  const InstanceId& instance = wanted.spec.instance;
  const std::string key = key_of(instance);
  const Record& record = *records_.find(instance);
  if (record.is_started || record.is_removed || !record.failed_reason.empty()) return;
  if (operations_.is_given_up(key, "start")) {
    give_up(instance, *operations_.failure(key, "start"));
    return;
  }
  const Step step = ensure_all(wanted, desired, inventory);
  if (step.readiness == Readiness::kGivenUp) {
    give_up(instance, *step.error);
  } else if (step.readiness == Readiness::kReady) {
    StartContainer start{wanted.spec};
    if (!start.spec.workdir_digest.empty()) {
      start.spec.workdir_path = parts_.files.workdir_path(start.spec.workdir_digest);
    }
    operations_.begin(key, "start", std::move(start));
  }
  if (step.error) waiting_[instance] = *step.error;
  else if (const Error* error = operations_.failure(key, "start")) waiting_[instance] = *error;
}

void Converger::give_up(const InstanceId& instance, const Error& error) {
  Record record = *records_.find(instance);
  if (!record.failed_reason.empty()) return;
  record.failed_reason = error.reason;
  record.failed_message = error.message;
  records_.put(instance, record);
  log::warn("agent.instance_failed", {{"instance", instance.text}, {"error", error.to_string()}});
}

void Converger::note_stop_seen(const InstanceId& instance, const ContainerSeen& seen) {
  Record* known = records_.find(instance);
  if (known == nullptr || known->stop_seen_ran_us) return;
  Record record = *known;
  record.stop_seen_ran_us = numbers_of(seen, parts_.clock.mono_now()).ran_us;
  records_.put(instance, record);
}

void Converger::stop(const WantedInstance& wanted, const ContainerSeen* seen) {
  const InstanceId& instance = wanted.spec.instance;
  if (seen == nullptr) {
    const Record& record = *records_.find(instance);
    if (operations_.is_busy(key_of(instance)) || record.is_started || record.is_removed) return;
    give_up(instance, Error{Code::kCancelled, "stopped_before_start",
                            "it was stopped before it was started", {}, {}});
    return;
  }
  if (seen->phase != ContainerPhase::kRunning) return;  // starting: wait until it can hear
  note_stop_seen(instance, *seen);
  Record record = *records_.find(instance);
  const Duration since_stop =
      parts_.clock.mono_now() - (seen->started + Duration{record.stop_seen_ran_us.value_or(0)});
  if (since_stop >= wanted.stop_grace) {
    kill(instance);
    return;
  }
  if (record.is_term_sent) return;
  if (const Status sent = parts_.runtime.signal(instance, SIGTERM); !sent) {
    log::warn("agent.term_failed", {{"instance", instance.text}, {"error", sent.error().to_string()}});
    return;  // the next tick tries again
  }
  record.is_term_sent = true;  // after the signal: a second SIGTERM does less harm than none
  records_.put(instance, record);
}

void Converger::kill(const InstanceId& instance) {
  const MonoTime now = parts_.clock.mono_now();
  const auto [entry, is_first] = killed_.try_emplace(instance, Killed{now, now});
  if (!is_first && now - entry->second.last < kKillAgainAfter) return;
  entry->second.last = now;
  if (const Status sent = parts_.runtime.signal(instance, SIGKILL); !sent) {
    log::warn("agent.kill_failed", {{"instance", instance.text}, {"error", sent.error().to_string()}});
  }
}

void Converger::remove(const InstanceId& instance, const ContainerSeen* seen) {
  const std::string key = key_of(instance);
  const Record* known = records_.find(instance);
  if (known != nullptr && known->is_removed) return;
  if (operations_.take_success(key, "remove") && seen == nullptr) {
    if (known == nullptr) return;
    Record record = *known;
    record.is_removed = true;
    records_.put(instance, record);
    killed_.erase(instance);
    control_.erase(instance);
    return;
  }
  if (operations_.is_busy(key)) return;
  const MonoTime now = parts_.clock.mono_now();
  if (seen != nullptr && seen->phase == ContainerPhase::kRunning) {
    // Killed first and removed when seen dead, so the exact end is known for the bill.
    note_stop_seen(instance, *seen);
    kill(instance);
    if (now - killed_[instance].first < kKillPatience) return;
    if (known != nullptr) {
      Record record = *records_.find(instance);
      record.last = numbers_of(*seen, now);
      records_.put(instance, record);
    }
  }
  operations_.begin(key, "remove", RemoveContainer{instance});
}

void Converger::converge_orphans(const Desired& desired, const Inventory& inventory) {
  for (const ContainerSeen& seen : inventory.containers) {
    if (desired.find(seen.instance) != nullptr) continue;
    const Record* record = records_.find(seen.instance);
    if (record != nullptr && record->seen_version > desired.version) continue;
    remove(seen.instance, &seen);
  }
  const MonoTime now = parts_.clock.mono_now();
  std::erase_if(orphan_since_, [&](const auto& item) { return desired.find(item.first) != nullptr; });
  std::vector<InstanceId> finished;
  for (const auto& [instance, record] : records_.all()) {
    if (desired.find(instance) != nullptr || record.seen_version > desired.version) continue;
    if (find_container(inventory, instance) != nullptr) continue;
    const MonoTime since = orphan_since_.try_emplace(instance, now).first->second;
    const bool may_forget = shipped_.contains(instance) || now - since > kLogPatience;
    if (!record.is_removed) {
      remove(instance, nullptr);
    } else if (operations_.take_success(key_of(instance), "forget")) {
      finished.push_back(instance);
    } else if (may_forget) {
      operations_.begin(key_of(instance), "forget", ForgetInstance{instance});
    }
  }
  for (const InstanceId& instance : finished) {
    records_.erase(instance);
    orphan_since_.erase(instance);
    shipped_.erase(instance);
    waiting_.erase(instance);
  }
}

void Converger::pass_control(const WantedInstance& wanted) {
  json::object control;
  if (wanted.stop_at_step) control["stop_at_step"] = *wanted.stop_at_step;
  const auto last = control_.find(wanted.spec.instance);
  if (last == control_.end() && control.empty()) return;  // nothing written, nothing to say
  std::string text = json::serialize(control);
  if (last != control_.end() && last->second == text) return;
  if (const Status written = parts_.runtime.write_control(wanted.spec.instance, text); !written) {
    log::warn("agent.control_failed",
              {{"instance", wanted.spec.instance.text}, {"error", written.error().to_string()}});
    return;
  }
  control_[wanted.spec.instance] = std::move(text);
}

InstanceStatus Converger::status(const InstanceId& instance, const WantedInstance* wanted,
                                 const Inventory& inventory) const {
  const Record* record = records_.find(instance);
  const ContainerSeen* seen = find_container(inventory, instance);
  if (seen != nullptr) {
    switch (seen->phase) {
      case ContainerPhase::kStarting: return {Phase::kStarting, {}};
      case ContainerPhase::kRunning: return {Phase::kRunning, {}};
      case ContainerPhase::kExited: return {Phase::kExited, {}};
    }
  }
  if (record != nullptr && record->is_removed) return {Phase::kGone, {}};
  if (record != nullptr && record->is_started) return {Phase::kExited, {}};  // vanished
  if (record != nullptr && !record->failed_reason.empty()) {
    return {Phase::kFailed,
            Error{Code::kUnknown, record->failed_reason, record->failed_message, {}, {}}};
  }
  InstanceStatus status;
  if (const auto why = waiting_.find(instance); why != waiting_.end()) status.error = why->second;
  if (operations_.is_busy_with(key_of(instance), "start")) {
    status.phase = Phase::kStarting;
  } else if (wanted != nullptr && wanted->want == Want::kPrepare) {
    bool is_ready = parts_.files.has_workdir(wanted->spec.workdir_digest) ||
                    wanted->spec.workdir_digest.empty();
    bool has_image = false;
    for (const ImageSeen& image : inventory.images) {
      has_image = has_image || (image.image == wanted->spec.image && image.is_ready &&
                                image.variant == wanted->spec.variant &&
                                image.digest == wanted->spec.digest);
    }
    is_ready = is_ready && has_image;
    status.phase = is_ready ? Phase::kPrepared : Phase::kPreparing;
  }
  return status;
}

}  // namespace anychip::agent
