// What an agent says about an instance, folded in so that late, repeated and reordered reports
// change nothing; and what of its time is billed.
#pragma once

#include <optional>
#include <string>

#include "fleet/facts.h"

namespace anychip::fleet {

struct Observation {
  int64_t generation = 1;
  Phase phase = Phase::kNone;
  std::optional<int64_t> exit_code;
  bool is_oom = false, is_supervisor_lost = false, are_streams_sent = false;
  int64_t ran_us = 0;
  std::optional<int64_t> stop_seen_ran_us;
  int64_t memory_peak_bytes = 0, cpu_time_us = 0;
  std::string error_reason, error_message;
};

// Phases only move forward, times only grow, an exit code is told once; another generation's word
// is ignored. Returns whether anything changed (reported_at alone does not count).
bool observe(Instance& instance, const Observation& seen, WallTime now);

// Billing ends at the stop *request*: what had run by then, as far as it can be known here.
void cap_at_stop(Instance& instance, WallTime now);

// Folds an instance's run time into its leg: never less than before, never beyond the stop request.
void meter(Leg& leg, const Instance& instance);

// Sets leg states and costs from their instances, closes instances that are proved gone, frees
// their devices. Called in every pass, before and after the machines decide.
void settle_instances(Facts& facts, const Context& context);

}  // namespace anychip::fleet
