#include "server/views.h"

#include <cmath>

#include "fleet/curve.h"
#include "server/rows.h"

namespace anychip::server {
namespace {

struct Speed {
  double steps_per_second = 0, tokens_per_second = 0;
};

// Medians over the leg's steps without its first three (warm-up, compilation).
Result<Speed> speed_of(store::Db& db, const fleet::Leg& leg) {
  if (leg.steps <= 3) return Speed{};
  TRY(const auto found,
      db.query("SELECT step_s, tokens_s FROM metrics WHERE run_id = ? AND leg_index = ? "
               "ORDER BY step LIMIT 5000 OFFSET 3",
               leg.run, leg.index));
  std::vector<double> step_s, tokens_s;
  for (const store::Row& row : found) {
    if (!row.is_null(0) && row.real(0) > 0) step_s.push_back(row.real(0));
    if (!row.is_null(1)) tokens_s.push_back(row.real(1));
  }
  const double middle = fleet::median_of(std::move(step_s));
  return Speed{middle > 0 ? 1 / middle : 0, fleet::median_of(std::move(tokens_s))};
}

json::value sample_view(const fleet::Leg& leg) {
  if (!leg.sample_step) return nullptr;
  return json::object{
      {"prompt", leg.sample_prompt}, {"text", leg.sample_text}, {"step", *leg.sample_step}};
}

std::string device_text(const fleet::Leg& leg, const fleet::Instance* instance) {
  if (!leg.device.empty()) return leg.device;
  return instance == nullptr ? "" : rows::join(instance->device_ids, ", ");
}

json::object leg_view(const fleet::Leg& leg, const fleet::Leg* before, const Speed& speed,
                      const fleet::Instance* instance) {
  json::object view = {
      {"id", leg.id.text},
      {"index", leg.index},
      {"chip", leg.target.chip},
      {"back_end", leg.target.back_end},
      {"count", leg.target.count},
      {"simulated", leg.target.is_simulated},
      {"instance_id", leg.instance.text},
      {"state", name_of(leg.state)},
      {"device", device_text(leg, instance)},
      {"first_step", number_or_null(leg.first_step)},
      {"last_step", number_or_null(leg.last_step)},
      {"checkpoint_step", number_or_null(leg.checkpoint_step)},
      {"loss_first", number_or_null(leg.loss_first)},
      {"loss_last", number_or_null(leg.loss_last)},
      {"steps", leg.steps},
      {"started_at", time_or_null(leg.started_at)},
      {"ended_at", time_or_null(leg.ended_at)},
      {"metered_us", leg.metered_us},
      {"price_micros_per_hour", leg.target.price.micros},
      {"cost_micros", leg.cost.micros},
      {"voided", leg.is_voided},
      {"end_reason", text_or_null(leg.end_reason)},
      {"exit_code", number_or_null(leg.exit_code)},
      {"steps_per_second", speed.steps_per_second},
      {"tokens_per_second", speed.tokens_per_second},
      {"peak_memory_bytes", leg.peak_memory_bytes},
      {"memory_source", leg.memory_source.empty() ? "cgroup" : leg.memory_source},
      {"down_time_ms", number_or_null(down_time_ms(before, leg))},
      {"executions", leg.executions > 0 ? json::value(leg.executions) : nullptr},
      {"compiles", leg.executions > 0 ? json::value(leg.compiles) : nullptr},
      {"sample", sample_view(leg)},
  };
  return view;
}

json::object side_view(const fleet::Target& target) {
  return {{"chip", target.chip}, {"count", target.count}};
}

}  // namespace

std::optional<int64_t> down_time_ms(const fleet::Leg* before, const fleet::Leg& leg) {
  if (before == nullptr || !before->t_last || !leg.t_first) return std::nullopt;
  return static_cast<int64_t>(std::llround((*leg.t_first - *before->t_last) * 1000.0));
}

Result<json::array> legs_view(store::Db& db, const fleet::Run& run,
                              const std::vector<fleet::Leg>& legs) {
  TRY(const auto instances, rows::select<fleet::Instance>(db, "run_id = ? ORDER BY id", run.id));
  json::array views;
  const fleet::Leg* before = nullptr;  // the last one that made a step
  for (const fleet::Leg& leg : legs) {
    TRY(const Speed speed, speed_of(db, leg));
    const fleet::Instance* instance = nullptr;
    for (const auto& one : instances) {
      if (one.id == leg.instance) instance = &one;
    }
    views.push_back(leg_view(leg, before, speed, instance));
    if (leg.t_last) before = &leg;
  }
  return views;
}

Result<json::object> switch_view(store::Db& db, const fleet::Switch& of) {
  TRY(const auto found,
      db.query("SELECT kind, at FROM events WHERE run_id = ? AND kind LIKE 'switch.%' AND at >= ? "
               "AND at <= ? ORDER BY seq",
               of.run, of.created_at, of.ended_at.value_or(WallTime{INT64_MAX})));
  json::array timeline;
  for (const store::Row& row : found) {
    const std::string name = row.text(0).substr(std::string_view("switch.").size());
    fleet::SwitchStep step{};
    const bool is_step = fleet::parse(name, step);
    timeline.push_back(
        json::object{{"step", is_step ? json::value(static_cast<int>(step)) : nullptr},
                     {"name", name},
                     {"at", WallTime{row.integer(1)}.rfc3339()}});
  }
  return json::object{{"id", of.id.text},
                      {"run_id", of.run.text},
                      {"from", side_view(of.from)},
                      {"to", side_view(of.to)},
                      {"state", name_of(of.state)},
                      {"step", static_cast<int>(of.step)},
                      {"step_name", name_of(of.step)},
                      {"reason", text_or_null(of.reason)},
                      {"falling_back", of.is_falling_back},
                      {"at_step", number_or_null(of.at_step)},
                      {"verify_steps", of.verify_steps},
                      {"stopped_at_step", number_or_null(of.stopped_at_step)},
                      {"lost_steps", number_or_null(of.lost_steps)},
                      {"down_time_ms", number_or_null(of.down_time_ms)},
                      {"created_at", of.created_at.rfc3339()},
                      {"ended_at", time_or_null(of.ended_at)},
                      {"timeline", std::move(timeline)}};
}

Result<json::object> run_view(store::Db& db, const Shared&, const fleet::Run& run) {
  TRY(const auto legs, rows::select<fleet::Leg>(db, "run_id = ? ORDER BY leg_index", run.id));
  TRY(const auto current, rows::select_one<fleet::Instance>(db, "id = ?", run.instance));
  TRY(const auto last_switch,
      rows::select_one<fleet::Switch>(db, "run_id = ? ORDER BY created_at DESC, id DESC LIMIT 1",
                                      run.id));
  fleet::Target target;
  if (current) target = current->target;
  int64_t cost_micros = 0;
  const fleet::Leg* stepped = nullptr;
  for (const fleet::Leg& leg : legs) {
    cost_micros += leg.cost.micros;
    if (leg.last_step) stepped = &leg;
  }
  // Beside a phase that goes on, an error is the last try's: the node tries again.
  const bool is_retrying = run.state == fleet::RunState::kPreparing && run.state_reason.empty() &&
                           current && !current->error_message.empty();
  const std::string reason =
      is_retrying ? "it is tried again: " + current->error_message : run.state_reason;
  json::array command;
  for (const std::string& word : run.command) command.emplace_back(word);
  json::value switch_json = nullptr;
  if (last_switch) {
    TRY(switch_json, switch_view(db, *last_switch));
  }
  TRY(json::array leg_views, legs_view(db, run, legs));
  return json::object{
      {"id", run.id.text},
      {"name", run.name},
      {"project_id", run.project.text},
      {"state", name_of(run.state)},
      {"state_reason", text_or_null(reason)},
      {"template", text_or_null(run.template_id)},
      {"chip", target.chip},
      {"count", target.count},
      {"back_end", target.back_end},
      {"image", run.image},
      {"variant", target.variant},
      {"command", std::move(command)},
      {"step", stepped == nullptr ? json::value(nullptr) : number_or_null(stepped->last_step)},
      {"loss", stepped == nullptr ? json::value(nullptr) : number_or_null(stepped->loss_last)},
      {"created_at", run.created_at.rfc3339()},
      {"started_at", time_or_null(run.started_at)},
      {"ended_at", time_or_null(run.ended_at)},
      {"price_micros_per_hour", target.price.micros},
      {"cost_micros", cost_micros},
      {"currency", "CNY"},
      {"simulated", target.is_simulated},
      {"legs", std::move(leg_views)},
      {"switch", std::move(switch_json)},
      {"restarts", run.restarts},
      {"restarts_max", run.restarts_max},
      {"stop_at_step", number_or_null(run.stop_at_step)},
      {"reference_of", text_or_null(run.reference_of.text)},
      {"exit_code", number_or_null(run.exit_code)},
  };
}

json::object instance_view(const fleet::Instance& instance) {
  json::array devices;
  for (const std::string& id : instance.device_ids) devices.emplace_back(id);
  return {{"id", instance.id.text},
          {"run_id", instance.run.text},
          {"leg_id", instance.leg.text},
          {"node_id", instance.node.text},
          {"generation", instance.generation},
          {"chip", instance.target.chip},
          {"count", instance.target.count},
          {"back_end", instance.target.back_end},
          {"simulated", instance.target.is_simulated},
          {"image", instance.target.image},
          {"variant", instance.target.variant},
          {"device_ids", std::move(devices)},
          {"desired", name_of(instance.desired)},
          {"phase", name_of(instance.phase)},
          {"state", instance.is_closed ? "gone" : name_of(instance.phase)},
          {"closed", instance.is_closed},
          {"system_disk", text_or_null(instance.system_disk.text)},
          {"checkpoint_volume", text_or_null(instance.checkpoint.text)},
          {"exit_code", number_or_null(instance.exit_code)},
          {"oom", instance.is_oom},
          {"ran_us", instance.ran_us},
          {"memory_peak_bytes", instance.memory_peak_bytes},
          {"cpu_time_us", instance.cpu_time_us},
          {"error", text_or_null(instance.error_message)},
          {"created_at", instance.created_at.rfc3339()}};
}

json::object volume_view(const fleet::Volume& volume) {
  return {{"id", volume.id.text},
          {"run_id", volume.run.text},
          {"node_id", volume.node.text},
          {"kind", volume.kind},
          {"size_bytes", volume.size_bytes},
          {"used_bytes", volume.used_bytes},
          {"from_snapshot", text_or_null(volume.from_snapshot.text)},
          {"state", name_of(volume.state)},
          {"wanted", volume.is_wanted},
          {"attach_generation", volume.attach_generation},
          {"attached_to", text_or_null(volume.attached_to.text)},
          {"error", text_or_null(volume.error)},
          {"created_at", volume.created_at.rfc3339()}};
}

json::object snapshot_view(const fleet::Snapshot& snapshot) {
  return {{"id", snapshot.id.text},
          {"run_id", snapshot.run.text},
          {"node_id", snapshot.node.text},
          {"volume_id", snapshot.volume.text},
          {"state", name_of(snapshot.state)},
          {"wanted", snapshot.is_wanted},
          {"size_bytes", snapshot.size_bytes},
          {"freeze_us", snapshot.freeze_us},
          {"error", text_or_null(snapshot.error)},
          {"created_at", snapshot.created_at.rfc3339()}};
}

}  // namespace anychip::server
