// Rules B1, B2, B5, B12, B13, B15, B17, B18, B20, B21 of the billing research, each test named
// after its rule.
#include "ledger/meter.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "ledger/plan.h"

namespace anychip::ledger {
namespace {

constexpr int64_t kYuan = 1'000'000;
constexpr int64_t kSecond = 1'000'000;

WallTime at(std::string_view text) { return parse_rfc3339(text).value(); }

TEST(Rules, B1_PerSecondSettledAtEachFullHour) {
  const auto windows = split_at_hours(at("2026-11-30T10:59:30Z"), at("2026-11-30T12:50:30Z"));
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ((windows[0].end - windows[0].start).us, 30 * kSecond);
  EXPECT_EQ((windows[1].end - windows[1].start).us, 3600 * kSecond);
  EXPECT_EQ((windows[2].end - windows[2].start).us, 3030 * kSecond);
  EXPECT_TRUE(split_at_hours(at("2026-11-30T10:00:00Z"), at("2026-11-30T10:00:00Z")).empty());
}

TEST(Rules, B2_OneSecondRowsSumToTheHour) {
  Meter meter;
  int64_t posted = 0;
  for (int64_t second = 1; second <= 3600; ++second) {
    meter = advance(meter, second * kSecond, RatePerHour{1'980'000}).value();
    posted += meter.unposted();
    meter = post(meter, meter.unposted());
  }
  EXPECT_EQ(posted, 1'980'000);
}

TEST(Rules, B2_AnyCutsOfAnyRateGiveTheFloorOfTheExactSum) {
  SeededRandom random(11);
  for (int round = 0; round < 300; ++round) {
    const RatePerHour rate{static_cast<int64_t>(random.below(40 * kYuan))};
    const int64_t end_us = static_cast<int64_t>(random.below(40'000'000'000));
    Meter meter;
    while (meter.metered_us < end_us) {
      const int64_t next = meter.metered_us + 1 + static_cast<int64_t>(random.below(3'000'000'000));
      meter = advance(meter, std::min(next, end_us), rate).value();
    }
    EXPECT_EQ(meter.cost_micros, cost_of(rate, microseconds(end_us))->micros);
  }
}

TEST(Rules, B5_HowLongTheFundsLast) {
  EXPECT_EQ(lasts_us(10'000, RatePerHour{1'980'000}) / 100'000, 181);  // 18.1 s
  EXPECT_EQ(lasts_us(-5, RatePerHour{1}), 0);
  EXPECT_EQ(lasts_us(5, RatePerHour{0}), INT64_MAX);
}

TEST(Rules, B12_UpgradeOfAMonth) {
  EXPECT_EQ(upgrade_micros(7'200 * kYuan, 14'400 * kYuan, 1'200), 12'000 * kYuan);
}

TEST(Rules, B13_DowngradeGivesBackCashOnly) {
  const Prepaid paid{3'000 * kYuan, 500 * kYuan};
  EXPECT_EQ(downgrade_refund_micros(paid, 1'000 * kYuan, 800 * kYuan), 200 * kYuan);
  EXPECT_EQ(downgrade_refund_micros(paid, 500 * kYuan, 800 * kYuan), 0);
  EXPECT_EQ(downgrade_refund_micros({100 * kYuan, 900 * kYuan}, 1'000 * kYuan, 0), 100 * kYuan);
}

TEST(Rules, B15_CancelAfterFortyDays) {
  Cancellation request;
  request.paid = {3'000 * kYuan, 0};
  request.month_micros = 1'000 * kYuan;
  request.hourly = {2 * kYuan};
  request.start = at("2026-09-01T00:00:00Z");
  request.now = request.start + hours(24) * 40;  // a month of 30 days and 10 days by the hour
  EXPECT_EQ(cancel_refund_micros(request, Zone{}), (3'000 - 1'000 - 480) * kYuan);
  request.now = request.start + hours(24) * 5;
  EXPECT_EQ(cancel_refund_micros(request, Zone{}), 3'000 * kYuan);
  request.has_used_full_refund = true;
  EXPECT_EQ(cancel_refund_micros(request, Zone{}), (3'000 - 240) * kYuan);
  request.now = request.start + hours(24) * 900;
  EXPECT_EQ(cancel_refund_micros(request, Zone{}), 0);
}

TEST(Rules, B17_TheAnchorDayIsKept) {
  const WallTime anchor = at("2027-01-31T04:00:00Z");  // noon in +08:00
  EXPECT_EQ(end_of_period(anchor, Period::kMonth, 1, Zone{})->rfc3339(),
            "2027-02-28T04:00:00.000000Z");
  EXPECT_EQ(end_of_period(anchor, Period::kMonth, 2, Zone{})->rfc3339(),
            "2027-03-31T04:00:00.000000Z");
  EXPECT_EQ(end_of_period(anchor, Period::kMonth, 13, Zone{})->rfc3339(),
            "2028-02-29T04:00:00.000000Z");
  // Late in the evening UTC it is the next day here: the zone decides which month it is.
  EXPECT_EQ(end_of_period(at("2027-01-30T20:00:00Z"), Period::kMonth, 1, Zone{})->rfc3339(),
            "2027-02-27T20:00:00.000000Z");
}

TEST(Rules, B17_TenYearsOfMonthsNeverOverlapOrLeaveAGap) {
  for (int64_t day = 0; day < 366; ++day) {
    const WallTime anchor = at("2027-01-01T15:59:59Z") + hours(24) * day;
    WallTime last = anchor;
    for (int32_t month = 1; month <= 120; ++month) {
      const WallTime end = end_of_period(anchor, Period::kMonth, month, Zone{}).value();
      ASSERT_GE((end - last).us, hours(24).us * 28) << end.rfc3339();
      ASSERT_LE((end - last).us, hours(24).us * 31);
      last = end;
    }
  }
}

TEST(Rules, B17_BadPeriods) {
  EXPECT_EQ(end_of_period({}, Period::kDay, 0, Zone{}).error().reason, "period_count_invalid");
  EXPECT_EQ(end_of_period({}, Period::kDay, 1, Zone{15}).error().reason, "zone_invalid");
}

TEST(Rules, B18_APriceChangeNeverTouchesSecondsAlreadyMetered) {
  Meter meter = advance({}, 1'800 * kSecond, RatePerHour{2 * kYuan}).value();
  EXPECT_EQ(meter.cost_micros, kYuan);
  meter = advance(meter, 3'600 * kSecond, RatePerHour{4 * kYuan}).value();
  EXPECT_EQ(meter.cost_micros, 3 * kYuan);
}

TEST(Rules, B20_B21_ProofsTwiceLateOrOutOfOrderCountOnce) {
  Meter meter = advance({}, 100 * kSecond, RatePerHour{kYuan}).value();
  const Meter again = advance(advance(meter, 40 * kSecond, RatePerHour{kYuan}).value(),
                              100 * kSecond, RatePerHour{kYuan})
                          .value();
  EXPECT_EQ(again.cost_micros, meter.cost_micros);
  EXPECT_EQ(again.remainder, meter.remainder);
}

TEST(Meter, TooMuchIsAnError) {
  EXPECT_EQ(advance({}, INT64_MAX, RatePerHour{INT64_MAX}).error().reason, "money_overflow");
}

}  // namespace
}  // namespace anychip::ledger
