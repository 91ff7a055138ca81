// Durable writes per second: the store's group commit against a plain SQLite loop that commits (and
// syncs) every write by itself, on the same disk, same schema and same row, in one run. What counts
// is the ratio; absolute figures depend on the disk. "in_flight" is how many writes wait for their
// answer.
//   store_bench [--benchmark_filter=...]; ANYCHIP_BENCH_FOLDER chooses the disk (default: here)
#include <sqlite3.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "store/db.h"

namespace anychip::store {
namespace {

constexpr const char* kCreate =
    "CREATE TABLE steps(id INTEGER PRIMARY KEY, run TEXT NOT NULL, loss REAL NOT NULL) STRICT;";
constexpr const char* kInsert = "INSERT INTO steps(run, loss) VALUES(?, ?)";
constexpr const char* kRun = "run_01jdz4m6q5v0k8r1w2x3y4z5a6";

class Folder {
 public:
  Folder() {
    const char* chosen = std::getenv("ANYCHIP_BENCH_FOLDER");
    path_ = std::string(chosen != nullptr ? chosen : ".") + "/store-bench-XXXXXX";
    CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string database() const { return path_ + "/bench.db"; }

 private:
  std::string path_;
};

void run_sql(sqlite3* db, const char* sql) {
  CHECK(sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
}

void plain_loop(benchmark::State& state) {
  const Folder folder;
  sqlite3* db = nullptr;
  CHECK(sqlite3_open(folder.database().c_str(), &db) == SQLITE_OK);
  run_sql(db, "PRAGMA journal_mode=WAL");
  run_sql(db, "PRAGMA synchronous=FULL");
  run_sql(db, kCreate);
  sqlite3_stmt* insert = nullptr;
  CHECK(sqlite3_prepare_v2(db, kInsert, -1, &insert, nullptr) == SQLITE_OK);
  for (auto _ : state) {
    run_sql(db, "BEGIN IMMEDIATE");
    sqlite3_bind_text(insert, 1, kRun, -1, SQLITE_STATIC);
    sqlite3_bind_double(insert, 2, 1.5);
    CHECK(sqlite3_step(insert) == SQLITE_DONE);
    sqlite3_reset(insert);
    run_sql(db, "COMMIT");
  }
  state.SetItemsProcessed(state.iterations());
  sqlite3_finalize(insert);
  sqlite3_close(db);
}
BENCHMARK(plain_loop)->UseRealTime();

void grouped_store(benchmark::State& state) {
  const Folder folder;
  auto store = Store::open({folder.database(), true, 1}, {kCreate});
  CHECK(store.has_value());
  const auto in_flight_max = state.range(0);
  std::mutex mutex;
  std::condition_variable answered;
  int64_t in_flight = 0;
  for (auto _ : state) {
    {
      std::unique_lock lock(mutex);
      answered.wait(lock, [&] { return in_flight < in_flight_max; });
      ++in_flight;
    }
    (*store)->submit(
        [&](Db& db) -> Result<std::function<void()>> {
          TRY_VOID(db.execute(kInsert, kRun, 1.5));
          return [&] {
            const std::lock_guard lock(mutex);
            --in_flight;
            answered.notify_one();
          };
        },
        [](Error error) { CHECK_MSG(false, error.to_string()); });
  }
  (*store)->drain();
  const StoreCounts counts = (*store)->counts();
  CHECK(counts.writes == static_cast<int64_t>(state.iterations()));
  state.SetItemsProcessed(state.iterations());
  state.counters["writes_per_commit"] =
      static_cast<double>(counts.writes) / static_cast<double>(counts.commits);
}
BENCHMARK(grouped_store)->ArgName("in_flight")->Arg(1)->Arg(8)->Arg(64)->Arg(256)->UseRealTime();

}  // namespace
}  // namespace anychip::store

BENCHMARK_MAIN();
