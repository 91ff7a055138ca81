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
  const bool is_process = !arguments.empty() && (arguments[0] == "server" || arguments[0] == "agent");
  if (!is_process) {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    (void)sigaction(SIGINT, &action, nullptr);
    (void)signal(SIGPIPE, SIG_DFL);
  }
  anychip::cli::ProcessMains mains;
  return anychip::cli::run_command_line(arguments, anychip::cli::Terminal::of_process(), mains);
}
