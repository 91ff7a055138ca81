#include <deque>

#include "base/check.h"
#include "store/group.h"
#include "store/migrate.h"

namespace anychip::store {
namespace {

class InlineStore final : public Store {
 public:
  explicit InlineStore(OpenDatabase opened) : opened_(std::move(opened)) {}

  void submit(Write write, std::function<void(Error)> failed) override {
    run_or_defer([this, pending = PendingWrite{std::move(write), std::move(failed)}]() mutable {
      run_write(std::move(pending));
    });
  }

  void read(std::function<void(Db&)> reader) override {
    run_or_defer([this, reader = std::move(reader)] {
      ++counts_.reads;
      call_guarded("read", [&] { reader(*opened_.db); });
    });
  }

  void on_commit(std::function<void()> committed) override {
    committed_.push_back(std::move(committed));
  }

  void drain() override { CHECK_MSG(!is_in_write_, "drain() from inside a write"); }

  Status backup(const std::string& path) override {
    CHECK_MSG(!is_in_write_, "backup() from inside a write");
    TRY(auto copy, Copy::begin(*opened_.db, path));
    TRY_VOID(copy->step(-1));
    return copy->finish();
  }

  StoreCounts counts() const override {
    StoreCounts counts = counts_;
    counts.wal_frames = opened_.db->wal_frames();
    return counts;
  }

 private:
  static constexpr int64_t kCheckpointFrames = 1000;

  // What a write itself submits runs after it: there is only one transaction at a time.
  void run_or_defer(std::function<void()> work) {
    if (is_in_write_) {
      deferred_.push_back(std::move(work));
      return;
    }
    work();
    while (!is_in_write_ && !deferred_.empty()) {
      const auto next = std::move(deferred_.front());
      deferred_.pop_front();
      next();
    }
  }

  void run_write(PendingWrite pending) {
    Group group(*opened_.db);
    is_in_write_ = true;
    group.run(std::move(pending));
    is_in_write_ = false;
    const Group::Outcome outcome = group.finish();
    counts_.writes += outcome.written;
    counts_.writes_failed += outcome.failed;
    if (outcome.written == 0) return;
    ++counts_.commits;
    if (opened_.db->wal_frames() >= kCheckpointFrames) {
      ++counts_.checkpoints;
      (void)opened_.db->checkpoint(SqliteDb::Checkpoint::kPassive);
    }
    for (size_t i = 0; i < committed_.size(); ++i) call_guarded("committed", committed_[i]);
  }

  OpenDatabase opened_;
  std::vector<std::function<void()>> committed_;
  std::deque<std::function<void()>> deferred_;
  bool is_in_write_ = false;
  StoreCounts counts_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_inline(StoreOptions options, const Migrations& migrations) {
  TRY(auto opened, open_database(options, migrations));
  return std::make_unique<InlineStore>(std::move(opened));
}

}  // namespace anychip::store
