// The comparison in the terminal: legs as columns, the verdict under it.
#pragma once

#include <string>

#include "cli/comparison.h"
#include "cli/table.h"

namespace anychip::cli {

std::string comparison_table(const Comparison& comparison, Fit fit);

// The rows both reports show, in order: a label, then one text per leg.
struct MetricRow {
  std::string label;
  std::vector<std::string> values;
  std::vector<double> bars;  // 0..1 for a bar in the HTML report; empty = none
};
std::vector<MetricRow> metric_rows(const Comparison& comparison);

}  // namespace anychip::cli
