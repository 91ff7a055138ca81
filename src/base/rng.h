// Randomness, injected everywhere it is used. SecureRandom reads the kernel; SeededRandom is
// deterministic (SplitMix64, S. Vigna) for tests and the simulator. Not thread-safe: one per owner.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace anychip {

class Random {
 public:
  virtual ~Random() = default;
  virtual void fill(std::span<uint8_t> bytes) = 0;
  uint64_t next_u64();
  uint64_t below(uint64_t bound);  // uniform in [0, bound); bound > 0 (CHECK)
  bool chance(uint32_t percent) { return below(100) < percent; }
};

class SecureRandom final : public Random {  // thread-safe: getrandom(2)
 public:
  void fill(std::span<uint8_t> bytes) override;
};

class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}
  void fill(std::span<uint8_t> bytes) override;

 private:
  uint64_t state_;
};

}  // namespace anychip
