// Prepaid plans: by hour, day, month; what a change in the middle costs or gives back. Dates are
// cut in one fixed-offset zone (design §3; default +08:00: no daylight saving, no two zones that
// disagree).
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/money.h"
#include "base/time.h"

namespace anychip::ledger {

enum class Period : uint8_t { kHour, kDay, kMonth };

struct Zone {
  int32_t offset_hours = 8;  // -12..14
};

// The end of the `count`-th period (>= 1) that begins at `anchor`. Months keep the anchor's day and
// clamp to short months without forgetting it: 31 Jan → 28/29 Feb → 31 Mar (B17).
Result<WallTime> end_of_period(WallTime anchor, Period period, int32_t count, Zone zone);

// Extra for the rest of a month at a dearer monthly price, `hours_left` of 30 × 24 (B12); >= 0.
int64_t upgrade_micros(int64_t old_month_micros, int64_t new_month_micros, int64_t hours_left);

// What a cheaper plan gives back: worth of the rest less its new price, the cash part alone (B13).
struct Prepaid {
  int64_t cash_micros = 0, voucher_micros = 0;  // what was paid
};
int64_t downgrade_refund_micros(Prepaid paid, int64_t rest_worth_micros, int64_t new_price_micros);

// Cancelling a plan of months (B15): full refund within 5 days once per person; else paid less
// whole months used and the rest at the pay-as-you-go price; only cash, never below 0.
struct Cancellation {
  Prepaid paid;
  int64_t month_micros = 0;  // price of one month of the plan
  RatePerHour hourly;        // pay-as-you-go
  WallTime start, now;
  bool has_used_full_refund = false;
};
int64_t cancel_refund_micros(const Cancellation& request, Zone zone);

}  // namespace anychip::ledger
