#include "agent/local/requirements.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace anychip::agent {
namespace {

constexpr std::string_view kHashOption = "--hash=sha256:";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  return text;
}

bool is_made_of(std::string_view text, std::string_view others) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           others.find(c) != std::string_view::npos;
  });
}

tl::unexpected<Error> malformed(std::string_view line, std::string_view why) {
  return fail(Code::kInvalidArgument, "requirements_malformed",
              fmt::format("'{}' {}", line.substr(0, 120), why),
              "each entry is name==version with at least one --hash=sha256:...");
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Lines joined at a trailing backslash, without comments.
std::vector<std::string> logical_lines(std::string_view text) {
  std::vector<std::string> lines;
  std::string current;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = trimmed(line);
    if (line.starts_with('#')) continue;
    if (const size_t comment = line.find(" #"); comment != std::string_view::npos) {
      line = trimmed(line.substr(0, comment));
    }
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.remove_suffix(1);
    current += trimmed(line);
    current += ' ';
    if (goes_on) continue;
    if (!trimmed(current).empty()) lines.emplace_back(trimmed(current));
    current.clear();
  }
  if (!trimmed(current).empty()) lines.emplace_back(trimmed(current));
  return lines;
}

Result<Pin> parse_pin(const std::string& line) {
  Pin pin;
  pin.line = line;
  const size_t options = line.find(" --");
  std::string_view requirement = trimmed(std::string_view(line).substr(0, options));
  std::string_view rest =
      options == std::string::npos ? "" : trimmed(std::string_view(line).substr(options));
  while (!rest.empty()) {
    const size_t space = rest.find(' ');
    const std::string_view word = rest.substr(0, space);
    rest = space == std::string_view::npos ? "" : trimmed(rest.substr(space));
    if (!word.starts_with(kHashOption) || !is_sha256(word.substr(kHashOption.size()))) {
      return malformed(line, "has an option other than --hash=sha256:");
    }
    pin.sha256.emplace_back(word.substr(kHashOption.size()));
  }
  requirement = trimmed(requirement.substr(0, requirement.find(';')));
  const size_t equals = requirement.find("==");
  if (equals == std::string_view::npos) return malformed(line, "is not pinned with ==");
  std::string_view name = trimmed(requirement.substr(0, equals));
  name = trimmed(name.substr(0, name.find('[')));
  pin.name = name;
  pin.version = trimmed(requirement.substr(equals + 2));
  if (!is_made_of(pin.name, "-_.") || !is_made_of(pin.version, ".+!-_")) {
    return malformed(line, "is not name==version");
  }
  if (pin.sha256.empty()) return malformed(line, "has no hash");
  return pin;
}

}  // namespace

std::string normalized_project(std::string_view name) {
  std::string normalized;
  for (const char c : name) {
    const bool is_separator = c == '-' || c == '_' || c == '.';
    if (is_separator && normalized.ends_with('_')) continue;
    normalized +=
        is_separator ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return normalized;
}

bool is_wheel_of(std::string_view file_name, const Pin& pin) {
  if (!file_name.ends_with(".whl")) return false;
  const size_t first = file_name.find('-');
  const size_t second = first == std::string_view::npos ? first : file_name.find('-', first + 1);
  if (second == std::string_view::npos) return false;
  if (normalized_project(file_name.substr(0, first)) != normalized_project(pin.name)) return false;
  const std::string_view version = file_name.substr(first + 1, second - first - 1);
  return version == pin.version || version.starts_with(pin.version + "+");
}

Result<std::vector<Pin>> parse_requirements(std::string_view text) {
  std::vector<Pin> pins;
  for (const std::string& line : logical_lines(text)) {
    if (line.starts_with("-"))
      return malformed(line, "is an option; where packages come from is the node's own setting");
    TRY(auto pin, parse_pin(line));
    pins.push_back(std::move(pin));
  }
  return pins;
}

}  // namespace anychip::agent
