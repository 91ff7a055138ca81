#include "ledger/meter.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace anychip::ledger {
namespace {

__extension__ using Wide = __int128;
constexpr int64_t kHourUs = 3'600'000'000;

}  // namespace

Result<Meter> advance(Meter meter, int64_t elapsed_us, RatePerHour rate) {
  CHECK(rate.micros >= 0);
  CHECK(meter.remainder >= 0 && meter.remainder < kHourUs);
  if (elapsed_us <= meter.metered_us) return meter;
  const Wide piece = Wide{rate.micros} * (elapsed_us - meter.metered_us) + meter.remainder;
  const Wide cost = Wide{meter.cost_micros} + piece / kHourUs;
  if (cost > std::numeric_limits<int64_t>::max()) {
    return fail(Code::kOutOfRange, "money_overflow", "the cost does not fit in 64-bit micro-units");
  }
  meter.cost_micros = static_cast<int64_t>(cost);
  meter.remainder = static_cast<int64_t>(piece % kHourUs);
  meter.metered_us = elapsed_us;
  CHECK(meter.posted_micros <= meter.cost_micros);
  return meter;
}

Meter post(Meter meter, int64_t amount_micros) {
  CHECK(amount_micros >= 0 && amount_micros <= meter.unposted());
  meter.posted_micros += amount_micros;
  return meter;
}

int64_t lasts_us(int64_t funds_micros, RatePerHour rate) {
  if (rate.micros == 0) return std::numeric_limits<int64_t>::max();
  const Wide us = Wide{std::max<int64_t>(funds_micros, 0)} * kHourUs / rate.micros;
  return static_cast<int64_t>(std::min<Wide>(us, std::numeric_limits<int64_t>::max()));
}

std::vector<Window> split_at_hours(WallTime start, WallTime end) {
  std::vector<Window> windows;
  while (start < end) {
    // Billing zones are whole hours from UTC (plan.h), so full hours fall together.
    const int64_t into = (start.us % kHourUs + kHourUs) % kHourUs;
    const WallTime next{std::min(end.us, start.us - into + kHourUs)};
    windows.push_back({start, next});
    start = next;
  }
  return windows;
}

}  // namespace anychip::ledger
