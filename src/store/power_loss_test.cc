// Proves durability against a power cut, which kill -9 cannot (the page cache survives that): while
// writes run, the disk's state is taken at random moments with unsynced bytes dropped or torn.
// Every write acknowledged before the moment is there, every write is whole, and the same harness
// does catch a store that does not sync.
#include <atomic>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "store/db.h"
#include "store/test_disk.h"
#include "store/test_folder.h"

namespace anychip::store {
namespace {

const Migrations kSchema = {
    "CREATE TABLE items(id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;"
    "CREATE TABLE halves(item INTEGER PRIMARY KEY) STRICT;"};

struct Cut {
  int64_t acknowledged = 0;  // ids 1..N were acknowledged before the power went
  std::unique_ptr<TestFolder> folder;
};

// Writes until `cuts` states of the disk are taken.
std::vector<Cut> cut_power_under_writes(bool is_durable, int cuts, uint64_t seed) {
  TestFolder folder;
  TestDisk disk;
  SeededRandom random(seed);
  std::vector<Cut> taken;
  std::atomic<bool> stop{false};
  std::atomic<int64_t> acknowledged{0};
  auto store = Store::open({folder.file("p.db"), is_durable, 1}, kSchema);
  EXPECT_TRUE(store.has_value()) << store.error().to_string();
  std::thread writer([&] {
    for (int64_t id = 1; !stop; ++id) {
      (*store)->submit(
          [id](Db& db) -> Result<std::function<void()>> {
            TRY_VOID(db.execute("INSERT INTO items VALUES(?, ?)", id, Value(Blob(5000, 1))));
            TRY_VOID(db.execute("INSERT INTO halves VALUES(?)", id));
            return nullptr;
          },
          [](Error error) { ADD_FAILURE() << error.to_string(); });
      // The answer counts at the latest here; pauses let the writer checkpoint.
      if (id % 5 == 0) (*store)->drain(), acknowledged = id;
      if (id % 300 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (int i = 0; i < cuts; ++i) {
    // By progress and not by time: as much is written on a slow machine as on a fast one.
    const int64_t moment = acknowledged + static_cast<int64_t>(20 + random.below(200));
    while (acknowledged < moment) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
    Cut cut;
    cut.acknowledged = acknowledged;
    cut.folder = std::make_unique<TestFolder>();
    disk.lose_power(cut.folder->path(), random);
    taken.push_back(std::move(cut));
  }
  stop = true;
  writer.join();
  EXPECT_GE((*store)->counts().checkpoints, 1);
  store->reset();
  return taken;
}

struct Found {
  std::set<int64_t> items, halves;
  std::string integrity = "not opened";
};

Found look_into(const Cut& cut) {
  Found found;
  auto store = open_inline({cut.folder->file("p.db"), false, 1}, kSchema);
  if (!store) {
    found.integrity = store.error().to_string();
    return found;
  }
  (*store)->read([&](Db& db) {
    const auto check = db.query_one("PRAGMA integrity_check");
    found.integrity = check ? (*check)->text(0) : check.error().to_string();
    const auto items = db.query("SELECT id FROM items");
    const auto halves = db.query("SELECT item FROM halves");
    if (!items || !halves) return;
    for (const Row& row : *items) found.items.insert(row.integer(0));
    for (const Row& row : *halves) found.halves.insert(row.integer(0));
  });
  return found;
}

TEST(StorePowerLoss, EveryAcknowledgedWriteSurvivesAndNoneIsHalf) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const auto cuts = cut_power_under_writes(true, 12, seed);
    EXPECT_GT(cuts.back().acknowledged, 100);
    for (const Cut& cut : cuts) {
      const Found found = look_into(cut);
      EXPECT_EQ(found.integrity, "ok");
      EXPECT_EQ(found.items, found.halves);
      // Ids are written in order: the last one says that all before it are there.
      ASSERT_GE(static_cast<int64_t>(found.items.size()), cut.acknowledged) << "seed " << seed;
      if (!found.items.empty()) {
        EXPECT_EQ(*found.items.rbegin(), static_cast<int64_t>(found.items.size()));
      }
    }
  }
}

TEST(StorePowerLoss, TheHarnessCatchesAStoreThatDoesNotSync) {
  int lost = 0;
  for (const Cut& cut : cut_power_under_writes(false, 12, 3)) {
    const Found found = look_into(cut);
    const bool has_all = static_cast<int64_t>(found.items.size()) >= cut.acknowledged;
    lost += found.integrity != "ok" || !has_all ? 1 : 0;
  }
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace anychip::store
