// A node: its machine (SimRuntime and AgentFiles, which survive) and the agent's process on it, the
// real Agent, killed and restarted.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "sim/network.h"
#include "sim/runtime.h"
#include "sim/server_host.h"

namespace anychip::sim {

class MemoryFiles final : public agent::AgentFiles {
 public:
  Result<std::string> load_identity() override { return load(identity_); }
  Status save_identity(std::string_view text) override { return identity_ = text, Status{}; }
  Result<std::string> load_state() override { return load(state_); }
  Status save_state(std::string_view text) override { return state_ = text, Status{}; }
  bool has_workdir(const std::string& digest) override { return workdirs_.contains(digest); }
  Status save_workdir(const std::string& digest, std::string_view) override {
    workdirs_.insert(digest);
    return {};
  }
  std::string workdir_path(const std::string& digest) override { return "/workdirs/" + digest; }

 private:
  static Result<std::string> load(const std::string& text) {
    if (text.empty()) return fail(Code::kNotFound, "absent", "not written yet");
    return text;
  }
  std::string identity_, state_;
  std::set<std::string> workdirs_;
};

class SimLink final : public agent::ServerLink {
 public:
  SimLink(std::string name, EventQueue& queue, Network& network, ServerHost& server)
      : name_(std::move(name)), queue_(queue), network_(network), server_(server) {}
  int64_t begin(net::Request request, Duration timeout) override;
  std::vector<Reply> take_replies() override { return std::exchange(replies_, {}); }
  void on_reply(std::function<void()> wake) { wake_ = std::move(wake); }

 private:
  void reply(int64_t id, Result<net::Response> response);

  std::string name_;
  EventQueue& queue_;
  Network& network_;
  ServerHost& server_;
  int64_t last_id_ = 0;
  std::set<int64_t> open_;
  std::vector<Reply> replies_;
  std::function<void()> wake_;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);

 public:
  ~SimLink() override { *is_alive_ = false; }
};

class AgentHost {
 public:
  struct Parts {
    EventQueue& queue;
    Random& random;
    const Faults& faults;
    Trace& trace;
    Truth& truth;
    Network& network;
    ServerHost& server;
  };
  AgentHost(std::string name, Parts parts, std::string join_token,
            std::vector<agent::DeviceSeen> devices);
  ~AgentHost();

  void start();
  void kill();
  bool is_up() const { return agent_ != nullptr; }
  SimRuntime& runtime() { return runtime_; }
  const std::string& name() const { return name_; }

 private:
  void tick(int64_t life);
  void tick_soon();

  std::string name_, join_token_;
  Parts parts_;
  VirtualClock clock_;
  SimRuntime runtime_;
  MemoryFiles files_;
  std::unique_ptr<SimLink> link_;
  std::unique_ptr<agent::Agent> agent_;
  int64_t life_ = 0;
  bool is_tick_due_ = false;
};

}  // namespace anychip::sim
