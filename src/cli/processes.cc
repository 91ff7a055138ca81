#include "cli/processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "base/json.h"
#include "sys/files.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::cli {
namespace {

constexpr size_t kTailLines = 6;
constexpr int64_t kTailBytesMax = 64 << 10;

// The zero-separated words of /proc/PID/cmdline or environ.
std::vector<std::string> words_of(pid_t pid, std::string_view file) {
  std::vector<std::string> words;
  const std::string raw = sys::read_file(fmt::format("/proc/{}/{}", pid, file)).value_or("");
  for (size_t begin = 0; begin < raw.size();) {
    const size_t end = std::min(raw.find('\0', begin), raw.size());
    words.push_back(raw.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// Pids are used again: the process must be `anychip ROLE` of this data folder.
bool is_ours(pid_t pid, Role role, const std::string& data) {
  const std::vector<std::string> words = words_of(pid, "cmdline");
  if (words.empty() || !sys::name_of(words[0]).starts_with("anychip")) return false;
  if (std::find(words.begin() + 1, words.end(), name_of(role)) == words.end()) return false;
  const auto option = std::find(words.begin(), words.end(), "--data");
  if (option != words.end() && option + 1 != words.end())
    return sys::absolute_path(*(option + 1)) == data;
  for (const std::string& variable : words_of(pid, "environ")) {
    if (variable.starts_with("ANYCHIP_DATA="))
      return sys::absolute_path(variable.substr(13)) == data;
  }
  return true;
}

}  // namespace

std::string_view name_of(Role role) { return role == Role::kServer ? "server" : "agent"; }

ProcessSeen find_process(const std::string& data, Role role) {
  const std::string path = fmt::format("{0}/{1}/{1}.json", data, name_of(role));
  const Result<std::string> text = sys::read_file(path);
  if (!text) return {};
  const Result<json::value> root = json::parse(*text);
  if (!root || !root->is_object()) return {};
  const json::object& fields = root->get_object();
  ProcessSeen seen;
  seen.port = static_cast<int>(json::int_at(fields, "port"));
  const auto pid = static_cast<pid_t>(json::int_at(fields, "pid"));
  if (pid <= 0 || !sys::is_alive(pid) || !is_ours(pid, role, sys::absolute_path(data))) return seen;
  if (fields.contains("start_ticks")) {
    const Result<int64_t> ticks = sys::start_ticks_of(pid);
    if (!ticks || *ticks != json::int_at(fields, "start_ticks")) return seen;
  }
  seen.pid = pid;
  return seen;
}

std::string log_path_of(const std::string& data, Role role) {
  return fmt::format("{}/logs/{}.log", data, name_of(role));
}

std::string log_tail(const std::string& data, Role role, int64_t offset) {
  const Result<sys::Fd> log = sys::open_file(log_path_of(data, role), O_RDONLY);
  if (!log) return {};
  std::string text = sys::read_range(log->get(), offset, kTailBytesMax).value_or("");
  while (text.ends_with('\n')) text.pop_back();
  size_t begin = text.size();
  for (size_t lines = 0; begin > 0 && lines < kTailLines; ++lines) {
    begin = text.rfind('\n', begin - 1);
    if (begin == std::string::npos) begin = 0;
  }
  return text.substr(text[begin] == '\n' ? begin + 1 : begin);
}

Result<Started> start_process(const StartSpec& spec) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return fail_errno("read /proc/self/exe", error.value());
  TRY_VOID(sys::make_folders(sys::join(spec.data, "logs"), 0755));
  sys::DetachedSpec detached;
  detached.argv = {program, std::string(name_of(spec.role)), "--data", spec.data};
  const auto add = [&](std::string_view option, const std::string& value) {
    detached.argv.emplace_back(option);
    detached.argv.push_back(value);
  };
  if (spec.role == Role::kServer) add("--port", std::to_string(spec.port));
  if (spec.role == Role::kAgent && spec.pool_gib > 0)
    add("--pool-gib", std::to_string(spec.pool_gib));
  if (spec.role == Role::kAgent && !spec.node_name.empty()) add("--name", spec.node_name);
  const char* path = std::getenv("PATH");
  detached.environment = {
      {"ANYCHIP_DATA", spec.data},
      {"PATH", std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin:/usr/bin:/bin"}};
  detached.cwd = std::string("/");
  detached.log_path = log_path_of(spec.data, spec.role);
  Started started;
  struct stat log {};
  if (stat(detached.log_path.c_str(), &log) == 0) started.log_offset = log.st_size;
  TRY(started.pid, sys::spawn_detached(detached));
  return started;
}

Status end_process(const std::string& data, Role role, Duration patience) {
  const ProcessSeen seen = find_process(data, role);
  if (seen.pid == 0) return {};
  const Result<int64_t> identity = sys::start_ticks_of(seen.pid);
  for (const auto& [signal_number, wait] :
       {std::pair{SIGTERM, patience}, std::pair{SIGKILL, seconds(10)}}) {
    if (kill(seen.pid, signal_number) != 0 && errno != ESRCH) {
      return fail_errno(fmt::format("end the {} (pid {})", name_of(role), seen.pid), errno);
    }
    for (int64_t waited_ms = 0; waited_ms <= wait.ms(); waited_ms += 50) {
      const Result<int64_t> now = sys::start_ticks_of(seen.pid);
      if (!sys::is_alive(seen.pid) || !now || (identity && *now != *identity)) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  return fail(Code::kDeadlineExceeded, "process_stays",
              fmt::format("the {} (pid {}) does not end", name_of(role), seen.pid),
              "it is probably waiting for a disk; try again");
}

Status check_port_free(int port) {
  if (port == 0) return {};
  const sys::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.is_open()) return fail_errno("open a socket", errno);
  const int is_on = 1;
  (void)setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &is_on, sizeof is_on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return {};
  return fail(Code::kFailedPrecondition, "port_in_use",
              fmt::format("port {} is in use by another program", port),
              "choose another with --port N (0 = any free one); nothing was changed");
}

}  // namespace anychip::cli
