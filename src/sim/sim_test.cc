// Seeds of the simulator. A broken seed is repeated with: anychip-sim --seed N --verbose
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/log.h"
#include "sim/setting.h"

namespace anychip::sim {
namespace {

// Seeds that once found a bug, each with what it was, stay here for good.
constexpr uint64_t kRegressions[] = {1};
constexpr uint64_t kFirstSeed = 1000;
constexpr uint64_t kSeeds = 60;

// ANYCHIP_SIM_SEEDS: fewer under a sanitizer, thousands in `make sim-long`.
uint64_t seed_count() {
  const char* wanted = std::getenv("ANYCHIP_SIM_SEEDS");
  const long count = wanted == nullptr ? 0 : std::strtol(wanted, nullptr, 10);
  return count > 0 ? static_cast<uint64_t>(count) : kSeeds;
}

class SimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(static_cast<log::Level>(4));  // what goes wrong here is wanted
    auto created = Setting::create(ANYCHIP_SOURCE_DIR);
    ASSERT_TRUE(created) << created.error().to_string();
    setting_ = std::move(*created);
  }
  void holds(const Options& options) {
    const Outcome outcome = simulate(options);
    for (const std::string& what : outcome.violations) {
      ADD_FAILURE() << "seed " << options.seed << ":" << outcome.faults << ": " << what;
    }
  }
  std::unique_ptr<Setting> setting_;
};

TEST_F(SimTest, WithoutFaultsEveryRunFinishes) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Options options = setting_->options(seed);
    options.is_faultless = true;
    const Outcome outcome = simulate(options);
    EXPECT_TRUE(outcome.violations.empty()) << seed << ": " << outcome.violations.front();
    EXPECT_GT(outcome.runs, 0);
    EXPECT_FALSE(outcome.run_states.contains("failed")) << "seed " << seed;
  }
}

TEST_F(SimTest, TheSameSeedTwiceIsTheSameStory) {
  for (uint64_t seed = 7; seed < 10; ++seed) {
    const Outcome first = simulate(setting_->options(seed));
    const Outcome second = simulate(setting_->options(seed));
    EXPECT_EQ(first.hash, second.hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_NE(first.hash, simulate(setting_->options(seed + 100)).hash);
  }
}

TEST_F(SimTest, TheChecksNoticeAWrongWorld) {
  const std::pair<Planted, std::string> cases[] = {
      {Planted::kLogSkipsAByte, "its log has"},
      {Planted::kLateEnd, "is billed"},
      {Planted::kNoCheckpointOnTerm, "the next resumed after"},
      {Planted::kNoIdempotencyKey, "the same key gave another answer"}};
  for (const auto& [planted, words] : cases) {
    bool is_noticed = false;
    for (uint64_t seed = 1; seed < 30 && !is_noticed; ++seed) {
      Options options = setting_->options(seed);
      options.is_faultless = true;
      options.planted = planted;
      for (const std::string& what : simulate(options).violations) {
        is_noticed = is_noticed || what.find(words) != std::string::npos;
      }
    }
    EXPECT_TRUE(is_noticed) << words;
  }
}

TEST_F(SimTest, SeedsThatFoundBugsHold) {
  for (const uint64_t seed : kRegressions) holds(setting_->options(seed));
}

TEST_F(SimTest, NewSeedsHold) {
  const uint64_t end = kFirstSeed + seed_count();
  for (uint64_t seed = kFirstSeed; seed < end; ++seed) holds(setting_->options(seed));
}

}  // namespace
}  // namespace anychip::sim
