// The agent's logic without sockets or threads of its own: fetches what its node shall do, compares
// with what the Runtime sees, begins the next operations, reports. Level-triggered and stateless:
// killed at any instant, a new Agent over the same Runtime goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/runtime.h"
#include "base/rng.h"
#include "base/time.h"
#include "net/http.h"

namespace anychip::agent {

// Requests to the server, answered later. Implementations: a few threads over net::Client
// (agent/link.cc), simulated messages (sim/). A lost message ends as kUnavailable or kDeadlineExceeded.
class ServerLink {
 public:
  struct Reply {
    int64_t id = 0;
    Result<net::Response> response;
  };
  virtual ~ServerLink() = default;
  virtual int64_t begin(net::Request request, Duration timeout) = 0;  // never blocks
  virtual std::vector<Reply> take_replies() = 0;
};

// Where the agent keeps its node id and key (agent/node.json, 0600), a few words about each instance
// (agent/state.json) and fetched workdirs.
class AgentFiles {
 public:
  virtual ~AgentFiles() = default;
  virtual Result<std::string> load_identity() = 0;  // JSON; kNotFound before the first enrolment
  virtual Status save_identity(std::string_view json_text) = 0;  // durable, atomic
  // What the inventory cannot tell after a restart: leg, when `stop` was first seen, last numbers.
  virtual Result<std::string> load_state() = 0;  // JSON; kNotFound before the first save
  virtual Status save_state(std::string_view json_text) = 0;  // durable, atomic
  virtual bool has_workdir(const std::string& digest) = 0;
  virtual Status save_workdir(const std::string& digest, std::string_view bytes) = 0;
  virtual std::string workdir_path(const std::string& digest) = 0;
};

struct AgentOptions {
  std::string node_name;
  std::string join_token;
  std::string boot_id;
  Duration report_every = seconds(1);
  Duration desired_wait = seconds(20);
};

struct AgentParts {  // all outlive the Agent
  Runtime& runtime;
  ServerLink& link;
  AgentFiles& files;
  const Clock& clock;
  Random& random;  // jitter of retries
};

class Agent {
 public:
  static std::unique_ptr<Agent> create(AgentParts parts, AgentOptions options);
  virtual ~Agent() = default;
  virtual void tick() = 0;  // call 10 times a second, and when a reply or an operation has come
};

}  // namespace anychip::agent
