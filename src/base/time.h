// Time. Stored time is int64 µs since the Unix epoch, UTC (WallTime); durations come from one
// monotonic clock (MonoTime). The two kinds do not mix: the compiler refuses wall - mono.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anychip {

struct Duration {
  int64_t us = 0;
  friend constexpr auto operator<=>(Duration, Duration) = default;
  friend constexpr Duration operator+(Duration a, Duration b) { return {a.us + b.us}; }
  friend constexpr Duration operator-(Duration a, Duration b) { return {a.us - b.us}; }
  friend constexpr Duration operator*(Duration a, int64_t n) { return {a.us * n}; }
  constexpr int64_t ms() const { return us / 1000; }
  constexpr double seconds() const { return static_cast<double>(us) / 1e6; }
};
constexpr Duration microseconds(int64_t n) { return {n}; }
constexpr Duration milliseconds(int64_t n) { return {n * 1000}; }
constexpr Duration seconds(int64_t n) { return {n * 1'000'000}; }
constexpr Duration minutes(int64_t n) { return {n * 60'000'000}; }
constexpr Duration hours(int64_t n) { return {n * 3'600'000'000}; }

struct WallTime {
  int64_t us = 0;
  friend constexpr auto operator<=>(WallTime, WallTime) = default;
  friend constexpr Duration operator-(WallTime a, WallTime b) { return {a.us - b.us}; }
  friend constexpr WallTime operator+(WallTime a, Duration d) { return {a.us + d.us}; }
  friend constexpr WallTime operator-(WallTime a, Duration d) { return {a.us - d.us}; }
  std::string rfc3339() const;  // 2026-11-30T20:06:43.123456Z
};
Result<WallTime> parse_rfc3339(std::string_view text);

struct MonoTime {
  int64_t us = 0;
  friend constexpr auto operator<=>(MonoTime, MonoTime) = default;
  friend constexpr Duration operator-(MonoTime a, MonoTime b) { return {a.us - b.us}; }
  friend constexpr MonoTime operator+(MonoTime a, Duration d) { return {a.us + d.us}; }
};

// The only way to read a clock outside base (tools/tidy bans the others). Implementations:
// RealClock here; sim::VirtualClock. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime wall_now() const = 0;
  virtual MonoTime mono_now()
      const = 0;  // CLOCK_BOOTTIME: goes on through suspend, same for all processes of a host
};

class RealClock final : public Clock {
 public:
  WallTime wall_now() const override;
  MonoTime mono_now() const override;
};

}  // namespace anychip
