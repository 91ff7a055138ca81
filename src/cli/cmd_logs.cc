// logs, metrics, events: what a run said.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/text.h"

namespace anychip::cli {
namespace {

using json::int_at;
using json::string_at;

constexpr int kWaitSeconds = 20;
constexpr Duration kWaitAnswer = seconds(kWaitSeconds + 15);

}  // namespace

Status follow_log(Context& context, const LogsOptions& options) {
  int64_t offset = 0;
  const std::string leg = options.leg ? fmt::format("&leg={}", *options.leg) : "";
  std::string text;
  json::object last;
  while (true) {
    const std::string wait = options.is_following ? fmt::format("&wait_s={}", kWaitSeconds) : "";
    const std::string target = run_path(
        options.run, fmt::format("logs?after={}&limit_bytes=1000000{}{}", offset, leg, wait));
    TRY(last, ask_patiently(context, [&](Api& api) { return api.get(target, kWaitAnswer); }));
    const std::string piece = string_at(last, "text");
    if (context.is_json()) {
      text += piece;
    } else if (!piece.empty()) {
      context.terminal.out(piece);
    }
    const int64_t next = int_at(last, "next_offset");
    const bool is_at_end = piece.empty() || next <= offset;
    if (is_at_end && (!options.is_following || json::bool_at(last, "ended"))) break;
    offset = std::max(offset, next);
  }
  if (context.is_json()) {
    last["offset"] = 0;
    last["text"] = std::move(text);
    context.print(last);
  }
  return {};
}

Status cmd_logs(Context& context, const LogsOptions& options) {
  if (!options
           .is_following) {  // fail at once, not after a minute of patience, when nothing is there
    TRY(Api* const api, context.api());
    TRY_VOID(api->get(run_path(options.run)));
  }
  return follow_log(context, options);
}

Status cmd_metrics(Context& context, const MetricsOptions& options) {
  TRY(Api* const api, context.api());
  std::string query;
  const auto add = [&](std::string_view name, std::optional<int64_t> value) {
    if (value) query += fmt::format("{}{}={}", query.empty() ? "?" : "&", name, *value);
  };
  add("after_step", options.after_step);
  add("leg", options.leg);
  add("limit", options.limit);
  const std::string target = run_path(options.run, "metrics" + query);
  TRY(const json::object list, options.limit ? api->get(target) : api->list(target));
  if (context.is_json()) {
    context.print(list);
    return {};
  }
  Table table({{"STEP", Align::kRight},
               {"LEG", Align::kRight},
               {"LOSS", Align::kRight},
               {"STEP TIME", Align::kRight},
               {"TOKENS/S", Align::kRight},
               {"MEMORY", Align::kRight}});
  for (const json::value& item : json::array_at(list, "items")) {
    const json::object& point = item.as_object();
    table.add({std::to_string(int_at(point, "step")), std::to_string(int_at(point, "leg_index")),
               fmt::format("{:.6f}", json::number_at(point, "loss")),
               format_span(static_cast<int64_t>(json::number_at(point, "step_s") * 1e6)),
               format_significant(json::number_at(point, "tokens_s"), 3),
               format_bytes(int_at(point, "memory_bytes"))});
  }
  if (table.size() == 0) {
    context.say("no step has been recorded yet");
  } else {
    context.print(table);
  }
  return {};
}

Status cmd_events(Context& context, const EventsOptions& options) {
  int64_t after = 0;
  json::object all{{"items", json::array{}}, {"next_cursor", nullptr}};
  while (true) {
    const std::string wait = options.is_following ? fmt::format("&wait_s={}", kWaitSeconds) : "";
    const std::string target =
        run_path(options.run, fmt::format("events?after={}&limit=500{}", after, wait));
    Result<json::object> page = fail(Code::kUnknown, "", "");
    if (options.is_following) {
      page = ask_patiently(context, [&](Api& api) { return api.get(target, kWaitAnswer); });
    } else {
      TRY(Api* const api, context.api());
      page = api->get(target);
    }
    if (!page) return tl::unexpected(page.error());
    const json::array& items = json::array_at(*page, "items");
    for (const json::value& item : items) {
      const json::object& event = item.as_object();
      after = std::max(after, int_at(event, "seq"));
      if (context.is_json() && !options.is_following) {
        all["items"].get_array().push_back(item);
      } else if (context.is_json()) {
        context.print(item);
      } else {
        const std::string time =
            styled(format_time(string_at(event, "at")), Style::kFaint, context.terminal.has_colour);
        context.terminal.out(fmt::format("{}  {:<20} {}\n", time,
                                         one_line(string_at(event, "kind")),
                                         one_line(string_at(event, "message"))));
      }
    }
    if (!items.empty()) continue;
    if (!options.is_following) break;
    TRY(const json::object run,
        ask_patiently(context, [&](Api& api) { return api.get(run_path(options.run)); }));
    if (is_ended(string_at(run, "state"))) break;
  }
  if (context.is_json() && !options.is_following) context.print(all);
  return {};
}

}  // namespace anychip::cli
