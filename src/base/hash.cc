#include "base/hash.h"

#include <new>

#include <sodium.h>

namespace anychip {

static_assert(sizeof(crypto_hash_sha256_state) <= 128);

namespace {
crypto_hash_sha256_state* state_of(unsigned char* storage) {
  return std::launder(reinterpret_cast<crypto_hash_sha256_state*>(storage));
}
const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
}  // namespace

Sha256::Sha256() {
  new (state_) crypto_hash_sha256_state;
  crypto_hash_sha256_init(state_of(state_));
}

void Sha256::update(std::string_view bytes) {
  crypto_hash_sha256_update(state_of(state_), bytes_of(bytes), bytes.size());
}

std::string Sha256::finish_hex() {
  std::string digest(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256_final(state_of(state_), reinterpret_cast<unsigned char*>(digest.data()));
  return to_hex(digest);
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish_hex();
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace anychip
