// The API's compare document as values, read leniently (a field that is absent stays empty) so that
// a report can always be shown. Both reports, terminal and HTML, are made from this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace anychip::cli {

struct LegSample {
  int64_t leg_index = 0, step = 0;
  std::string prompt, text;
};

struct LegView {
  int64_t index = 0;
  std::string chip, back_end, device, state, end_reason, memory_source;
  int64_t count = 1;
  bool is_simulated = false, is_voided = false;
  int64_t first_step = 0, last_step = 0, steps = 0;
  std::optional<double> loss_first, loss_last, steps_per_second, tokens_per_second;
  int64_t metered_us = 0, price_micros_per_hour = 0, cost_micros = 0;
  int64_t peak_memory_bytes = 0;
  std::optional<int64_t> down_time_ms, executions, compiles, exit_code;

  std::string chip_and_count() const;
  // Price of a million tokens at this leg's measured speed; absent without a speed.
  std::optional<double> micros_per_million_tokens() const;
};

struct CurvePoint {
  int64_t step = 0, leg_index = 0;
  double loss = 0, t = 0;
};
struct ReferencePoint {
  int64_t step = 0;
  double loss = 0;
};

struct TimelineEntry {
  int64_t step = 0;
  std::string name, at;
  int64_t at_us = 0;  // WallTime; 0 = unknown
};
struct SwitchView {
  std::string id, from, to, state, step_name, reason;
  int64_t stopped_at_step = 0, lost_steps = 0;
  std::optional<int64_t> down_time_ms;
  int64_t ended_us = 0;
  std::vector<TimelineEntry> timeline;
};

struct ParityView {
  std::string grade = "none", verdict = "not_compared", method;
  std::optional<double> max_difference, mean_difference, band;
  int64_t compared_steps = 0;
};

// The tolerance grade: loss at equal steps within this of the uninterrupted run.
inline constexpr double kTolerance = 1e-5;

// What the parity says in the end. Passing the statistical grade only is not "the same".
enum class Verdict { kSame, kStatistical, kDifferent, kNotCompared };

struct Comparison {
  std::string run, name, currency, reference_name;
  std::vector<LegView> legs;
  int64_t cost_micros = 0, metered_us = 0, down_time_ms = 0, steps = 0;
  ParityView parity;
  std::vector<CurvePoint> curve;
  std::vector<ReferencePoint> reference_curve;
  std::vector<SwitchView> switches;
  std::vector<LegSample> samples;

  bool has_simulated() const;
  const LegView* leg(int64_t index) const;
  std::optional<double> reference_loss(int64_t step) const;
};

Result<Comparison> read_comparison(const json::value& document);

Verdict verdict_of(const Comparison& comparison);
// The first step whose loss is further than kTolerance from the reference.
std::optional<int64_t> first_step_beyond_tolerance(const Comparison& comparison);
// The verdict with its figures, in one sentence for people.
std::string parity_sentence(const Comparison& comparison);

// The part of a switch's down time spent in each of its steps: the interval from the last step of
// the old leg to the first step of the new one, cut at the timeline's times. The last part is the
// command's own start on the new chip, whatever the switch was doing then.
struct DownTimePart {
  std::string name;
  int64_t us = 0;
};
std::vector<DownTimePart> down_time_parts(const Comparison& comparison, size_t switch_index);

}  // namespace anychip::cli
