// switch: moves a run to another chip and shows how it goes.
#include <algorithm>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/format.h"

namespace anychip::cli {
namespace {

using json::int_at;
using json::string_at;

constexpr Duration kPollEvery = milliseconds(300);

std::string place_text(const json::object& place) {
  const int64_t count = int_at(place, "count");
  const std::string chip = string_at(place, "chip");
  return count > 1 ? fmt::format("{}:{}", chip, count) : chip;
}

std::string move_text(const json::object& move) {
  return fmt::format("{} → {}", place_text(json::object_at(move, "from")),
                     place_text(json::object_at(move, "to")));
}

// "[####....] 4/8 checkpoint": what the eight steps are doing now.
std::string step_line(const json::object& move, const json::object& run) {
  const int64_t step = std::clamp<int64_t>(int_at(move, "step"), 0, 8);
  std::string bar(static_cast<size_t>(step), '#');
  bar.append(static_cast<size_t>(8 - step), '.');
  std::string line =
      fmt::format("{}  [{}] {}/8 {}", move_text(move), bar, step, string_at(move, "step_name"));
  if (const std::string reason = string_at(move, "reason"); !reason.empty()) line += ": " + reason;
  const json::value* at_step = move.if_contains("at_step");
  const bool is_before_stop = step <= 4 && at_step != nullptr && at_step->is_number();
  if (is_before_stop && !run.empty()) {
    line += fmt::format(" (step {} of {})", int_at(run, "step"), int_at(move, "at_step"));
  }
  return line;
}

Result<json::object> switch_by_id(Context& context, const std::string& run, const std::string& id) {
  TRY(const json::object list,
      ask_patiently(context, [&](Api& api) { return api.list(run_path(run, "switches")); }));
  for (const json::value& item : json::array_at(list, "items")) {
    if (string_at(item.as_object(), "id") == id) return item.as_object();
  }
  return fail(Code::kNotFound, "switch_unknown", fmt::format("run '{}' has no switch {}", run, id));
}

Result<json::object> follow_switch(Context& context, const std::string& run, json::object move) {
  Progress progress(context);
  const std::string id = string_at(move, "id");
  while (string_at(move, "state") == "active") {
    const Result<json::object> now =
        ask_patiently(context, [&](Api& api) { return api.get(run_path(run)); });
    std::string line = step_line(move, now ? *now : json::object{});
    if (string_at(move, "step_name") == "prepare") {  // the first switch to a chip builds its image
      const Result<json::object> nodes =
          ask_patiently(context, [](Api& api) { return api.list("/v1/nodes"); });
      const std::string image = nodes ? preparing_text(*nodes) : "";
      if (!image.empty()) line += "; image " + image;
    }
    progress.show(line, string_at(move, "step_name"));
    context.pause(kPollEvery);
    TRY(move, switch_by_id(context, run, id));
  }
  return move;
}

Status outcome_of(Context& context, const std::string& run, const json::object& move) {
  const std::string state = string_at(move, "state"), reason = string_at(move, "reason");
  if (context.is_json()) context.print(move);
  if (state == "done") {
    if (!context.is_json()) {
      const int64_t lost = int_at(move, "lost_steps");
      context.terminal.out(fmt::format(
          "{}  done after step {}; down time {}; {}\n", move_text(move),
          int_at(move, "stopped_at_step"), format_span(int_at(move, "down_time_ms") * 1000),
          lost == 0 ? "no step lost" : fmt::format("{} steps repeated", lost)));
    }
    return {};
  }
  const std::string hint = fmt::format("`anychip events {}` tells what happened", run);
  if (state == "cancelled") {
    return fail(Code::kCancelled, "switch_cancelled",
                fmt::format("{}: cancelled; the run stays where it was", move_text(move)), hint);
  }
  if (state == "fell_back") {
    return fail(
        Code::kUnknown, "switch_fell_back",
        fmt::format("{}: fell back, the run goes on on the old chip: {}", move_text(move), reason),
        hint);
  }
  return fail(state == "refused" ? Code::kFailedPrecondition : Code::kUnknown, "switch_" + state,
              fmt::format("{}: {}: {}", move_text(move), state, reason), hint);
}

Status list_switches(Context& context, const std::string& run) {
  TRY(Api* const api, context.api());
  TRY(const json::object list, api->list(run_path(run, "switches")));
  if (context.is_json()) {
    context.print(list);
    return {};
  }
  Table table({{"SWITCH"},
               {"MOVE", Align::kLeft, true},
               {"STATE"},
               {"STEP"},
               {"AFTER STEP", Align::kRight},
               {"LOST", Align::kRight},
               {"DOWN TIME", Align::kRight},
               {"REASON", Align::kLeft, true}});
  for (const json::value& item : json::array_at(list, "items")) {
    const json::object& move = item.as_object();
    const json::value* down = move.if_contains("down_time_ms");
    const std::string state = string_at(move, "state");
    table.add({string_at(move, "id"), move_text(move), Cell(state, style_of_state(state)),
               fmt::format("{}/8 {}", int_at(move, "step"), string_at(move, "step_name")),
               std::to_string(int_at(move, "stopped_at_step")),
               std::to_string(int_at(move, "lost_steps")),
               down != nullptr && down->is_number()
                   ? format_span(int_at(move, "down_time_ms") * 1000)
                   : "-",
               Cell(string_at(move, "reason"), Style::kFaint)});
  }
  if (table.size() == 0) {
    context.say("no switches yet");
  } else {
    context.print(table);
  }
  return {};
}

Status cancel_switch(Context& context, const std::string& run) {
  TRY(Api* const api, context.api());
  TRY(const json::object list, api->list(run_path(run, "switches")));
  for (const json::value& item : json::array_at(list, "items")) {
    const json::object& move = item.as_object();
    if (string_at(move, "state") != "active") continue;
    TRY(const json::object answer,
        api->post(run_path(run, fmt::format("switches/{}/cancel", string_at(move, "id"))), {}));
    if (context.is_json()) {
      context.print(answer);
    } else {
      context.say(fmt::format("{}: cancelled", move_text(move)));
    }
    return {};
  }
  return fail(Code::kFailedPrecondition, "switch_not_active",
              fmt::format("run '{}' is not being switched", run));
}

}  // namespace

Status cmd_switch(Context& context, const SwitchOptions& options) {
  if (options.is_listing) return list_switches(context, options.run);
  if (options.is_cancelling) return cancel_switch(context, options.run);
  if (options.to.empty()) {
    return fail(Code::kInvalidArgument, "chip_missing", "no chip to switch to is named",
                "add --to CHIP; `anychip offer` lists what is free");
  }
  TRY(const ChipAndCount place, split_chip(options.to, options.count));
  json::object body{{"chip", place.chip}};
  if (place.count) body["count"] = *place.count;
  if (options.at_step) body["at_step"] = *options.at_step;
  if (options.verify_steps) body["verify_steps"] = *options.verify_steps;
  TRY(Api* const api, context.api());
  TRY(json::object move, api->post(run_path(options.run, "switch"), body));
  if (!options.is_waiting) {
    if (context.is_json()) {
      context.print(move);
    } else {
      context.terminal.out(
          fmt::format("{}  ordered{}\n", move_text(move),
                      options.at_step ? fmt::format(" for step {}", *options.at_step) : ""));
      context.say(fmt::format(
          "watch it with `anychip show {0}`; `anychip switch {0} --cancel` takes it back",
          options.run));
    }
    return {};
  }
  TRY(move, follow_switch(context, options.run, std::move(move)));
  return outcome_of(context, options.run, move);
}

}  // namespace anychip::cli
