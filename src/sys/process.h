// Child processes: argv without a shell, bounded output, timeout, cancel. A registry of children
// lets reap_orphans() (the agent is a subreaper) coexist with run() in other threads.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "sys/files.h"

namespace anychip::sys {

struct RunSpec {
  std::vector<std::string> argv;                                 // argv[0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment;  // added to (or replaces) ours
  bool is_ended_with_us = false;  // SIGKILL to it when the calling thread (so: the process) dies
  bool is_environment_clean = false;  // true: only `environment` and PATH
  std::string cwd;
  std::string input;
  std::vector<std::pair<int, int>> inherit_fds;  // {our descriptor, its number in the child >= 3}
  Duration timeout = seconds(60);
  int64_t output_bytes_max = 1 << 20;               // of each stream; the last bytes are kept
  const std::atomic<bool>* cancel = nullptr;        // set: the process group is killed, kCancelled
  std::function<void()> on_tick;                    // about twice a second while it runs
  std::function<void(std::string_view)> on_output;  // stdout and stderr as they come
};

struct RunResult {
  int exit_code = 0;  // 128 + signal when killed by one
  std::string out, err;
};

// Error only when it could not be started, ran too long (kDeadlineExceeded "process_timeout") or
// was cancelled; its process group is dead then. A grandchild that keeps the pipes open does not
// delay us.
Result<RunResult> run(const RunSpec& spec);
// The same; an exit code other than 0 is an error "command_failed" with the last lines of stderr.
Result<RunResult> run_ok(const RunSpec& spec);
Result<RunResult> run_ok(std::vector<std::string> argv, Duration timeout = seconds(60));

struct DetachedSpec {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string cwd;
  std::string log_path;  // stdout and stderr are appended there; "" = /dev/null
  std::vector<std::pair<int, int>> inherit_fds;
};
// A process in a session of its own that outlives us.
Result<pid_t> spawn_detached(const DetachedSpec& spec);

Status set_subreaper();
struct Reaped {
  pid_t pid = 0;
  int exit_code = 0;
};
// Ended children that no run() is waiting for (orphans given to us). Never blocks.
std::vector<Reaped> reap_orphans();

bool is_alive(pid_t pid);                   // exists and is no zombie
Result<int64_t> start_ticks_of(pid_t pid);  // field 22 of /proc/PID/stat: pid + this = identity

}  // namespace anychip::sys
