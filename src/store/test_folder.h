// For tests: a folder of their own, removed at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/check.h"

namespace anychip::store {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "anychip-store-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace anychip::store
