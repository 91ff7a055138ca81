// The commands: options as the parser read them, one function each. All speak through Context; none
// knows CLI11. An Error's code becomes the exit status (base/error.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"

namespace anychip::cli {

// --- this machine (local/) -------------------------------------------------------------------
struct UpOptions {
  int port = 0;      // 0 = the one used before, else any free one
  int pool_gib = 0;  // 0 = the agent decides; only for a new pool
  std::string node_name;
};
Status cmd_up(Context& context, const UpOptions& options);
// Whether a node has reported itself after `since`: an agent's last report, made just before it was
// ended, must not pass for its successor's first.
bool has_node_ready_since(const json::object& nodes, WallTime since);
struct DownOptions {
  std::string run;  // "" = server and agent
  bool is_all = false;
};
Status cmd_down(Context& context, const DownOptions& options);
Status cmd_doctor(Context& context);

// --- catalogue and account --------------------------------------------------------------------
struct NameOptions {
  std::string name;  // "" = all
};
Status cmd_account_show(Context& context);
Status cmd_account_new(Context& context, const std::string& name);
Status cmd_account_use(Context& context, const std::string& name);
Status cmd_offer(Context& context, const NameOptions& options);
Status cmd_chip(Context& context, const NameOptions& options);
Status cmd_image(Context& context, const NameOptions& options);
Status cmd_template(Context& context, const NameOptions& options);
Status cmd_node(Context& context);
Status cmd_instance(Context& context, const NameOptions& options);
Status cmd_volume(Context& context);
Status cmd_snapshot(Context& context);

// --- runs -------------------------------------------------------------------------------------
struct RunOptions {
  std::string name, template_id, image, chip, file, workdir, reference_of, memory, system_disk,
      checkpoint_disk;
  std::optional<int64_t> count, stop_at_step, restarts_max;
  std::vector<std::string> environment;  // KEY=VALUE
  std::vector<std::string> command;      // after --
  bool is_dry_run = false, is_watching = false, is_waiting = false, is_without_workdir = false;
};
Status cmd_run(Context& context, const RunOptions& options);

struct PsOptions {
  std::string state;
  bool is_watching = false;
};
Status cmd_ps(Context& context, const PsOptions& options);
Status cmd_show(Context& context, const std::string& run);

struct LogsOptions {
  std::string run;
  std::optional<int64_t> leg;
  bool is_following = false;
};
Status cmd_logs(Context& context, const LogsOptions& options);
struct MetricsOptions {
  std::string run;
  std::optional<int64_t> leg, after_step, limit;
};
Status cmd_metrics(Context& context, const MetricsOptions& options);
struct EventsOptions {
  std::string run;
  bool is_following = false;
};
Status cmd_events(Context& context, const EventsOptions& options);

struct SwitchOptions {
  std::string run, to;
  std::optional<int64_t> count, at_step, verify_steps;
  bool is_waiting = false, is_cancelling = false, is_listing = false;
};
Status cmd_switch(Context& context, const SwitchOptions& options);

struct StopOptions {
  std::string run;
  bool is_waiting = false;
};
Status cmd_stop(Context& context, const StopOptions& options);
struct WaitOptions {
  std::string run, state, timeout;
  std::optional<int64_t> step;
};
Status cmd_wait(Context& context, const WaitOptions& options);

struct CompareOptions {
  std::string run, against, html_path, input;
  bool is_checking = false;  // a failed verdict is exit status 1
};
Status cmd_compare(Context& context, const CompareOptions& options);

Status cmd_version(Context& context);

// --- shared by the commands -------------------------------------------------------------------
std::string run_path(const std::string& run,
                     std::string_view rest = {});  // "/v1/runs/NAME/rest", encoded
bool is_ended(std::string_view state);
Style style_of_state(std::string_view state);
// Asks again while the server cannot be reached (it may be restarting), at most for a minute.
Result<json::object> ask_patiently(Context& context,
                                   const std::function<Result<json::object>(Api&)>& ask);
// One line about a run for a progress display; while an image is being prepared for it, how far
// that is.
std::string progress_line(Context& context, const json::object& run);
// "pytorch/cpu 40 %: torch: installing" of the nodes' images that are being prepared ("" = none);
// `image` and `variant` restrict it.
std::string preparing_text(const json::object& nodes, std::string_view image = {},
                           std::string_view variant = {});
// Waits until the run has ended; shows state, step, loss and cost meanwhile. The last Run.
Result<json::object> wait_until_ended(Context& context, const std::string& run,
                                      std::optional<Duration> timeout);
// Follows the log until the run has ended.
Status follow_log(Context& context, const LogsOptions& options);
// "chip:8" -> chip and count; both given and different is an error.
struct ChipAndCount {
  std::string chip;
  std::optional<int64_t> count;
};
Result<ChipAndCount> split_chip(const std::string& text, std::optional<int64_t> count);

}  // namespace anychip::cli
