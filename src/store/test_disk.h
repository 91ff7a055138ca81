// For tests: a disk that loses power. While it lives it is SQLite's default VFS; files behave as
// usual, but it remembers which bytes were synced. lose_power() writes what a real disk might hold
// after a power cut: the synced bytes, and of the others any part, each write whole, torn at a
// sector or not at all.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <sqlite3.h>

#include "base/rng.h"

namespace anychip::store {

class TestDisk {
 public:
  TestDisk();
  ~TestDisk();  // after every database on it is closed
  void lose_power(const std::string& to_folder, Random& random);

  // For the shim's file methods.
  void opened(const std::string& path, sqlite3_file* real);
  void written(const std::string& path, sqlite3_int64 offset, std::string bytes);
  void truncated(const std::string& path, sqlite3_int64 size);
  void synced(const std::string& path);
  void removed(const std::string& path);
  sqlite3_vfs* real() const { return real_; }

 private:
  struct Change {
    bool is_truncation = false;
    size_t offset = 0;  // or the new size
    std::string bytes;
  };
  struct Image {
    std::string durable;
    std::vector<Change> pending;
  };
  static void apply(std::string& content, const Change& change);

  std::mutex mutex_;
  std::map<std::string, Image> images_;
  sqlite3_vfs* const real_;
  sqlite3_vfs shim_;
};

}  // namespace anychip::store
