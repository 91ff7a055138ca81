#include "store/migrate.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>
#include <sqlite3.h>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"

namespace anychip::store {
namespace {

namespace fs = std::filesystem;

constexpr int kCopiesMax = 99;

Status sync_path(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) return fail_errno("open " + path, errno);
  const int result = ::fsync(file);
  const int problem = errno;
  ::close(file);
  if (result != 0) return fail_errno("fsync " + path, problem);
  return {};
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<std::string> free_copy_path(const std::string& path, size_t version) {
  const std::string first = fmt::format("{}.before-v{}", path, version);
  if (!exists(first)) return first;
  for (int number = 2; number <= kCopiesMax; ++number) {
    std::string next = fmt::format("{}.{}", first, number);
    if (!exists(next)) return next;
  }
  return fail(Code::kFailedPrecondition, "backup_exists",
              fmt::format("{} and {} more copies exist already", first, kCopiesMax - 1),
              "move old copies away");
}

Result<int64_t> read_version(SqliteDb& db) {
  TRY(const auto row, db.query_one("PRAGMA user_version"));
  CHECK(row.has_value());
  return row->integer(0);
}

Status run_migration(SqliteDb& db, const std::string& sql, size_t version) {
  TRY_VOID(db.run_script("BEGIN IMMEDIATE"));
  Status done = db.run_script(sql);
  if (done) done = db.run_script(fmt::format("PRAGMA user_version={}", version));
  if (done) done = db.run_script("COMMIT");
  if (!done) {
    if (db.is_in_transaction()) (void)db.run_script("ROLLBACK");
    return tl::unexpected(std::move(done).error().within(fmt::format("migration {}", version)));
  }
  return {};
}

Status migrate(SqliteDb& db, const StoreOptions& options, const Migrations& migrations) {
  TRY(const int64_t found, read_version(db));
  const auto version = static_cast<size_t>(found);
  if (found < 0 || version > migrations.size()) {
    return fail(Code::kFailedPrecondition, "schema_newer",
                fmt::format("{} has version {}, this program knows {}", options.path, found,
                            migrations.size()),
                fmt::format("use the newer program, or go back to the copy {}.before-v{}",
                            options.path, found));
  }
  if (version == migrations.size()) return {};
  TRY(const auto tables, db.query_one("SELECT count(*) FROM sqlite_schema"));
  std::string copy_path;
  if (tables->integer(0) > 0 && options.path != ":memory:") {
    TRY(copy_path, free_copy_path(options.path, migrations.size()));
    TRY(auto copy, Copy::begin(db, copy_path));
    TRY_VOID(copy->step(-1));
    TRY_VOID(copy->finish());
  }
  for (size_t next = version; next < migrations.size(); ++next) {
    FAILPOINT("store.migrate");
    const Status done = run_migration(db, migrations[next], next + 1);
    if (done) continue;
    // Nothing has changed: the copy says nothing that the database does not.
    if (next == version && !copy_path.empty()) ::unlink(copy_path.c_str());
    return done;
  }
  if (version == 0) return {};
  log::info(
      "store.migrated",
      {{"path", options.path}, {"from", found}, {"to", migrations.size()}, {"copy", copy_path}});
  return {};
}

}  // namespace

Result<std::unique_ptr<Copy>> Copy::begin(SqliteDb& from, const std::string& to_path) {
  if (exists(to_path)) {
    return fail(Code::kAlreadyExists, "backup_exists", fmt::format("{} exists already", to_path),
                "choose another name");
  }
  std::unique_ptr<Copy> copy(new Copy);
  copy->path_ = to_path;
  const std::string partial = to_path + ".partial";
  ::unlink(partial.c_str());  // of a copy that was killed
  const int file = ::open(partial.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return fail_errno("create " + partial, errno);
  ::close(file);
  const int result = sqlite3_open_v2(partial.c_str(), &copy->to_,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (result != SQLITE_OK) return tl::unexpected(sqlite_error(copy->to_, result, "backup"));
  copy->backup_ = sqlite3_backup_init(copy->to_, "main", from.handle(), "main");
  if (copy->backup_ == nullptr) {
    return tl::unexpected(sqlite_error(copy->to_, sqlite3_errcode(copy->to_), "backup"));
  }
  return copy;
}

Copy::~Copy() {
  if (backup_ != nullptr) sqlite3_backup_finish(backup_);
  if (to_ == nullptr) return;
  sqlite3_close(to_);
  ::unlink((path_ + ".partial").c_str());
  ::unlink((path_ + ".partial-journal").c_str());
}

Result<bool> Copy::step(int pages) {
  const int result = sqlite3_backup_step(backup_, pages);
  if (result == SQLITE_DONE) return true;
  if (result == SQLITE_OK || result == SQLITE_BUSY || result == SQLITE_LOCKED) return false;
  return tl::unexpected(sqlite_error(nullptr, result, "backup"));
}

Status Copy::finish() {
  const int result = sqlite3_backup_finish(std::exchange(backup_, nullptr));
  if (result != SQLITE_OK) return tl::unexpected(sqlite_error(to_, result, "backup"));
  sqlite3_close(std::exchange(to_, nullptr));
  const std::string partial = path_ + ".partial";
  TRY_VOID(sync_path(partial, O_RDWR));
  if (::rename(partial.c_str(), path_.c_str()) != 0) return fail_errno("rename " + partial, errno);
  return sync_path(folder_of(path_), O_RDONLY | O_DIRECTORY);
}

Result<OpenDatabase> open_database(const StoreOptions& options, const Migrations& migrations) {
  OpenDatabase opened;
  if (options.path != ":memory:") {
    TRY(FileLock lock, FileLock::take(options.path));
    opened.lock.emplace(std::move(lock));
  }
  TRY(opened.db, SqliteDb::open(options, SqliteDb::Mode::kWriter));
  TRY_VOID(migrate(*opened.db, options, migrations));
  return opened;
}

}  // namespace anychip::store
