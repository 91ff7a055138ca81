// Files: whole reads and durable writes, folders, locks, space. Errors name the path.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace anychip::sys {

class Fd {  // owns a descriptor
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

Result<Fd> open_file(const std::string& path, int flags, mode_t mode = 0644);  // adds O_CLOEXEC

constexpr int64_t kReadMaxBytes = 64 << 20;
// A file longer than bytes_max is an error ("file_too_large"); absent = kNotFound.
Result<std::string> read_file(const std::string& path, int64_t bytes_max = kReadMaxBytes);
// Bytes [offset, offset + bytes_max); shorter at the end of the file.
Result<std::string> read_range(int fd, int64_t offset, int64_t bytes_max);
Status write_all(int fd, std::string_view bytes);
// Temporary file beside it, fsync, rename, fsync of the folder: old or new, never a mixture.
Status write_file_durable(const std::string& path, std::string_view bytes, mode_t mode = 0644);
// The same without fsync: atomic for readers, may be lost by a power cut.
Status write_file_atomic(const std::string& path, std::string_view bytes, mode_t mode = 0644);

// A path below a folder a tenant can write to: symbolic links and ".." are refused by the kernel.
Result<Fd> open_beneath(int folder_fd, const std::string& path, int flags, mode_t mode = 0644);
Result<std::string> read_beneath(int folder_fd, const std::string& path,
                                 int64_t bytes_max = kReadMaxBytes);

// FICLONE: shares the blocks; `to` is replaced; not yet durable (sync_file).
Status clone_file(const std::string& from, const std::string& to);
Status sync_file(const std::string& path);
Status sync_folder(const std::string& path);       // fsync of the folder itself
Status sync_file_system(const std::string& path);  // syncfs

bool exists(const std::string& path);  // does not follow a last symbolic link
bool is_folder(const std::string& path);
Status make_folders(const std::string& path, mode_t mode = 0755);       // mkdir -p
Result<std::vector<std::string>> list_folder(const std::string& path);  // names, sorted
Status remove_file(const std::string& path);                            // absent = done
// Removes a folder and all below it, never crossing into another file system, never following
// links. Absent = done.
Status remove_tree(const std::string& path);
Status rename_durable(const std::string& from, const std::string& to);

struct Space {
  int64_t total_bytes = 0, free_bytes = 0;
};
Result<Space> space_of(const std::string& path);
int64_t allocated_bytes(const std::string& path);  // st_blocks × 512; 0 when absent

class FileLock {  // flock(2); released by the destructor or the end of the process
 public:
  static Result<FileLock> acquire(const std::string& path);      // waits
  static Result<FileLock> try_acquire(const std::string& path);  // held: kAborted "locked"

 private:
  explicit FileLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace anychip::sys
