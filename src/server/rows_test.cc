// The schema holds exactly the fields that fleet/types.h visits, in their order, and a row comes
// back as it went in.
#include <algorithm>

#include "server/rows.h"

#include <gtest/gtest.h>

#include "server/core.h"

namespace anychip::server {
namespace {

class RowsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = store::open_inline({":memory:", false, 1}, migrations());
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    store_ = std::move(*opened);
  }
  template <class T>
  void expect_columns() {
    store_->read([](store::Db& db) {
      std::vector<std::string> in_table;
      const auto found =
          db.query("SELECT name FROM pragma_table_info(?) ORDER BY cid", rows::Table<T>::kName);
      ASSERT_TRUE(found.has_value()) << found.error().to_string();
      for (const store::Row& row : *found) in_table.push_back(row.text(0));
      EXPECT_EQ(in_table, rows::columns<T>()) << rows::Table<T>::kName;
    });
  }
  std::unique_ptr<store::Store> store_;
};

TEST_F(RowsTest, ColumnsAreTheFields) {
  expect_columns<fleet::Run>();
  expect_columns<fleet::Leg>();
  expect_columns<fleet::Instance>();
  expect_columns<fleet::Volume>();
  expect_columns<fleet::Snapshot>();
  expect_columns<fleet::Switch>();
}

TEST_F(RowsTest, ComesBackAsItWentIn) {
  fleet::Instance instance;
  instance.id = InstanceId{"ins_1"};
  instance.run = RunId{"run_1"};
  instance.node = NodeId{"nod_1"};
  instance.device_ids = {"a", "b\"c"};
  instance.desired = fleet::Desired::kStop;
  instance.phase = fleet::Phase::kRunning;
  instance.stop_cap_us = 0;
  instance.exit_code = 75;
  instance.is_oom = true;
  instance.target.price = RatePerHour{8'640'000};
  fleet::Leg leg;
  leg.id = LegId{"leg_1"};
  leg.run = RunId{"run_1"};
  leg.loss_last = 2.25;
  leg.cost = Money{-3};
  leg.sample_text = "春眠不覺曉";
  store_->submit(
      [&](store::Db& db) -> Result<std::function<void()>> {
        TRY_VOID(rows::save(db, instance));
        TRY_VOID(rows::save(db, leg));
        instance.exit_code.reset();
        TRY_VOID(rows::save(db, instance));
        return std::function<void()>([] {});
      },
      [](const Error& error) { FAIL() << error.to_string(); });
  store_->read([&](store::Db& db) {
    EXPECT_EQ(*rows::select_one<fleet::Instance>(db, "id = ?", instance.id), instance);
    EXPECT_EQ(*rows::select_one<fleet::Leg>(db, "id = ?", leg.id), leg);
  });
}

}  // namespace
}  // namespace anychip::server
