// What every simulation needs and none may change: the catalogue and a folder of its own.
#pragma once

#include <memory>
#include <string>

#include "sim/world.h"

namespace anychip::sim {

class Setting {
 public:
  // root: the installation, which holds catalog/.
  static Result<std::unique_ptr<Setting>> create(const std::string& root);
  ~Setting();
  Options options(uint64_t seed) const;

 private:
  Setting() = default;
  std::string folder_;
  catalog::Catalog catalog_;
};

}  // namespace anychip::sim
