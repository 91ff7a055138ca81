#include "base/money.h"

#include <limits>

#include <fmt/format.h>

#include "base/check.h"

namespace anychip {
namespace {

tl::unexpected<Error> overflow() {
  return fail(Code::kOutOfRange, "money_overflow", "the amount does not fit in 64-bit micro-yuan");
}

}  // namespace

Result<Money> add(Money a, Money b) {
  Money sum;
  if (__builtin_add_overflow(a.micros, b.micros, &sum.micros)) return overflow();
  return sum;
}

Result<Money> subtract(Money a, Money b) {
  Money difference;
  if (__builtin_sub_overflow(a.micros, b.micros, &difference.micros)) return overflow();
  return difference;
}

Result<Money> cost_of(RatePerHour rate, Duration elapsed) {
  CHECK(rate.micros >= 0);
  CHECK(elapsed.us >= 0);
  __extension__ using Wide = __int128;
  const Wide cost = static_cast<Wide>(rate.micros) * elapsed.us / 3'600'000'000LL;
  if (cost > std::numeric_limits<int64_t>::max()) return overflow();
  return Money{static_cast<int64_t>(cost)};
}

std::string format_yuan(Money money) {
  const bool negative = money.micros < 0;
  const uint64_t magnitude =
      negative ? 0 - static_cast<uint64_t>(money.micros) : static_cast<uint64_t>(money.micros);
  std::string text =
      fmt::format("{}¥{}.{:06}", negative ? "-" : "", magnitude / 1'000'000, magnitude % 1'000'000);
  for (int dropped = 0; dropped < 4 && text.back() == '0'; ++dropped) text.pop_back();
  return text;
}

}  // namespace anychip
