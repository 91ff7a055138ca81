// Proves what store/db.h promises, on real files: many writes share a commit, a failing write
// leaves its neighbours alone, answers come after the commit and in order, a read sees what was
// acknowledged, a backup taken under writes is whole, and a full disk is an error that heals.
#include "store/db.h"

#include <sys/mount.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "store/test_folder.h"

namespace anychip::store {
namespace {

const Migrations kSchema = {
    "CREATE TABLE items(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body BLOB) STRICT;"
    "CREATE TABLE parts(item INTEGER NOT NULL REFERENCES items(id)) STRICT;"};

Write insert(int64_t id, const std::string& name, std::function<void()> then = {}) {
  return [=](Db& db) -> Result<std::function<void()>> {
    TRY_VOID(db.execute("INSERT INTO items(id, name) VALUES(?, ?)", id, name));
    return then;
  };
}

std::function<void(Error)> must_not_fail() {
  return [](Error error) { ADD_FAILURE() << error.to_string(); };
}

// Runs a read and waits for its value.
template <class F>
auto read_now(Store& store, F f) {
  std::promise<decltype(f(std::declval<Db&>()))> promise;
  store.read([&](Db& db) { promise.set_value(f(db)); });
  return promise.get_future().get();
}

int64_t count_items(Store& store) {
  return read_now(store, [](Db& db) {
    const auto row = db.query_one("SELECT count(*) FROM items");
    EXPECT_TRUE(row.has_value()) << row.error().to_string();
    return row ? (*row)->integer(0) : -1;
  });
}

// Holds the writer inside a write until it is released, so that what is submitted meanwhile queues
// up.
class Plug {
 public:
  explicit Plug(Store& store) {
    std::promise<void> entered;
    store.submit(
        [this, &entered](Db&) -> Result<std::function<void()>> {
          entered.set_value();
          release_.get_future().wait();
          return fail(Code::kAborted, "plug", "only holds the writer");
        },
        [](Error) {});
    entered.get_future().wait();
  }
  void release() { release_.set_value(); }

 private:
  std::promise<void> release_;
};

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(bool is_durable = false) {
    auto store = Store::open({folder_.file("test.db"), is_durable, 2}, kSchema);
    EXPECT_TRUE(store.has_value()) << store.error().to_string();
    return std::move(*store);
  }
  TestFolder folder_;
};

TEST_F(StoreTest, ManyConcurrentWritesShareFewCommits) {
  auto store = open(true);
  constexpr int kThreads = 8, kEach = 8;
  std::atomic<int> acknowledged{0};
  Plug plug(*store);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int id = t * kEach + i;
        store->submit(insert(id, std::to_string(id), [&] { ++acknowledged; }), must_not_fail());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  plug.release();
  store->drain();
  EXPECT_EQ(acknowledged, kThreads * kEach);
  EXPECT_EQ(store->counts().writes, kThreads * kEach);
  EXPECT_EQ(store->counts().commits, 1);
  EXPECT_EQ(count_items(*store), kThreads * kEach);
}

TEST_F(StoreTest, AGroupIsLimited) {
  auto store = open();
  Plug plug(*store);
  for (int i = 0; i < 1000; ++i) store->submit(insert(i, std::to_string(i)), must_not_fail());
  plug.release();
  store->drain();
  EXPECT_EQ(store->counts().commits, 4);  // 255 + 256 + 256 + 233: the plug was in the first
}

TEST_F(StoreTest, AFailingWriteIsRolledBackAlone) {
  auto store = open();
  std::vector<std::string> answers;
  Plug plug(*store);
  const auto say = [&](const char* text) { return [&answers, text] { answers.push_back(text); }; };
  store->submit(insert(1, "a", say("1")), must_not_fail());
  store->submit(
      [](Db& db) -> Result<std::function<void()>> {
        TRY_VOID(db.execute("INSERT INTO items(id, name) VALUES(2, 'b')"));
        TRY_VOID(db.execute("INSERT INTO items(id, name) VALUES(3, 'a')"));
        return nullptr;
      },
      [&](Error error) { answers.push_back(error.reason); });
  store->submit(
      [](Db& db) -> Result<std::function<void()>> {
        TRY_VOID(db.execute("INSERT INTO items(id, name) VALUES(4, 'd')"));
        throw std::runtime_error("thrown");
      },
      [&](Error error) { answers.push_back(error.reason); });
  store->submit(insert(5, "e", say("5")), must_not_fail());
  plug.release();
  store->drain();
  EXPECT_EQ(answers, (std::vector<std::string>{"1", "constraint_violated", "write_threw", "5"}));
  EXPECT_EQ(store->counts().commits, 1);
  EXPECT_EQ(store->counts().writes_failed, 3);  // with the plug
  EXPECT_EQ(read_now(*store,
                     [](Db& db) {
                       return (*db.query_one("SELECT group_concat(id) FROM items"))->text(0);
                     }),
            "1,5");
}

TEST_F(StoreTest, AFailedCommitFailsEveryWriteOfTheGroup) {
  auto store = open();
  ASSERT_TRUE(failpoint::arm("store.before_commit=error@1"));
  std::vector<std::string> answers;
  Plug plug(*store);
  for (int i = 0; i < 3; ++i) {
    store->submit(insert(i, std::to_string(i), [&] { answers.push_back("ok"); }),
                  [&](Error error) { answers.push_back(error.reason); });
  }
  plug.release();
  store->drain();
  ASSERT_TRUE(failpoint::arm(""));
  EXPECT_EQ(answers, (std::vector<std::string>(3, "failpoint")));
  EXPECT_EQ(count_items(*store), 0);
  store->submit(insert(1, "again"), must_not_fail());
  store->drain();
  EXPECT_EQ(count_items(*store), 1);
}

TEST_F(StoreTest, AReadSeesEveryAcknowledgedWrite) {
  auto owner = open();
  Store* const store = owner.get();
  std::atomic<int> wrong{0};
  std::atomic<int> done{0};
  for (int i = 1; i <= 200; ++i) {
    store->submit(insert(i, std::to_string(i),
                         [&, i] {
                           store->read([&, i](Db& db) {
                             const auto row = db.query_one("SELECT count(*) FROM items");
                             if (!row || (*row)->integer(0) < i) ++wrong;
                             ++done;
                           });
                         }),
                  must_not_fail());
  }
  owner.reset();  // also the reads that answers begin while it drains
  EXPECT_EQ(done, 200);
  EXPECT_EQ(wrong, 0);
}

TEST_F(StoreTest, OneReadSeesOneCommitAndCannotWrite) {
  auto store = open();
  store->submit(insert(1, "one"), must_not_fail());
  store->drain();
  std::promise<void> first_query, go_on;
  std::promise<std::pair<int64_t, int64_t>> counts;
  std::promise<bool> wrote;
  store->read([&](Db& db) {
    const int64_t before = (*db.query_one("SELECT count(*) FROM items"))->integer(0);
    first_query.set_value();
    go_on.get_future().wait();
    counts.set_value({before, (*db.query_one("SELECT count(*) FROM items"))->integer(0)});
    wrote.set_value(db.execute("DELETE FROM items").has_value());
  });
  first_query.get_future().wait();
  store->submit(insert(2, "two"), must_not_fail());
  store->drain();
  go_on.set_value();
  EXPECT_EQ(counts.get_future().get(), (std::pair<int64_t, int64_t>{1, 1}));
  EXPECT_FALSE(wrote.get_future().get());
  EXPECT_EQ(count_items(*store), 2);
}

TEST_F(StoreTest, OnCommitIsCalledAfterTheAnswersAndOnlyForSuccess) {
  auto store = open();
  std::vector<std::string> order;
  store->on_commit([&] { order.push_back("commit"); });
  store->submit(insert(1, "a", [&] { order.push_back("answer"); }), must_not_fail());
  store->drain();
  store->submit(insert(1, "a"), [&](Error) { order.push_back("failed"); });
  store->drain();
  EXPECT_EQ(order, (std::vector<std::string>{"answer", "commit", "failed"}));
}

TEST_F(StoreTest, ForeignKeysAndTypesAreEnforced) {
  auto store = open();
  std::vector<std::string> reasons;
  const auto run = [&](const char* sql) {
    store->submit(
        [sql](Db& db) -> Result<std::function<void()>> {
          TRY_VOID(db.execute(sql));
          return nullptr;
        },
        [&](Error error) { reasons.push_back(error.reason); });
  };
  run("INSERT INTO parts VALUES(99)");
  run("INSERT INTO items VALUES('text', 'a', NULL)");
  run("SELEC 1");
  run("SELECT 1; SELECT 2");
  run("SELECT ?");
  store->drain();
  EXPECT_EQ(reasons, (std::vector<std::string>{"constraint_violated", "sql_error", "sql_error",
                                               "sql_error", "sql_error"}));
}

TEST_F(StoreTest, ValuesComeBackAsTheyWere) {
  auto store = open();
  const Blob blob{0, 1, 255};
  const std::string text("zhōng\0文", 11);
  store->submit(
      [&](Db& db) -> Result<std::function<void()>> {
        TRY_VOID(db.execute("INSERT INTO items VALUES(?, ?, ?)", INT64_MIN, text, Value(blob)));
        EXPECT_EQ(db.changes(), 1);
        return nullptr;
      },
      must_not_fail());
  store->drain();
  read_now(*store, [&](Db& db) {
    const auto row = db.query_one("SELECT id, name, body, NULL, 1.5 FROM items");
    EXPECT_TRUE(row.has_value());
    EXPECT_EQ((*row)->integer(0), INT64_MIN);
    EXPECT_EQ((*row)->text(1), text);
    EXPECT_EQ((*row)->blob(2), blob);
    EXPECT_TRUE((*row)->is_null(3));
    EXPECT_EQ((*row)->text(3), "");
    EXPECT_EQ((*row)->real(4), 1.5);
    EXPECT_EQ((*row)->size(), 5u);
    return 0;
  });
}

TEST_F(StoreTest, ASecondOpenIsRefused) {
  auto store = open();
  const auto second = Store::open({folder_.file("test.db"), false, 1}, kSchema);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().reason, "database_in_use");
  EXPECT_NE(second.error().message.find(std::to_string(::getpid())), std::string::npos);
  store.reset();
  EXPECT_TRUE(Store::open({folder_.file("test.db"), false, 1}, kSchema).has_value());
}

TEST_F(StoreTest, TheLogIsCopiedBackAndTheFileIsPrivate) {
  auto store = open();
  const std::string body(4000, 'x');
  for (int i = 0; i < 1500; ++i) {
    store->submit(
        [i, body](Db& db) -> Result<std::function<void()>> {
          TRY_VOID(
              db.execute("INSERT INTO items(id, name) VALUES(?, ?)", i, body + std::to_string(i)));
          return nullptr;
        },
        must_not_fail());
  }
  store->drain();
  for (int i = 0; i < 1000 && store->counts().checkpoints == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(store->counts().checkpoints, 1);
  const auto mode = std::filesystem::status(folder_.file("test.db")).permissions();
  EXPECT_EQ(static_cast<unsigned>(mode) & 0777u, 0600u);
}

TEST_F(StoreTest, ABackupUnderWritesIsWhole) {
  auto store = open();
  // Every write adds one item and one part: a torn copy would have more of one than of the other.
  std::atomic<bool> stop{false};
  std::atomic<int64_t> next{1};
  std::function<void()> write_on = [&] {
    if (stop) return;
    const int64_t id = next++;
    store->submit(
        [&, id](Db& db) -> Result<std::function<void()>> {
          TRY_VOID(db.execute("INSERT INTO items VALUES(?, ?, ?)", id, std::to_string(id),
                              Value(Blob(3000, 7))));
          TRY_VOID(db.execute("INSERT INTO parts VALUES(?)", id));
          return write_on;
        },
        must_not_fail());
  };
  write_on();
  while (next < 600) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int64_t before = next - 2;
  const Status copied = store->backup(folder_.file("copy.db"));
  const int64_t after = next;
  stop = true;
  store->drain();
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_FALSE(std::filesystem::exists(folder_.file("copy.db.partial")));
  EXPECT_EQ(store->backup(folder_.file("copy.db")).error().reason, "backup_exists");
  auto copy = Store::open({folder_.file("copy.db"), false, 1}, kSchema);
  ASSERT_TRUE(copy.has_value()) << copy.error().to_string();
  const int64_t items = count_items(**copy);
  EXPECT_GE(items, before);
  EXPECT_LE(items, after);
  read_now(**copy, [&](Db& db) {
    EXPECT_EQ((*db.query_one("SELECT count(*) FROM parts"))->integer(0), items);
    EXPECT_EQ((*db.query_one("PRAGMA integrity_check"))->text(0), "ok");
    return 0;
  });
}

TEST_F(StoreTest, InMemoryReadsAndWritesShareOneConnection) {
  auto store = Store::open({":memory:", false, 2}, kSchema);
  ASSERT_TRUE(store.has_value());
  (*store)->submit(insert(1, "a"), must_not_fail());
  EXPECT_EQ(count_items(**store), 1);
}

TEST_F(StoreTest, InlineRunsAtOnceAndDefersWhatAWriteSubmits) {
  auto opened = open_inline({":memory:", false, 1}, kSchema);
  ASSERT_TRUE(opened.has_value());
  Store& store = **opened;
  std::vector<std::string> order;
  store.on_commit([&] { order.push_back("commit"); });
  store.submit(
      [&](Db& db) -> Result<std::function<void()>> {
        TRY_VOID(db.execute("INSERT INTO items(id, name) VALUES(1, 'a')"));
        store.submit(insert(2, "b", [&] { order.push_back("second"); }), must_not_fail());
        store.read([&](Db&) { order.push_back("read"); });
        return [&] {
          order.push_back("first");
          store.submit(insert(3, "c", [&] { order.push_back("third"); }), must_not_fail());
        };
      },
      must_not_fail());
  order.push_back("returned");
  EXPECT_EQ(order.front(), "first");
  EXPECT_EQ(order.back(), "returned");
  EXPECT_EQ(std::count(order.begin(), order.end(), "commit"), 3);
  EXPECT_EQ(count_items(store), 3);
  store.submit(insert(1, "again"), [&](Error error) { order.push_back(error.reason); });
  EXPECT_EQ(order.back(), "constraint_violated");
}

TEST_F(StoreTest, AFullDatabaseFailsTheGroupAndHeals) {
  auto store = open();
  const auto pragma = [&](const std::string& sql) {
    store->submit(
        [sql](Db& db) -> Result<std::function<void()>> {
          TRY_VOID(db.execute(sql));
          return nullptr;
        },
        must_not_fail());
    store->drain();
  };
  pragma("PRAGMA max_page_count=20");
  std::vector<std::string> answers;
  Plug plug(*store);
  store->submit(insert(1, "small", [&] { answers.push_back("ok"); }),
                [&](Error error) { answers.push_back(error.reason); });
  store->submit(
      [](Db& db) -> Result<std::function<void()>> {
        TRY_VOID(db.execute("INSERT INTO items VALUES(2, 'big', ?)", Value(Blob(1 << 20, 1))));
        return nullptr;
      },
      [&](Error error) { answers.push_back(error.reason); });
  plug.release();
  store->drain();
  // SQLite gives up the statement, or the whole transaction: either way nobody was told a lie.
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1], "disk_full");
  EXPECT_EQ(count_items(*store), answers[0] == "ok" ? 1 : 0);
  pragma("PRAGMA max_page_count=100000");
  store->submit(insert(3, "after"), must_not_fail());
  store->drain();
  EXPECT_EQ(count_items(*store), answers[0] == "ok" ? 2 : 1);
}

TEST_F(StoreTest, AFullDiskIsAnErrorAndFreeingItHeals) {
  const std::string disk = folder_.file("disk");
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "a small disk needs the right to mount";
  }
  {
    auto store = Store::open({disk + "/test.db", true, 1}, kSchema);
    ASSERT_TRUE(store.has_value());
    std::atomic<int> written{0};
    std::string reason;
    const auto fill = [&](int id) {
      (*store)->submit(
          [&, id](Db& db) -> Result<std::function<void()>> {
            TRY_VOID(db.execute("INSERT INTO items VALUES(?, ?, ?)", id, std::to_string(id),
                                Value(Blob(200'000, 1))));
            return [&] { ++written; };
          },
          [&](Error error) { reason = error.reason; });
      (*store)->drain();
    };
    for (int id = 1; id <= 20 && reason.empty(); ++id) fill(id);
    EXPECT_EQ(reason, "disk_full");
    EXPECT_GE(written, 1);
    EXPECT_EQ(count_items(**store), written);
    EXPECT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0);
    const int before = written;
    fill(100);
    EXPECT_EQ(written, before + 1);
    EXPECT_EQ(count_items(**store), written);
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

}  // namespace
}  // namespace anychip::store
