#include "ledger/plan.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace anychip::ledger {
namespace {

__extension__ using Wide = __int128;
constexpr int64_t kHourUs = 3'600'000'000;
constexpr int64_t kDayUs = 24 * kHourUs;
constexpr int64_t kMonthHours = 30 * 24;

struct Date {
  int64_t year, month, day;  // month 1–12
};

// Proleptic Gregorian, days since 1970-01-01 (H. Hinnant, "chrono-Compatible Low-Level Date
// Algorithms": days_from_civil and civil_from_days).
int64_t days_of(Date date) {
  const int64_t year = date.month <= 2 ? date.year - 1 : date.year;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year =
      (153 * (date.month + (date.month > 2 ? -3 : 9)) + 2) / 5 + date.day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
         719468;
}

Date date_of(int64_t days) {
  days += 719468;
  const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const int64_t day_of_era = days - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted = (5 * day_of_year + 2) / 153;
  const int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
  return {year_of_era + era * 400 + (month <= 2 ? 1 : 0), month,
          day_of_year - (153 * shifted + 2) / 5 + 1};
}

int64_t days_in_month(int64_t year, int64_t month) {
  constexpr std::array<int64_t, 12> kDays{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2 && is_leap ? 29 : kDays[static_cast<size_t>(month - 1)];
}

WallTime add_months(WallTime anchor, int64_t months, Zone zone) {
  const int64_t local = anchor.us + zone.offset_hours * kHourUs;
  const int64_t time_of_day = (local % kDayUs + kDayUs) % kDayUs;
  Date date = date_of((local - time_of_day) / kDayUs);
  const int64_t index = date.year * 12 + date.month - 1 + months;
  date.year = index / 12;
  date.month = index % 12 + 1;
  date.day = std::min(date.day, days_in_month(date.year, date.month));
  return {days_of(date) * kDayUs + time_of_day - zone.offset_hours * kHourUs};
}

int64_t scaled(int64_t amount, int64_t numerator, int64_t denominator) {
  return static_cast<int64_t>(Wide{amount} * numerator / denominator);
}

}  // namespace

Result<WallTime> end_of_period(WallTime anchor, Period period, int32_t count, Zone zone) {
  if (count < 1 || count > 1200) {
    return fail(Code::kInvalidArgument, "period_count_invalid",
                "a plan runs for 1 to 1200 periods");
  }
  if (zone.offset_hours < -12 || zone.offset_hours > 14) {
    return fail(Code::kInvalidArgument, "zone_invalid",
                "a zone is -12 to +14 whole hours from UTC");
  }
  switch (period) {
    case Period::kHour: return anchor + hours(count);
    case Period::kDay: return anchor + hours(24) * count;
    case Period::kMonth: return add_months(anchor, count, zone);
  }
  CHECK_MSG(false, "period without a case");
}

int64_t upgrade_micros(int64_t old_month_micros, int64_t new_month_micros, int64_t hours_left) {
  CHECK(old_month_micros >= 0 && new_month_micros >= 0 && hours_left >= 0);
  return std::max<int64_t>(0, scaled(new_month_micros - old_month_micros, hours_left, kMonthHours));
}

int64_t downgrade_refund_micros(Prepaid paid, int64_t rest_worth_micros, int64_t new_price_micros) {
  CHECK(paid.cash_micros >= 0 && paid.voucher_micros >= 0);
  CHECK(rest_worth_micros >= 0 && new_price_micros >= 0);
  // Cash pays for what was used first, the voucher stays with the rest: never refunded.
  const int64_t refund = rest_worth_micros - new_price_micros;
  return std::clamp<int64_t>(refund, 0, paid.cash_micros);
}

int64_t cancel_refund_micros(const Cancellation& request, Zone zone) {
  if (request.now <= request.start) return request.paid.cash_micros;
  const bool is_early = request.now - request.start <= hours(24) * 5;
  if (is_early && !request.has_used_full_refund) return request.paid.cash_micros;
  int64_t months = 0;
  while (add_months(request.start, months + 1, zone) <= request.now) months += 1;
  const Duration rest = request.now - add_months(request.start, months, zone);
  const Wide used =
      Wide{request.month_micros} * months + Wide{request.hourly.micros} * rest.us / kHourUs;
  const Wide refund = Wide{request.paid.cash_micros} + request.paid.voucher_micros - used;
  return static_cast<int64_t>(std::clamp<Wide>(refund, 0, request.paid.cash_micros));
}

}  // namespace anychip::ledger
