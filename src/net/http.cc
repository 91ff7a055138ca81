#include "net/http.h"

#include <algorithm>

#include "net/headers.h"

namespace anychip::net {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

// application/x-www-form-urlencoded: '+' is a space; a '%' that starts no escape stays as it is.
std::string decode_query(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
        hex_value(text[i + 2]) >= 0) {
      decoded += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

bool equals_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool is_framing(std::string_view name) {
  return equals_without_case(name, "content-length") ||
         equals_without_case(name, "transfer-encoding") || equals_without_case(name, "connection");
}

void append_cleaned(std::string& text, std::string_view part) {
  for (char c : part) text += c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
}

}  // namespace

std::string_view header(const Headers& headers, std::string_view name) {
  for (const auto& [key, content] : headers) {
    if (equals_without_case(key, name)) return content;
  }
  return {};
}

std::string_view Request::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::optional<std::string> Request::query(std::string_view key) const {
  const size_t mark = target.find('?');
  std::string_view rest =
      mark == std::string::npos ? "" : std::string_view(target).substr(mark + 1);
  rest = rest.substr(0, rest.find('#'));
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    const size_t equals = pair.find('=');
    if (decode_query(pair.substr(0, equals)) != key) continue;
    return equals == std::string_view::npos ? std::string() : decode_query(pair.substr(equals + 1));
  }
  return std::nullopt;
}

void append_headers(std::string& text, const Headers& headers) {
  for (const auto& [name, content] : headers) {
    if (is_framing(name)) continue;
    append_cleaned(text, name);
    text += ": ";
    append_cleaned(text, content);
    text += "\r\n";
  }
}

std::string url_encode(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

}  // namespace anychip::net
