#include "sys/freeze.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace anychip::sys {
namespace {

// In the guard: waits until the pipe's other end closes (we died) or says 'q' (all is well). Only
// system calls: the parent may have had other threads, whose locks are frozen in this copy.
[[noreturn]] void guard_main(int pipe_fd, int root_fd) {
  ::syscall(SYS_setsid);  // a signal to our process group must not end the guard
  // Everything else is closed: our own pipe's other end, and those of guards started meanwhile.
  const auto low = static_cast<unsigned>(pipe_fd < root_fd ? pipe_fd : root_fd);
  const auto high = static_cast<unsigned>(pipe_fd < root_fd ? root_fd : pipe_fd);
  if (low > 0) ::syscall(SYS_close_range, 0u, low - 1, 0u);
  if (high > low + 1) ::syscall(SYS_close_range, low + 1, high - 1, 0u);
  ::syscall(SYS_close_range, high + 1, ~0u, 0u);
  char word = 0;
  ssize_t got = 0;
  do {
    got = ::read(pipe_fd, &word, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) ::ioctl(root_fd, FITHAW, 0);
  ::syscall(SYS_exit_group, 0);
  __builtin_unreachable();
}

}  // namespace

Result<FrozenFileSystem> FrozenFileSystem::freeze(const std::string& mount_point) {
  TRY(auto root, open_file(mount_point, O_RDONLY | O_DIRECTORY));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  Fd read_end(ends[0]), write_end(ends[1]);
  const long pid = ::syscall(SYS_clone, 0ul, nullptr, nullptr, nullptr, 0ul);
  if (pid < 0) return fail_errno("start the thaw guard", errno);
  if (pid == 0) guard_main(read_end.get(), root.get());
  FrozenFileSystem frozen(std::move(root), std::move(write_end), static_cast<int>(pid));
  if (::ioctl(frozen.root_.get(), FIFREEZE, 0) != 0) {
    const int error_number = errno;
    frozen.end_guard();
    frozen.root_.reset();
    return fail_errno("freeze " + mount_point, error_number);
  }
  return frozen;
}

FrozenFileSystem::FrozenFileSystem(FrozenFileSystem&& other) noexcept
    : root_(std::move(other.root_)),
      guard_pipe_(std::move(other.guard_pipe_)),
      guard_pid_(std::exchange(other.guard_pid_, -1)) {}

FrozenFileSystem::~FrozenFileSystem() {
  if (root_.is_open()) (void)thaw();
}

void FrozenFileSystem::end_guard() {
  if (guard_pid_ < 0) return;
  (void)!::write(guard_pipe_.get(), "q", 1);
  guard_pipe_.reset();
  while (::waitpid(guard_pid_, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  guard_pid_ = -1;
}

Status FrozenFileSystem::thaw() {
  const int result = ::ioctl(root_.get(), FITHAW, 0);
  const int error_number = errno;
  end_guard();
  root_.reset();
  if (result == 0) return {};
  if (error_number == EINVAL) {
    return fail(Code::kAborted, "freeze_lost",
                "the file system was thawed by somebody else meanwhile");
  }
  return fail_errno("thaw", error_number);
}

Result<bool> thaw_if_frozen(const std::string& mount_point) {
  TRY(auto root, open_file(mount_point, O_RDONLY | O_DIRECTORY));
  if (::ioctl(root.get(), FITHAW, 0) == 0) return true;
  if (errno == EINVAL) return false;
  return fail_errno("thaw " + mount_point, errno);
}

}  // namespace anychip::sys
