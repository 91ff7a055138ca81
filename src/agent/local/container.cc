#include "agent/local/container.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>

#include <fmt/format.h>

#include "base/log.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

constexpr int kExitCodeUnknown = 255;  // never 0: nobody shall take a lost end for a good one
constexpr int64_t kNoteEveryUs = 10'000'000;
constexpr int kExitCheckpointed = 75;
constexpr Duration kLostPatience = seconds(5);

int64_t number_in(const std::string& path) {
  const std::string text = sys::read_file(path, 64).value_or("");
  int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Does the process handle or deliberately ignore it? (masks of /proc/PID/status)
bool hears(pid_t pid, int signal_number) {
  const std::string status = sys::read_file(fmt::format("/proc/{}/status", pid), 1 << 16).value_or("");
  const uint64_t bit = uint64_t{1} << (signal_number - 1);
  for (const char* key : {"\nSigCgt:\t", "\nSigIgn:\t"}) {
    const size_t at = status.find(key);
    if (at == std::string::npos) continue;
    uint64_t mask = 0;
    const char* begin = status.data() + at + std::string_view(key).size();
    std::from_chars(begin, status.data() + status.size(), mask, 16);
    if ((mask & bit) != 0) return true;
  }
  return false;
}

}  // namespace

Container::Container(ContainerParts& parts, InstanceId instance)
    : parts_(parts), instance_(std::move(instance)), paths_(parts.paths.instance(instance_)),
      log_(std::make_shared<ContainerLog>(paths_.log, parts.log_bytes_max)) {}

Status Container::load() {
  TRY(ContainerSpec spec, load_spec(paths_));
  TRY(const ContainerStatus status, load_status(paths_));
  bool is_waiting = false;
  if (status.step == ContainerStep::kStarted && status.boot_id == parts_.boot_id && !has_exit_file()) {
    const auto state = parts_.runc.state(instance_.text);
    is_waiting = state && *state == "created";
  }
  const std::lock_guard lock(mutex_);
  spec_ = std::move(spec);
  status_ = status;
  is_command_pending_ = is_waiting;
  is_known_ = true;
  return {};
}

bool Container::needs_start() const {
  const std::lock_guard lock(mutex_);
  if (!is_known_) return false;
  return status_.step == ContainerStep::kPreparing || status_.step == ContainerStep::kCreated ||
         (status_.step == ContainerStep::kStarted && is_command_pending_);
}

bool Container::is_command_pending() const {
  const std::lock_guard lock(mutex_);
  return is_known_ && status_.step == ContainerStep::kStarted && is_command_pending_;
}

ContainerSpec Container::spec() const {
  const std::lock_guard lock(mutex_);
  return spec_;
}

bool Container::is_removed() const {
  const std::lock_guard lock(mutex_);
  return is_known_ && status_.step == ContainerStep::kRemoved;
}

std::optional<uint32_t> Container::host_ids_in_use() const {
  const std::lock_guard lock(mutex_);
  if (!is_known_ || status_.step == ContainerStep::kRemoved || status_.step == ContainerStep::kFailed) {
    return std::nullopt;
  }
  return status_.first_host_id;
}

Status Container::save_locked() { return save_status(paths_, status_); }

bool Container::has_exit_file() const { return sys::exists(paths_.exit_file); }

void Container::note_usage_locked() {
  const CgroupUsage usage = parts_.cgroups.usage(instance_);
  if (!usage.is_known) return;
  memory_bytes_ = usage.memory_bytes;
  status_.memory_peak_bytes = std::max(status_.memory_peak_bytes, usage.memory_bytes);
  status_.cpu_time_us = std::max(status_.cpu_time_us, usage.cpu_time_us);
}

void Container::note_exit_locked() {
  note_usage_locked();
  status_.step = ContainerStep::kExited;
  memory_bytes_ = 0;
  const int64_t now_us = parts_.clock.mono_now().us;
  if (status_.boot_id != parts_.boot_id) {
    // The host was restarted: this clock began anew. The last proof of life is the end.
    status_.is_supervisor_lost = true;
    status_.exit_code = kExitCodeUnknown;
    status_.ended_us = std::max(status_.last_seen_us, status_.started_us);
    return;
  }
  const int64_t code = has_exit_file() ? number_in(paths_.exit_file) : -1;
  status_.is_supervisor_lost = code < 0;
  status_.exit_code = code < 0 ? kExitCodeUnknown : static_cast<int>(code);
  status_.ended_us = now_us;
  struct stat info{};
  if (code >= 0 && stat(paths_.exit_file.c_str(), &info) == 0) {
    // When conmon wrote it, which may be long before an agent looked. Wall clock to boot clock by
    // their distance now; a wall clock set meanwhile cannot move it out of the container's life.
    const int64_t wrote_us = info.st_mtim.tv_sec * 1'000'000 + info.st_mtim.tv_nsec / 1000;
    const int64_t ago_us = parts_.clock.wall_now().us - wrote_us;
    status_.ended_us = std::clamp(now_us - ago_us, status_.started_us, now_us);
  }
  const CgroupUsage usage = parts_.cgroups.usage(instance_);
  status_.is_oom = usage.oom_kills > 0 && status_.exit_code != 0 &&
                   status_.exit_code != kExitCheckpointed;
}

void Container::observe() {
  const std::lock_guard lock(mutex_);
  if (!is_known_ || status_.step != ContainerStep::kStarted || is_command_pending_) return;
  bool has_ended = has_exit_file() || status_.boot_id != parts_.boot_id;
  if (!has_ended && parts_.cgroups.processes(instance_, CgroupPart::kSupervisor).empty()) {
    has_ended = true;  // conmon is gone; the file may have come just before
    if (!has_exit_file()) {
      const Status killed =
          parts_.cgroups.kill_all(instance_, CgroupPart::kContainer, kLostPatience);
      if (!killed) return;  // looked at again soon; not ended while something runs
    }
  }
  if (has_ended) {
    note_exit_locked();
    if (const Status saved = save_locked(); !saved) {
      log::warn("agent.container_save_failed",
                {{"instance", instance_.text}, {"error", saved.error().to_string()}});
    }
    return;
  }
  note_usage_locked();
  status_.last_seen_us = parts_.clock.mono_now().us;
  if (status_.last_seen_us - usage_noted_us_ < kNoteEveryUs) return;
  usage_noted_us_ = status_.last_seen_us;
  if (const Status noted = note_status(paths_, status_); !noted) {
    log::warn("agent.container_save_failed",
              {{"instance", instance_.text}, {"error", noted.error().to_string()}});
  }
}

std::optional<ContainerSeen> Container::seen() const {
  const std::lock_guard lock(mutex_);
  if (!is_known_) return std::nullopt;
  ContainerSeen seen;
  switch (status_.step) {
    case ContainerStep::kPreparing:
    case ContainerStep::kCreated: seen.phase = ContainerPhase::kStarting; break;
    case ContainerStep::kStarted:
      seen.phase = is_command_pending_ ? ContainerPhase::kStarting : ContainerPhase::kRunning;
      break;
    case ContainerStep::kExited:
    case ContainerStep::kRemoving: seen.phase = ContainerPhase::kExited; break;
    case ContainerStep::kRemoved:
    case ContainerStep::kFailed: return std::nullopt;
  }
  seen.instance = instance_;
  seen.generation = status_.generation;
  seen.exit_code = status_.exit_code;
  seen.is_oom = status_.is_oom;
  seen.is_supervisor_lost = status_.is_supervisor_lost;
  seen.started = MonoTime{status_.started_us};
  if (seen.phase == ContainerPhase::kExited) seen.ended = MonoTime{status_.ended_us};
  seen.memory_bytes = memory_bytes_;
  seen.memory_peak_bytes = status_.memory_peak_bytes;
  seen.cpu_time_us = status_.cpu_time_us;
  seen.volumes = spec_.volumes;
  return seen;
}

Status Container::signal(int signal_number) {
  const std::lock_guard lock(mutex_);
  if (!is_known_ || status_.step != ContainerStep::kStarted || is_command_pending_) {
    return fail(Code::kFailedPrecondition, "container_not_running", instance_.text + " is not running");
  }
  const int64_t init = number_in(paths_.pid);
  if (init <= 1) return fail(Code::kDataLoss, "pid_file_missing", paths_.pid + " holds no pid");
  const auto command = static_cast<pid_t>(init);
  if (signal_number == SIGKILL || hears(command, signal_number)) {
    return send_locked(command, signal_number);
  }
  // The command is the first process of its pid namespace: the kernel drops a signal that it does not
  // handle, so a plain `sh -c "...; python train.py"` would sit out its whole grace time. Those below
  // it that do handle the signal get it (the command goes on when they have ended); if none does,
  // SIGTERM does what it does to any other process: it ends the command.
  bool is_heard = false;
  for (const pid_t pid : parts_.cgroups.processes(instance_, CgroupPart::kContainer)) {
    if (pid == command || !hears(pid, signal_number)) continue;
    TRY_VOID(send_locked(pid, signal_number));
    is_heard = true;
  }
  return is_heard || signal_number != SIGTERM ? Status{} : send_locked(command, SIGKILL);
}

Status Container::send_locked(pid_t pid, int signal_number) {
  // The descriptor first, then the proof that it is ours: a reused pid is never hit.
  const sys::Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open()) {
    if (errno == ESRCH) return {};  // ended just now
    return fail_errno("pidfd_open", errno);
  }
  if (!parts_.cgroups.holds(instance_, CgroupPart::kContainer, pid)) return {};
  if (syscall(SYS_pidfd_send_signal, process.get(), signal_number, nullptr, 0) != 0 && errno != ESRCH) {
    return fail_errno(fmt::format("send signal {}", signal_number), errno);
  }
  return {};
}

Result<std::string> Container::read_metrics(int64_t offset, int64_t bytes_max) {
  bool has_ended = false;
  {
    const std::lock_guard lock(mutex_);
    has_ended = status_.step != ContainerStep::kStarted || is_command_pending_;
  }
  sys::Fd file;
  if (auto saved = sys::open_file(paths_.metrics, O_RDONLY); saved) {
    file = std::move(*saved);
  } else {
    const auto folder = sys::open_file(paths_.io, O_RDONLY | O_DIRECTORY);
    if (!folder) return std::string{};
    auto live = sys::open_beneath(folder->get(), "metrics.jsonl", O_RDONLY | O_NONBLOCK);
    if (!live) return std::string{};  // none yet, or a link that leads elsewhere
    file = std::move(*live);
  }
  struct stat info{};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::string{};
  TRY(std::string bytes, sys::read_range(file.get(), offset, bytes_max));
  if (has_ended || static_cast<int64_t>(bytes.size()) >= bytes_max) return bytes;
  const size_t line_end = bytes.rfind('\n');
  bytes.resize(line_end == std::string::npos ? 0 : line_end + 1);
  return bytes;
}

Result<std::string> Container::read_stream(Stream stream, int64_t offset, int64_t bytes_max) {
  std::shared_ptr<ContainerLog> log;
  {
    const std::lock_guard lock(mutex_);
    if (!is_known_) {
      return fail(Code::kNotFound, "instance_unknown", instance_.text + " is not on this node");
    }
    log = log_;
  }
  if (offset < 0 || bytes_max <= 0) {
    return fail(Code::kInvalidArgument, "offset_invalid", "offset or length is negative");
  }
  return stream == Stream::kLog ? log->read(offset, bytes_max) : read_metrics(offset, bytes_max);
}

Status Container::write_control(std::string_view json_text) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_known_) {
      return fail(Code::kNotFound, "instance_unknown", instance_.text + " is not on this node");
    }
  }
  TRY_VOID(sys::make_folders(paths_.control));
  return sys::write_file_atomic(paths_.control + "/control.json", json_text, 0644);
}

}  // namespace anychip::agent
