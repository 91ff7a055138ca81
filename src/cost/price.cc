#include "cost/price.h"

#include <limits>

#include <fmt/format.h>

namespace anychip::cost {
namespace {

constexpr int64_t kMicrosecondsPerHour = 3'600'000'000;

tl::unexpected<Error> overflow() {
  return fail(Code::kOutOfRange, "money_overflow", "the amount does not fit in 64-bit micro-yuan");
}

}  // namespace

Result<RatePerHour> rate_of(RatePerHour per_chip, int64_t count) {
  if (per_chip.micros < 0 || count < 0) {
    return fail(
        Code::kInvalidArgument, "price_invalid",
        fmt::format("{} chips at {} micro-yuan an hour is no price", count, per_chip.micros));
  }
  RatePerHour rate;
  if (__builtin_mul_overflow(per_chip.micros, count, &rate.micros)) return overflow();
  return rate;
}

Result<Money> leg_cost(const LegUse& leg) {
  if (leg.metered.us < 0) {
    return fail(Code::kInvalidArgument, "time_invalid",
                fmt::format("a leg cannot have run for {} microseconds", leg.metered.us));
  }
  TRY(const RatePerHour rate, rate_of(leg.per_chip, leg.count));
  if (leg.is_voided) return Money{0};
  return cost_of(rate, leg.metered);
}

Result<Money> total_cost(std::span<const LegUse> legs) {
  Money total;
  for (const LegUse& leg : legs) {
    TRY(const Money cost, leg_cost(leg));
    TRY(total, add(total, cost));
  }
  return total;
}

Result<RatePerHour> burn_rate(std::span<const LegUse> running) {
  RatePerHour sum;
  for (const LegUse& leg : running) {
    TRY(const RatePerHour rate, rate_of(leg.per_chip, leg.count));
    if (__builtin_add_overflow(sum.micros, rate.micros, &sum.micros)) return overflow();
  }
  return sum;
}

std::optional<Duration> lasts(Money balance, RatePerHour burn) {
  if (burn.micros <= 0) return std::nullopt;
  if (balance.micros < 0) return Duration{0};
  // cost = floor(rate * us / hour) <= balance  <=>  rate * us < (balance + 1) * hour
  __extension__ using Wide = __int128;
  const Wide us =
      ((static_cast<Wide>(balance.micros) + 1) * kMicrosecondsPerHour - 1) / burn.micros;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return Duration{us > kMax ? kMax : static_cast<int64_t>(us)};
}

std::optional<WallTime> lasts_until(WallTime now, Money balance, RatePerHour burn) {
  constexpr int64_t kLastMomentUs = 253'402'300'799'999'999;  // the end of the year 9999
  const std::optional<Duration> left = lasts(balance, burn);
  if (!left || left->us > kLastMomentUs - now.us) return std::nullopt;
  return now + *left;
}

}  // namespace anychip::cost
