#include "agent/local/conmon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/json.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

constexpr int kSyncFd = 3;
constexpr int kJoinPatienceMs = 20'000;
constexpr int kCreatePatienceMs = 60'000;

Result<std::string> program_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "";
  folders += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = folders.substr(begin, end - begin) + "/" + name;
    if (candidate[0] == '/' && access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return fail(Code::kFailedPrecondition, "program_not_found", "the program " + name + " was not found",
              "apt-get install " + name);
}

struct Argv {
  explicit Argv(std::vector<std::string> words) : texts(std::move(words)) {
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
  }
  std::vector<std::string> texts;
  std::vector<char*> pointers;
};

// In the child: system calls only, until exec.
[[noreturn]] void become_conmon(const Argv& argv, const Argv& environment, const char* folder,
                                const std::vector<sys::Fd>& cgroup, int sync_fd, int gate_fd,
                                int parents_gate_fd) {
  if (chdir(folder) != 0) _exit(126);  // conmon drops a file `oom` where it stands
  close(parents_gate_fd);  // so that the parent's death is seen as the end of the stream
  setsid();  // a kill of the agent's process group or terminal does not reach it
  for (const sys::Fd& procs : cgroup) {
    if (write(procs.get(), "0", 1) != 1) _exit(126);
  }
  char byte = 0;
  if (write(gate_fd, "j", 1) != 1 || read(gate_fd, &byte, 1) != 1) _exit(126);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) dup2(nothing, standard);
  if (sync_fd == kSyncFd) {
    fcntl(sync_fd, F_SETFD, 0);
  } else {
    dup2(sync_fd, kSyncFd);
  }
  // The agent's own descriptors are CLOEXEC; what a careless library left open is closed here.
  close_range(kSyncFd + 1, ~0U, 0);
  execve(argv.pointers[0], argv.pointers.data(), environment.pointers.data());
  _exit(127);
}

// fork and exec with a step that posix_spawn lacks: the child enters its cgroups and says so, and
// goes on only when told. Killed at any instant, we leave a child that ends by itself (it has done
// nothing) or one that is in its cgroups, where the next agent finds it.
Result<pid_t> spawn(const Argv& argv, const Argv& environment, const std::string& folder,
                    const std::vector<sys::Fd>& cgroup, int sync_fd) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail_errno("socketpair", errno);
  }
  const sys::Fd ours(pair[0]);
  sys::Fd theirs(pair[1]);
  const pid_t pid = fork();
  if (pid < 0) return fail_errno("fork", errno);
  if (pid == 0) {
    become_conmon(argv, environment, folder.c_str(), cgroup, sync_fd, theirs.get(), ours.get());
  }
  theirs.reset();
  pollfd waiting{ours.get(), POLLIN, 0};
  char byte = 0;
  int ready = 0;
  while ((ready = poll(&waiting, 1, kJoinPatienceMs)) < 0 && errno == EINTR) {
  }
  if (ready > 0 && read(ours.get(), &byte, 1) == 1 && send(ours.get(), "g", 1, MSG_NOSIGNAL) == 1) {
    return pid;
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return fail(Code::kInternal, "cgroup_not_entered", "conmon's process could not enter its cgroup");
}

// conmon says one line: {"pid":N} or {"pid":-1,"message":"..."}.
Result<std::string> read_line(int fd) {
  std::string line;
  char buffer[4096];
  while (line.find('\n') == std::string::npos) {
    pollfd waiting{fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, kCreatePatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return fail(Code::kDeadlineExceeded, "container_create_slow",
                  fmt::format("runc create did not end within {} s", kCreatePatienceMs / 1000));
    }
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    line.append(buffer, static_cast<size_t>(got));
  }
  return line;
}

// runc's log line `time="..." level=error msg="runc create failed: ..."`: the part a person needs.
std::string sentence_of(std::string message) {
  if (const size_t begin = message.find("msg=\""); begin != std::string::npos) {
    message = message.substr(begin + 5);
    if (const size_t end = message.rfind('"'); end != std::string::npos) message.resize(end);
  }
  std::string plain;
  for (const char c : message) {
    if (c == '\\') continue;
    plain += c == '\n' ? ' ' : c;
  }
  return plain;
}

tl::unexpected<Error> create_failed(const std::string& message) {
  const std::string sentence = sentence_of(message);
  if (sentence.find("executable file not found") != std::string::npos ||
      (sentence.find("exec:") != std::string::npos &&
       sentence.find("no such file or directory") != std::string::npos)) {
    return fail(Code::kInvalidArgument, "command_not_found",
                "the command is not in the image: " + sentence,
                "use a program of the image, or a path below /workspace");
  }
  return fail(Code::kInternal, "container_create_failed", sentence);
}

Result<sys::RunResult> run_runc(std::vector<std::string> arguments) {
  sys::RunSpec spec;
  TRY(const std::string runc, program_path("runc"));
  spec.argv = std::move(arguments);
  spec.argv.insert(spec.argv.begin(), runc);
  return sys::run(spec);
}

}  // namespace

Result<pid_t> Runc::create(const ConmonSpec& spec) const {
  TRY(const std::string conmon, program_path("conmon"));
  TRY(const std::string runc, program_path("runc"));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  const sys::Fd sync(ends[0]);
  sys::Fd theirs(ends[1]);
  std::vector<std::string> argv{conmon, "-c", spec.id, "-u", spec.id,
                                "-n", spec.id, "-r", runc, "-b", spec.bundle, "-p", spec.pid_file,
                                "-P", spec.conmon_pid_file, "-l", "k8s-file:" + spec.log_path,
                                "--exit-dir", spec.exit_folder, "--full-attach", "--no-sync-log",
                                "--no-new-keyring", "--log-level", "error",
                                "--runtime-arg", "--root", "--runtime-arg", root_};
  if (spec.log_bytes_max > 0) {
    argv.insert(argv.end(), {"--log-global-size-max", std::to_string(spec.log_bytes_max)});
  }
  const std::vector<std::string> environment{
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      "_OCI_SYNCPIPE=" + std::to_string(kSyncFd)};
  TRY(const pid_t pid, spawn(Argv(std::move(argv)), Argv(environment), spec.exit_folder,
                              spec.cgroup, theirs.get()));
  theirs.reset();
  FAILPOINT("container.conmon_spawned");
  auto line = read_line(sync.get());
  int status = 0;
  if (!line) kill(pid, SIGKILL);  // the rest of it is in the supervisor's cgroup
  // conmon's first process ends as soon as it has forked the one that stays; a reaper of orphans in
  // this process may have been quicker (ECHILD).
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!line) return tl::unexpected(std::move(line).error());
  const auto answer = json::parse(*line);
  if (!answer || !answer->is_object()) {
    return fail(Code::kInternal, "container_create_failed",
                fmt::format("conmon ended without an answer (exit status {})", status));
  }
  const int64_t init = json::int_at(answer->get_object(), "pid");
  if (init <= 0) return create_failed(json::string_at(answer->get_object(), "message"));
  return static_cast<pid_t>(init);
}

Status Runc::start(const std::string& id) const {
  TRY(const auto ran, run_runc({"--root", root_, "start", id}));
  if (ran.exit_code == 0) return {};
  return fail(Code::kInternal, "container_start_failed", sentence_of(ran.err));
}

Status Runc::remove(const std::string& id) const {
  if (!sys::exists(root_ + "/" + id)) return {};
  TRY(const auto ran, run_runc({"--root", root_, "delete", "--force", id}));
  if (ran.exit_code != 0 && sys::exists(root_ + "/" + id)) {
    // A state folder that runc cannot read (killed while it was writing it) holds nothing else.
    TRY_VOID(sys::remove_tree(root_ + "/" + id));
  }
  return {};
}

Result<std::string> Runc::state(const std::string& id) const {
  if (!sys::exists(root_ + "/" + id)) {
    return fail(Code::kNotFound, "container_unknown", "runc knows no container " + id);
  }
  TRY(const auto ran, run_runc({"--root", root_, "state", id}));
  if (ran.exit_code != 0) {
    return fail(Code::kNotFound, "container_unknown", sentence_of(ran.err));
  }
  TRY(const auto root, json::parse(ran.out));
  if (!root.is_object()) return fail(Code::kDataLoss, "runc_state_malformed", "runc state: no object");
  return json::string_at(root.get_object(), "status");
}

Result<std::vector<std::string>> Runc::list() const {
  if (!sys::is_folder(root_)) return std::vector<std::string>{};
  return sys::list_folder(root_);
}

}  // namespace anychip::agent
