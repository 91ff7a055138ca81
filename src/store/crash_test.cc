// Proves durability against kill -9: a child writes, tells its parent of each acknowledged write,
// and kills itself at a failpoint. After reopening, every acknowledged write is there, and each
// write is there wholly or not at all.
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "store/db.h"
#include "store/test_folder.h"

namespace anychip::store {
namespace {

const Migrations kSchema = {
    "CREATE TABLE items(id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;"
    "CREATE TABLE halves(item INTEGER PRIMARY KEY) STRICT;"};

// Never returns. Every write has two halves; ids go to `acknowledged` once the store says so.
[[noreturn]] void write_until_killed(const std::string& path, const std::string& failpoints,
                                     int acknowledged) {
  auto store = Store::open({path, true, 1}, kSchema);
  if (!store || !failpoint::arm(failpoints)) _exit(3);
  int64_t first = 0;
  (*store)->submit(
      [&](Db& db) -> Result<std::function<void()>> {
        TRY(const auto row, db.query_one("SELECT coalesce(max(id), 0) FROM items"));
        first = row->integer(0) + 1;
        return nullptr;
      },
      [](Error) { _exit(4); });
  (*store)->drain();
  for (int64_t id = first; id < first + 5000; ++id) {
    (*store)->submit(
        [id, acknowledged](Db& db) -> Result<std::function<void()>> {
          TRY_VOID(db.execute("INSERT INTO items VALUES(?, ?)", id, Value(Blob(2000, 1))));
          TRY_VOID(db.execute("INSERT INTO halves VALUES(?)", id));
          return [id, acknowledged] {
            if (write(acknowledged, &id, sizeof id) != sizeof id) _exit(5);
          };
        },
        [](Error) { _exit(6); });
    // Groups of changing size, and pauses in which the writer checkpoints.
    if (id % 7 == 0) (*store)->drain();
    if (id % 100 == 0) usleep(2000);
  }
  (*store)->drain();
  _exit(7);  // the failpoint was never reached
}

std::set<int64_t> run_child(const std::string& path, const std::string& failpoints) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    write_until_killed(path, failpoints, ends[1]);
  }
  close(ends[1]);
  std::set<int64_t> acknowledged;
  int64_t id = 0;
  while (read(ends[0], &id, sizeof id) == sizeof id) acknowledged.insert(id);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      << failpoints << ": exit " << WEXITSTATUS(status);
  return acknowledged;
}

TEST(StoreCrash, EveryAcknowledgedWriteSurvivesAndNoneIsHalf) {
  TestFolder folder;
  const std::string path = folder.file("crash.db");
  std::set<int64_t> acknowledged;
  // The n-th hit moves the point of death through the life of the log; rounds build on each other.
  for (const std::string point : {"before_commit", "after_commit", "checkpoint"}) {
    for (const int hit : {1, 2, 3, 5, 9}) {
      const std::string failpoints =
          "store." + point + "=kill@" + std::to_string(point == "checkpoint" ? (hit + 1) / 2 : hit);
      const auto round = run_child(path, failpoints);
      acknowledged.insert(round.begin(), round.end());
      auto store = Store::open({path, true, 1}, kSchema);
      ASSERT_TRUE(store.has_value()) << store.error().to_string();
      std::set<int64_t> items, halves;
      std::string integrity;
      (*store)->read([&](Db& db) {
        const auto all_items = db.query("SELECT id FROM items");
        const auto all_halves = db.query("SELECT item FROM halves");
        const auto check = db.query_one("PRAGMA integrity_check");
        if (!all_items || !all_halves || !check) return;
        for (const Row& row : *all_items) items.insert(row.integer(0));
        for (const Row& row : *all_halves) halves.insert(row.integer(0));
        integrity = (*check)->text(0);
      });
      store->reset();  // also waits for the read
      EXPECT_EQ(integrity, "ok");
      EXPECT_EQ(items, halves) << failpoints;
      for (const int64_t id : acknowledged) EXPECT_TRUE(items.contains(id)) << failpoints << id;
    }
  }
  EXPECT_GT(acknowledged.size(), 100u);
}

// A migration that is killed after its copy, or between two steps, is taken up again where it was.
TEST(StoreCrash, AKilledMigrationGoesOnAndTheCopyBeforeItStays) {
  TestFolder folder;
  const std::string path = folder.file("m.db");
  Migrations migrations = {"CREATE TABLE a(x INTEGER) STRICT; INSERT INTO a VALUES(1);"};
  ASSERT_TRUE(open_inline({path, true, 1}, migrations).has_value());
  migrations.push_back("UPDATE a SET x = x + 10;");
  migrations.push_back("UPDATE a SET x = x + 100;");
  for (const int hit : {1, 2}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!failpoint::arm("store.migrate=kill@" + std::to_string(hit))) _exit(3);
      (void)open_inline({path, true, 1}, migrations);
      _exit(4);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << hit;
  }
  const auto value_in = [](const std::string& file, const Migrations& known) {
    auto store = open_inline({file, true, 1}, known);
    EXPECT_TRUE(store.has_value()) << store.error().to_string();
    int64_t value = -1;
    (*store)->read([&](Db& db) { value = (*db.query_one("SELECT x FROM a"))->integer(0); });
    return value;
  };
  EXPECT_EQ(value_in(path, migrations), 111);  // each step once
  EXPECT_EQ(value_in(path + ".before-v3", {migrations[0]}), 1);
}

}  // namespace
}  // namespace anychip::store
