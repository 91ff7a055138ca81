// ps, show, stop, wait: looking at runs and waiting for them.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/format.h"

namespace anychip::cli {
namespace {

using json::int_at;
using json::string_at;

constexpr Duration kPollEvery = milliseconds(500);
constexpr Duration kUnreachableMax = seconds(60);

std::string chip_text(const json::object& run) {
  const int64_t count = int_at(run, "count");
  const std::string chip = string_at(run, "chip");
  return count > 1 ? fmt::format("{}:{}", chip, count) : chip;
}

std::string loss_text(const json::object& run) {
  const json::value* loss = run.if_contains("loss");
  return loss != nullptr && loss->is_number() ? fmt::format("{:.4f}", json::number_at(run, "loss"))
                                              : "-";
}

std::string step_text(const json::object& run) {
  const json::value* step = run.if_contains("step");
  return step != nullptr && step->is_number() ? format_count(int_at(run, "step")) : "-";
}

Table runs_table(const json::object& list) {
  Table table({{"RUN", Align::kLeft, true},
               {"STATE"},
               {"CHIP", Align::kLeft, true},
               {"STEP", Align::kRight},
               {"LOSS", Align::kRight},
               {"COST", Align::kRight},
               {"PRICE", Align::kRight},
               {"STARTED"},
               {"NOTE", Align::kLeft, true}});
  for (const json::value& item : json::array_at(list, "items")) {
    const json::object& run = item.as_object();
    const std::string state = string_at(run, "state");
    std::string note = string_at(run, "state_reason");
    const json::object& move = json::object_at(run, "switch");
    if (note.empty() && string_at(move, "state") == "active") {
      note = fmt::format("switch to {}: {}/8 {}", string_at(json::object_at(move, "to"), "chip"),
                         int_at(move, "step"), string_at(move, "step_name"));
    }
    table.add({Cell(string_at(run, "name"), Style::kStrong), Cell(state, style_of_state(state)),
               chip_text(run), step_text(run), loss_text(run),
               yuan_exact(int_at(run, "cost_micros")),
               Cell(yuan_per_hour(int_at(run, "price_micros_per_hour")) +
                        (json::bool_at(run, "simulated") ? " *" : ""),
                    Style::kFaint),
               Cell(format_time(string_at(run, "started_at")), Style::kFaint),
               Cell(note, Style::kFaint)});
  }
  return table;
}

bool has_simulated(const json::object& list) {
  for (const json::value& item : json::array_at(list, "items")) {
    if (json::bool_at(item.as_object(), "simulated")) return true;
  }
  return false;
}

std::string run_line(const json::object& run) {
  return fmt::format(
      "{}: {} on {}, step {}, loss {}, {}{}", string_at(run, "name"), string_at(run, "state"),
      chip_text(run), step_text(run), loss_text(run), yuan_exact(int_at(run, "cost_micros")),
      string_at(run, "state_reason").empty() ? "" : " (" + string_at(run, "state_reason") + ")");
}

Status ended_badly(const json::object& run) {
  return fail(
      Code::kUnknown, "run_" + string_at(run, "state"),
      fmt::format("run '{}' {}: {}", string_at(run, "name"), string_at(run, "state"),
                  string_at(run, "state_reason")),
      fmt::format("`anychip logs {0}` and `anychip events {0}` say more", string_at(run, "name")));
}

void show_fields(const Context& context, const json::object& run) {
  const auto line = [&](std::string_view name, const std::string& value) {
    if (value.empty()) return;
    context.terminal.out(
        styled(fmt::format("{:<10}", name), Style::kFaint, context.terminal.has_colour) + value +
        "\n");
  };
  std::string command;
  for (const json::value& word : json::array_at(run, "command")) {
    if (word.is_string()) command += (command.empty() ? "" : " ") + std::string(word.get_string());
  }
  const std::string state = string_at(run, "state"), reason = string_at(run, "state_reason");
  line("run", styled(string_at(run, "name"), Style::kStrong, context.terminal.has_colour) + "  " +
                  string_at(run, "id"));
  line("state", styled(state, style_of_state(state), context.terminal.has_colour) +
                    (reason.empty() ? "" : "  " + reason));
  line("command", command);
  line("image", string_at(run, "image") + "/" + string_at(run, "variant"));
  line("chip", fmt::format("{} (back end {}){}", chip_text(run), string_at(run, "back_end"),
                           json::bool_at(run, "simulated") ? ", simulated" : ""));
  line("progress", fmt::format("step {}, loss {}", step_text(run), loss_text(run)));
  line("cost",
       fmt::format("{} at {}{}", yuan_exact(int_at(run, "cost_micros")),
                   yuan_per_hour(int_at(run, "price_micros_per_hour")),
                   json::bool_at(run, "simulated") ? " (list price of the chip simulated)" : ""));
  line("times",
       fmt::format(
           "created {}, started {}, ended {}", format_time(string_at(run, "created_at")),
           string_at(run, "started_at").empty() ? "-" : format_time(string_at(run, "started_at")),
           string_at(run, "ended_at").empty() ? "-" : format_time(string_at(run, "ended_at"))));
  const json::object& move = json::object_at(run, "switch");
  if (!move.empty()) {
    line("switch", fmt::format("{} → {}: {}, step {}/8 {} {}",
                               string_at(json::object_at(move, "from"), "chip"),
                               string_at(json::object_at(move, "to"), "chip"),
                               string_at(move, "state"), int_at(move, "step"),
                               string_at(move, "step_name"), string_at(move, "reason")));
  }
}

}  // namespace

std::string run_path(const std::string& run, std::string_view rest) {
  return fmt::format("/v1/runs/{}{}{}", net::url_encode(run), rest.empty() ? "" : "/", rest);
}

bool is_ended(std::string_view state) {
  return state == "stopped" || state == "finished" || state == "failed";
}

Style style_of_state(std::string_view state) {
  if (state == "running" || state == "finished" || state == "ready" || state == "done")
    return Style::kGood;
  if (state == "failed" || state == "lost" || state == "fell_back") return Style::kBad;
  if (state == "stopped" || state == "gone") return Style::kFaint;
  return Style::kWarn;
}

Result<json::object> ask_patiently(Context& context,
                                   const std::function<Result<json::object>(Api&)>& ask) {
  TRY(Api* const api, context.api());
  const MonoTime give_up = context.clock->mono_now() + kUnreachableMax;
  for (bool has_said = false;; has_said = true) {
    Result<json::object> answer = ask(*api);
    const bool is_away = !answer && (answer.error().reason == "server_unreachable" ||
                                     answer.error().code == Code::kDeadlineExceeded);
    if (!is_away || context.clock->mono_now() >= give_up) return answer;
    if (!has_said) context.say("the server does not answer; trying again for a minute");
    context.pause(kPollEvery);
  }
}

std::string preparing_text(const json::object& nodes, std::string_view image,
                           std::string_view variant) {
  for (const json::value& item : json::array_at(nodes, "items")) {
    for (const json::value& value : json::array_at(item.as_object(), "images")) {
      const json::object& one = value.as_object();
      const std::string text = string_at(one, "progress_text");
      const bool is_wanted = (image.empty() || string_at(one, "image") == image) &&
                             (variant.empty() || string_at(one, "variant") == variant);
      if (!is_wanted || text.empty() || string_at(one, "state") != "preparing") continue;
      return fmt::format("{}/{} {} %: {}", string_at(one, "image"), string_at(one, "variant"),
                         int_at(one, "progress_percent"), text);
    }
  }
  return {};
}

std::string progress_line(Context& context, const json::object& run) {
  std::string line = run_line(run);
  const std::string state = string_at(run, "state");
  if (state != "preparing" && state != "switching") return line;
  const Result<Api*> api = context.api();
  if (!api) return line;
  const Result<json::object> nodes = (*api)->list("/v1/nodes");
  if (!nodes) return line;
  const std::string variant = state == "preparing" ? string_at(run, "variant") : std::string();
  const std::string text = preparing_text(*nodes, string_at(run, "image"), variant);
  return text.empty() ? line : line + "; image " + text;
}

Result<json::object> wait_until_ended(Context& context, const std::string& run,
                                      std::optional<Duration> timeout) {
  const MonoTime begun = context.clock->mono_now();
  Progress progress(context);
  while (true) {
    TRY(json::object now, ask_patiently(context, [&](Api& api) { return api.get(run_path(run)); }));
    progress.show(progress_line(context, now), string_at(now, "state"));
    if (is_ended(string_at(now, "state"))) return now;
    if (timeout && context.clock->mono_now() - begun >= *timeout) {
      return fail(Code::kDeadlineExceeded, "wait_timeout",
                  fmt::format("run '{}' is still {} after {}", run, string_at(now, "state"),
                              format_span(timeout->us)),
                  "the run goes on; wait longer with --timeout");
    }
    context.pause(kPollEvery);
  }
}

Status cmd_ps(Context& context, const PsOptions& options) {
  std::string target = "/v1/runs?limit=500";
  if (!options.state.empty()) target += "&state=" + net::url_encode(options.state);
  for (bool is_first = true;; is_first = false) {
    TRY(const json::object list, is_first && !options.is_watching
                                     ? [&]() -> Result<json::object> {
                                         TRY(Api* const api, context.api());
                                         return api->list(target);
                                       }()
                                     : ask_patiently(context, [&](Api& api) { return api.list(target); }));
    if (context.is_json()) {
      context.print(list);
    } else {
      const Table table = runs_table(list);
      if (options.is_watching && context.terminal.out_is_tty) context.terminal.out("\x1b[H\x1b[J");
      if (table.size() == 0) {
        context.say(
            "no runs yet: `anychip template` lists what can be tried, `anychip run` starts one");
      } else {
        context.print(table);
        if (has_simulated(list)) context.say("* list price of the chip simulated");
      }
    }
    if (!options.is_watching) return {};
    context.pause(seconds(1));
  }
}

Status cmd_show(Context& context, const std::string& run) {
  TRY(Api* const api, context.api());
  TRY(const json::object shown, api->get(run_path(run)));
  if (context.is_json()) {
    context.print(shown);
    return {};
  }
  show_fields(context, shown);
  if (json::array_at(shown, "legs").empty()) return {};
  Table table({{"LEG", Align::kRight},
               {"CHIP"},
               {"STATE"},
               {"DEVICE", Align::kLeft, true},
               {"STEPS", Align::kRight},
               {"STEPS/S", Align::kRight},
               {"METERED", Align::kRight},
               {"COST", Align::kRight},
               {"END", Align::kLeft, true}});
  for (const json::value& item : json::array_at(shown, "legs")) {
    const json::object& leg = item.as_object();
    const double speed = json::number_at(leg, "steps_per_second");
    const std::string state = string_at(leg, "state");
    table.add({std::to_string(int_at(leg, "index")), Cell(chip_text(leg), Style::kStrong),
               Cell(state, style_of_state(state)), string_at(leg, "device"),
               int_at(leg, "steps") > 0
                   ? fmt::format("{}–{}", int_at(leg, "first_step"), int_at(leg, "last_step"))
                   : "-",
               speed > 0 ? format_significant(speed, 3) : "-",
               format_span(int_at(leg, "metered_us")),
               json::bool_at(leg, "voided") ? "voided" : yuan_exact(int_at(leg, "cost_micros")),
               Cell(string_at(leg, "end_reason"), Style::kFaint)});
  }
  context.terminal.out("\n");
  context.print(table);
  return {};
}

Status cmd_stop(Context& context, const StopOptions& options) {
  TRY(Api* const api, context.api());
  TRY(json::object run, api->post(run_path(options.run, "stop"), {}));
  if (options.is_waiting) {
    TRY(run, wait_until_ended(context, options.run, std::nullopt));
  }
  if (context.is_json()) {
    context.print(run);
  } else {
    context.terminal.out(run_line(run) + "\n");
  }
  return {};
}

Status cmd_wait(Context& context, const WaitOptions& options) {
  std::optional<Duration> timeout;
  if (!options.timeout.empty()) {
    TRY(const int64_t us, parse_span(options.timeout));
    timeout = Duration{us};
  }
  const MonoTime begun = context.clock->mono_now();
  Progress progress(context);
  while (true) {
    TRY(const json::object run,
        ask_patiently(context, [&](Api& api) { return api.get(run_path(options.run)); }));
    const std::string state = string_at(run, "state");
    progress.show(progress_line(context, run), state);
    const bool has_goal = options.step.has_value() || !options.state.empty();
    const bool is_step_reached = options.step && int_at(run, "step") >= *options.step;
    const bool is_reached = is_step_reached || (!options.state.empty() && state == options.state);
    if (is_reached || (!has_goal && is_ended(state))) {
      progress.end();
      if (context.is_json()) context.print(run);
      if (!has_goal && state == "failed") return ended_badly(run);
      return {};
    }
    if (is_ended(state)) {
      progress.end();
      if (state == "failed") return ended_badly(run);
      return fail(
          Code::kUnknown, "run_ended",
          fmt::format("run '{}' {} at step {} before that", options.run, state, step_text(run)));
    }
    if (timeout && context.clock->mono_now() - begun >= *timeout) {
      return fail(Code::kDeadlineExceeded, "wait_timeout",
                  fmt::format("not within {}: {}", format_span(timeout->us), run_line(run)),
                  "the run goes on; wait longer with --timeout");
    }
    context.pause(kPollEvery);
  }
}

}  // namespace anychip::cli
