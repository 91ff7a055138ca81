// Internal to store: one SQLite connection and its cached statements.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "store/db.h"

struct sqlite3;
struct sqlite3_stmt;

namespace anychip::store {

class SqliteDb final : public Db {
 public:
  enum class Mode { kWriter, kReader };
  static Result<std::unique_ptr<SqliteDb>> open(const StoreOptions& options, Mode mode);
  ~SqliteDb() override;

  Result<std::vector<Row>> query_values(std::string_view sql, std::vector<Value> values) override;
  int64_t changes() const override;

  Status run_script(const std::string& sql);  // any number of statements, not cached
  // False outside a transaction. SQLite ends one by itself on errors like a full disk.
  bool is_in_transaction() const;
  // Copies committed frames from the write-ahead log into the database. Writer only.
  enum class Checkpoint { kPassive, kTruncate };
  Status checkpoint(Checkpoint kind);
  int64_t wal_frames() const { return wal_frames_; }  // after this connection's last commit
  void set_busy_timeout(int ms);
  sqlite3* handle() const { return handle_; }

 private:
  SqliteDb() = default;
  Result<sqlite3_stmt*> prepare(std::string_view sql);
  Status bind(sqlite3_stmt* statement, const std::vector<Value>& values, std::string_view sql);
  Status configure(const StoreOptions& options, Mode mode);
  void drop_statements();
  static int on_wal(void* self, sqlite3* handle, const char* name, int frames);

  sqlite3* handle_ = nullptr;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
  int64_t wal_frames_ = 0;
};

// The Error of what the connection last failed with.
Error sqlite_error(sqlite3* handle, int result, std::string_view during);

}  // namespace anychip::store
