#include "agent/main.h"

#include <csignal>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>

#include "agent/agent.h"
#include "agent/files.h"
#include "agent/link.h"
#include "agent/local/runtime_local.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/log.h"
#include "catalog/catalog.h"
#include "sys/files.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

constexpr Duration kTick = milliseconds(100);

std::atomic<int> g_ending_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // it is set from a signal handler

// Not by a blocked mask: containers would inherit it and never hear SIGTERM.
extern "C" void on_signal(int number) { g_ending_signal.store(number); }

void hear_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

Result<std::string> url_of_server(const AgentMainOptions& options) {
  if (!options.server_url.empty()) return options.server_url;
  const std::string path = options.data + "/server/server.json";
  auto text = sys::read_file(path);
  if (!text) {
    return fail(Code::kFailedPrecondition, "server_unknown", "no server has run here: " + path,
                "start it with `anychip up`, or give --server URL");
  }
  TRY(const json::value root, json::parse(*text));
  const int64_t port = root.is_object() ? json::int_at(root.get_object(), "port") : 0;
  if (port <= 0) return fail(Code::kDataLoss, "server_unknown", path + " names no port");
  return "http://127.0.0.1:" + std::to_string(port);
}

Result<AgentOptions> agent_options(const AgentMainOptions& options) {
  AgentOptions made;
  const std::string token_file = options.join_token_file.empty()
                                     ? options.data + "/server/join.token"
                                     : options.join_token_file;
  auto token = sys::read_file(token_file);
  // Without it an agent that has enrolled before still works.
  if (token) made.join_token = trimmed(std::move(*token));
  else log::warn("agent.no_join_token", {{"path", token_file}});
  made.node_name = options.node_name;
  if (made.node_name.empty()) {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) == 0) made.node_name = name.data();
    if (made.node_name.empty()) made.node_name = "node";
  }
  TRY(std::string boot_id, sys::read_file("/proc/sys/kernel/random/boot_id"));
  made.boot_id = trimmed(std::move(boot_id));
  return made;
}

// What belongs together while the process lives; destroyed in the opposite order.
struct Machine {
  catalog::Catalog catalog;
  RealClock clock;
  std::unique_ptr<ImageStore> store;
  std::unique_ptr<StoreImages> images;
  std::unique_ptr<LocalRuntime> runtime;
};

Status open_machine(const AgentMainOptions& options, Machine& machine) {
  std::string root = options.installation_root;
  if (root.empty()) {
    TRY(root, sys::installation_root());
  }
  const std::string share = options.share.empty() ? sys::join(root, "build") : options.share;
  TRY(machine.catalog, catalog::Catalog::load(root, share));
  TRY(machine.store, ImageStore::open(machine.catalog, ImageStoreOptions::of(options.data, root, share)));
  machine.images = std::make_unique<StoreImages>(machine.catalog, *machine.store);
  LocalRuntimeOptions local;
  local.data = options.data;
  local.pool.size_bytes = options.pool_bytes;
  TRY(machine.runtime, LocalRuntime::open(local, *machine.images, machine.catalog.chips(),
                                          machine.catalog.back_ends(), machine.clock));
  return {};
}

Status write_pid(const std::string& folder) {
  TRY(const int64_t start_ticks, sys::start_ticks_of(getpid()));
  const json::object words{{"pid", getpid()}, {"start_ticks", start_ticks}};
  return sys::write_file_atomic(sys::join(folder, "agent.json"), json::serialize(words));
}

}  // namespace

Result<int> run_agent(const AgentMainOptions& options) {
  hear_signals();
  failpoint::arm_from_environment();
  const std::string folder = sys::join(options.data, "agent");
  TRY_VOID(sys::make_folders(folder, 0755));
  auto lock = sys::FileLock::try_acquire(sys::join(folder, "agent.lock"));
  if (!lock) {
    return fail(Code::kAborted, "agent_running",
                "another agent runs on the data folder " + options.data,
                "stop it first: anychip down");
  }
  TRY(const std::string url, url_of_server(options));
  TRY(const AgentOptions made, agent_options(options));
  TRY(const auto files, FolderFiles::create(folder));
  TRY_VOID(write_pid(folder));
  Machine machine;
  TRY_VOID(open_machine(options, machine));
  TRY(const auto link, ThreadedLink::create(url));
  SecureRandom random;
  const auto agent = Agent::create({*machine.runtime, *link, *files, machine.clock, random}, made);
  log::info("agent.started", {{"pid", getpid()}, {"server", url}, {"node", made.node_name}});
  while (g_ending_signal.load() == 0) {
    FAILPOINT_VOID("agent.tick");
    agent->tick();
    link->wait(kTick);
  }
  log::info("agent.stopping", {{"signal", g_ending_signal.load()}, {"containers", "go on"}});
  machine.store->cancel();
  return 0;
}

}  // namespace anychip::agent
