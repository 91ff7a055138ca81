// `down --all`: ends everything that a data folder's agent has made on this machine, whatever state
// it is in and whether or not the agent still works: containers, their cgroups, mounts, loop
// devices. Only things that belong to this data folder by proof (path below it, or its label) are
// touched.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace anychip::cli {

// "anychip-" + 12 hex of sha256(absolute data folder): cgroups and run folders carry it.
std::string label_of(const std::string& data);

struct Leftovers {
  std::vector<std::string> containers, mounts, loops, cgroups;
  std::vector<int> monitors;  // conmon processes
  bool is_empty() const {
    return containers.empty() && mounts.empty() && loops.empty() && cgroups.empty() &&
           monitors.empty();
  }
};
Result<Leftovers> find_leftovers(const std::string& data);

// Repeats until nothing is left or it does not get less; what stays is named in the error.
Status remove_leftovers(const std::string& data, const std::function<void(std::string_view)>& say);

}  // namespace anychip::cli
