// Loss curves: does a new leg continue the old one (step 7 of a switch), and how close are two
// runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace anychip::fleet {

struct Band {
  double middle = 0, half_width = 0;
};
// The last 20 losses' mean ± max(6 standard deviations, 10 % of the mean).
Band band_of(const std::vector<double>& baseline);

enum class Verdict { kPending, kPassed, kFailed };
struct Verification {
  Verdict verdict = Verdict::kPending;
  std::string reason;  // when failed: one sentence with the numbers
};
// NaN in `losses` stands for any loss that is not a finite number. An empty baseline has no band.
Verification verify_curve(const std::vector<double>& baseline, const std::vector<double>& losses,
                          int64_t steps_wanted);

struct Parity {
  std::string grade = "none";  // bitwise, tolerance, statistical
  std::string verdict = "not_compared";
  double max_difference = 0, mean_difference = 0, band = 0;
  int64_t compared_steps = 0;
};
// At equal steps. `statistical` passes while the largest difference stays within 5 % of the
// reference's mean loss.
Parity compare_curves(const std::map<int64_t, double>& curve,
                      const std::map<int64_t, double>& reference);

// The middle value; of an even number the mean of both middle ones; 0 of nothing.
double median_of(std::vector<double> values);

}  // namespace anychip::fleet
