// Internal to net: the parts of a server's URL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anychip::net {

struct Url {
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 80;
  std::string prefix;  // path without a trailing slash, put before every target
  std::string host_header() const;
};

// "http://host[:port][/prefix]". Reasons "url_malformed" and, for https, "tls_missing".
Result<Url> parse_url(std::string_view text);

}  // namespace anychip::net
