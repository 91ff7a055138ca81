// The command line: arguments to one command, its Error to an exit status. The only file that
// includes CLI11 is parser.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/context.h"

namespace anychip::cli {

struct ServerArguments {
  std::string data, address = "127.0.0.1";
  int port = 0;
};
struct AgentArguments {
  std::string data, node_name, server_url, join_token_file;
  int pool_gib = 0;
};
// The processes that live in this binary; empty where they are not linked in (tests).
struct ProcessMains {
  std::function<Result<int>(const ServerArguments&)> server;
  std::function<Result<int>(const AgentArguments&)> agent;
};

// `arguments` without the program's name. The result is the exit status.
int run_command_line(std::vector<std::string> arguments, Terminal terminal,
                     const ProcessMains& mains);

}  // namespace anychip::cli
