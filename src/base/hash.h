// SHA-256 (libsodium), as lower-case hex. Content addresses of workdirs, images, files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace anychip {

std::string sha256_hex(std::string_view bytes);

class Sha256 {  // streaming form; finish() once
 public:
  Sha256();
  void update(std::string_view bytes);
  std::string finish_hex();

 private:
  alignas(64) unsigned char state_[128];  // crypto_hash_sha256_state; size asserted in hash.cc
};

// Lower-case hex of any bytes, and constant-time equality for secrets.
std::string to_hex(std::string_view bytes);
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace anychip
