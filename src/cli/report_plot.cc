// The two charts: loss across the chips, and its difference to the uninterrupted run.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "cli/format.h"
#include "cli/report_html.h"

namespace anychip::cli::html {
namespace {

constexpr int kPointsDrawnMax =
    1600;  // per curve; beyond that each bucket keeps its lowest and highest
constexpr int kPointsListedMax = 20'000;  // for the read-out

struct Point {
  double x = 0, y = 0;
};

// A linear axis that maps [low, high] to [0, size].
struct Axis {
  double low = 0, high = 1, size = 1000;
  bool is_flipped = false;   // y grows downwards in SVG
  double linear_within = 0;  // > 0: logarithmic outside ±linear_within, through zero
  double scaled(double value) const {
    if (linear_within <= 0) return value;
    const double ratio = std::fabs(value) / linear_within;
    return std::copysign(ratio <= 1 ? ratio : 1 + std::log10(ratio), value);
  }
  double at(double value) const {
    const double bottom = scaled(low), top = scaled(high);
    const double share = top > bottom ? (scaled(value) - bottom) / (top - bottom) : 0.5;
    return size * (is_flipped ? 1 - share : share);
  }
  double percent(double value) const { return at(value) / size * 100; }
};

std::vector<double> round_ticks(double low, double high, int count_wanted) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / count_wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= rough) {
      step = power * factor;
      break;
    }
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    ticks.push_back(i == 0 ? 0 : i * step);
  }
  return ticks;
}

std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kPointsDrawnMax) return points;
  std::vector<Point> out;
  const size_t buckets = kPointsDrawnMax / 2;
  for (size_t b = 0; b < buckets; ++b) {
    const auto first = points.begin() + static_cast<ptrdiff_t>(points.size() * b / buckets);
    const auto last = points.begin() + static_cast<ptrdiff_t>(points.size() * (b + 1) / buckets);
    const auto [low, high] =
        std::minmax_element(first, last, [](const Point& a, const Point& c) { return a.y < c.y; });
    out.push_back(low < high ? *low : *high);
    if (low != high) out.push_back(low < high ? *high : *low);
  }
  return out;
}

std::string path_of(const std::vector<Point>& points, const Axis& x, const Axis& y) {
  std::string path;
  for (const Point& point : thinned(points)) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.at(point.x), y.at(point.y));
  }
  return path;
}

// One leg's part of the curve; it starts at the last point of the part before, so the line runs on.
struct Stretch {
  const LegView* leg = nullptr;
  std::string colour;
  double from = 0, to = 0;
  std::vector<Point> points;
};

double reference_at(const Comparison& comparison, int64_t step) {
  return comparison.reference_loss(step).value_or(std::nan(""));
}

template <class ValueOf>
std::vector<Stretch> stretches(const Comparison& comparison, const ValueOf& value_of) {
  std::vector<Stretch> out;
  int64_t leg_index = std::numeric_limits<int64_t>::min();
  Point before;
  for (const CurvePoint& point : comparison.curve) {
    const double value = value_of(point);
    if (!std::isfinite(value)) continue;
    const Point here{static_cast<double>(point.step), value};
    if (point.leg_index != leg_index) {
      const LegView* leg = comparison.leg(point.leg_index);
      Stretch next;
      next.leg = leg;
      next.colour = leg == nullptr ? "k7" : colour_class(comparison, *leg);
      next.from = out.empty() ? here.x : before.x;
      if (!out.empty()) next.points.push_back(before);
      out.push_back(std::move(next));
      leg_index = point.leg_index;
    }
    out.back().points.push_back(here);
    out.back().to = here.x;
    before = here;
  }
  return out;
}

std::string band_labels(const std::vector<Stretch>& parts, const Axis& x) {
  std::string out = "<div class=\"bands\" aria-hidden=\"true\">";
  for (const Stretch& part : parts) {
    const double left = x.percent(part.from), width = x.percent(part.to) - left;
    const std::string chip = part.leg == nullptr ? "?" : part.leg->chip_and_count();
    out += fmt::format("<span class=\"{}\" style=\"left:{:.2f}%;width:{:.2f}%\">{}</span>",
                       part.colour, left, width, escape(chip));
  }
  return out + "</div>";
}

std::string tints_and_borders(const std::vector<Stretch>& parts, const Axis& x, double height) {
  std::string out;
  for (const Stretch& part : parts) {
    out += fmt::format(
        "<rect class=\"tint {}\" x=\"{:.1f}\" y=\"0\" width=\"{:.1f}\" height=\"{:.0f}\"/>",
        part.colour, x.at(part.from), x.at(part.to) - x.at(part.from), height);
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    out += fmt::format(
        "<line class=\"border\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.0f}\"/>",
        x.at(parts[i].from), height);
  }
  return out;
}

std::string grid_of(const Axis& y, const std::vector<double>& ticks) {
  std::string out;
  for (const double tick : ticks) {
    out += fmt::format("<line class=\"{1}\" x1=\"0\" x2=\"1000\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>",
                       y.at(tick), tick == 0 ? "axis" : "grid");
  }
  return out;
}

std::string y_labels(const Axis& y, const std::vector<double>& ticks, bool is_scientific) {
  std::string out;
  for (const double tick : ticks) {
    const std::string text = is_scientific ? format_small(tick) : fmt::format("{:g}", tick);
    out += fmt::format("<span class=\"y\" style=\"top:{:.2f}%\">{}</span>", y.percent(tick), text);
  }
  return out;
}

std::string x_labels(const Axis& x) {
  std::string out;
  bool is_minor = true;  // every second one is left out where there is little room
  for (const double tick : round_ticks(x.low, x.high, 6)) {
    const double percent = x.percent(tick);
    const char* edge = percent < 3 ? " first" : percent > 97 ? " last" : "";
    out += fmt::format("<span class=\"x{}{}\" style=\"left:{:.2f}%\">{}</span>", edge,
                       std::exchange(is_minor, !is_minor) ? " minor" : "", percent,
                       format_count(std::llround(tick)));
  }
  return out;
}

Axis step_axis(const Comparison& comparison) {
  Axis x;
  x.low = static_cast<double>(comparison.curve.front().step);
  x.high = static_cast<double>(comparison.curve.back().step);
  return x;
}

std::string keys_of(const std::vector<Stretch>& parts) {
  std::string out;
  std::vector<std::string> seen;
  for (const Stretch& part : parts) {
    const std::string chip = part.leg == nullptr ? "?" : part.leg->chip_and_count();
    if (std::find(seen.begin(), seen.end(), chip) != seen.end()) continue;
    seen.push_back(chip);
    out += fmt::format("<span class=\"key {}\"><i></i>{}</span>", part.colour, escape(chip));
  }
  return out;
}

std::string loss_chart(const Comparison& comparison) {
  const auto parts = stretches(comparison, [](const CurvePoint& point) { return point.loss; });
  const Axis x = step_axis(comparison);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const CurvePoint& point : comparison.curve) {
    low = std::min(low, point.loss);
    high = std::max(high, point.loss);
  }
  std::vector<Point> reference;
  for (const ReferencePoint& point : comparison.reference_curve) {
    const auto step = static_cast<double>(point.step);
    if (step < x.low || step > x.high) continue;
    reference.push_back({step, point.loss});
    low = std::min(low, point.loss);
    high = std::max(high, point.loss);
  }
  const double margin = high > low ? (high - low) * 0.05 : 0.5;
  const Axis y{low - margin, high + margin, 300, true};
  const auto ticks = round_ticks(y.low, y.high, 5);
  std::string out =
      "<figure class=\"chart\"><figcaption><strong>Loss by step</strong>" + keys_of(parts);
  if (!reference.empty()) out += "<span class=\"key thick\"><i></i>uninterrupted run</span>";
  out += "</figcaption>" + band_labels(parts, x);
  out += fmt::format(
      "<div class=\"plot\" tabindex=\"0\" role=\"img\" aria-label=\"Loss by step from {} to {}: it "
      "goes "
      "from {:.4f} to {:.4f}. Arrow keys read single steps.\">"
      "<svg viewBox=\"0 0 1000 300\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
      comparison.curve.front().step, comparison.curve.back().step, comparison.curve.front().loss,
      comparison.curve.back().loss);
  out += tints_and_borders(parts, x, 300) + grid_of(y, ticks);
  if (!reference.empty())
    out += fmt::format("<path class=\"reference\" d=\"{}\"/>", path_of(reference, x, y));
  for (const Stretch& part : parts) {
    out +=
        fmt::format("<path class=\"curve {}\" d=\"{}\"/>", part.colour, path_of(part.points, x, y));
  }
  return out + "</svg>" + y_labels(y, ticks, false) + x_labels(x) + "</div></figure>";
}

// Zero, the edges of the tolerance, and decades beyond it (every second when there are many).
std::vector<double> difference_ticks(double most) {
  std::vector<double> ticks = {0, kTolerance, -kTolerance};
  const int factor = most > kTolerance * 1e3 ? 100 : 10;
  for (double tick = kTolerance * factor; tick <= most * 1.5; tick *= factor) {
    ticks.push_back(tick);
    ticks.push_back(-tick);
  }
  return ticks;
}

std::string tolerance_band(const Axis& y) {
  std::string out =
      fmt::format("<rect class=\"allowed\" x=\"0\" width=\"1000\" y=\"{:.1f}\" height=\"{:.1f}\"/>",
                  y.at(kTolerance), y.at(-kTolerance) - y.at(kTolerance));
  for (const double edge : {kTolerance, -kTolerance}) {
    out += fmt::format(
        "<line class=\"allowed-edge\" x1=\"0\" x2=\"1000\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>",
        y.at(edge));
  }
  return out;
}

std::string difference_chart(const Comparison& comparison) {
  const auto parts = stretches(comparison, [&](const CurvePoint& point) {
    return point.loss - reference_at(comparison, point.step);
  });
  if (parts.empty()) return {};
  double most = kTolerance;
  for (const Stretch& part : parts) {
    for (const Point& point : part.points) most = std::max(most, std::fabs(point.y));
  }
  const bool is_logarithmic = most > kTolerance * 4;
  const Axis x = step_axis(comparison);
  const double room = is_logarithmic ? 2.0 : 1.25;
  const Axis y{-most * room, most * room, 160, true, is_logarithmic ? kTolerance : 0};
  std::string out = fmt::format(
      "<figure class=\"chart\"><figcaption><strong>Difference to the uninterrupted run</strong>"
      "<span class=\"key area\"><i></i>tolerance: ±{0}{1}</span></figcaption>"
      "<div class=\"plot difference\" tabindex=\"0\" role=\"img\" aria-label=\"Difference of the "
      "loss to the uninterrupted run at equal steps: at most {2}. The tolerance is plus or minus "
      "{0}.\"><svg viewBox=\"0 0 1000 160\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
      format_small(kTolerance), is_logarithmic ? "; logarithmic beyond it" : "",
      format_small(comparison.parity.max_difference.value_or(0)));
  out += tints_and_borders(parts, x, 160) + tolerance_band(y) + grid_of(y, {0});
  for (const Stretch& part : parts) {
    out +=
        fmt::format("<path class=\"curve {}\" d=\"{}\"/>", part.colour, path_of(part.points, x, y));
  }
  const std::vector<double> ticks = difference_ticks(most);
  return out + "</svg>" + y_labels(y, ticks, true) + x_labels(x) + "</div></figure>";
}

}  // namespace

std::string charts(const Comparison& comparison) {
  if (comparison.curve.empty()) {
    return "<p class=\"lead\">No step has been recorded yet, so there is no curve.</p>";
  }
  std::string out = loss_chart(comparison);
  out += difference_chart(comparison);
  return out + "<p id=\"spoken\" class=\"hidden-text\" aria-live=\"polite\"></p>";
}

std::string points_json(const Comparison& comparison) {
  json::object out;
  json::array steps, legs, losses, references;
  const size_t stride = 1 + comparison.curve.size() / kPointsListedMax;
  for (size_t i = 0; i < comparison.curve.size(); i += stride) {
    const CurvePoint& point = comparison.curve[i];
    const double reference = reference_at(comparison, point.step);
    steps.push_back(point.step);
    legs.push_back(point.leg_index);
    losses.push_back(point.loss);
    references.push_back(std::isfinite(reference) ? json::value(reference) : json::value(nullptr));
  }
  json::object chips;
  for (const LegView& leg : comparison.legs)
    chips[std::to_string(leg.index)] = leg.chip_and_count();
  out["low"] = comparison.curve.empty() ? 0 : comparison.curve.front().step;
  out["high"] = comparison.curve.empty() ? 0 : comparison.curve.back().step;
  out["step"] = std::move(steps);
  out["leg"] = std::move(legs);
  out["loss"] = std::move(losses);
  out["reference"] = std::move(references);
  out["chips"] = std::move(chips);
  std::string text;  // '<' would let data close the script element
  for (const char c : json::serialize(out))
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

}  // namespace anychip::cli::html
