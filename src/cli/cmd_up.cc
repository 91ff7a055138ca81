// up and doctor: server and agent of a data folder, started once, ready when this returns.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/prerequisites.h"
#include "cli/processes.h"
#include "sys/files.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::cli {
namespace {

using json::string_at;

constexpr Duration kServerReadyMax = seconds(60);
constexpr Duration kAgentReadyMax = minutes(3);  // the first start makes the pool
constexpr Duration kPollEvery = milliseconds(100);
constexpr std::string_view kFirstAccount = "me";

Error start_failed(const Context& context, Role role, const Started& started,
                   std::string_view what) {
  const std::string tail = log_tail(context.data, role, started.log_offset);
  return {Code::kUnknown,
          fmt::format("{}_not_ready", name_of(role)),
          fmt::format("the {} {}{}", name_of(role), what,
                      tail.empty() ? "" : ". Its last words:\n" + tail),
          fmt::format("the whole log: {}", log_path_of(context.data, role)),
          {}};
}

Result<int> start_server(Context& context, const UpOptions& options, const ProcessSeen& before) {
  int port = options.port;
  if (port == 0 && check_port_free(before.port)) port = before.port;  // clients keep working
  TRY(const Started started, start_process({context.data, Role::kServer, port, 0, ""}));
  Progress progress(context);
  const MonoTime begun = context.clock->mono_now();
  while (context.clock->mono_now() - begun < kServerReadyMax) {
    progress.show("server: starting");
    const ProcessSeen seen = find_process(context.data, Role::kServer);
    if (seen.pid == started.pid && seen.port > 0) {
      TRY(const auto api,
          Api::connect(fmt::format("http://127.0.0.1:{}", seen.port), "", "en", context.data));
      if (api->get("/readyz", seconds(2))) return seen.port;
    }
    if (!sys::is_alive(started.pid))
      return tl::unexpected(start_failed(context, Role::kServer, started, "ended at once"));
    context.pause(kPollEvery);
  }
  return tl::unexpected(
      start_failed(context, Role::kServer, started, "is not ready after a minute"));
}

// client.json with an account whose token the server accepts; makes account "me" when there is
// none.
Status ensure_account(Context& context, const std::string& url) {
  ClientFile file;
  if (Result<ClientFile> old = load_client_file(context.data)) file = std::move(*old);
  if (!file.token.empty()) {
    TRY(const auto api, Api::connect(url, file.token, context.language, context.data));
    const Result<json::object> account = api->get("/v1/account");
    if (account) {
      if (file.url == url) return {};
      file.url = url;
      return save_client_file(context.data, file);
    }
    if (account.error().code != Code::kUnauthenticated) return tl::unexpected(account.error());
  }
  TRY(std::string admin, sys::read_file(sys::join(context.data, "server/admin.token")));
  while (!admin.empty() && admin.back() == '\n') admin.pop_back();
  TRY(const auto api, Api::connect(url, admin, context.language, context.data));
  TRY(const json::object made, api->post("/v1/accounts", {{"name", kFirstAccount}}));
  file = {url, string_at(made, "token"), std::string(kFirstAccount), {}};
  file.accounts[file.account] = file.token;
  return save_client_file(context.data, file);
}

Status start_agent(Context& context, const UpOptions& options) {
  TRY(const Started started,
      start_process({context.data, Role::kAgent, 0, options.pool_gib, options.node_name}));
  TRY(Api* const api, context.api());
  Progress progress(context);
  const WallTime started_at = context.clock->wall_now();
  const MonoTime begun = context.clock->mono_now();
  while (context.clock->mono_now() - begun < kAgentReadyMax) {
    const Result<json::object> nodes = api->list("/v1/nodes");
    const bool is_ours_up = find_process(context.data, Role::kAgent).pid == started.pid;
    if (is_ours_up && nodes && has_node_ready_since(*nodes, started_at)) return {};
    progress.show("agent: preparing the disks of this node");
    if (!sys::is_alive(started.pid))
      return tl::unexpected(start_failed(context, Role::kAgent, started, "ended at once"));
    context.pause(kPollEvery);
  }
  return tl::unexpected(
      start_failed(context, Role::kAgent, started, "is not ready after three minutes"));
}

Status report_up(Context& context, const std::string& url, bool was_up) {
  const ProcessSeen server = find_process(context.data, Role::kServer);
  const ProcessSeen agent = find_process(context.data, Role::kAgent);
  if (context.is_json()) {
    context.print(json::object{{"url", url},
                               {"data", context.data},
                               {"server_pid", server.pid},
                               {"agent_pid", agent.pid},
                               {"was_up", was_up}});
    return {};
  }
  context.terminal.out(fmt::format("{} at {}  (server {}, agent {}; data {})\n",
                                   was_up ? "already up" : "up", url, server.pid, agent.pid,
                                   context.data));
  if (!was_up)
    context.say(
        "try `anychip offer`, then `anychip run --name first --template tang-poem-gpt --chip cpu`");
  return {};
}

}  // namespace

bool has_node_ready_since(const json::object& nodes, WallTime since) {
  for (const json::value& item : json::array_at(nodes, "items")) {
    const json::object& node = item.as_object();
    const Result<WallTime> seen = parse_rfc3339(string_at(node, "last_seen_at"));
    if (string_at(node, "state") == "ready" && seen && *seen >= since) return true;
  }
  return false;
}

Status cmd_up(Context& context, const UpOptions& options) {
  ProcessSeen server = find_process(context.data, Role::kServer);
  ProcessSeen agent = find_process(context.data, Role::kAgent);
  if (server.pid == 0 || agent.pid == 0) {
    if (server.pid == 0) TRY_VOID(check_port_free(options.port));
    TRY(const MachineFacts facts, read_machine(context.data));
    TRY_VOID(all_present(judge(facts)));
    TRY_VOID(sys::make_folders(context.data, 0755));
  }
  TRY(const sys::FileLock lock, sys::FileLock::acquire(sys::join(context.data, "up.lock")));
  server = find_process(context.data, Role::kServer);  // another `up` may have been faster
  agent = find_process(context.data, Role::kAgent);
  const bool was_up = server.pid != 0 && agent.pid != 0;
  int port = server.port;
  if (server.pid == 0) {
    TRY(port, start_server(context, options, server));
  }
  const std::string url = fmt::format("http://127.0.0.1:{}", port);
  TRY_VOID(ensure_account(context, url));
  if (agent.pid == 0) TRY_VOID(start_agent(context, options));
  return report_up(context, url, was_up);
}

Status cmd_doctor(Context& context) {
  TRY(const MachineFacts facts, read_machine(context.data));
  std::vector<Check> checks = judge(facts);
  const ProcessSeen server = find_process(context.data, Role::kServer);
  const ProcessSeen agent = find_process(context.data, Role::kAgent);
  const auto process = [&](std::string_view name, const ProcessSeen& seen) {
    const bool is_up = seen.pid != 0;
    checks.push_back({fmt::format("process: {}", name),
                      is_up ? Check::State::kOk : Check::State::kWarn,
                      is_up ? fmt::format("running, pid {}", seen.pid) : "not running",
                      is_up ? "" : "anychip up"});
  };
  process("server", server);
  process("agent", agent);
  json::array items;
  Table table(
      {{"CHECK"}, {"STATE"}, {"DETAIL", Align::kLeft, true}, {"WAY OUT", Align::kLeft, true}});
  for (const Check& entry : checks) {
    const bool is_ok = entry.state == Check::State::kOk,
               is_missing = entry.state == Check::State::kMissing;
    const std::string state = is_ok ? "ok" : is_missing ? "missing" : "warn";
    table.add({entry.name,
               Cell(state, is_ok        ? Style::kGood
                           : is_missing ? Style::kBad
                                        : Style::kWarn),
               entry.detail, Cell(entry.way_out, Style::kStrong)});
    items.push_back(json::object{{"name", entry.name},
                                 {"state", state},
                                 {"detail", entry.detail},
                                 {"way_out", entry.way_out}});
  }
  if (context.is_json()) {
    context.print(json::object{{"items", std::move(items)}, {"next_cursor", nullptr}});
  } else {
    context.print(table);
  }
  return all_present(checks);
}

}  // namespace anychip::cli
