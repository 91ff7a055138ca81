#include "store/sqlite_db.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>
#include <sqlite3.h>

#include "base/check.h"

namespace anychip::store {
namespace {

constexpr size_t kStatementsMax = 512;
constexpr int kBusyTimeoutMs = 5000;
constexpr std::string_view kMemory = ":memory:";

Value value_of_column(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER: return static_cast<int64_t>(sqlite3_column_int64(statement, column));
    case SQLITE_FLOAT: return sqlite3_column_double(statement, column);
    case SQLITE_TEXT: {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
      return std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement, column)));
    }
    case SQLITE_BLOB: {
      const auto* bytes = static_cast<const uint8_t*>(sqlite3_column_blob(statement, column));
      return Blob(bytes, bytes + sqlite3_column_bytes(statement, column));
    }
    default: return Null{};
  }
}

// Rows hold accounts and token hashes: not for other users of the machine.
Status create_private(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return fail_errno("open database " + path, errno);
  ::close(file);
  return {};
}

struct ResetOnExit {
  sqlite3_stmt* statement;
  ~ResetOnExit() {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
  }
};

}  // namespace

Error sqlite_error(sqlite3* handle, int result, std::string_view during) {
  const char* text = handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(result);
  const std::string message = fmt::format("{} (in: {})", text, during);
  switch (result & 0xff) {
    case SQLITE_CONSTRAINT: return {Code::kAlreadyExists, "constraint_violated", message, {}, {}};
    case SQLITE_FULL:
      return {Code::kResourceExhausted,
              "disk_full",
              message,
              "free some space on the disk of the data folder",
              {}};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {Code::kDataLoss, "database_corrupt", message, "restore the last backup", {}};
    default: return {Code::kInternal, "sql_error", message, {}, {}};
  }
}

Result<std::unique_ptr<SqliteDb>> SqliteDb::open(const StoreOptions& options, Mode mode) {
  const bool is_memory = options.path == kMemory;
  if (!is_memory && mode == Mode::kWriter) TRY_VOID(create_private(options.path));
  const int access =
      mode == Mode::kReader ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  std::unique_ptr<SqliteDb> db(new SqliteDb);
  // NOMUTEX: one thread per connection, so SQLite need not lock.
  const int result = sqlite3_open_v2(options.path.c_str(), &db->handle_,
                                     access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (result != SQLITE_OK) {
    return tl::unexpected(sqlite_error(db->handle_, result, "open " + options.path));
  }
  TRY_VOID(db->configure(options, mode));
  return db;
}

Status SqliteDb::configure(const StoreOptions& options, Mode mode) {
  set_busy_timeout(kBusyTimeoutMs);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  TRY_VOID(run_script("PRAGMA foreign_keys=ON; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY;"));
  if (mode == Mode::kReader) {
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    return run_script("PRAGMA query_only=ON;");
  }
  if (options.path != kMemory) {
    TRY(const auto row, query_one("PRAGMA journal_mode=WAL"));
    if (!row || row->text(0) != "wal") {
      return fail(Code::kUnimplemented, "wal_missing",
                  fmt::format("{} cannot use a write-ahead log there", options.path),
                  "put the data folder on a local disk, not on a network share");
    }
  }
  // The hook takes the place of automatic checkpoints: those would run inside a commit.
  sqlite3_wal_hook(handle_, &SqliteDb::on_wal, this);
  return run_script(options.is_durable ? "PRAGMA synchronous=FULL;" : "PRAGMA synchronous=OFF;");
}

SqliteDb::~SqliteDb() {
  drop_statements();
  if (handle_ != nullptr) CHECK(sqlite3_close(handle_) == SQLITE_OK);
}

int SqliteDb::on_wal(void* self, sqlite3*, const char*, int frames) {
  static_cast<SqliteDb*>(self)->wal_frames_ = frames;
  return SQLITE_OK;
}

void SqliteDb::set_busy_timeout(int ms) { sqlite3_busy_timeout(handle_, ms); }

void SqliteDb::drop_statements() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  statements_.clear();
}

Result<sqlite3_stmt*> SqliteDb::prepare(std::string_view sql) {
  std::string key(sql);
  if (const auto found = statements_.find(key); found != statements_.end()) return found->second;
  sqlite3_stmt* statement = nullptr;
  const char* rest = nullptr;
  const int result = sqlite3_prepare_v3(handle_, key.data(), static_cast<int>(key.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, &rest);
  if (result != SQLITE_OK) return tl::unexpected(sqlite_error(handle_, result, sql));
  const std::string_view left(rest, static_cast<size_t>(key.data() + key.size() - rest));
  if (statement == nullptr || left.find_first_not_of(" \t\r\n;") != std::string_view::npos) {
    sqlite3_finalize(statement);
    return fail(Code::kInternal, "sql_error", fmt::format("not one statement: {}", sql));
  }
  // Texts are constants of ours, so the cache stays small; built texts must not make it grow.
  if (statements_.size() >= kStatementsMax) drop_statements();
  statements_.emplace(std::move(key), statement);
  return statement;
}

Status SqliteDb::bind(sqlite3_stmt* statement, const std::vector<Value>& values,
                      std::string_view sql) {
  if (sqlite3_bind_parameter_count(statement) != static_cast<int>(values.size())) {
    return fail(Code::kInternal, "sql_error", fmt::format("{} values for: {}", values.size(), sql));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const int index = static_cast<int>(i) + 1;
    int result = SQLITE_OK;
    if (const auto* integer = std::get_if<int64_t>(&values[i])) {
      result = sqlite3_bind_int64(statement, index, *integer);
    } else if (const auto* real = std::get_if<double>(&values[i])) {
      result = sqlite3_bind_double(statement, index, *real);
    } else if (const auto* text = std::get_if<std::string>(&values[i])) {
      // STATIC: `values` outlives the execution, after which the bindings are cleared.
      result = sqlite3_bind_text64(statement, index, text->data(), text->size(), SQLITE_STATIC,
                                   SQLITE_UTF8);
    } else if (const auto* blob = std::get_if<Blob>(&values[i])) {
      result = sqlite3_bind_blob64(statement, index,
                                   blob->empty() ? "" : reinterpret_cast<const char*>(blob->data()),
                                   blob->size(), SQLITE_STATIC);
    } else {
      result = sqlite3_bind_null(statement, index);
    }
    if (result != SQLITE_OK) return tl::unexpected(sqlite_error(handle_, result, sql));
  }
  return {};
}

Result<std::vector<Row>> SqliteDb::query_values(std::string_view sql, std::vector<Value> values) {
  TRY(sqlite3_stmt * statement, prepare(sql));
  const ResetOnExit reset{statement};
  TRY_VOID(bind(statement, values, sql));
  std::vector<Row> rows;
  const int columns = sqlite3_column_count(statement);
  for (;;) {
    const int result = sqlite3_step(statement);
    if (result == SQLITE_DONE) return rows;
    if (result != SQLITE_ROW) return tl::unexpected(sqlite_error(handle_, result, sql));
    std::vector<Value> row;
    row.reserve(static_cast<size_t>(columns));
    for (int column = 0; column < columns; ++column) {
      row.push_back(value_of_column(statement, column));
    }
    rows.emplace_back(std::move(row));
  }
}

int64_t SqliteDb::changes() const { return sqlite3_changes64(handle_); }

Status SqliteDb::run_script(const std::string& sql) {
  const int result = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return tl::unexpected(sqlite_error(handle_, result, sql));
  return {};
}

bool SqliteDb::is_in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

Status SqliteDb::checkpoint(Checkpoint kind) {
  const int mode =
      kind == Checkpoint::kTruncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
  int frames = 0;
  int copied = 0;
  const int result = sqlite3_wal_checkpoint_v2(handle_, nullptr, mode, &frames, &copied);
  if (result != SQLITE_OK) return tl::unexpected(sqlite_error(handle_, result, "checkpoint"));
  // All copied: the next commit starts the log again from its beginning.
  if (frames >= 0) wal_frames_ = frames == copied ? 0 : frames;
  return {};
}

int64_t Row::integer(size_t column) const {
  CHECK(column < values_.size());
  if (std::holds_alternative<Null>(values_[column])) return 0;
  const auto* integer = std::get_if<int64_t>(&values_[column]);
  CHECK_MSG(integer != nullptr, "column is not an integer");
  return *integer;
}

double Row::real(size_t column) const {
  CHECK(column < values_.size());
  if (const auto* real = std::get_if<double>(&values_[column])) return *real;
  return static_cast<double>(integer(column));
}

std::string Row::text(size_t column) const {
  CHECK(column < values_.size());
  if (std::holds_alternative<Null>(values_[column])) return {};
  const auto* text = std::get_if<std::string>(&values_[column]);
  CHECK_MSG(text != nullptr, "column is not text");
  return *text;
}

Blob Row::blob(size_t column) const {
  CHECK(column < values_.size());
  if (std::holds_alternative<Null>(values_[column])) return {};
  const auto* blob = std::get_if<Blob>(&values_[column]);
  CHECK_MSG(blob != nullptr, "column is not a blob");
  return *blob;
}

bool Row::is_null(size_t column) const {
  CHECK(column < values_.size());
  return std::holds_alternative<Null>(values_[column]);
}

}  // namespace anychip::store
