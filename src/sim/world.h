// One simulation: a server, nodes, users, a network between them, and what goes wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/agent_host.h"
#include "sim/client.h"

namespace anychip::sim {

struct Options {
  uint64_t seed = 1;
  bool is_verbose = false;
  bool is_faultless = false;
  Planted planted = Planted::kNone;
  Duration fault_time = minutes(4);
  Duration heal_limit = hours(3);  // by then everything must have come to rest
  const catalog::Catalog* catalog = nullptr;
  std::string folder;  // for the database; its content is replaced
};

struct Outcome {
  uint64_t hash = 0;
  int64_t events = 0;
  Duration virtual_time;
  std::string faults;
  int64_t runs = 0, legs = 0, switches = 0;
  std::map<std::string, int64_t> run_states, switch_states;
  std::vector<std::string> violations;
};

Outcome simulate(const Options& options);

class World {
 public:
  explicit World(const Options& options);
  ~World();
  Outcome run();

  // For the checkers: a read that no fault can touch.
  json::object get(const Client& client, const std::string& target);
  json::array items(const Client& client, const std::string& target);
  const std::vector<std::unique_ptr<Client>>& clients() const { return clients_; }
  const std::vector<std::unique_ptr<AgentHost>>& agents() const { return agents_; }
  Truth& truth() { return truth_; }

 private:
  void begin_faults();
  void every(Duration mean, std::function<void()> action);
  void kill_server();
  void kill_agent();
  void cut_some_way();
  void step_some_clock();
  void heal();
  bool is_at_rest(std::string& why_not);
  void pause(int64_t least_ms, int64_t most_ms, std::function<void()> then);

  Options options_;
  SeededRandom random_;
  Faults faults_;
  EventQueue queue_;
  Trace trace_;
  Truth truth_;
  Network network_;
  std::unique_ptr<ServerHost> server_;
  std::vector<std::unique_ptr<AgentHost>> agents_;
  std::vector<std::unique_ptr<Client>> clients_;
  bool is_healed_ = false;
};

}  // namespace anychip::sim
