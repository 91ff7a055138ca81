// Numbers for people. Pure functions; the same words in the terminal and in the report.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anychip::cli {

std::string format_bytes(int64_t bytes);    // "1.5 GiB", "312 MiB", "-" when 0
std::string format_span(int64_t us);        // "850 ms", "3.2 s", "12 min 05 s", "3 h 02 min"
std::string format_exact_time(int64_t us);  // "0:12:05.250000": every microsecond, for bills
std::string format_count(int64_t number);   // "12,345"
std::string format_significant(double number, int digits);  // 3 digits: "0.0123", "1.23", "123"
std::string format_small(double number);                    // "9.5e-07", "0" for 0
std::string yuan(int64_t micros);                           // "¥0.50", up to six decimals
std::string yuan_exact(int64_t micros);                     // always six decimals: "¥0.012300"
std::string yuan_per_hour(int64_t micros);                  // "¥4.20/h"
// "2026-11-30T20:06:43Z" -> "2026-11-30 20:06:43"; what is not a time comes back as it is.
std::string format_time(std::string_view rfc3339);

// "64GiB", "512MB", "1000" -> bytes.
Result<int64_t> parse_bytes(std::string_view text);
// "90", "90s", "5m", "2h" -> microseconds.
Result<int64_t> parse_span(std::string_view text);

}  // namespace anychip::cli
