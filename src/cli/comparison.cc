#include "cli/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/time.h"
#include "cli/format.h"

namespace anychip::cli {
namespace {

std::optional<double> maybe_number(const json::object& from, std::string_view key) {
  const json::value* value = from.if_contains(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return json::number_at(from, key);
}

std::optional<int64_t> maybe_int(const json::object& from, std::string_view key) {
  const std::optional<double> number = maybe_number(from, key);
  if (!number || std::fabs(*number) > 9e15) return std::nullopt;
  return static_cast<int64_t>(*number);
}

int64_t us_of(std::string_view rfc3339) {
  const Result<WallTime> time = parse_rfc3339(rfc3339);
  return time ? time->us : 0;
}

std::string place_of(const json::object& place) {
  const int64_t count = json::int_at(place, "count");
  const std::string chip = json::string_at(place, "chip");
  return count > 1 ? fmt::format("{}:{}", chip, count) : chip;
}

LegView read_leg(const json::object& from) {
  LegView leg;
  leg.index = json::int_at(from, "index");
  leg.chip = json::string_at(from, "chip");
  leg.back_end = json::string_at(from, from.contains("back_end") ? "back_end" : "backend");
  leg.device = json::string_at(from, "device");
  leg.state = json::string_at(from, "state");
  leg.end_reason = json::string_at(from, "end_reason");
  leg.memory_source = json::string_at(from, "memory_source");
  leg.count = std::max<int64_t>(1, json::int_at(from, "count"));
  leg.is_simulated = json::bool_at(from, "simulated");
  leg.is_voided = json::bool_at(from, "voided");
  leg.first_step = json::int_at(from, "first_step");
  leg.last_step = json::int_at(from, "last_step");
  leg.steps = json::int_at(from, "steps");
  leg.loss_first = maybe_number(from, "loss_first");
  leg.loss_last = maybe_number(from, "loss_last");
  leg.steps_per_second = maybe_number(from, "steps_per_second");
  leg.tokens_per_second = maybe_number(from, "tokens_per_second");
  leg.metered_us = json::int_at(from, "metered_us");
  leg.price_micros_per_hour = json::int_at(from, "price_micros_per_hour");
  leg.cost_micros = json::int_at(from, "cost_micros");
  leg.peak_memory_bytes = json::int_at(from, "peak_memory_bytes");
  leg.down_time_ms = maybe_int(from, "down_time_ms");
  leg.executions = maybe_int(from, "executions");
  leg.compiles = maybe_int(from, "compiles");
  leg.exit_code = maybe_int(from, "exit_code");
  return leg;
}

SwitchView read_switch(const json::object& from) {
  SwitchView out;
  out.id = json::string_at(from, "id");
  out.from = place_of(json::object_at(from, "from"));
  out.to = place_of(json::object_at(from, "to"));
  out.state = json::string_at(from, "state");
  out.step_name = json::string_at(from, "step_name");
  out.reason = json::string_at(from, "reason");
  out.stopped_at_step = json::int_at(from, "stopped_at_step");
  out.lost_steps = json::int_at(from, "lost_steps");
  out.down_time_ms = maybe_int(from, "down_time_ms");
  out.ended_us = us_of(json::string_at(from, "ended_at"));
  for (const json::value& entry : json::array_at(from, "timeline")) {
    if (!entry.is_object()) continue;
    const json::object& fields = entry.get_object();
    const std::string at = json::string_at(fields, "at");
    out.timeline.push_back(
        {json::int_at(fields, "step"), json::string_at(fields, "name"), at, us_of(at)});
  }
  return out;
}

ParityView read_parity(const json::object& from) {
  ParityView parity;
  if (const std::string grade = json::string_at(from, "grade"); !grade.empty()) {
    parity.grade = grade;
  }
  if (const std::string verdict = json::string_at(from, "verdict"); !verdict.empty()) {
    parity.verdict = verdict;
  }
  parity.method = json::string_at(from, "method");
  parity.max_difference = maybe_number(from, "max_abs_loss_difference");
  parity.mean_difference = maybe_number(from, "mean_abs_loss_difference");
  parity.band = maybe_number(from, "band");
  parity.compared_steps = json::int_at(from, "compared_steps");
  return parity;
}

double number_in(const json::array& row, size_t at) {
  if (at >= row.size() || !row[at].is_number()) return std::nan("");
  return row[at].is_double() ? row[at].get_double()
                             : static_cast<double>(row[at].to_number<int64_t>());
}

void read_curves(const json::object& root, Comparison& out) {
  for (const json::value& row : json::array_at(root, "curve")) {
    if (!row.is_array()) continue;
    const json::array& cells = row.get_array();
    const double step = number_in(cells, 0), leg = number_in(cells, 1), loss = number_in(cells, 2);
    const double t = number_in(cells, 3);
    if (!std::isfinite(step) || !std::isfinite(leg) || !std::isfinite(loss)) continue;
    out.curve.push_back(
        {static_cast<int64_t>(step), static_cast<int64_t>(leg), loss, std::isfinite(t) ? t : 0});
  }
  for (const json::value& row : json::array_at(root, "reference_curve")) {
    if (!row.is_array()) continue;
    const double step = number_in(row.get_array(), 0), loss = number_in(row.get_array(), 1);
    if (!std::isfinite(step) || !std::isfinite(loss)) continue;
    out.reference_curve.push_back({static_cast<int64_t>(step), loss});
  }
  const auto by_step = [](const auto& a, const auto& b) { return a.step < b.step; };
  std::stable_sort(out.curve.begin(), out.curve.end(), by_step);
  std::stable_sort(out.reference_curve.begin(), out.reference_curve.end(), by_step);
}

}  // namespace

std::string LegView::chip_and_count() const {
  return count > 1 ? fmt::format("{}:{}", chip, count) : chip;
}

std::optional<double> LegView::micros_per_million_tokens() const {
  if (!tokens_per_second || *tokens_per_second <= 0) return std::nullopt;
  return static_cast<double>(price_micros_per_hour) / 3600.0 * 1e6 / *tokens_per_second;
}

bool Comparison::has_simulated() const {
  return std::any_of(legs.begin(), legs.end(), [](const LegView& leg) { return leg.is_simulated; });
}

const LegView* Comparison::leg(int64_t index) const {
  for (const LegView& leg : legs) {
    if (leg.index == index) return &leg;
  }
  return nullptr;
}

std::optional<double> Comparison::reference_loss(int64_t step) const {
  const auto found = std::lower_bound(
      reference_curve.begin(), reference_curve.end(), step,
      [](const ReferencePoint& point, int64_t wanted) { return point.step < wanted; });
  if (found == reference_curve.end() || found->step != step) return std::nullopt;
  return found->loss;
}

Result<Comparison> read_comparison(const json::value& document) {
  if (!document.is_object() || !document.get_object().contains("legs")) {
    return fail(Code::kDataLoss, "comparison_malformed",
                "the server's answer is not a comparison (it has no \"legs\")",
                "check that server and client are of the same version");
  }
  const json::object& root = document.get_object();
  Comparison out;
  out.run = json::string_at(root, "run");
  out.name = json::string_at(root, "name");
  out.currency = json::string_at(root, "currency");
  out.reference_name = json::string_at(json::object_at(root, "reference"), "name");
  for (const json::value& leg : json::array_at(root, "legs")) {
    if (leg.is_object()) out.legs.push_back(read_leg(leg.get_object()));
  }
  const json::object& totals = json::object_at(root, "totals");
  out.cost_micros = json::int_at(totals, "cost_micros");
  out.metered_us = json::int_at(totals, "metered_us");
  out.down_time_ms = json::int_at(totals, "down_time_ms");
  out.steps = json::int_at(totals, "steps");
  out.parity = read_parity(json::object_at(root, "parity"));
  read_curves(root, out);
  for (const json::value& item : json::array_at(root, "switches")) {
    if (item.is_object()) out.switches.push_back(read_switch(item.get_object()));
  }
  for (const json::value& item : json::array_at(root, "samples")) {
    if (!item.is_object()) continue;
    const json::object& sample = item.get_object();
    out.samples.push_back({json::int_at(sample, "leg_index"), json::int_at(sample, "step"),
                           json::string_at(sample, "prompt"), json::string_at(sample, "text")});
  }
  return out;
}

Verdict verdict_of(const Comparison& comparison) {
  const ParityView& parity = comparison.parity;
  if (parity.verdict == "not_compared" || !parity.max_difference) return Verdict::kNotCompared;
  if (parity.verdict != "pass") return Verdict::kDifferent;
  return parity.grade == "statistical" ? Verdict::kStatistical : Verdict::kSame;
}

std::optional<int64_t> first_step_beyond_tolerance(const Comparison& comparison) {
  for (const CurvePoint& point : comparison.curve) {
    const std::optional<double> reference = comparison.reference_loss(point.step);
    if (reference && std::fabs(point.loss - *reference) > kTolerance) return point.step;
  }
  return std::nullopt;
}

std::string parity_sentence(const Comparison& comparison) {
  const Verdict verdict = verdict_of(comparison);
  if (verdict == Verdict::kNotCompared) return "not compared with an uninterrupted run";
  const ParityView& parity = comparison.parity;
  const std::string against = comparison.reference_name.empty()
                                  ? "the reference run"
                                  : "'" + comparison.reference_name + "'";
  const std::string steps = format_count(parity.compared_steps);
  if (parity.grade == "bitwise") {
    return fmt::format("bit for bit equal to {} over {} steps", against, steps);
  }
  std::string out = fmt::format("loss differs from {} by at most {} (mean {}) over {} steps",
                                against, format_small(*parity.max_difference),
                                format_small(parity.mean_difference.value_or(0)), steps);
  if (verdict == Verdict::kSame) return "same training: " + out;
  if (const std::optional<int64_t> step = first_step_beyond_tolerance(comparison)) {
    out +=
        fmt::format("; beyond {} from step {} on", format_small(kTolerance), format_count(*step));
  }
  return (verdict == Verdict::kStatistical ? "statistically close: " : "NOT the same training: ") +
         out;
}

std::vector<DownTimePart> down_time_parts(const Comparison& comparison, size_t switch_index) {
  const SwitchView& move = comparison.switches.at(switch_index);
  if (move.timeline.empty() || move.timeline.front().at_us == 0) return {};
  // The gap of this switch: the first point of the curve on a new leg after the switch began.
  int64_t from_us = 0, to_us = 0;
  for (size_t i = 1; i < comparison.curve.size(); ++i) {
    const CurvePoint& before = comparison.curve[i - 1];
    const CurvePoint& after = comparison.curve[i];
    if (before.leg_index == after.leg_index || before.t <= 0 || after.t <= 0) continue;
    const auto after_us = static_cast<int64_t>(after.t * 1e6);
    if (after_us < move.timeline.front().at_us) continue;
    from_us = static_cast<int64_t>(before.t * 1e6);
    to_us = after_us;
    break;
  }
  if (to_us <= from_us) return {};
  std::vector<DownTimePart> parts;
  const auto add = [&](const std::string& name, int64_t begin_us, int64_t end_us) {
    const int64_t us = std::min(end_us, to_us) - std::max(begin_us, from_us);
    if (us > 0) parts.push_back({name, us});
  };
  add("last step to order", 0, move.timeline.front().at_us);
  for (size_t i = 0; i < move.timeline.size(); ++i) {
    const int64_t end_us = i + 1 < move.timeline.size() ? move.timeline[i + 1].at_us : to_us;
    add(move.timeline[i].name, move.timeline[i].at_us, end_us);
  }
  if (!parts.empty()) parts.back().name = "start until the first step";
  return parts;
}

}  // namespace anychip::cli
