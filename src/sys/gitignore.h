// The subset of .gitignore that people use: comments, *, ?, [..], **, dir/, leading or inner slash
// (anchored), ! (take back), backslash escapes; one rule list per folder, the last match wins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anychip::sys {

class IgnoreRules {
 public:
  // Rules of the .gitignore in `folder` (path relative to the root, "" = root).
  void add(std::string_view folder, std::string_view text);
  // `path` relative to the root. A folder that is ignored is not entered (so ! below it is void).
  bool is_ignored(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::string folder, pattern;
    bool is_negated = false, is_folder_only = false, is_anchored = false;
  };
  std::vector<Rule> rules_;
};

bool glob_matches(std::string_view pattern, std::string_view path);  // * stops at /, ** does not

}  // namespace anychip::sys
