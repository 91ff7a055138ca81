// Calendar dates as pure arithmetic, without time zones or the C library's global state.
#pragma once

#include <cstdint>

namespace anychip {

struct Date {
  int64_t year = 1970, month = 1, day = 1;  // month 1–12, day 1–31
};

// Days since 1970-01-01 in the proleptic Gregorian calendar, and back (H. Hinnant,
// "chrono-Compatible Low-Level Date Algorithms": days_from_civil, civil_from_days).
int64_t days_of(Date date);
Date date_of(int64_t days);
int64_t days_in_month(int64_t year, int64_t month);

}  // namespace anychip
