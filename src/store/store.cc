#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "store/group.h"
#include "store/migrate.h"

namespace anychip::store {
namespace {

// The log is copied back when the writer has nothing else to do, and in any case before it gets
// large.
constexpr int64_t kIdleCheckpointFrames = 1000;  // 4 MiB
constexpr int64_t kBusyCheckpointFrames = 8000;  // 32 MiB
constexpr int64_t kTruncateFrames = 65536;       // 256 MiB: readers are waited for, once
constexpr int kTruncateBusyMs = 1000;
constexpr int kBackupStepPages = 256;

class StoreImpl final : public Store {
 public:
  StoreImpl(OpenDatabase opened, std::vector<std::unique_ptr<SqliteDb>> readers)
      : opened_(std::move(opened)), readers_(std::move(readers)) {}

  ~StoreImpl() override {
    CHECK_MSG(!is_writer_thread(), "a store ended by its own writer");
    drain();
    // Readers first: the last connection to close checkpoints, and that has to be the writer's.
    {
      const std::lock_guard lock(read_mutex_);
      is_read_stopping_ = true;
    }
    read_ready_.notify_all();
    for (std::thread& thread : read_threads_) thread.join();
    {
      const std::lock_guard lock(read_mutex_);
      readers_.clear();
    }
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    ready_.notify_all();
    writer_.join();
  }

  void run() {
    writer_ = std::thread([this] { write_loop(); });
    for (const auto& reader : readers_) {
      read_threads_.emplace_back([this, db = reader.get()] { read_loop(*db); });
    }
  }

  void submit(Write write, std::function<void(Error)> failed) override {
    {
      const std::lock_guard lock(mutex_);
      if (queue_.size() < kWritesMax) {
        queue_.push_back({{std::move(write), std::move(failed)}, nullptr});
        ++submitted_;
        ready_.notify_one();
        return;
      }
    }
    if (!failed) return;
    failed(Error{Code::kResourceExhausted,
                 "store_busy",
                 "too many writes are waiting",
                 "try again in a second",
                 {}});
  }

  void read(std::function<void(Db&)> reader) override {
    reads_.fetch_add(1, std::memory_order_relaxed);
    {
      const std::lock_guard lock(read_mutex_);
      if (!readers_.empty() && !is_read_stopping_) {
        read_queue_.push_back(std::move(reader));
        read_ready_.notify_one();
        return;
      }
    }
    // In memory the one connection is the writer's; at the end the readers are gone before it.
    run_on_writer(
        [this, reader = std::move(reader)] { call_guarded("read", [&] { reader(*opened_.db); }); });
  }

  void on_commit(std::function<void()> committed) override {
    const std::lock_guard lock(mutex_);
    committed_.push_back(std::move(committed));
  }

  void drain() override {
    CHECK_MSG(!is_writer_thread(), "drain() on the writer's thread");
    std::unique_lock lock(mutex_);
    const int64_t target = submitted_;
    answered_changed_.wait(lock, [&] { return answered_ >= target; });
  }

  Status backup(const std::string& path) override {
    CHECK_MSG(!is_writer_thread(), "backup() on the writer's thread");
    auto state = std::make_shared<BackupState>();
    state->path = path;
    auto result = state->result.get_future();
    run_on_writer([this, state] { step_backup(state); });
    return result.get();
  }

  StoreCounts counts() const override {
    const std::lock_guard lock(mutex_);
    StoreCounts counts = counts_;
    counts.reads = reads_.load(std::memory_order_relaxed);
    return counts;
  }

 private:
  struct Item {
    PendingWrite write;
    std::function<void()> task;  // instead of a write: runs on the writer, outside a transaction
  };
  struct BackupState {
    std::string path;
    std::unique_ptr<Copy> copy;
    std::promise<Status> result;
  };

  bool is_writer_thread() const { return std::this_thread::get_id() == writer_.get_id(); }

  void run_on_writer(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({{}, std::move(task)});
    }
    ready_.notify_one();
  }

  // --- the writer
  // ----------------------------------------------------------------------------------
  void write_loop() {
    while (auto item = next_item()) {
      if (item->task) {
        item->task();
      } else {
        run_group(std::move(item->write));
      }
    }
  }

  // Waits; nullopt = stopping and nothing left.
  std::optional<Item> next_item() {
    std::unique_lock lock(mutex_);
    if (queue_.empty() && !is_stopping_) {
      lock.unlock();
      checkpoint_if(kIdleCheckpointFrames);
      lock.lock();
    }
    ready_.wait(lock, [this] { return !queue_.empty() || is_stopping_; });
    return pop(lock);
  }

  std::optional<Item> pop(const std::unique_lock<std::mutex>&) {
    if (queue_.empty()) return std::nullopt;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    return item;
  }

  std::optional<Item> next_write() {
    const std::unique_lock lock(mutex_);
    if (queue_.empty() || queue_.front().task) return std::nullopt;
    return pop(lock);
  }

  void run_group(PendingWrite first) {
    Group group(*opened_.db);
    group.run(std::move(first));
    size_t count = 1;
    while (count < kGroupWritesMax) {  // what arrives meanwhile joins the group
      auto item = next_write();
      if (!item) break;
      group.run(std::move(item->write));
      ++count;
    }
    const Group::Outcome outcome = group.finish();
    std::vector<std::function<void()>> committed;
    {
      const std::lock_guard lock(mutex_);
      counts_.writes += outcome.written;
      counts_.writes_failed += outcome.failed;
      counts_.commits += outcome.written > 0 ? 1 : 0;
      counts_.wal_frames = opened_.db->wal_frames();
      if (outcome.written > 0) committed = committed_;
    }
    for (const auto& callback : committed) call_guarded("committed", callback);
    {
      const std::lock_guard lock(mutex_);
      answered_ += static_cast<int64_t>(count);
    }
    answered_changed_.notify_all();
    checkpoint_if(kBusyCheckpointFrames);
  }

  void checkpoint_if(int64_t frames_min) {
    SqliteDb& db = *opened_.db;
    if (db.wal_frames() < checkpoint_base_frames_) checkpoint_base_frames_ = 0;  // begun again
    if (db.wal_frames() < frames_min + checkpoint_base_frames_) return;
    FAILPOINT_VOID("store.checkpoint");
    const bool is_huge = db.wal_frames() >= kTruncateFrames;
    if (is_huge) db.set_busy_timeout(kTruncateBusyMs);
    const Status done =
        db.checkpoint(is_huge ? SqliteDb::Checkpoint::kTruncate : SqliteDb::Checkpoint::kPassive);
    if (!done) log::warn("store.checkpoint_failed", {{"error", done.error().to_string()}});
    // A reader on an old commit holds the log up: wait for as many new frames before trying again.
    checkpoint_base_frames_ = db.wal_frames();
    const std::lock_guard lock(mutex_);
    ++counts_.checkpoints;
    counts_.wal_frames = db.wal_frames();
  }

  // A few pages at a time, so that writes come between; the copy follows them (Copy).
  void step_backup(const std::shared_ptr<BackupState>& state) {
    if (!state->copy) {
      auto begun = Copy::begin(*opened_.db, state->path);
      if (!begun) return state->result.set_value(tl::unexpected(std::move(begun).error()));
      state->copy = std::move(*begun);
    }
    const Result<bool> is_all = state->copy->step(kBackupStepPages);
    if (is_all && !*is_all) return run_on_writer([this, state] { step_backup(state); });
    Status result = is_all ? state->copy->finish() : Status(tl::unexpected(is_all.error()));
    state->copy.reset();
    state->result.set_value(std::move(result));
  }

  // --- the readers
  // -----------------------------------------------------------------------------------
  void read_loop(SqliteDb& db) {
    for (;;) {
      std::function<void(Db&)> reader;
      {
        std::unique_lock lock(read_mutex_);
        read_ready_.wait(lock, [this] { return !read_queue_.empty() || is_read_stopping_; });
        if (read_queue_.empty()) return;
        reader = std::move(read_queue_.front());
        read_queue_.pop_front();
      }
      const Status begun = db.execute("BEGIN");
      call_guarded("read", [&] { reader(db); });
      if (begun && db.is_in_transaction()) (void)db.execute("COMMIT");
    }
  }

  OpenDatabase opened_;  // used by the writer's thread only
  int64_t checkpoint_base_frames_ = 0;
  std::vector<std::unique_ptr<SqliteDb>> readers_;

  mutable std::mutex mutex_;  // guards the members down to is_stopping_
  std::condition_variable ready_, answered_changed_;
  std::deque<Item> queue_;
  int64_t submitted_ = 0, answered_ = 0;
  std::vector<std::function<void()>> committed_;
  StoreCounts counts_;
  bool is_stopping_ = false;

  std::mutex read_mutex_;
  std::condition_variable read_ready_;
  std::deque<std::function<void(Db&)>> read_queue_;
  bool is_read_stopping_ = false;
  std::atomic<int64_t> reads_{0};

  std::thread writer_;
  std::vector<std::thread> read_threads_;
};

}  // namespace

Result<std::unique_ptr<Store>> Store::open(StoreOptions options, const Migrations& migrations) {
  CHECK(options.readers > 0);
  TRY(auto opened, open_database(options, migrations));
  std::vector<std::unique_ptr<SqliteDb>> readers;
  for (int i = 0; i < options.readers && options.path != ":memory:"; ++i) {
    TRY(auto reader, SqliteDb::open(options, SqliteDb::Mode::kReader));
    readers.push_back(std::move(reader));
  }
  auto store = std::make_unique<StoreImpl>(std::move(opened), std::move(readers));
  store->run();
  return store;
}

}  // namespace anychip::store
