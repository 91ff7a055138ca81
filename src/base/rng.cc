#include "base/rng.h"

#include <sys/random.h>

#include <cstring>

#include "base/check.h"

namespace anychip {

uint64_t Random::next_u64() {
  std::array<uint8_t, 8> bytes{};
  fill(bytes);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

uint64_t Random::below(uint64_t bound) {
  CHECK(bound > 0);
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;  // rejection keeps it unbiased
  uint64_t value = next_u64();
  while (value >= limit) value = next_u64();
  return value % bound;
}

void SecureRandom::fill(std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = getrandom(bytes.data() + done, bytes.size() - done, 0);
    CHECK_MSG(got > 0, "getrandom failed");
    done += static_cast<size_t>(got);
  }
}

void SeededRandom::fill(std::span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
    const size_t count = bytes.size() - i < 8 ? bytes.size() - i : 8;
    std::memcpy(bytes.data() + i, &z, count);
  }
}

}  // namespace anychip
