#include "sys/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <fmt/format.h>

#include "sys/paths.h"

namespace anychip::sys {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Fd> open_file(const std::string& path, int flags, mode_t mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return fail_errno("open " + path, errno);
  return Fd(fd);
}

Result<std::string> read_range(int fd, int64_t offset, int64_t bytes_max) {
  std::string bytes(static_cast<size_t>(bytes_max), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read", errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

namespace {

// Files of /proc say length 0, so the end is found by reading.
Result<std::string> read_to_end(const Fd& fd, const std::string& path, int64_t bytes_max) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return fail_errno("stat " + path, errno);
  if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode) && !S_ISFIFO(info.st_mode)) {
    return fail(Code::kInvalidArgument, "not_a_file", path + " is not a file");
  }
  std::string bytes;
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read " + path, errno);
    if (got == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(bytes.size()) > bytes_max) {
      return fail(Code::kInvalidArgument, "file_too_large",
                  fmt::format("{} is larger than {} bytes", path, bytes_max));
    }
  }
}

Status write_by_rename(const std::string& path, std::string_view bytes, mode_t mode,
                       bool is_durable) {
  static std::atomic<uint64_t> counter{0};
  const std::string temporary = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
  const auto write_temporary = [&]() -> Status {
    TRY(auto fd, open_file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    TRY_VOID(write_all(fd.get(), bytes));
    if (is_durable && ::fsync(fd.get()) != 0) return fail_errno("fsync " + temporary, errno);
    return {};
  };
  Status status = write_temporary();
  if (status && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = fail_errno("rename to " + path, errno);
  }
  if (!status) {
    ::unlink(temporary.c_str());
    return status;
  }
  return is_durable ? sync_folder(parent_of(path)) : Status{};
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t bytes_max) {
  TRY(auto fd, open_file(path, O_RDONLY | O_NONBLOCK));
  return read_to_end(fd, path, bytes_max);
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno("write", errno);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

Status write_file_durable(const std::string& path, std::string_view bytes, mode_t mode) {
  return write_by_rename(path, bytes, mode, true);
}

Status write_file_atomic(const std::string& path, std::string_view bytes, mode_t mode) {
  return write_by_rename(path, bytes, mode, false);
}

Result<Fd> open_beneath(int folder_fd, const std::string& path, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long fd = ::syscall(SYS_openat2, folder_fd, path.c_str(), &how, sizeof how);
  if (fd < 0) return fail_errno("open " + path, errno);
  return Fd(static_cast<int>(fd));
}

Result<std::string> read_beneath(int folder_fd, const std::string& path, int64_t bytes_max) {
  TRY(auto fd, open_beneath(folder_fd, path, O_RDONLY | O_NONBLOCK));
  return read_to_end(fd, path, bytes_max);
}

Status clone_file(const std::string& from, const std::string& to) {
  TRY(auto source, open_file(from, O_RDONLY));
  TRY(auto target, open_file(to, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  if (::ioctl(target.get(), FICLONE, source.get()) != 0) {
    const int error_number = errno;
    ::unlink(to.c_str());
    return fail_errno("clone " + from + " to " + to, error_number);
  }
  return {};
}

Status sync_file(const std::string& path) {
  TRY(auto fd, open_file(path, O_RDONLY));
  if (::fsync(fd.get()) != 0) return fail_errno("fsync " + path, errno);
  return {};
}

Status sync_folder(const std::string& path) {
  TRY(auto fd, open_file(path, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return fail_errno("fsync " + path, errno);
  return {};
}

Status sync_file_system(const std::string& path) {
  TRY(auto fd, open_file(path, O_RDONLY));
  if (::syncfs(fd.get()) != 0) return fail_errno("syncfs " + path, errno);
  return {};
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status make_folders(const std::string& path, mode_t mode) {
  if (path.empty() || path == "/" || is_folder(path)) return {};
  TRY_VOID(make_folders(parent_of(path), mode));
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return fail_errno("make folder " + path, errno);
  }
  if (!is_folder(path)) return fail_errno("make folder " + path, ENOTDIR);
  return {};
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return fail_errno("list " + path, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno("remove " + path, errno);
  return {};
}

namespace {

// Works by descriptors, so a folder that is renamed or replaced by a link under us is not followed.
Status remove_content(int folder_fd, dev_t device, const std::string& path, int depth) {
  if (depth > 200) return fail(Code::kInvalidArgument, "folder_too_deep", path + " is too deep");
  const int listing_fd = ::openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listing_fd < 0) return fail_errno("open " + path, errno);
  DIR* folder = ::fdopendir(listing_fd);
  if (folder == nullptr) {
    const int error_number = errno;
    ::close(listing_fd);
    return fail_errno("list " + path, error_number);
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(folder);
  for (const std::string& name : names) {
    if (::unlinkat(folder_fd, name.c_str(), 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) return fail_errno("remove " + path + "/" + name, errno);
    const Fd child(
        ::openat(folder_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!child.is_open()) return fail_errno("open " + path + "/" + name, errno);
    struct stat info {};
    if (::fstat(child.get(), &info) != 0) return fail_errno("stat " + path + "/" + name, errno);
    if (info.st_dev != device) {
      return fail(Code::kFailedPrecondition, "is_mount_point",
                  path + "/" + name + " is a mount point; it was left alone");
    }
    TRY_VOID(remove_content(child.get(), device, path + "/" + name, depth + 1));
    if (::unlinkat(folder_fd, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return fail_errno("remove " + path + "/" + name, errno);
    }
  }
  return {};
}

}  // namespace

Status remove_tree(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status{} : Status{fail_errno("stat " + path, errno)};
  }
  if (!S_ISDIR(info.st_mode)) return remove_file(path);
  TRY(auto folder, open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  TRY_VOID(remove_content(folder.get(), info.st_dev, path, 0));
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return fail_errno("remove " + path, errno);
  return {};
}

Status rename_durable(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return fail_errno("rename " + from + " to " + to, errno);
  return sync_folder(parent_of(to));
}

Result<Space> space_of(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return fail_errno("statvfs " + path, errno);
  const auto block = static_cast<int64_t>(info.f_frsize);
  return Space{static_cast<int64_t>(info.f_blocks) * block,
               static_cast<int64_t>(info.f_bavail) * block};
}

int64_t allocated_bytes(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_blocks) * 512 : 0;
}

namespace {
Result<Fd> lock_file(const std::string& path, int operation) {
  TRY(auto fd, open_file(path, O_RDWR | O_CREAT, 0600));
  while (::flock(fd.get(), operation) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK)
      return fail(Code::kAborted, "locked", path + " is held by another process");
    return fail_errno("lock " + path, errno);
  }
  return fd;
}
}  // namespace

Result<FileLock> FileLock::acquire(const std::string& path) {
  TRY(auto fd, lock_file(path, LOCK_EX));
  return FileLock(std::move(fd));
}

Result<FileLock> FileLock::try_acquire(const std::string& path) {
  TRY(auto fd, lock_file(path, LOCK_EX | LOCK_NB));
  return FileLock(std::move(fd));
}

}  // namespace anychip::sys
