// Money: int64 micro-yuan (1 yuan = 1,000,000), checked arithmetic, no floating point.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/time.h"

namespace anychip {

struct Money {
  int64_t micros = 0;
  friend constexpr auto operator<=>(Money, Money) = default;
};

// Sum or difference; an overflow is an error, never a wrong sign.
Result<Money> add(Money a, Money b);
Result<Money> subtract(Money a, Money b);

struct RatePerHour {
  int64_t micros = 0;  // >= 0
  friend constexpr auto operator<=>(RatePerHour, RatePerHour) = default;
};

// What an interval has cost so far: floor(rate per hour × elapsed µs / 3.6e9), cumulatively
// (design §5). Posting the difference to what is posted already never drifts, however often it is
// posted. Precondition (CHECK): rate >= 0, elapsed >= 0. Saturation is an error.
Result<Money> cost_of(RatePerHour rate, Duration elapsed);

std::string format_yuan(Money money);  // "¥0.012345", "-¥3.00": at least two, at most six decimals

}  // namespace anychip
