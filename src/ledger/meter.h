// Metering: what an instance's use has cost so far, exactly, however often it is asked or posted.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/money.h"
#include "base/time.h"

namespace anychip::ledger {

// The state of one meter, small enough to be a row. The cost of a piece of time is rate × µs
// / 3.6e9; whole micro-units and the remainder are kept apart, so pieces of any length at any rates
// add up to the floor of the exact sum: no drift (rule B2), and one rounding over the whole life.
struct Meter {
  int64_t metered_us = 0;     // elapsed time already counted
  int64_t cost_micros = 0;    // floor of the exact cost
  int64_t remainder = 0;      // in 1/3.6e9 micro-units, 0 <= remainder < 3.6e9
  int64_t posted_micros = 0;  // already posted to the ledger, <= cost_micros

  int64_t unposted() const { return cost_micros - posted_micros; }
};

// Counts time up to `elapsed_us` (monotonic, since "running") at `rate`. An elapsed time that is
// not beyond what is counted changes nothing: proofs may come twice, late or out of order (B20,
// B21).
Result<Meter> advance(Meter meter, int64_t elapsed_us, RatePerHour rate);

// Marks `amount` of the unposted cost as posted. CHECK: 0 <= amount <= unposted().
Meter post(Meter meter, int64_t amount_micros);

// How long `funds` last at `rate`; rate 0 lasts for ever (INT64_MAX).
int64_t lasts_us(int64_t funds_micros, RatePerHour rate);

// A half-open piece of wall time.
struct Window {
  WallTime start, end;
};
// [start, end) cut at each full hour of the billing zone (B1); empty when end <= start.
std::vector<Window> split_at_hours(WallTime start, WallTime end);

}  // namespace anychip::ledger
