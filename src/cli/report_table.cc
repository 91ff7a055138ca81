#include "cli/report_table.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "cli/format.h"

namespace anychip::cli {
namespace {

using TextOf = std::function<std::string(const LegView&)>;
using NumberOf = std::function<std::optional<double>(const LegView&)>;

MetricRow row_of(const Comparison& comparison, std::string label, const TextOf& text,
                 const NumberOf& bar = {}) {
  MetricRow row{std::move(label), {}, {}};
  double most = 0;
  for (const LegView& leg : comparison.legs) {
    row.values.push_back(text(leg));
    if (bar) most = std::max(most, bar(leg).value_or(0));
  }
  if (!bar || !(most > 0)) return row;
  for (const LegView& leg : comparison.legs) row.bars.push_back(bar(leg).value_or(0) / most);
  return row;
}

std::string relative(std::optional<double> value, std::optional<double> first) {
  if (!value || !first || *first <= 0) return {};
  return fmt::format(" (×{:.2f})", *value / *first);
}

std::string loss_text(std::optional<double> loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "-";
}

std::string parity_of(const Comparison& comparison, const LegView& leg) {
  if (comparison.reference_curve.empty()) return "-";
  double most = -1;
  for (const CurvePoint& point : comparison.curve) {
    if (point.leg_index != leg.index) continue;
    const std::optional<double> reference = comparison.reference_loss(point.step);
    if (reference) most = std::max(most, std::fabs(*reference - point.loss));
  }
  return most < 0 ? "-" : format_small(most);
}

void add_speed_rows(const Comparison& comparison, std::vector<MetricRow>& rows) {
  const LegView& first = comparison.legs.front();
  rows.push_back(row_of(
      comparison, "steps/s",
      [&](const LegView& leg) {
        if (!leg.steps_per_second) return std::string("-");
        return format_significant(*leg.steps_per_second, 3) +
               relative(leg.steps_per_second, first.steps_per_second);
      },
      [](const LegView& leg) { return leg.steps_per_second; }));
  rows.push_back(row_of(comparison, "tokens/s", [](const LegView& leg) {
    return leg.tokens_per_second ? format_significant(*leg.tokens_per_second, 3) : std::string("-");
  }));
  // Device, process and cgroup memory are different things: only like is set against like.
  const bool is_one_source =
      std::all_of(comparison.legs.begin(), comparison.legs.end(),
                  [&](const LegView& leg) { return leg.memory_source == first.memory_source; });
  const auto peak = [](const LegView& leg) {
    return std::optional<double>(static_cast<double>(leg.peak_memory_bytes));
  };
  rows.push_back(row_of(
      comparison, "peak memory",
      [&](const LegView& leg) {
        if (leg.peak_memory_bytes <= 0) return std::string("-");
        const std::string text = format_bytes(leg.peak_memory_bytes);
        if (first.peak_memory_bytes <= 0 || leg.memory_source != first.memory_source) return text;
        return fmt::format("{} ({:.0f} %)", text, *peak(leg) * 100.0 / *peak(first));
      },
      is_one_source ? NumberOf(peak) : NumberOf()));
  rows.push_back(row_of(comparison, "memory read from", [](const LegView& leg) {
    return leg.memory_source.empty() ? std::string("-") : leg.memory_source;
  }));
}

void add_money_rows(const Comparison& comparison, std::vector<MetricRow>& rows) {
  rows.push_back(row_of(comparison, "price/h", [](const LegView& leg) {
    return yuan(leg.price_micros_per_hour) + (leg.is_simulated ? " *" : "");
  }));
  rows.push_back(row_of(comparison, "metered",
                        [](const LegView& leg) { return format_span(leg.metered_us); }));
  rows.push_back(row_of(
      comparison, "cost",
      [](const LegView& leg) {
        return leg.is_voided ? std::string("voided") : yuan_exact(leg.cost_micros);
      },
      [](const LegView& leg) {
        return std::optional<double>(static_cast<double>(leg.cost_micros));
      }));
  rows.push_back(row_of(comparison, "per million tokens", [](const LegView& leg) {
    const std::optional<double> micros = leg.micros_per_million_tokens();
    return micros ? "¥" + format_significant(*micros / 1e6, 3) : std::string("-");
  }));
}

Style style_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame: return Style::kGood;
    case Verdict::kStatistical: return Style::kWarn;
    case Verdict::kDifferent: return Style::kBad;
    case Verdict::kNotCompared: return Style::kFaint;
  }
  return Style::kPlain;
}

}  // namespace

std::vector<MetricRow> metric_rows(const Comparison& comparison) {
  std::vector<MetricRow> rows;
  if (comparison.legs.empty()) return rows;
  rows.push_back(row_of(comparison, "back end", [](const LegView& leg) { return leg.back_end; }));
  rows.push_back(row_of(comparison, "device", [](const LegView& leg) {
    return leg.device.empty() ? std::string("-") : leg.device;
  }));
  rows.push_back(row_of(comparison, "steps", [](const LegView& leg) {
    if (leg.steps == 0) return std::string("none");
    return fmt::format("{}–{} ({})", leg.first_step, leg.last_step, format_count(leg.steps));
  }));
  add_speed_rows(comparison, rows);
  add_money_rows(comparison, rows);
  rows.push_back(row_of(comparison, "loss first",
                        [](const LegView& leg) { return loss_text(leg.loss_first); }));
  rows.push_back(
      row_of(comparison, "loss last", [](const LegView& leg) { return loss_text(leg.loss_last); }));
  rows.push_back(row_of(comparison, "down time before", [&](const LegView& leg) {
    if (!leg.down_time_ms || leg.index == comparison.legs.front().index) return std::string("-");
    return format_span(*leg.down_time_ms * 1000);
  }));
  rows.push_back(row_of(comparison, "largest difference",
                        [&](const LegView& leg) { return parity_of(comparison, leg); }));
  rows.push_back(row_of(comparison, "executions", [](const LegView& leg) {
    return leg.executions ? format_count(*leg.executions) : std::string("-");
  }));
  return rows;
}

std::string comparison_table(const Comparison& comparison, Fit wanted) {
  std::vector<Column> columns{{comparison.name, Align::kLeft, false}};
  for (const LegView& leg : comparison.legs) {
    const std::string mark = leg.is_simulated ? " (simulated)" : "";
    columns.push_back({leg.chip_and_count() + mark, Align::kRight, true});
  }
  Table table(std::move(columns));
  for (const MetricRow& row : metric_rows(comparison)) {
    std::vector<Cell> cells{Cell(row.label, Style::kFaint)};
    for (const std::string& value : row.values) cells.emplace_back(value);
    table.add(std::move(cells));
  }
  std::string out = table.render(wanted);
  out +=
      fmt::format("\ntotal    {} for {} steps; {} metered, {} down between chips\n",
                  yuan_exact(comparison.cost_micros), format_count(comparison.steps),
                  format_span(comparison.metered_us), format_span(comparison.down_time_ms * 1000));
  out += "parity   " +
         styled(parity_sentence(comparison), style_of(verdict_of(comparison)), wanted.has_colour) +
         "\n";
  if (comparison.has_simulated()) {
    out += styled(
        "*        simulated: functional simulation on this machine's cores; the price is the "
        "list price of the chip simulated\n",
        Style::kFaint, wanted.has_colour);
  }
  return out;
}

}  // namespace anychip::cli
