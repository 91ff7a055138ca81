#include "ledger/plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/civil.h"

namespace anychip::ledger {
namespace {

__extension__ using Wide = __int128;
constexpr int64_t kHourUs = 3'600'000'000;
constexpr int64_t kDayUs = 24 * kHourUs;
constexpr int64_t kMonthHours = 30 * 24;

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
