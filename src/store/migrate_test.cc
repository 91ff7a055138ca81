// Proves migrations: forward with a copy of the data made before, one transaction each, a database
// of a newer program refused untouched.
#include <gtest/gtest.h>

#include "store/db.h"
#include "store/test_folder.h"

namespace anychip::store {
namespace {

const Migrations kOne = {"CREATE TABLE a(x INTEGER) STRICT; INSERT INTO a VALUES(1);"};
const Migrations kTwo = {kOne[0], "ALTER TABLE a ADD COLUMN y TEXT; UPDATE a SET y = 'two';"};

class MigrateTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Store>> open(const std::string& path, const Migrations& migrations) {
    return open_inline({path, false, 1}, migrations);
  }
  std::string query(const std::string& path, const Migrations& migrations, const char* sql) {
    auto store = open(path, migrations);
    EXPECT_TRUE(store.has_value()) << store.error().to_string();
    std::string text;
    (*store)->read([&](Db& db) {
      const auto row = db.query_one(sql);
      EXPECT_TRUE(row.has_value()) << row.error().to_string();
      if (row && *row) text = (*row)->text(0);
    });
    return text;
  }
  TestFolder folder_;
  const std::string path_ = folder_.file("m.db");
};

TEST_F(MigrateTest, GoesForwardAndKeepsACopyOfTheDataBefore) {
  EXPECT_EQ(query(path_, kOne, "SELECT group_concat(x) || '' FROM a"), "1");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".before-v1"));  // there was nothing to copy
  EXPECT_EQ(query(path_, kTwo, "SELECT y FROM a"), "two");
  EXPECT_EQ(query(path_, kTwo, "SELECT y FROM a"), "two");
  ASSERT_TRUE(std::filesystem::exists(path_ + ".before-v2"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".before-v2.2"));
  EXPECT_EQ(query(path_ + ".before-v2", kOne, "SELECT group_concat(x) || '' FROM a"), "1");
}

TEST_F(MigrateTest, AnOlderCopyIsNeverOverwritten) {
  query(path_, kOne, "SELECT 'x'");
  std::filesystem::copy_file(path_, folder_.file("old.db"));
  query(path_, kTwo, "SELECT 'x'");
  std::filesystem::copy_file(folder_.file("old.db"), path_,
                             std::filesystem::copy_options::overwrite_existing);
  query(path_, kTwo, "SELECT 'x'");
  EXPECT_TRUE(std::filesystem::exists(path_ + ".before-v2"));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".before-v2.2"));
}

TEST_F(MigrateTest, ANewerDatabaseIsRefusedUntouched) {
  query(path_, kTwo, "SELECT 'x'");
  const auto store = open(path_, kOne);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().reason, "schema_newer");
  EXPECT_FALSE(store.error().hint.empty());
  EXPECT_EQ(query(path_, kTwo, "SELECT y FROM a"), "two");
}

TEST_F(MigrateTest, AFailingMigrationLeavesTheDatabaseAsItWas) {
  query(path_, kOne, "SELECT 'x'");
  const Migrations bad = {kOne[0], "UPDATE a SET x = 7; SELECT nonsense FROM nowhere;"};
  const auto store = open(path_, bad);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().reason, "sql_error");
  EXPECT_NE(store.error().message.find("migration 2"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".before-v2"));
  EXPECT_EQ(query(path_, kOne, "SELECT group_concat(x) || '' FROM a"), "1");
}

TEST_F(MigrateTest, AFileThatIsNoDatabaseIsSaidToBeCorrupt) {
  FILE* file = fopen(path_.c_str(), "w");
  for (int i = 0; i < 2000; ++i) fputs("not a database", file);
  fclose(file);
  const auto store = open(path_, kOne);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, Code::kDataLoss);
  EXPECT_EQ(store.error().reason, "database_corrupt");
}

TEST_F(MigrateTest, AMissingFolderIsAnErrorNotACrash) {
  const auto store = open(folder_.file("nowhere/m.db"), kOne);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace anychip::store
