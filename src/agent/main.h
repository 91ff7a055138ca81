// The agent's process: `anychip agent`.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace anychip::agent {

struct AgentMainOptions {
  std::string data;               // the data folder, absolute
  std::string server_url;         // "" = from DATA/server/server.json
  std::string join_token_file;    // "" = DATA/server/join.token
  std::string node_name;          // "" = the host's name
  std::string installation_root;  // "" = sys::installation_root()
  std::string share;              // prepared data and build outputs; "" = ROOT/build
  int64_t pool_bytes = 0;         // of a new pool; 0 = the pool decides
};

// Runs until SIGTERM or SIGINT; containers go on. One agent per data folder: another is kAborted
// "agent_running". The log goes to stderr, one JSON line per event.
Result<int> run_agent(const AgentMainOptions& options);

}  // namespace anychip::agent
