#include "sys/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <set>

#include <fmt/format.h>

extern char** environ;

namespace anychip::sys {
namespace {

std::mutex g_children_mutex;
std::set<pid_t> g_children;  // waited for by run(); never taken by reap_orphans()

std::vector<std::string> environment_of(const RunSpec& spec) {
  std::vector<std::string> lines;
  const auto is_replaced = [&](std::string_view line) {
    return std::any_of(spec.environment.begin(), spec.environment.end(),
                       [&](const auto& pair) { return line.starts_with(pair.first + "="); });
  };
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view text = *line;
    if (spec.is_environment_clean && !text.starts_with("PATH=")) continue;
    if (!is_replaced(text)) lines.emplace_back(text);
  }
  for (const auto& [name, value] : spec.environment) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// posix_spawn with its two attribute objects, freed however we leave.
class Spawner {
 public:
  Spawner() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
  }
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;
  ~Spawner() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  void give(int ours, int in_child) {
    ::posix_spawn_file_actions_adddup2(&actions_, ours, in_child);
    highest_ = std::max(highest_, in_child);
  }
  void give_null(int in_child, int flags) {
    ::posix_spawn_file_actions_addopen(&actions_, in_child, "/dev/null", flags, 0);
  }
  void change_folder(const std::string& path) {
    if (!path.empty()) ::posix_spawn_file_actions_addchdir_np(&actions_, path.c_str());
  }
  Result<pid_t> start(short flags, std::vector<std::string> argv,
                      std::vector<std::string> environment) {
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, highest_ + 1);
    ::posix_spawnattr_setflags(
        &attributes_, static_cast<short>(flags | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    pid_t pid = -1;
    const int error_number =
        ::posix_spawnp(&pid, argv[0].c_str(), &actions_, &attributes_, pointers_to(argv).data(),
                       pointers_to(environment).data());
    if (error_number == ENOENT) {
      return fail(Code::kNotFound, "program_not_found", "the program " + argv[0] + " was not found",
                  "install it, or add its folder to PATH");
    }
    if (error_number != 0) return fail_errno("start " + argv[0], error_number);
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
  int highest_ = 2;
};

struct Pipe {
  Fd read_end, write_end;
};
Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

int64_t mono_us() { return RealClock{}.mono_now().us; }

// One run: owns the pipes; pump() moves bytes until the process has ended.
class Running {
 public:
  explicit Running(const RunSpec& spec) : spec_(spec) {}

  Status start() {
    TRY(auto in, make_pipe());
    TRY(auto out, make_pipe());
    TRY(auto err, make_pipe());
    Spawner spawner;
    // Descriptors to inherit are lifted first, so that none is overwritten by another's number.
    std::vector<Fd> lifted;
    for (const auto& [ours, number] : spec_.inherit_fds) {
      lifted.emplace_back(::fcntl(ours, F_DUPFD_CLOEXEC, 200));
      if (!lifted.back().is_open()) return fail_errno("dup", errno);
      spawner.give(lifted.back().get(), number);
    }
    spawner.give(in.read_end.get(), 0);
    spawner.give(out.write_end.get(), 1);
    spawner.give(err.write_end.get(), 2);
    spawner.change_folder(spec_.cwd);
    {
      const std::lock_guard lock(g_children_mutex);
      // posix_spawn cannot set a death signal; util-linux' setpriv can, and becomes the program.
      std::vector<std::string> argv = spec_.argv;
      if (spec_.is_ended_with_us)
        argv.insert(argv.begin(), {"setpriv", "--pdeathsig", "KILL", "--"});
      TRY(pid_, spawner.start(POSIX_SPAWN_SETPGROUP, std::move(argv), environment_of(spec_)));
      g_children.insert(pid_);
    }
    pid_fd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    in_ = std::move(in.write_end);
    out_ = std::move(out.read_end);
    err_ = std::move(err.read_end);
    for (const Fd* fd : {&in_, &out_, &err_}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    return {};
  }

  Result<RunResult> pump() {
    const int64_t deadline_us = mono_us() + spec_.timeout.us;
    int64_t next_tick_us = mono_us() + 500'000;
    while (true) {
      if (feed_input(); written_ == spec_.input.size()) in_.reset();
      pollfd fds[4] = {{pid_fd_.get(), POLLIN, 0},
                       {out_.get(), POLLIN, 0},
                       {err_.get(), POLLIN, 0},
                       {in_.get(), POLLOUT, 0}};
      ::poll(fds, 4, 250);
      drain(out_, result_.out);
      drain(err_, result_.err);
      if ((fds[0].revents & POLLIN) != 0) return finish();
      if (spec_.cancel != nullptr && spec_.cancel->load()) {
        kill_group();
        return fail(Code::kCancelled, "cancelled", spec_.argv[0] + " was cancelled");
      }
      if (mono_us() > deadline_us) {
        kill_group();
        return fail(
            Code::kDeadlineExceeded, "process_timeout",
            fmt::format("{} did not end within {} s", spec_.argv[0], spec_.timeout.us / 1'000'000));
      }
      if (spec_.on_tick && mono_us() >= next_tick_us) {
        spec_.on_tick();
        next_tick_us = mono_us() + 500'000;
      }
    }
  }

 private:
  void feed_input() {
    while (in_.is_open() && written_ < spec_.input.size()) {
      const ssize_t put =
          ::write(in_.get(), spec_.input.data() + written_, spec_.input.size() - written_);
      if (put < 0 && errno == EPIPE) written_ = spec_.input.size();
      if (put <= 0) return;
      written_ += static_cast<size_t>(put);
    }
  }

  void drain(Fd& from, std::string& into) {
    char buffer[16384];
    while (from.is_open()) {
      const ssize_t got = ::read(from.get(), buffer, sizeof buffer);
      if (got == 0) return from.reset();
      if (got < 0) return;
      const std::string_view bytes(buffer, static_cast<size_t>(got));
      if (spec_.on_output) spec_.on_output(bytes);
      into.append(bytes);
      const auto limit = static_cast<size_t>(spec_.output_bytes_max);
      if (into.size() > 2 * limit) into.erase(0, into.size() - limit);
    }
  }

  int wait_child() {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
    }
    const std::lock_guard lock(g_children_mutex);
    g_children.erase(pid_);
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  }

  void kill_group() {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);  // it may have left its group
    wait_child();
  }

  RunResult finish() {
    result_.exit_code = wait_child();
    drain(out_, result_.out);
    drain(err_, result_.err);
    const auto limit = static_cast<size_t>(spec_.output_bytes_max);
    for (std::string* text : {&result_.out, &result_.err}) {
      if (text->size() > limit) text->erase(0, text->size() - limit);
    }
    return std::move(result_);
  }

  const RunSpec& spec_;
  pid_t pid_ = -1;
  Fd pid_fd_, in_, out_, err_;
  size_t written_ = 0;
  RunResult result_;
};

// The end of what a program said, for an error of one sentence.
std::string last_lines(std::string_view text, size_t bytes_max) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  if (text.size() > bytes_max) {
    text.remove_prefix(text.size() - bytes_max);
    if (const size_t line = text.find('\n'); line != std::string_view::npos)
      text.remove_prefix(line + 1);
  }
  return std::string(text);
}

}  // namespace

Result<RunResult> run(const RunSpec& spec) {
  if (spec.argv.empty() || spec.argv[0].empty()) {
    return fail(Code::kInvalidArgument, "command_empty", "there is no program to start");
  }
  ::signal(SIGPIPE, SIG_IGN);
  Running running(spec);
  TRY_VOID(running.start());
  return running.pump();
}

Result<RunResult> run_ok(const RunSpec& spec) {
  TRY(auto result, run(spec));
  if (result.exit_code == 0) return result;
  const std::string& said = result.err.empty() ? result.out : result.err;
  return fail(
      Code::kInternal, "command_failed",
      fmt::format("{} ended with {}: {}", spec.argv[0], result.exit_code, last_lines(said, 600)));
}

Result<RunResult> run_ok(std::vector<std::string> argv, Duration timeout) {
  RunSpec spec;
  spec.argv = std::move(argv);
  spec.timeout = timeout;
  return run_ok(spec);
}

Result<pid_t> spawn_detached(const DetachedSpec& spec) {
  if (spec.argv.empty() || spec.argv[0].empty()) {
    return fail(Code::kInvalidArgument, "command_empty", "there is no program to start");
  }
  Spawner spawner;
  std::vector<Fd> lifted;
  for (const auto& [ours, number] : spec.inherit_fds) {
    lifted.emplace_back(::fcntl(ours, F_DUPFD_CLOEXEC, 200));
    if (!lifted.back().is_open()) return fail_errno("dup", errno);
    spawner.give(lifted.back().get(), number);
  }
  Fd log;
  spawner.give_null(0, O_RDONLY);
  if (spec.log_path.empty()) {
    spawner.give_null(1, O_WRONLY);
    spawner.give_null(2, O_WRONLY);
  } else {
    TRY(log, open_file(spec.log_path, O_WRONLY | O_CREAT | O_APPEND, 0644));
    spawner.give(log.get(), 1);
    spawner.give(log.get(), 2);
  }
  spawner.change_folder(spec.cwd);
  RunSpec environment_only;
  environment_only.environment = spec.environment;
  return spawner.start(POSIX_SPAWN_SETSID, spec.argv, environment_of(environment_only));
}

Status set_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
    return fail_errno("become subreaper", errno);
  return {};
}

std::vector<Reaped> reap_orphans() {
  std::vector<Reaped> reaped;
  const std::lock_guard lock(g_children_mutex);
  while (true) {
    siginfo_t info{};
    // Looked at first, taken only when no run() waits for it.
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    if (g_children.contains(info.si_pid)) break;  // its run() takes it in a moment
    if (::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG) != 0) break;
    reaped.push_back(
        {info.si_pid, info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status});
  }
  return reaped;
}

namespace {
// The fields of /proc/PID/stat after the program's name, which may hold spaces and parentheses.
Result<std::vector<std::string>> stat_fields(pid_t pid) {
  TRY(auto text, read_file(fmt::format("/proc/{}/stat", pid)));
  const size_t name_end = text.rfind(')');
  std::vector<std::string> fields;
  size_t at = name_end == std::string::npos ? text.size() : name_end + 2;
  while (at < text.size()) {
    const size_t space = std::min(text.find(' ', at), text.size());
    fields.push_back(text.substr(at, space - at));
    at = space + 1;
  }
  if (fields.size() < 20) return fail(Code::kNotFound, "process_gone", "process is gone");
  return fields;
}
}  // namespace

bool is_alive(pid_t pid) {
  const auto fields = stat_fields(pid);
  return fields && (*fields)[0] != "Z" && (*fields)[0] != "X";
}

Result<int64_t> start_ticks_of(pid_t pid) {
  TRY(auto fields, stat_fields(pid));
  return static_cast<int64_t>(std::strtoll(fields[19].c_str(), nullptr, 10));
}

}  // namespace anychip::sys
