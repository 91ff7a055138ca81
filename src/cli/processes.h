// The two processes of a data folder: who runs, starting them, ending them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/time.h"

namespace anychip::cli {

enum class Role { kServer, kAgent };
std::string_view name_of(Role role);

struct ProcessSeen {
  pid_t pid = 0;  // 0 = not running
  int port = 0;   // server: as written in server.json, also when it does not run
};

// From DATA/ROLE/ROLE.json. A pid counts only when that process is alive and is `anychip ROLE`
// (pids are used again by others); with a recorded start time also that.
ProcessSeen find_process(const std::string& data, Role role);

struct StartSpec {
  std::string data;
  Role role = Role::kServer;
  int port = 0;
  int pool_gib = 0;
  std::string node_name;
};
struct Started {
  pid_t pid = 0;
  int64_t log_offset = 0;  // its own words begin there
};
// Detached, in a session of its own, log appended to DATA/logs/ROLE.log.
Result<Started> start_process(const StartSpec& spec);
std::string log_path_of(const std::string& data, Role role);
// The last lines of its log after `offset`, for an error message.
std::string log_tail(const std::string& data, Role role, int64_t offset);

// SIGTERM, after `patience` SIGKILL; back when it is gone. Not running = done.
Status end_process(const std::string& data, Role role, Duration patience);

// Whether 127.0.0.1:port could be bound now; 0 is always free. "port_in_use" otherwise.
Status check_port_free(int port);

}  // namespace anychip::cli
