// What legs cost: price per chip-hour x count x metered time, by the integer rule of base/money.h.
// Pure. Floored once per leg at its whole rate, so three chips cost what one line at three times
// the price would, and never a micro-yuan more than time x price.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/money.h"
#include "base/time.h"

namespace anychip::cost {

// What `count` chips cost per hour. count < 0 or a negative price: kInvalidArgument
// "price_invalid"; too much for 64 bits: "money_overflow".
Result<RatePerHour> rate_of(RatePerHour per_chip, int64_t count);

struct LegUse {
  RatePerHour per_chip;
  int64_t count = 1;
  Duration metered;        // a negative one is kInvalidArgument "time_invalid"
  bool is_voided = false;  // costs nothing (a target that never reached its first step)
};

Result<Money> leg_cost(const LegUse& leg);
Result<Money> total_cost(std::span<const LegUse> legs);

// What all of them together cost per hour right now; voided ones count, they still burn until they
// are voided.
Result<RatePerHour> burn_rate(std::span<const LegUse> running);

// The longest time whose cost is still covered by `balance`: one microsecond more costs a
// micro-yuan too much. nullopt = for ever (nothing burns). Zero when the balance is negative.
std::optional<Duration> lasts(Money balance, RatePerHour burn);
// The same as a moment; nullopt also when it lies beyond what a date can say.
std::optional<WallTime> lasts_until(WallTime now, Money balance, RatePerHour burn);

}  // namespace anychip::cost
