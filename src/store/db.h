// SQLite behind plain values. One write connection on one thread (SQLite 3.40 has the WAL-reset
// bug: two writers or checkpointers may corrupt), any number of read connections beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json.h"

struct sqlite3;

namespace anychip::store {

using Blob = std::vector<uint8_t>;
struct Null {};
// What may be bound or read. Integers of any width and bool convert to int64_t; ids bind by .text.
using Value = std::variant<Null, int64_t, double, std::string, Blob>;

template <class T>
Value to_value(const T& v) {
  if constexpr (std::is_same_v<T, Value>)
    return v;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<int64_t>(v);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(v);
  else if constexpr (std::is_convertible_v<T, std::string_view>)
    return std::string(std::string_view(v));
  else if constexpr (requires { v.text; })
    return v.text.empty() ? Value(Null{}) : Value(v.text);
  else if constexpr (requires { v.us; })
    return static_cast<int64_t>(v.us);
  else if constexpr (requires { v.micros; })
    return static_cast<int64_t>(v.micros);
  else if constexpr (requires {
                       v.has_value();
                       *v;
                     })
    return v.has_value() ? to_value(*v) : Value(Null{});
  else {
    static_assert(sizeof(T) == 0, "no SQL form for this type");
  }
}

// One row, columns by index in SELECT order. A column of another type than asked is a CHECK: the
// schema is ours (STRICT tables).
class Row {
 public:
  explicit Row(std::vector<Value> values) : values_(std::move(values)) {}
  int64_t integer(size_t column) const;   // NULL -> 0
  double real(size_t column) const;       // NULL -> 0; integers convert
  std::string text(size_t column) const;  // NULL -> ""
  Blob blob(size_t column) const;         // NULL -> empty
  bool is_null(size_t column) const;
  size_t size() const { return values_.size(); }

 private:
  std::vector<Value> values_;
};

// A connection. Statements are prepared once and cached by their text. Not thread-safe. SQL errors
// are kInternal "sql_error" with the statement; constraint violations kAlreadyExists
// "constraint_violated"; SQLITE_FULL kResourceExhausted "disk_full"; a damaged file kDataLoss
// "database_corrupt". One statement per call.
class Db {
 public:
  virtual ~Db() = default;
  virtual Result<std::vector<Row>> query_values(std::string_view sql,
                                                std::vector<Value> values) = 0;

  template <class... Args>
  Result<std::vector<Row>> query(std::string_view sql, const Args&... args) {
    return query_values(sql, std::vector<Value>{to_value(args)...});
  }
  template <class... Args>
  Result<std::optional<Row>> query_one(std::string_view sql, const Args&... args) {  // first row
    TRY(auto rows, query(sql, args...));
    if (rows.empty()) return std::nullopt;
    return std::optional<Row>(std::move(rows.front()));
  }
  template <class... Args>
  Status execute(std::string_view sql, const Args&... args) {
    TRY_VOID(query(sql, args...));
    return {};
  }
  virtual int64_t changes() const = 0;  // rows changed by the last statement
};

// SQL run once each, in order, each inside its own transaction (any number of statements); the
// count is PRAGMA user_version. A database newer than the list is refused ("schema_newer"). Before
// a database with data is migrated it is copied to PATH.before-vN (N = the new version;
// PATH.before-vN.2 ... when that is taken).
using Migrations = std::vector<std::string>;

struct StoreOptions {
  // File, or ":memory:" (then reads share the write connection). A file has PATH.lock beside it: a
  // second open, by any process, is refused with "database_in_use".
  std::string path;
  bool is_durable = true;  // false: synchronous=OFF, for tests where fsync is not the point
  int readers = 2;
};

// A write returns the function to call after its transaction is durable (usually: send the answer).
// Returning an Error rolls back this write alone (savepoint), not the group.
using Write = std::function<Result<std::function<void()>>(Db&)>;

// What happened since open().
struct StoreCounts {
  int64_t commits = 0;        // groups made durable, each with one fsync
  int64_t writes = 0;         // writes acknowledged
  int64_t writes_failed = 0;  // rolled back alone, or with their group
  int64_t reads = 0;
  int64_t checkpoints = 0;
  int64_t wal_frames = 0;  // in the write-ahead log after the last commit
};

// The one writer. submit() may be called from any thread; writes run in order on the writer's
// thread, many per transaction (group commit, one fsync for all); `failed` is called instead of the
// returned function when the write or its commit failed. `committed` (if set) is called once after
// each group with at least one success, after the returned functions. All of these run on the
// writer's thread and hold it up: they may submit and read, but not wait. A write that fails
// because the disk is full or broken takes its group with it. With kWritesMax waiting, more are
// refused: `failed` is called at once with "store_busy".
constexpr size_t kWritesMax = 65536;
constexpr size_t kGroupWritesMax = 256;
class Store {
 public:
  static Result<std::unique_ptr<Store>> open(StoreOptions options, const Migrations& migrations);
  virtual ~Store() = default;  // drains the queue
  virtual void submit(Write write, std::function<void(Error)> failed) = 0;
  // Runs on a reader thread, soon, in one read transaction: all its queries see the same commit,
  // and at least every write acknowledged before. It cannot write.
  virtual void read(std::function<void(Db&)> reader) = 0;
  virtual void on_commit(std::function<void()> committed) = 0;
  virtual void drain() = 0;  // returns when all that was submitted before is answered
  // Online copy, complete and consistent, to `path` (must not exist: "backup_exists"); durable on
  // return. Writes go on meanwhile. Not from the writer's thread.
  virtual Status backup(const std::string& path) = 0;
  virtual StoreCounts counts() const { return {}; }
};

// The same interface without threads, for the simulator and unit tests: submit() and read() run at
// once on the caller's thread, one write per transaction, in memory or in a file.
Result<std::unique_ptr<Store>> open_inline(StoreOptions options, const Migrations& migrations);

}  // namespace anychip::store
