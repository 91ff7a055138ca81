#include "catalog/reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>

#include <fmt/format.h>

namespace anychip::catalog {
namespace {

int line_of(const YAML::Node& node) { return node.Mark().is_null() ? 0 : node.Mark().line + 1; }

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_size(std::string_view text) {
  struct Unit {
    std::string_view name;
    int shift;
  };
  constexpr Unit kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  int shift = 0;
  for (const Unit& unit : kUnits) {
    if (text.ends_with(unit.name)) {
      text.remove_suffix(unit.name.size());
      shift = unit.shift;
      break;
    }
  }
  const std::optional<int64_t> count = parse_int(text);
  if (!count || *count < 0 || *count > (std::numeric_limits<int64_t>::max() >> shift)) {
    return std::nullopt;
  }
  return *count << shift;
}

}  // namespace

void Problems::add(const Place& place, std::string message) {
  std::string where = place.line > 0 ? fmt::format("{}:{}", place.file, place.line) : place.file;
  found_.push_back({std::move(where), std::move(message)});
}

Error Problems::to_error() const {
  constexpr size_t kShown = 5;  // the rest is in `fields`; a log line stays readable
  std::string message =
      fmt::format("the catalogue has {} problem{}: ", found_.size(), found_.size() == 1 ? "" : "s");
  for (size_t i = 0; i < found_.size() && i < kShown; ++i) {
    message += fmt::format("{}{}: {}", i == 0 ? "" : "; ", found_[i].pointer, found_[i].message);
  }
  if (found_.size() > kShown) message += fmt::format("; and {} more", found_.size() - kShown);
  return Error{Code::kInvalidArgument, "catalog_invalid", std::move(message),
               "edit the named lines under catalog/ (catalog/README.md describes every field)",
               found_};
}

Fields::Fields(YAML::Node node, std::string file, Problems& problems)
    : node_(std::move(node)), file_(std::move(file)), problems_(&problems) {
  if (!node_.IsMap()) {
    problems_->add(place(), "a mapping (key: value) is expected here");
    return;
  }
  for (const auto& entry : node_) {
    if (!entry.first.IsScalar()) {
      problems_->add({file_, line_of(entry.first)}, "a key must be a plain word");
      continue;
    }
    const std::string key = entry.first.Scalar();
    if (!values_.emplace(key, entry.second).second) {
      problems_->add({file_, line_of(entry.first)}, fmt::format("'{}' is given twice", key));
    }
  }
}

Place Fields::place() const { return {file_, line_of(node_)}; }

Place Fields::place_of(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? place() : Place{file_, line_of(found->second)};
}

void Fields::problem(std::string_view key, std::string message) {
  problems_->add(place_of(key), std::move(message));
}

const YAML::Node* Fields::take(std::string_view key, bool is_required) {
  asked_.emplace(key);
  const auto found = values_.find(key);
  if (found != values_.end() && !found->second.IsNull()) return &found->second;
  if (is_required && node_.IsMap()) problem(key, fmt::format("'{}' is required", key));
  return nullptr;
}

std::optional<std::string> Fields::scalar(std::string_view key, bool is_required,
                                          std::string_view wanted) {
  const YAML::Node* node = take(key, is_required);
  if (node == nullptr) return std::nullopt;
  if (!node->IsScalar()) {
    problem(key, fmt::format("'{}' must be {}", key, wanted));
    return std::nullopt;
  }
  return node->Scalar();
}

std::string Fields::text(std::string_view key) {
  std::optional<std::string> value = scalar(key, true, "a text");
  if (value && value->empty()) problem(key, fmt::format("'{}' must not be empty", key));
  return value.value_or("");
}

std::string Fields::text_or(std::string_view key, std::string_view fallback) {
  return scalar(key, false, "a text").value_or(std::string(fallback));
}

std::optional<int64_t> Fields::take_integer(std::string_view key, bool is_required) {
  const std::optional<std::string> value = scalar(key, is_required, "a whole number");
  if (!value) return std::nullopt;
  const std::optional<int64_t> number = parse_int(*value);
  if (!number || *number < 0) {
    problem(key, fmt::format("'{}' must be a whole number >= 0, not '{}'", key, *value));
    return std::nullopt;
  }
  return number;
}

int64_t Fields::integer(std::string_view key) { return take_integer(key, true).value_or(0); }

int64_t Fields::integer_or(std::string_view key, int64_t fallback) {
  return take_integer(key, false).value_or(fallback);
}

bool Fields::boolean_or(std::string_view key, bool fallback) {
  const std::optional<std::string> value = scalar(key, false, "true or false");
  if (!value) return fallback;
  if (*value != "true" && *value != "false") {
    problem(key, fmt::format("'{}' must be true or false, not '{}'", key, *value));
    return fallback;
  }
  return *value == "true";
}

int64_t Fields::size_or(std::string_view key, int64_t fallback) {
  const std::optional<std::string> value = scalar(key, false, "a size such as 512MiB");
  if (!value) return fallback;
  const std::optional<int64_t> bytes = parse_size(*value);
  if (!bytes) {
    problem(key, fmt::format("'{}' must be a size such as 512MiB or 4GiB, not '{}'", key, *value));
  }
  return bytes.value_or(fallback);
}

std::vector<Located> texts_of(const YAML::Node& node, const std::string& file, Problems& problems) {
  std::vector<Located> found;
  if (!node.IsSequence()) {
    problems.add({file, line_of(node)}, "a list is expected here");
    return found;
  }
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) {
      problems.add({file, line_of(item)}, "every item of this list must be a text");
      continue;
    }
    found.push_back({item.Scalar(), {file, line_of(item)}});
  }
  return found;
}

std::vector<Located> Fields::texts_or_none(std::string_view key) {
  const YAML::Node* node = take(key, false);
  return node == nullptr ? std::vector<Located>{} : texts_of(*node, file_, *problems_);
}

std::vector<std::pair<std::string, std::string>> Fields::text_map_or_none(std::string_view key) {
  std::vector<std::pair<std::string, std::string>> found;
  std::optional<Fields> map = map_or_none(key);
  if (!map) return found;
  for (const auto& [name, value] : map->entries()) {
    if (value.IsScalar()) {
      found.emplace_back(name.text, value.Scalar());
    } else {
      problems_->add(name.place, fmt::format("'{}' must be a text", name.text));
    }
  }
  return found;
}

std::vector<Fields> Fields::maps_or_none(std::string_view key) {
  std::vector<Fields> found;
  const YAML::Node* node = take(key, false);
  if (node == nullptr) return found;
  if (!node->IsSequence()) {
    problem(key, fmt::format("'{}' must be a list", key));
    return found;
  }
  for (const YAML::Node& item : *node) found.emplace_back(item, file_, *problems_);
  return found;
}

std::optional<Fields> Fields::map_or_none(std::string_view key) {
  const YAML::Node* node = take(key, false);
  if (node == nullptr) return std::nullopt;
  return Fields(*node, file_, *problems_);
}

std::vector<std::pair<Located, YAML::Node>> Fields::entries() {
  std::vector<std::pair<Located, YAML::Node>> found;
  if (!node_.IsMap()) return found;
  for (const auto& entry : node_) {
    if (!entry.first.IsScalar()) continue;  // noted by the constructor
    asked_.insert(entry.first.Scalar());
    found.push_back({{entry.first.Scalar(), {file_, line_of(entry.first)}}, entry.second});
  }
  return found;
}

void Fields::finish() {
  for (const auto& [key, value] : values_) {
    if (asked_.contains(key)) continue;
    std::string known;
    for (const std::string& name : asked_) known += (known.empty() ? "" : ", ") + name;
    problem(key, fmt::format("unknown key '{}'; known here: {}", key, known));
  }
}

Result<std::string> read_file(const std::string& path) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rbe"));
  if (!file) return fail_errno("open " + path, errno);
  std::string text;
  char buffer[65536];
  for (;;) {
    const size_t got = std::fread(buffer, 1, sizeof buffer, file.get());
    text.append(buffer, got);
    if (got < sizeof buffer) break;
  }
  if (std::ferror(file.get()) != 0) return fail_errno("read " + path, errno);
  return text;
}

std::optional<Fields> open_yaml(const std::string& root, const std::string& file,
                                Problems& problems) {
  const Result<std::string> text = read_file(root + "/" + file);
  if (!text) {
    problems.add({file, 0}, text.error().message);
    return std::nullopt;
  }
  try {
    return Fields(YAML::Load(*text), file, problems);
  } catch (const YAML::Exception& error) {
    problems.add({file, error.mark.is_null() ? 0 : error.mark.line + 1},
                 "not readable as YAML: " + error.msg);
    return std::nullopt;
  }
}

bool is_catalog_id(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace anychip::catalog
