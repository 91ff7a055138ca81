// Strict reading of one YAML file: every problem is noted with file and line and reading goes on,
// so a person who edits the catalogue sees all mistakes at once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "base/error.h"

namespace anychip::catalog {

struct Place {
  std::string file;  // relative to the installation root
  int line = 0;      // from 1; 0 = the file as a whole
};

class Problems {
 public:
  void add(const Place& place, std::string message);
  bool empty() const { return found_.empty(); }
  // kInvalidArgument "catalog_invalid"; one FieldError per problem, pointer = "file:line".
  Error to_error() const;

 private:
  std::vector<FieldError> found_;
};

struct Located {  // a value and where it stands, for later cross-checks
  std::string text;
  Place place;
};

// One mapping. Getters note a missing or mistyped field and return an empty value; finish() notes
// keys nobody asked for. Keys that occur twice are noted by the constructor.
class Fields {
 public:
  Fields(YAML::Node node, std::string file, Problems& problems);

  std::string text(std::string_view key);  // required, not empty
  std::string text_or(std::string_view key, std::string_view fallback);
  int64_t integer(std::string_view key);  // required, >= 0
  int64_t integer_or(std::string_view key, int64_t fallback);
  bool boolean_or(std::string_view key, bool fallback);
  int64_t size_or(std::string_view key, int64_t fallback);  // bytes: 512MiB, 4GiB, 65536
  std::vector<Located> texts_or_none(std::string_view key);
  std::vector<std::pair<std::string, std::string>> text_map_or_none(std::string_view key);
  std::vector<Fields> maps_or_none(std::string_view key);
  std::optional<Fields> map_or_none(std::string_view key);
  bool has(std::string_view key) const { return values_.contains(key); }

  Place place() const;
  Place place_of(std::string_view key) const;
  void problem(std::string_view key, std::string message);
  // All entries in file order, for maps whose keys are data; marks them as asked for.
  std::vector<std::pair<Located, YAML::Node>> entries();
  void finish();

 private:
  const YAML::Node* take(std::string_view key, bool is_required);
  std::optional<std::string> scalar(std::string_view key, bool is_required,
                                    std::string_view wanted);
  std::optional<int64_t> take_integer(std::string_view key, bool is_required);

  YAML::Node node_;
  std::string file_;
  Problems* problems_;
  std::map<std::string, YAML::Node, std::less<>> values_;
  std::set<std::string, std::less<>> asked_;
};

// Text of a file; kNotFound / os_error otherwise.
Result<std::string> read_file(const std::string& path);

// Root mapping of `root`/`file`; nullopt (and problems noted) when it cannot be read.
std::optional<Fields> open_yaml(const std::string& root, const std::string& file,
                                Problems& problems);
// The texts of a sequence node, e.g. a value of entries().
std::vector<Located> texts_of(const YAML::Node& node, const std::string& file, Problems& problems);

// Lower-case letters, digits, '-' and '_': what ids of the catalogue are made of.
bool is_catalog_id(std::string_view text);

}  // namespace anychip::catalog
