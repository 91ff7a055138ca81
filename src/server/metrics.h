// Metric lines (contract §3) read into a leg and rows of steps. Lines that are no JSON are skipped:
// the file is the user's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/types.h"

namespace anychip::server {

struct StepRow {
  int64_t step = 0;
  std::optional<double> loss;  // empty = not a finite number
  double step_s = 0, tokens_s = 0, t = 0;
  int64_t memory_bytes = 0;
};

// Folds one line into the leg; returns the step when the line is one.
std::optional<StepRow> read_metric_line(std::string_view line, fleet::Leg& leg);

}  // namespace anychip::server
