// Internal to store: one transaction made of many writes, each in its own savepoint.
#pragma once

#include <optional>
#include <vector>

#include "store/sqlite_db.h"

namespace anychip::store {

struct PendingWrite {
  Write write;
  std::function<void(Error)> failed;
};

class Group {
 public:
  explicit Group(SqliteDb& db);  // begins the transaction
  void run(PendingWrite pending);
  struct Outcome {
    int64_t written = 0;
    int64_t failed = 0;
  };
  // Commits, then answers every write in the order it came. Nothing is answered before the commit:
  // a write may have failed because of an earlier one that is not durable yet.
  Outcome finish();

 private:
  struct Ran {
    std::function<void()> succeeded;
    std::function<void(Error)> failed;
    std::optional<Error> error;
  };
  Status commit();
  Result<std::function<void()>> run_in_savepoint(const Write& write);

  SqliteDb& db_;
  std::vector<Ran> ran_;
  int64_t written_ = 0;
  std::optional<Error> broken_;  // the whole transaction is lost
};

// Runs a callback of the caller's; what it throws is logged and goes no further.
void call_guarded(std::string_view what, const std::function<void()>& callback);

}  // namespace anychip::store
