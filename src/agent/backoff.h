// Growing pauses with jitter, so that many agents never knock at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/rng.h"
#include "base/time.h"

namespace anychip::agent {

// After the n-th failure in a row (n from 1): first * 2^(n-1), at most `cap`, times 0.5 to 1.
inline Duration pause_after(int failures, Duration first, Duration cap, Random& random) {
  const int doublings = std::clamp(failures - 1, 0, 20);
  const int64_t full_us = std::min(cap.us, first.us << doublings);
  const int64_t half_us = full_us / 2;
  return {half_us + static_cast<int64_t>(random.below(static_cast<uint64_t>(half_us) + 1))};
}

}  // namespace anychip::agent
