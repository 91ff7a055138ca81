#include "base/ids.h"

#include <array>

namespace anychip {
namespace {
constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";  // Crockford, lower case
constexpr size_t kDigits = 26;                                              // 130 bits for 128
}  // namespace

std::string make_id_text(std::string_view prefix, WallTime now, Random& random) {
  std::array<uint8_t, 16> bytes{};
  random.fill(bytes);
  const uint64_t ms = static_cast<uint64_t>(now.us / 1000);
  for (size_t i = 0; i < 6; ++i) bytes[i] = static_cast<uint8_t>(ms >> (8 * (5 - i)));
  bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x70);  // version 7 (RFC 9562 §5.7)
  bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);  // variant
  std::string text(prefix);
  text += '_';
  // 128 bits, most significant first, left-padded with two zero bits to 26 × 5.
  uint32_t window = 0;
  int bits = 2;
  for (uint8_t byte : bytes) {
    window = (window << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += kAlphabet[(window >> bits) & 31];
    }
    window &= (1u << bits) - 1;
  }
  return text;
}

bool is_id_text(std::string_view prefix, std::string_view text) {
  if (text.size() != prefix.size() + 1 + kDigits) return false;
  if (!text.starts_with(prefix) || text[prefix.size()] != '_') return false;
  return text.substr(prefix.size() + 1).find_first_not_of(kAlphabet) == std::string_view::npos;
}

}  // namespace anychip
