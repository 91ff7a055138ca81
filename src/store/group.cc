#include "store/group.h"

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"

namespace anychip::store {
namespace {

Result<std::function<void()>> call_write(const Write& write, Db& db) {
  try {
    return write(db);
  } catch (const std::exception& problem) {
    return fail(Code::kInternal, "write_threw", problem.what());
  }
}

}  // namespace

void call_guarded(std::string_view what, const std::function<void()>& callback) {
  try {
    if (callback) callback();
  } catch (const std::exception& problem) {
    log::error("store.callback_threw", {{"callback", what}, {"what", problem.what()}});
  }
}

Group::Group(SqliteDb& db) : db_(db) {
  CHECK(!db_.is_in_transaction());
  if (Status begun = db_.execute("BEGIN IMMEDIATE"); !begun) broken_ = std::move(begun).error();
}

void Group::run(PendingWrite pending) {
  Ran ran;
  ran.failed = std::move(pending.failed);
  if (!broken_) {
    auto result = run_in_savepoint(pending.write);
    if (result) {
      ran.succeeded = std::move(*result);
      ++written_;
    } else {
      ran.error = std::move(result).error();
      // A full disk and the like end the whole transaction, with the writes before this one.
      if (!db_.is_in_transaction()) broken_ = ran.error;
    }
  }
  ran_.push_back(std::move(ran));
}

Result<std::function<void()>> Group::run_in_savepoint(const Write& write) {
  TRY_VOID(db_.execute("SAVEPOINT one_write"));
  auto result = call_write(write, db_);
  if (result) {
    CHECK_MSG(db_.is_in_transaction(), "a write ended its group's transaction");
    TRY_VOID(db_.execute("RELEASE one_write"));
  } else if (db_.is_in_transaction()) {
    TRY_VOID(db_.execute("ROLLBACK TO one_write"));
    TRY_VOID(db_.execute("RELEASE one_write"));
  }
  return result;
}

Status Group::commit() {
  if (broken_) return tl::unexpected(*broken_);
  if (written_ == 0) return db_.execute("ROLLBACK");
  FAILPOINT("store.before_commit");
  TRY_VOID(db_.execute("COMMIT"));
  FAILPOINT_VOID("store.after_commit");
  return {};
}

Group::Outcome Group::finish() {
  const Status committed = commit();
  if (db_.is_in_transaction()) {
    const Status rolled_back = db_.execute("ROLLBACK");
    CHECK_MSG(rolled_back.has_value(), "a transaction can be neither committed nor rolled back");
  }
  Outcome outcome;
  for (Ran& ran : ran_) {
    if (!committed) ran.error = committed.error();
    if (ran.error) {
      ++outcome.failed;
      call_guarded("failed", [&ran] {
        if (ran.failed) ran.failed(std::move(*ran.error));
      });
    } else {
      ++outcome.written;
      call_guarded("succeeded", ran.succeeded);
    }
  }
  return outcome;
}

}  // namespace anychip::store
