#include "cost/price.h"

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace anychip::cost {
namespace {

TEST(Price, OneHourCostsItsPriceAndParts) {
  EXPECT_EQ(leg_cost({{8'520'000}, 1, hours(1)})->micros, 8'520'000);
  EXPECT_EQ(leg_cost({{8'520'000}, 2, minutes(30)})->micros, 8'520'000);
  EXPECT_EQ(leg_cost({{8'520'000}, 1, seconds(1)})->micros, 2'366);  // 2366.67 is floored
  EXPECT_EQ(leg_cost({{8'520'000}, 0, hours(1)})->micros, 0);
}

// Three chips are floored once, not three times.
TEST(Price, CountIsMultipliedBeforeTheFloor) {
  EXPECT_EQ(leg_cost({{1'000'000}, 3, microseconds(1'200)})->micros, 1);
  EXPECT_EQ(leg_cost({{1'000'000}, 1, microseconds(1'200)})->micros, 0);
}

TEST(Price, VoidedLegsCostNothingButAreChecked) {
  EXPECT_EQ(leg_cost({{8'520'000}, 1, hours(1), true})->micros, 0);
  EXPECT_EQ(leg_cost({{8'520'000}, -1, hours(1), true}).error().reason, "price_invalid");
}

TEST(Price, TotalAndBurnAreSums) {
  const std::vector<LegUse> legs = {{{120'000}, 4, minutes(15)},
                                    {{8'520'000}, 1, minutes(10)},
                                    {{6'000'000}, 1, minutes(10), true}};
  EXPECT_EQ(total_cost(legs)->micros, 120'000 + 1'420'000);
  EXPECT_EQ(burn_rate(legs)->micros, 480'000 + 8'520'000 + 6'000'000);
  EXPECT_EQ(total_cost({})->micros, 0);
  EXPECT_EQ(burn_rate({})->micros, 0);
}

TEST(Price, WrongValuesAreErrors) {
  EXPECT_EQ(leg_cost({{-1}, 1, hours(1)}).error().reason, "price_invalid");
  EXPECT_EQ(leg_cost({{1}, 1, microseconds(-1)}).error().reason, "time_invalid");
  EXPECT_EQ(rate_of({INT64_MAX}, 2).error().reason, "money_overflow");
  EXPECT_EQ(leg_cost({{INT64_MAX}, 1, hours(2)}).error().reason, "money_overflow");
  const std::vector<LegUse> two = {{{INT64_MAX}, 1, hours(1)}, {{INT64_MAX}, 1, hours(1)}};
  EXPECT_EQ(total_cost(two).error().reason, "money_overflow");
  EXPECT_EQ(burn_rate(two).error().reason, "money_overflow");
}

TEST(Price, LastsUntil) {
  EXPECT_EQ(lasts({10'000'000}, {0}), std::nullopt);
  EXPECT_EQ(lasts({-1}, {1})->us, 0);
  EXPECT_EQ(lasts_until({1'000}, {10'000'000}, {10'000'000})->us / 1'000'000, 3'600);
  EXPECT_EQ(lasts_until({0}, {INT64_MAX}, {1}), std::nullopt);
  EXPECT_EQ(lasts({INT64_MAX}, {1})->us, INT64_MAX);
}

// The answer is exact: covered at that moment, not covered a microsecond later.
RC_GTEST_PROP(PriceModel, LastsIsTheLastCoveredMicrosecond, ()) {
  const Money balance{*rc::gen::inRange<int64_t>(0, 1'000'000'000)};
  const RatePerHour burn{*rc::gen::inRange<int64_t>(1, 500'000'000'000)};
  const std::optional<Duration> left = lasts(balance, burn);
  RC_ASSERT(left.has_value());
  RC_ASSERT(cost_of(burn, *left)->micros <= balance.micros);
  RC_ASSERT(cost_of(burn, *left + microseconds(1))->micros > balance.micros);
}

// Cutting a leg's time anywhere and adding the differences gives the same sum: no drift.
RC_GTEST_PROP(PriceModel, CumulativeCostNeverDrifts, ()) {
  const RatePerHour price{*rc::gen::inRange<int64_t>(0, 100'000'000)};
  const int64_t count = *rc::gen::inRange<int64_t>(0, 64);
  int64_t at_us = 0, posted = 0;
  for (int i = *rc::gen::inRange(1, 30); i > 0; --i) {
    at_us += *rc::gen::inRange<int64_t>(0, 7'200'000'000);
    const int64_t so_far = leg_cost({price, count, {at_us}})->micros;
    RC_ASSERT(so_far >= posted);
    posted += so_far - posted;
  }
  RC_ASSERT(posted == leg_cost({price, count, {at_us}})->micros);
}

}  // namespace
}  // namespace anychip::cost
