#include "fleet/curve.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace anychip::fleet {

Band band_of(const std::vector<double>& baseline) {
  constexpr size_t kWindow = 20;
  const size_t count = std::min(kWindow, baseline.size());
  if (count == 0) return {};
  double sum = 0;
  for (size_t i = baseline.size() - count; i < baseline.size(); ++i) sum += baseline[i];
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  for (size_t i = baseline.size() - count; i < baseline.size(); ++i) {
    squares += (baseline[i] - mean) * (baseline[i] - mean);
  }
  const double deviation = std::sqrt(squares / static_cast<double>(count));
  return {mean, std::max(6 * deviation, 0.10 * std::abs(mean))};
}

Verification verify_curve(const std::vector<double>& baseline, const std::vector<double>& losses,
                          int64_t steps_wanted) {
  std::vector<double> finite;
  std::copy_if(baseline.begin(), baseline.end(), std::back_inserter(finite),
               [](double loss) { return std::isfinite(loss); });
  const Band band = band_of(finite);
  int64_t steps = 0;
  for (const double loss : losses) {
    if (steps == steps_wanted) break;
    steps += 1;
    if (!std::isfinite(loss)) {
      return {Verdict::kFailed, fmt::format("the loss of step {} after the switch is not a finite "
                                            "number",
                                            steps)};
    }
    if (!finite.empty() && std::abs(loss - band.middle) > band.half_width) {
      return {Verdict::kFailed,
              fmt::format("the loss of step {} after the switch is {:.4f}, outside the old curve's "
                          "band {:.4f} ± {:.4f}",
                          steps, loss, band.middle, band.half_width)};
    }
  }
  return {steps >= steps_wanted ? Verdict::kPassed : Verdict::kPending, {}};
}

Parity compare_curves(const std::map<int64_t, double>& curve,
                      const std::map<int64_t, double>& reference) {
  Parity parity;
  double sum = 0, reference_sum = 0;
  bool is_bitwise = true, is_finite = true;
  for (const auto& [step, loss] : curve) {
    const auto other = reference.find(step);
    if (other == reference.end()) continue;
    parity.compared_steps += 1;
    const double difference = std::abs(loss - other->second);
    is_finite = is_finite && std::isfinite(difference);
    is_bitwise = is_bitwise && loss == other->second;
    if (!is_finite) continue;
    parity.max_difference = std::max(parity.max_difference, difference);
    sum += difference;
    reference_sum += std::abs(other->second);
  }
  if (parity.compared_steps == 0) return parity;
  const auto steps = static_cast<double>(parity.compared_steps);
  parity.mean_difference = sum / steps;
  parity.band = 0.05 * reference_sum / steps;
  constexpr double kTolerance = 1e-5;
  parity.grade = !is_finite                            ? "statistical"
                 : is_bitwise                          ? "bitwise"
                 : parity.max_difference <= kTolerance ? "tolerance"
                                                       : "statistical";
  const bool has_passed =
      is_finite && (parity.grade != "statistical" || parity.max_difference <= parity.band);
  parity.verdict = has_passed ? "pass" : "fail";
  return parity;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

}  // namespace anychip::fleet
