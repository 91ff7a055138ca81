#include "sim/world.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "sim/checks.h"

namespace anychip::sim {
namespace {

constexpr const char* kAdminToken = "admin-of-the-simulation";
constexpr const char* kJoinToken = "join-the-simulation";

std::vector<agent::DeviceSeen> devices_of(Random& random, size_t node) {
  std::vector<agent::DeviceSeen> devices{{"cpu-0", "cpu", true, ""}, {"cpu-1", "cpu", true, ""}};
  // The first node has every chip, so that each request has somewhere to go.
  if (node == 0 || random.chance(60)) devices.push_back({"tpu-sim-0", "tpu-sim", true, ""});
  if (node == 0 || random.chance(60)) devices.push_back({"npu-sim-0", "npu-sim", true, ""});
  if (random.chance(30)) devices.push_back({"tpu-sim-1", "tpu-sim", true, ""});
  return devices;
}

}  // namespace

World::World(const Options& options)
    : options_(options), random_(options.seed * 0x9e3779b97f4a7c15ULL + 17),
      trace_(queue_, options.is_verbose), network_(queue_, random_, faults_) {
  if (!options_.is_faultless) faults_ = Faults::draw(random_);
  faults_.planted = options_.planted;
  if (options_.planted == Planted::kNoIdempotencyKey) faults_.client_retry_percent = 100;
  const std::string database = options_.folder + "/anychip.db";
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    std::filesystem::remove(database + suffix);
  }
  server::CoreOptions core;
  core.admin_token = kAdminToken;
  core.join_token = kJoinToken;
  core.checkpoint_grace = seconds(20);
  server_ = std::make_unique<ServerHost>(
      ServerHost::Parts{queue_, random_, trace_, *options_.catalog, database}, core);
  server_->start();
  const size_t agents = 3 + random_.below(4);
  for (size_t i = 0; i < agents; ++i) {
    const AgentHost::Parts parts{queue_, random_, faults_, trace_, truth_, network_, *server_};
    agents_.push_back(std::make_unique<AgentHost>(fmt::format("node{}", i), parts, kJoinToken,
                                                  devices_of(random_, i)));
    AgentHost* agent = agents_.back().get();
    pause(10, 5000, [agent] { agent->start(); });
  }
  const size_t clients = 2 + random_.below(2);
  for (size_t i = 0; i < clients; ++i) {
    clients_.push_back(std::make_unique<Client>(
        fmt::format("user{}", i),
        Client::Parts{queue_, random_, faults_, trace_, truth_, network_, *server_, kAdminToken},
        static_cast<int>(1 + random_.below(3))));
    Client* client = clients_.back().get();
    pause(3000, 20'000, [client] { client->begin(); });
  }
}

World::~World() {
  for (auto& agent : agents_) agent->kill();
  server_->kill();
}

void World::pause(int64_t least_ms, int64_t most_ms, std::function<void()> then) {
  const auto range = static_cast<uint64_t>(most_ms - least_ms);
  queue_.after(milliseconds(least_ms + static_cast<int64_t>(random_.below(range))), std::move(then));
}

// At random times around `mean`, until healed.
void World::every(Duration mean, std::function<void()> action) {
  if (mean.us == 0) return;
  pause(mean.ms() / 2, mean.ms() * 3 / 2, [this, mean, action] {
    if (is_healed_) return;
    action();
    every(mean, action);
  });
}

void World::begin_faults() {
  every(faults_.server_kill_every, [this] { kill_server(); });
  every(faults_.server_crash_in_write_every, [this] {
    server_->crash_in_a_write([this] { pause(200, 8000, [this] { server_->start(); }); });
  });
  every(faults_.agent_kill_every, [this] { kill_agent(); });
  every(faults_.partition_every, [this] { cut_some_way(); });
  every(faults_.wall_step_every, [this] { step_some_clock(); });
  const auto on_some_node = [this](auto action) {
    return [this, action] { action(agents_[random_.below(agents_.size())]->runtime()); };
  };
  every(faults_.process_crash_every, on_some_node([](SimRuntime& node) { node.crash_some_process(); }));
  every(faults_.supervisor_lost_every,
        on_some_node([](SimRuntime& node) { node.lose_some_supervisor(); }));
  every(faults_.device_vanish_every, on_some_node([this](SimRuntime& node) {
          node.vanish_some_device(seconds(static_cast<int64_t>(2 + random_.below(40))));
        }));
}

void World::kill_server() {
  if (!server_->is_up()) return;
  server_->kill();
  pause(200, 15'000, [this] { server_->start(); });
}

void World::kill_agent() {
  AgentHost* agent = agents_[random_.below(agents_.size())].get();
  if (!agent->is_up()) return;
  agent->kill();
  // Sometimes so long that the server takes the node for lost.
  const int64_t most_ms = random_.chance(15) ? 120'000 : 30'000;
  pause(100, most_ms, [agent] { agent->start(); });
}

void World::cut_some_way() {
  const bool is_agent = random_.chance(75);
  const std::string other = is_agent ? agents_[random_.below(agents_.size())]->name()
                                     : clients_[random_.below(clients_.size())]->name();
  const Duration time = seconds(static_cast<int64_t>(2 + random_.below(45)));
  if (random_.chance(50)) network_.cut(other, "server", time);
  else network_.cut("server", other, time);
  trace_.add("network", fmt::format("{} cut for {} s", other, time.us / 1'000'000));
}

void World::step_some_clock() {
  constexpr int64_t kSteps[] = {-86400, -3600, -30, 30, 3600, 86400};
  server_->clock().step_wall(seconds(kSteps[random_.below(std::size(kSteps))]));
  trace_.add("server", "clock steps");
}

void World::heal() {
  is_healed_ = true;
  faults_.heal();
  network_.heal();
  for (auto& client : clients_) client->calm_down();
  // What is down comes back through its own timer; nobody waits longer than half a minute.
  trace_.add("world", "healed");
}

json::object World::get(const Client& client, const std::string& target) {
  json::object found;
  net::Request asked;
  asked.method = "GET";
  asked.target = target;
  asked.headers.emplace_back("Authorization", "Bearer " + client.token());
  server_->handle(asked, [&](Result<net::Response> response) {
    if (!response || response->status != 200) {
      truth_.violated(fmt::format("GET {}: {}", target, response ? response->body : "no answer"));
      return;
    }
    if (const auto root = json::parse(response->body); root && root->is_object()) {
      found = root->get_object();
    }
  });
  return found;
}

json::array World::items(const Client& client, const std::string& target) {
  json::array all;
  std::string cursor;
  do {
    const char* joint = target.find('?') == std::string::npos ? "?" : "&";
    const json::object page =
        get(client, target + joint + "limit=500" + (cursor.empty() ? "" : "&cursor=" + cursor));
    for (const json::value& item : json::array_at(page, "items")) all.push_back(item);
    cursor = json::string_at(page, "next_cursor");
  } while (!cursor.empty());
  return all;
}

// Everything has come to rest when the users have nothing open, every run has ended and no node
// holds a container.
bool World::is_at_rest(std::string& why_not) {
  why_not.clear();
  if (!server_->is_up()) return why_not = "the server is down", false;
  for (const auto& client : clients_) {
    if (!client->is_done()) return why_not = client->name() + " is not done", false;
  }
  for (const auto& agent : agents_) {
    if (!agent->is_up()) return why_not = agent->name() + " is down", false;
    if (!agent->runtime().inventory().containers.empty()) {
      return why_not = agent->name() + " still holds a container", false;
    }
  }
  for (const auto& client : clients_) {
    for (const json::value& run : items(*client, "/v1/runs")) {
      const std::string state = json::string_at(run.get_object(), "state");
      if (state == "stopped" || state == "finished" || state == "failed") continue;
      why_not = fmt::format("run {} is {}: {}", json::string_at(run.get_object(), "name"), state,
                            json::string_at(run.get_object(), "state_reason"));
      return false;
    }
  }
  return true;
}

Outcome World::run() {
  const MonoTime begin = queue_.now();
  const std::string faults = faults_.words();
  begin_faults();
  queue_.after(options_.fault_time, [this] { heal(); });
  const MonoTime limit = begin + options_.fault_time + options_.heal_limit;
  MonoTime look_at = begin;
  std::string why_not;
  while (truth_.violations.empty() && queue_.run_one()) {
    if (!is_healed_ || queue_.now() < look_at) continue;
    look_at = queue_.now() + seconds(2);
    if (is_at_rest(why_not)) break;
    if (queue_.now() > limit) {
      truth_.violated("no rest after the faults: " + why_not);
      break;
    }
  }
  if (truth_.violations.empty()) {  // what is on its way in the last seconds
    const MonoTime end = queue_.now() + seconds(60);
    while (queue_.now() < end && queue_.run_one()) {
    }
  }
  Outcome outcome;
  if (truth_.violations.empty()) check_everything(*this, outcome);
  if (server_->count_5xx() > 0) truth_.violated("the server failed: " + server_->first_5xx());
  outcome.hash = trace_.hash();
  outcome.events = queue_.count();
  outcome.virtual_time = queue_.now() - begin;
  outcome.faults = faults;
  outcome.legs = static_cast<int64_t>(truth_.legs.size());
  outcome.violations = truth_.violations;
  return outcome;
}

Outcome simulate(const Options& options) {
  CHECK(options.catalog != nullptr && !options.folder.empty());
  World world(options);
  return world.run();
}

}  // namespace anychip::sim
