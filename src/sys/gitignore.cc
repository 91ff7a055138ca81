#include "sys/gitignore.h"

#include <algorithm>

namespace anychip::sys {
namespace {

// One [...] class at pattern[i]; i moves behind it. Not closed: matches a literal '['.
bool class_matches(std::string_view pattern, size_t& i, char c) {
  size_t at = i + 1;
  const bool is_inverted = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (is_inverted) ++at;
  bool is_found = false;
  for (const size_t first = at; at < pattern.size() && (pattern[at] != ']' || at == first); ++at) {
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
      is_found = is_found || (pattern[at] <= c && c <= pattern[at + 2]);
      at += 2;
    } else {
      is_found = is_found || pattern[at] == c;
    }
  }
  if (at >= pattern.size()) {
    ++i;
    return c == '[';
  }
  i = at + 1;
  return is_found != is_inverted && c != '/';
}

// Matches one path component (no '/') with the last-star trick: linear in practice, never
// exponential.
bool component_matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    size_t next = p;
    bool is_match = false;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
      continue;
    }
    if (p < pattern.size()) {
      if (pattern[p] == '?') {
        is_match = true;
        next = p + 1;
      } else if (pattern[p] == '[') {
        is_match = class_matches(pattern, next, name[n]);
      } else {
        next = pattern[p] == '\\' && p + 1 < pattern.size() ? p + 1 : p;
        is_match = pattern[next++] == name[n];
      }
    }
    if (is_match) {
      p = next;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string_view> components_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    path.remove_prefix(slash + 1);
  }
}

// Row by row over the pattern's components: reachable[j] = the first j components are matched.
bool components_match(const std::vector<std::string_view>& pattern,
                      const std::vector<std::string_view>& path) {
  std::vector<bool> reachable(path.size() + 1, false);
  reachable[0] = true;
  for (size_t i = 0; i < pattern.size(); ++i) {
    std::vector<bool> next(path.size() + 1, false);
    if (pattern[i] == "**") {
      const bool is_last = i + 1 == pattern.size();  // "a/**": at least one component below a
      for (size_t j = 0, seen = 0; j <= path.size(); ++j) {
        next[j] = seen > 0 || (reachable[j] && !is_last);
        if (reachable[j]) seen += 1;
      }
    } else {
      for (size_t j = 0; j < path.size(); ++j) {
        next[j + 1] = reachable[j] && component_matches(pattern[i], path[j]);
      }
    }
    reachable = std::move(next);
  }
  return reachable[path.size()];
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view path) {
  return components_match(components_of(pattern), components_of(path));
}

void IgnoreRules::add(std::string_view folder, std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    Rule rule;
    rule.folder = folder;
    if (line.front() == '!') {
      rule.is_negated = true;
      line.remove_prefix(1);
    }
    if (line.ends_with('/')) {
      rule.is_folder_only = true;
      line.remove_suffix(1);
    }
    rule.is_anchored = line.find('/') != std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    if (line.empty()) continue;
    rule.pattern = line;
    rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::is_ignored(std::string_view path, bool is_folder) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->is_folder_only && !is_folder) continue;
    std::string_view below = path;
    if (!rule->folder.empty()) {
      if (!below.starts_with(rule->folder + "/")) continue;
      below.remove_prefix(rule->folder.size() + 1);
    }
    if (!rule->is_anchored) below = below.substr(below.find_last_of('/') + 1);  // npos + 1 = 0
    if (glob_matches(rule->pattern, below)) return !rule->is_negated;
  }
  return false;
}

}  // namespace anychip::sys
