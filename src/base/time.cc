#include "base/time.h"

#include <ctime>

#include <fmt/format.h>

#include "base/check.h"
#include "base/civil.h"

namespace anychip {
namespace {

int64_t read_clock_us(clockid_t id) {
  timespec now{};
  CHECK(clock_gettime(id, &now) == 0);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

struct Reader {
  std::string_view rest;
  bool ok = true;
  int64_t digits(size_t count) {
    if (rest.size() < count) return ok = false, 0;
    int64_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      if (rest[i] < '0' || rest[i] > '9') return ok = false, 0;
      value = value * 10 + (rest[i] - '0');
    }
    rest.remove_prefix(count);
    return value;
  }
  void literal(char c) {
    if (rest.empty() || rest.front() != c)
      ok = false;
    else
      rest.remove_prefix(1);
  }
};

}  // namespace

std::string WallTime::rfc3339() const {
  int64_t whole = us / 1'000'000;
  int64_t part = us % 1'000'000;
  if (part < 0) part += 1'000'000, whole -= 1;
  const time_t seconds_utc = whole;
  tm fields{};
  CHECK(gmtime_r(&seconds_utc, &fields) != nullptr);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", fields.tm_year + 1900,
                     fields.tm_mon + 1, fields.tm_mday, fields.tm_hour, fields.tm_min,
                     fields.tm_sec, part);
}

Result<WallTime> parse_rfc3339(std::string_view text) {
  Reader in{text};
  const int64_t year = in.digits(4);
  in.literal('-');
  const int64_t month = in.digits(2);
  in.literal('-');
  const int64_t day = in.digits(2);
  in.literal('T');
  const int64_t hour = in.digits(2);
  in.literal(':');
  const int64_t minute = in.digits(2);
  in.literal(':');
  const int64_t second = in.digits(2);
  int64_t part = 0;
  if (in.ok && !in.rest.empty() && in.rest.front() == '.') {
    in.literal('.');
    if (in.rest.empty() || in.rest.front() == 'Z') in.ok = false;  // "43.Z"
    int64_t scale = 100'000;
    while (!in.rest.empty() && in.rest.front() >= '0' && in.rest.front() <= '9') {
      part += (in.rest.front() - '0') * scale;
      scale /= 10;
      in.rest.remove_prefix(1);
    }
  }
  in.literal('Z');
  const bool in_range = month >= 1 && month <= 12 && day >= 1 &&
                        day <= days_in_month(year, month) && hour < 24 && minute < 60 &&
                        second < 61;
  if (!in.ok || !in.rest.empty() || !in_range) {
    return fail(Code::kInvalidArgument, "time_malformed",
                fmt::format("'{}' is not a UTC time like 2026-11-30T20:06:43Z", text));
  }
  const int64_t total = ((days_of({year, month, day}) * 24 + hour) * 60 + minute) * 60 + second;
  return WallTime{total * 1'000'000 + part};
}

WallTime RealClock::wall_now() const { return {read_clock_us(CLOCK_REALTIME)}; }
MonoTime RealClock::mono_now() const { return {read_clock_us(CLOCK_BOOTTIME)}; }

}  // namespace anychip
