// What really happened, kept outside of everything under test, for the checkers to compare with.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace anychip::sim {

// The loss of the simulated training: a pure function of the step, so a resumed curve shows every
// lost, repeated or invented step.
double loss_at(int64_t step);

struct LegTruth {
  std::string run_id, leg_id, instance_id, node;
  std::vector<std::string> device_ids;
  int64_t generation = 0;
  MonoTime started;
  std::optional<MonoTime> ended;
  int exit_code = 0;
  bool is_by_fault = false;  // crash, lost device, lost supervisor
  int64_t first_step = 0, last_step = 0, resumed_from = 0;
  std::string log, metrics;
};

class Truth {
 public:
  // All containers that ever ran, by instance. Never forgotten.
  std::map<std::string, LegTruth> legs;
  std::vector<std::string> violations;
  void violated(std::string what) {
    if (violations.size() < 20) violations.push_back(std::move(what));
  }
};

}  // namespace anychip::sim
