// The devices of a node. Chips of the catalogue with a count per node (cpu, simulated ones) are each
// a small file under DATA/agent/devices, made once when the node is new: a file that is taken away
// is a device that is gone, and comes back with it. Real ones are found in sysfs by PCI id.
#pragma once

#include <string>
#include <vector>

#include "agent/runtime.h"
#include "base/error.h"
#include "catalog/catalog.h"

namespace anychip::agent {

struct DeviceNode {
  std::string path;  // "/dev/davinci0"
  bool is_block = false;
  int64_t major = 0, minor = 0;
};

class Devices {
 public:
  // `root` is prefixed to /sys and /dev: captured trees are tests.
  Devices(std::string folder, std::vector<catalog::Chip> chips,
          std::vector<catalog::BackEnd> back_ends, std::string root = "");

  // Makes the files when the node is new; a file taken away later is never made again.
  Status prepare() const;
  std::vector<DeviceSeen> seen() const;  // looks anew each time
  // What a container needs of these devices under /dev; unknown id: "device_unknown".
  Result<std::vector<DeviceNode>> nodes_of(const std::vector<std::string>& ids) const;

 private:
  struct Real {
    std::string id, back_end, address;
    size_t index = 0;  // among those of its back end, in PCI order
  };
  std::vector<std::string> expected(const catalog::Chip& chip) const;
  std::vector<Real> find_real() const;

  std::string folder_;
  std::vector<catalog::Chip> chips_;
  std::vector<catalog::BackEnd> back_ends_;
  std::string root_;
};

}  // namespace anychip::agent
