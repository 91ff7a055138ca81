// down: the processes of a data folder, everything they made, or one run.
#include <fmt/format.h>

#include "cli/cleanup.h"
#include "cli/commands.h"
#include "cli/processes.h"
#include "sys/files.h"

namespace anychip::cli {
namespace {

using json::string_at;

constexpr Duration kGrace = seconds(20);

// Stops a run and deletes it with its disks and logs.
Status remove_run(Context& context, const std::string& run) {
  TRY(Api* const api, context.api());
  TRY(const json::object shown, api->get(run_path(run)));
  if (!is_ended(string_at(shown, "state"))) {
    TRY_VOID(api->post(run_path(run, "stop"), {}));
    TRY_VOID(wait_until_ended(context, run, std::nullopt));
  }
  TRY_VOID(api->remove(run_path(run)));
  if (context.is_json()) {
    context.print(json::object{{"run", string_at(shown, "id")}, {"removed", true}});
  } else {
    context.terminal.out(
        fmt::format("{}  removed with its disks and logs\n", string_at(shown, "name")));
  }
  return {};
}

}  // namespace

Status cmd_down(Context& context, const DownOptions& options) {
  if (!options.run.empty()) return remove_run(context, options.run);
  const bool was_up = find_process(context.data, Role::kServer).pid != 0 ||
                      find_process(context.data, Role::kAgent).pid != 0;
  {
    Progress progress(context);
    progress.show("agent: ending");
    TRY_VOID(end_process(context.data, Role::kAgent, kGrace));
    progress.show("server: ending");
    TRY_VOID(end_process(context.data, Role::kServer, kGrace));
    if (options.is_all) {
      TRY_VOID(remove_leftovers(context.data, [&](std::string_view text) { progress.show(text); }));
    }
  }
  if (context.is_json()) {
    context.print(
        json::object{{"data", context.data}, {"was_up", was_up}, {"all", options.is_all}});
    return {};
  }
  context.terminal.out(was_up ? "down\n" : "was not up\n");
  if (options.is_all) {
    context.say(
        fmt::format("every container, mount and loop device is gone; `rm -rf {}` removes the rest",
                    context.data));
  } else {
    context.say(
        "running containers go on; `anychip up` finds them again, `anychip down --all` ends them");
  }
  return {};
}

}  // namespace anychip::cli
