#include "cli/text.h"

#include <cstdint>
#include <utility>

namespace anychip::cli {
namespace {

struct Decoded {
  char32_t code_point = 0xFFFD;
  size_t bytes = 1;
  bool is_valid = false;
};

Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return {first, 1, true};
  const size_t length = first >= 0xF0 && first <= 0xF4   ? 4
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xC2 && first <= 0xDF ? 2
                                                         : 0;
  if (length == 0 || at + length > text.size()) return {};
  char32_t value = first & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    value = (value << 6) | (byte(at + i) & 0x3F);
  }
  const bool is_short = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (is_short || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return {};
  return {value, length, true};
}

// East Asian Wide and Fullwidth blocks plus emoji, coarse on purpose: whole blocks.
constexpr std::pair<char32_t, char32_t> kWide[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
    {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD},
};
constexpr std::pair<char32_t, char32_t> kZero[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F},
    {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x202A, 0x202E}, {0x2060, 0x2064},
    {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF},
};

bool is_in(const auto& ranges, char32_t value) {
  for (const auto& [first, last] : ranges) {
    if (value >= first && value <= last) return true;
  }
  return false;
}

int width_of_code_point(char32_t value) {
  if (value < 0x20 || (value >= 0x7F && value < 0xA0)) return 0;
  if (value < 0x300) return 1;
  if (is_in(kZero, value)) return 0;
  return is_in(kWide, value) ? 2 : 1;
}

// Characters that re-order or hide text: they could make one name look like another.
bool is_deceptive(char32_t value) {
  return (value >= 0x202A && value <= 0x202E) || (value >= 0x2066 && value <= 0x2069) ||
         value == 0x200E || value == 0x200F;
}

}  // namespace

int width_of(std::string_view utf8) {
  int total = 0;
  for (size_t at = 0; at < utf8.size();) {
    const Decoded next = decode(utf8, at);
    total += next.is_valid ? width_of_code_point(next.code_point) : 1;
    at += next.bytes;
  }
  return total;
}

std::string fit(std::string_view utf8, int columns) {
  if (columns <= 0) return {};
  if (width_of(utf8) <= columns) return std::string(utf8);
  int used = 0;
  size_t at = 0;
  while (at < utf8.size()) {
    const Decoded next = decode(utf8, at);
    const int width = next.is_valid ? width_of_code_point(next.code_point) : 1;
    if (used + width > columns - 1) break;
    used += width;
    at += next.bytes;
  }
  return std::string(utf8.substr(0, at)) + "…";
}

std::string printable(std::string_view text, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode(text, at);
    const char32_t value = next.code_point;
    const bool is_control = value < 0x20 || (value >= 0x7F && value < 0xA0);
    const bool is_kept_line = keeps_lines && (value == '\n' || value == '\t');
    if (!next.is_valid || is_deceptive(value) || (is_control && !is_kept_line)) {
      out += "\uFFFD";
    } else {
      out += text.substr(at, next.bytes);
    }
    at += next.bytes;
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string flat;
  for (const char c : text) flat += c == '\n' || c == '\t' || c == '\r' ? ' ' : c;
  return printable(flat);
}

}  // namespace anychip::cli
