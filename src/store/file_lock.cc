#include "store/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

namespace anychip::store {
namespace {

std::string holder_of(int file) {
  char text[32] = {};
  const ssize_t count = ::pread(file, text, sizeof text - 1, 0);
  std::string pid(text, count > 0 ? static_cast<size_t>(count) : 0);
  while (pid.ends_with('\n')) pid.pop_back();
  return pid.empty() ? "another process" : "process " + pid;
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& database_path) {
  const std::string path = database_path + ".lock";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return fail_errno("open " + path, errno);
  FileLock lock(file);
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno("lock " + path, errno);
    return fail(Code::kFailedPrecondition, "database_in_use",
                fmt::format("{} is open in {}", database_path, holder_of(file)),
                "only one server may use a data folder: stop the other one first");
  }
  // Only for the message above, so an error here is of no matter.
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file, 0) == 0) (void)!::pwrite(file, pid.data(), pid.size(), 0);
  return lock;
}

FileLock::~FileLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace anychip::store
