// Internal to store: opening a database for writing, and copying one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "store/file_lock.h"
#include "store/sqlite_db.h"

struct sqlite3_backup;

namespace anychip::store {

// Copies a database page by page through its write connection, so that commits made between two
// steps go into the copy too. Begins as PATH.partial; finish() makes it durable under its name.
class Copy {
 public:
  static Result<std::unique_ptr<Copy>> begin(SqliteDb& from, const std::string& to_path);
  ~Copy();                       // an unfinished copy is removed
  Result<bool> step(int pages);  // true when all is copied; pages < 0 = all
  Status finish();

 private:
  Copy() = default;
  std::string path_;
  sqlite3* to_ = nullptr;
  sqlite3_backup* backup_ = nullptr;
};

struct OpenDatabase {
  std::optional<FileLock> lock;  // none for ":memory:"
  std::unique_ptr<SqliteDb> db;
};
// Locks, opens and migrates.
Result<OpenDatabase> open_database(const StoreOptions& options, const Migrations& migrations);

}  // namespace anychip::store
