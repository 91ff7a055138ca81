#include "server/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace anychip::server {
namespace {

// Python writes NaN and Infinity, which are no JSON: they become null, "not a finite number".
std::string without_nan(std::string_view line) {
  std::string text(line);
  for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      text.replace(at, word.size(), "null");
    }
  }
  return text;
}

std::optional<double> finite_at(const json::object& from, std::string_view key) {
  const json::value* found = from.if_contains(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  const double number = json::number_at(from, key);
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

void note_memory(fleet::Leg& leg, const json::object& line) {
  const bool has_device = line.contains("peak_device_bytes");
  const int64_t peak = json::int_at(line, has_device ? "peak_device_bytes" : "peak_rss_bytes");
  if (peak <= 0 || (!has_device && leg.memory_source == "device")) return;
  const std::string source = has_device ? "device" : "process";
  if (leg.memory_source != source) leg.peak_memory_bytes = 0;
  leg.memory_source = source;
  leg.peak_memory_bytes = std::max(leg.peak_memory_bytes, peak);
}

StepRow read_step(fleet::Leg& leg, const json::object& line) {
  StepRow row;
  row.step = json::int_at(line, "step");
  row.loss = finite_at(line, "loss");
  row.step_s = finite_at(line, "step_s").value_or(0);
  row.tokens_s = finite_at(line, "tokens_s").value_or(0);
  row.t = finite_at(line, "t").value_or(0);
  row.memory_bytes =
      json::int_at(line, line.contains("device_bytes") ? "device_bytes" : "rss_bytes");
  leg.steps += 1;
  leg.fresh_steps += 1;
  if (!leg.first_step) {
    leg.first_step = row.step;
    leg.loss_first = row.loss;
    leg.t_first = row.t;
  }
  leg.last_step = std::max(leg.last_step.value_or(row.step), row.step);
  leg.loss_last = row.loss;
  leg.t_last = row.t;
  note_memory(leg, line);
  return row;
}

void read_event(fleet::Leg& leg, const json::object& line, std::string_view event) {
  if (event == "start") {
    const std::string accelerator = json::string_at(line, "accelerator");
    leg.device = accelerator.empty() ? json::string_at(line, "device") : accelerator;
    leg.fresh_steps = 0;
  } else if (event == "checkpoint") {
    leg.checkpoint_step = json::int_at(line, "step");
  } else if (event == "sample") {
    leg.sample_step = json::int_at(line, "step");
    leg.sample_prompt = json::string_at(line, "prompt");
    leg.sample_text = json::string_at(line, "text");
  } else if (event == "device_stats") {
    leg.executions = std::max(leg.executions, json::int_at(line, "executions"));
    leg.compiles = std::max(leg.compiles, json::int_at(line, "compiles"));
    if (const int64_t peak = json::int_at(line, "peak_bytes"); peak > 0) {
      if (leg.memory_source != "device") leg.peak_memory_bytes = 0;
      leg.memory_source = "device";
      leg.peak_memory_bytes = std::max(leg.peak_memory_bytes, peak);
    }
  } else if (event == "error") {
    leg.error_reason = json::string_at(line, "reason");
    leg.error_message = json::string_at(line, "message");
    leg.ended_event = event;
  } else if (event == "stopped" || event == "finished") {
    leg.ended_event = event;
    leg.fresh_steps = 0;
  }
}

}  // namespace

std::optional<StepRow> read_metric_line(std::string_view line, fleet::Leg& leg) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return std::nullopt;
  auto parsed = json::parse(line);
  if (!parsed) parsed = json::parse(without_nan(line));
  if (!parsed || !parsed->is_object()) return std::nullopt;
  const json::object& object = parsed->get_object();
  const std::string event = json::string_at(object, "event");
  if (!event.empty()) {
    read_event(leg, object, event);
    return std::nullopt;
  }
  if (json::int_at(object, "step") < 1) return std::nullopt;
  return read_step(leg, object);
}

}  // namespace anychip::server
