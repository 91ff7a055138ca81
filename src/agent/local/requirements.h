// A pinned, hashed requirements file (pip's format, only its safe part): "name==version [; marker]"
// with --hash=sha256:... , several hashes allowed, one wheel each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anychip::agent {

struct Pin {
  std::string name, version;
  std::vector<std::string> sha256;
  std::string line;  // the whole requirement as one line for pip
};

// "requirements_malformed" names the line: options, urls, unpinned or unhashed entries are refused.
Result<std::vector<Pin>> parse_requirements(std::string_view text);
// "Foo.Bar" and "foo_bar" are one project: lower case, runs of - _ . as one '_'.
std::string normalized_project(std::string_view name);
// Whether a wheel's file name is of this pin ("2.13.0+cpu" satisfies "2.13.0").
bool is_wheel_of(std::string_view file_name, const Pin& pin);

}  // namespace anychip::agent
