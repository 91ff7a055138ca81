#include "net/url.h"

#include <charconv>

#include <fmt/format.h>

namespace anychip::net {
namespace {

tl::unexpected<Error> malformed(std::string_view text) {
  return fail(Code::kInvalidArgument, "url_malformed",
              fmt::format("'{}' is not a server's address", text),
              "write it like http://127.0.0.1:8080");
}

}  // namespace

std::string Url::host_header() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == 80 ? name : fmt::format("{}:{}", name, port);
}

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) {
    return fail(Code::kUnimplemented, "tls_missing", "https is not built into this program",
                "use http:// on a trusted network, or a local TLS proxy");
  }
  if (!text.starts_with(kScheme)) return malformed(text);
  std::string_view rest = text.substr(kScheme.size());
  Url url;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    url.prefix = rest.substr(slash);
    while (url.prefix.ends_with('/')) url.prefix.pop_back();
    rest = rest.substr(0, slash);
  }
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (problem != std::errc{} || end != digits.data() + digits.size() || url.port == 0) {
      return malformed(text);
    }
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty() || rest.find_first_of(" []@?#\r\n") != std::string_view::npos) {
    return malformed(text);
  }
  url.host = rest;
  return url;
}

}  // namespace anychip::net
