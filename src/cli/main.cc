// `anychip`: one binary. The commands speak to the API; `server` and `agent` are the processes
// behind it.
#include <signal.h>
#include <unistd.h>

#include "cli/parser.h"
#ifdef ANYCHIP_HAS_SERVER
#include "server/main.h"
#endif
#ifdef ANYCHIP_HAS_AGENT
#include "agent/main.h"
#endif

namespace {

// Ctrl-C ends a command at once: nothing it waits for is stopped by that.
extern "C" void on_interrupt(int) {
  static constexpr char kMessage[] = "\ncancelled; what was started goes on\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(2);
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  // The processes have their own handlers: only the first word can name one.
  const bool is_process =
      !arguments.empty() && (arguments[0] == "server" || arguments[0] == "agent");
  if (!is_process) {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    (void)sigaction(SIGINT, &action, nullptr);
    (void)signal(SIGPIPE, SIG_DFL);
  }
  anychip::cli::ProcessMains mains;
#ifdef ANYCHIP_HAS_SERVER
  mains.server = [](const anychip::cli::ServerArguments& given) {
    anychip::server::ServerMainOptions options;
    options.data = given.data;
    options.address = given.address;
    options.port = static_cast<uint16_t>(given.port);
    return anychip::server::run_server(options);
  };
#endif
#ifdef ANYCHIP_HAS_AGENT
  mains.agent = [](const anychip::cli::AgentArguments& given) {
    anychip::agent::AgentMainOptions options;
    options.data = given.data;
    options.server_url = given.server_url;
    options.join_token_file = given.join_token_file;
    options.node_name = given.node_name;
    options.pool_bytes = int64_t{given.pool_gib} << 30;
    return anychip::agent::run_agent(options);
  };
#endif
  return anychip::cli::run_command_line(arguments, anychip::cli::Terminal::of_process(), mains);
}
