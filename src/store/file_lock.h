// Internal to store: PATH.lock, held with flock(2) for as long as a database is open. A file of its
// own: closing any descriptor of the database itself would drop SQLite's own locks.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace anychip::store {

class FileLock {
 public:
  // Reason "database_in_use", with the holder's pid when it can be read.
  static Result<FileLock> take(const std::string& database_path);
  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int file) : file_(file) {}
  int file_;
};

}  // namespace anychip::store
