#include "cli/format.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/money.h"

namespace anychip::cli {

std::string format_bytes(int64_t bytes) {
  if (bytes <= 0) return "-";
  static constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0 || value >= 100) return fmt::format("{:.0f} {}", value, kUnits[unit]);
  const std::string text = fmt::format("{:.1f}", value);
  const std::string_view trimmed =
      text.ends_with(".0") ? std::string_view(text).substr(0, text.size() - 2) : text;
  return fmt::format("{} {}", trimmed, kUnits[unit]);
}

std::string format_span(int64_t us) {
  if (us < 0) return "-";
  if (us < 1'000) return fmt::format("{} µs", us);
  if (us < 1'000'000) return fmt::format("{} ms", us / 1000);
  if (us < 60'000'000) return fmt::format("{:.1f} s", static_cast<double>(us / 100'000) / 10);
  const int64_t seconds = us / 1'000'000;
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string format_exact_time(int64_t us) {
  const int64_t seconds = us / 1'000'000;
  return fmt::format("{}:{:02}:{:02}.{:06}", seconds / 3600, seconds / 60 % 60, seconds % 60,
                     us % 1'000'000);
}

std::string format_count(int64_t number) {
  std::string digits = std::to_string(std::abs(number));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return number < 0 ? "-" + digits : digits;
}

std::string format_significant(double number, int digits) {
  if (!std::isfinite(number)) return "-";
  if (number == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::fabs(number))));
  const int decimals = std::max(0, digits - 1 - magnitude);
  if (decimals == 0) return format_count(std::llround(number));
  return fmt::format("{:.{}f}", number, decimals);
}

std::string format_small(double number) {
  if (!std::isfinite(number)) return "-";
  if (number == 0) return "0";
  std::string text = fmt::format("{:.1e}", number);  // "1.0e-05" -> "1e-5"
  const size_t e = text.find('e');
  std::string mantissa = text.substr(0, e), exponent = text.substr(e + 1);
  if (mantissa.ends_with(".0")) mantissa.resize(mantissa.size() - 2);
  const bool is_negative = exponent[0] == '-';
  exponent.erase(0, exponent.find_first_not_of("+-0"));
  return mantissa + (exponent.empty() ? "" : (is_negative ? "e-" : "e") + exponent);
}

std::string yuan(int64_t micros) { return format_yuan(Money{micros}); }

std::string yuan_exact(int64_t micros) {
  const int64_t positive = std::abs(micros);
  return fmt::format("{}¥{}.{:06}", micros < 0 ? "-" : "", positive / 1'000'000,
                     positive % 1'000'000);
}

std::string yuan_per_hour(int64_t micros) { return yuan(micros) + "/h"; }

std::string format_time(std::string_view rfc3339) {
  if (rfc3339.size() < 19 || rfc3339[10] != 'T') return std::string(rfc3339);
  return std::string(rfc3339.substr(0, 10)) + " " + std::string(rfc3339.substr(11, 8));
}

namespace {

struct Scaled {
  int64_t number = 0;
  std::string_view unit;
};

Result<Scaled> split_number(std::string_view text, std::string_view what) {
  Scaled out;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.number);
  if (error != std::errc{} || out.number < 0) {
    return fail(Code::kInvalidArgument, "number_malformed",
                fmt::format("'{}' is not {}", text, what));
  }
  out.unit = text.substr(static_cast<size_t>(end - text.data()));
  return out;
}

}  // namespace

Result<int64_t> parse_bytes(std::string_view text) {
  static constexpr std::string_view kWhat = "a size; write it like 512MiB, 8GiB or 64GB";
  TRY(const Scaled scaled, split_number(text, kWhat));
  static constexpr std::pair<std::string_view, int64_t> kUnits[] = {{"", 1},
                                                                    {"B", 1},
                                                                    {"KB", 1'000},
                                                                    {"MB", 1'000'000},
                                                                    {"GB", 1'000'000'000},
                                                                    {"KiB", 1LL << 10},
                                                                    {"MiB", 1LL << 20},
                                                                    {"GiB", 1LL << 30},
                                                                    {"TiB", 1LL << 40},
                                                                    {"K", 1LL << 10},
                                                                    {"M", 1LL << 20},
                                                                    {"G", 1LL << 30}};
  for (const auto& [unit, factor] : kUnits) {
    int64_t bytes = 0;
    if (scaled.unit == unit && !__builtin_mul_overflow(scaled.number, factor, &bytes)) return bytes;
  }
  return fail(Code::kInvalidArgument, "number_malformed",
              fmt::format("'{}' is not {}", text, kWhat));
}

Result<int64_t> parse_span(std::string_view text) {
  static constexpr std::string_view kWhat = "a time; write it like 90, 90s, 5m or 2h";
  TRY(const Scaled scaled, split_number(text, kWhat));
  static constexpr std::pair<std::string_view, int64_t> kUnits[] = {
      {"", 1'000'000},   {"s", 1'000'000},    {"ms", 1'000},
      {"m", 60'000'000}, {"min", 60'000'000}, {"h", 3'600'000'000}};
  for (const auto& [unit, factor] : kUnits) {
    int64_t us = 0;
    if (scaled.unit == unit && !__builtin_mul_overflow(scaled.number, factor, &us)) return us;
  }
  return fail(Code::kInvalidArgument, "number_malformed",
              fmt::format("'{}' is not {}", text, kWhat));
}

}  // namespace anychip::cli
