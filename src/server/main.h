// The server's process: `anychip server`.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace anychip::server {

struct ServerMainOptions {
  std::string data;               // the data folder, absolute
  std::string installation_root;  // "" = sys::installation_root()
  std::string share;              // prepared data and build outputs; "" = ROOT/build
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0 = any free one; server.json tells
};

// Runs until SIGTERM or SIGINT; agents and containers go on. One server per data folder: another is
// kAborted "server_running"; a taken port is "port_in_use". The log goes to stderr, one JSON line
// per event. ANYCHIP_FAILPOINTS is obeyed.
Result<int> run_server(const ServerMainOptions& options);

}  // namespace anychip::server
