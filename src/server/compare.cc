// GET /v1/runs/{run}/compare: what each leg did and cost, and whether the curve is the reference's.
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "fleet/curve.h"
#include "server/curve_rows.h"
#include "server/handlers.h"
#include "server/resolve.h"
#include "server/rows.h"
#include "server/views.h"

namespace anychip::server {
namespace {

struct Point {
  int64_t step = 0, leg_index = 0;
  double loss = 0, t = 0;  // loss NaN = not a finite number
};

Result<std::vector<Point>> curve_of(store::Db& db, const RunId& run) {
  static const std::string text =
      "SELECT m.step, m.leg_index, m.loss, m.t FROM metrics m WHERE "
      "m.run_id = ? AND " +
      std::string(kOfCurve) + " ORDER BY m.step";
  TRY(const auto found, db.query(text, run));
  std::vector<Point> points;
  for (const store::Row& row : found) {
    points.push_back({row.integer(0), row.integer(1),
                      row.is_null(2) ? std::numeric_limits<double>::quiet_NaN() : row.real(2),
                      row.real(3)});
  }
  return points;
}

std::map<int64_t, double> by_step(const std::vector<Point>& points) {
  std::map<int64_t, double> losses;
  for (const Point& point : points) losses[point.step] = point.loss;
  return losses;
}

// ?against=, else the newest run that says it is the reference of this one.
Result<std::optional<fleet::Run>> reference_of(Call& call, const fleet::Run& run) {
  if (const auto against = call.request.query("against"); against && !against->empty()) {
    TRY(auto found, get_run_row(call, *against));
    return std::optional(std::move(found));
  }
  return rows::select_one<fleet::Run>(call.db,
                                      "project_id = ? AND reference_of = ? AND deleted_at IS NULL "
                                      "ORDER BY created_at DESC LIMIT 1",
                                      call.who.project, run.id);
}

json::object parity_view(const fleet::Parity& parity) {
  return {{"grade", parity.grade},
          {"verdict", parity.verdict},
          {"max_abs_loss_difference", number_or_null(parity.max_difference)},
          {"mean_abs_loss_difference", number_or_null(parity.mean_difference)},
          {"compared_steps", parity.compared_steps},
          {"band", number_or_null(parity.band)},
          {"method",
           "absolute difference of the losses at equal steps; bitwise: all equal; "
           "tolerance: within 1e-5; statistical: within 5 % of the reference's mean loss"}};
}

json::array samples_of(const std::vector<fleet::Leg>& legs) {
  json::array samples;
  for (const fleet::Leg& leg : legs) {
    if (!leg.sample_step) continue;
    samples.push_back(json::object{{"leg_index", leg.index},
                                   {"prompt", leg.sample_prompt},
                                   {"text", leg.sample_text},
                                   {"step", *leg.sample_step}});
  }
  return samples;
}

json::object totals_of(const std::vector<fleet::Leg>& legs) {
  int64_t cost = 0, metered_us = 0, down_ms = 0, steps = 0;
  const fleet::Leg* before = nullptr;
  for (const fleet::Leg& leg : legs) {
    cost += leg.cost.micros;
    metered_us += leg.metered_us;
    steps += leg.steps;
    down_ms += down_time_ms(before, leg).value_or(0);
    if (leg.t_last) before = &leg;
  }
  return {{"cost_micros", cost},
          {"metered_us", metered_us},
          {"down_time_ms", down_ms},
          {"steps", steps}};
}

json::array curve_view(const std::vector<Point>& points, bool is_reference) {
  json::array curve;
  for (const Point& point : points) {
    const json::value loss = number_or_null(point.loss);
    if (is_reference)
      curve.push_back(json::array{point.step, loss});
    else
      curve.push_back(json::array{point.step, point.leg_index, loss, point.t});
  }
  return curve;
}

}  // namespace

Result<net::Outcome> get_compare(Call& call) {
  TRY(const fleet::Run run, get_run_row(call, call.parameters[0]));
  TRY(const auto reference, reference_of(call, run));
  TRY(const auto legs, rows::select<fleet::Leg>(call.db, "run_id = ? ORDER BY leg_index", run.id));
  TRY(json::array leg_views, legs_view(call.db, run, legs));
  for (json::value& view : leg_views) view.as_object()["backend"] = view.as_object()["back_end"];
  TRY(const auto curve, curve_of(call.db, run.id));
  TRY(const auto switches,
      rows::select<fleet::Switch>(call.db, "run_id = ? ORDER BY created_at, id", run.id));
  json::array switch_views;
  for (const fleet::Switch& one : switches) {
    TRY(json::object view, switch_view(call.db, one));
    switch_views.push_back(std::move(view));
  }
  fleet::Parity parity;
  json::value reference_view = nullptr, reference_curve = nullptr;
  if (reference) {
    TRY(const auto points, curve_of(call.db, reference->id));
    TRY(const auto reference_legs,
        rows::select<fleet::Leg>(call.db, "run_id = ? ORDER BY leg_index", reference->id));
    parity = fleet::compare_curves(by_step(curve), by_step(points));
    reference_curve = curve_view(points, true);
    json::object view = totals_of(reference_legs);
    view["id"] = reference->id.text;
    view["name"] = reference->name;
    view["state"] = name_of(reference->state);
    view["chip"] = reference_legs.empty() ? "" : reference_legs.front().target.chip;
    reference_view = std::move(view);
  }
  return ok(json::object{{"run", run.id.text},
                         {"state", name_of(run.state)},
                         {"state_reason", text_or_null(run.state_reason)},
                         {"template", text_or_null(run.template_id)},
                         {"image", run.image},
                         {"name", run.name},
                         {"currency", "CNY"},
                         {"legs", std::move(leg_views)},
                         {"totals", totals_of(legs)},
                         {"reference", std::move(reference_view)},
                         {"parity", parity_view(parity)},
                         {"curve", curve_view(curve, false)},
                         {"reference_curve", std::move(reference_curve)},
                         {"switches", std::move(switch_views)},
                         {"samples", samples_of(legs)}});
}

}  // namespace anychip::server
