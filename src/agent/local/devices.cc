#include "agent/local/devices.h"

#include <glob.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/json.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

constexpr const char* kListName = "devices.json";

std::string trimmed_file(const std::string& path) {
  std::string text = sys::read_file(path, 64).value_or("");
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text.starts_with("0x")) text.erase(0, 2);
  return text;
}

std::vector<std::string> globbed(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
  return paths;
}

// The number a node's name ends with: /dev/davinci3 -> 3; a control node has none.
std::optional<size_t> number_at_end(const std::string& path) {
  const size_t begin = path.find_last_not_of("0123456789") + 1;
  if (begin >= path.size()) return std::nullopt;
  size_t number = 0;
  std::from_chars(path.data() + begin, path.data() + path.size(), number);
  return number;
}

}  // namespace

Devices::Devices(std::string folder, std::vector<catalog::Chip> chips,
                 std::vector<catalog::BackEnd> back_ends, std::string root)
    : folder_(std::move(folder)), chips_(std::move(chips)), back_ends_(std::move(back_ends)),
      root_(std::move(root)) {}

// One device per instance of a chip that is not found by looking for hardware.
std::vector<std::string> Devices::expected(const catalog::Chip& chip) const {
  std::vector<std::string> ids;
  // A catalogued CPU without a price is there for comparison; the node's own cores are the priced one.
  const bool is_own_cores = chip.back_end == "cpu" && chip.price.micros > 0;
  if (!chip.is_simulated && !is_own_cores) return ids;
  const long cores = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  const int count = chip.default_count_per_node > 0 ? chip.default_count_per_node
                                                    : static_cast<int>(cores);
  for (int n = 0; n < count; ++n) ids.push_back(fmt::format("{}-{}", chip.id, n));
  return ids;
}

Status Devices::prepare() const {
  TRY_VOID(sys::make_folders(folder_));
  // The list says which files a node has ever had: a chip that the catalogue gains later is added,
  // a file that somebody took away is not.
  const std::string list_path = folder_ + "/" + kListName;
  std::set<std::string> known;
  if (const auto text = sys::read_file(list_path, 1 << 20)) {
    TRY(const auto root, json::parse(*text));
    if (root.is_array()) {
      for (const json::value& id : root.get_array()) {
        if (id.is_string()) known.emplace(id.get_string());
      }
    }
  }
  const size_t before = known.size();
  for (const catalog::Chip& chip : chips_) {
    for (const std::string& id : expected(chip)) {
      if (known.contains(id)) continue;
      TRY_VOID(sys::write_file_atomic(folder_ + "/" + id, chip.id + "\n"));
      known.insert(id);
    }
  }
  if (known.size() == before) return {};
  json::array list;
  for (const std::string& id : known) list.emplace_back(id);
  return sys::write_file_durable(list_path, json::serialize(list) + "\n");
}

std::vector<Devices::Real> Devices::find_real() const {
  std::vector<Real> found;
  std::map<std::string, size_t> counts;
  for (const std::string& folder : globbed(root_ + "/sys/bus/pci/devices/*")) {
    const std::string id = trimmed_file(folder + "/vendor") + ":" + trimmed_file(folder + "/device");
    for (const catalog::BackEnd& back_end : back_ends_) {
      const auto& ids = back_end.pci_ids;
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) continue;
      const size_t index = counts[back_end.id]++;
      found.push_back({fmt::format("{}-{}", back_end.id, index), back_end.id,
                       folder.substr(folder.rfind('/') + 1), index});
      break;
    }
  }
  return found;
}

std::vector<DeviceSeen> Devices::seen() const {
  std::vector<DeviceSeen> devices;
  for (const catalog::Chip& chip : chips_) {
    for (const std::string& id : expected(chip)) {
      const bool is_there = sys::exists(folder_ + "/" + id);
      devices.push_back({id, chip.id, is_there, is_there ? "" : "device file is gone"});
    }
  }
  for (const Real& real : find_real()) {
    // The PCI id tells the maker; which of its chips this is only where it has one.
    std::string chip;
    size_t candidates = 0;
    for (const catalog::Chip& one : chips_) {
      if (one.is_simulated || one.back_end != real.back_end) continue;
      chip = one.id;
      candidates += 1;
    }
    devices.push_back({real.id, candidates == 1 ? chip : "", true, "PCI " + real.address});
  }
  return devices;
}

Result<std::vector<DeviceNode>> Devices::nodes_of(const std::vector<std::string>& ids) const {
  std::vector<DeviceNode> nodes;
  std::set<std::string> taken;
  const std::vector<DeviceSeen> known = seen();
  const std::vector<Real> reals = find_real();
  for (const std::string& id : ids) {
    const auto device = std::find_if(known.begin(), known.end(),
                                     [&](const DeviceSeen& one) { return one.id == id; });
    if (device == known.end()) {
      return fail(Code::kNotFound, "device_unknown", "this node has no device " + id);
    }
    if (!device->is_healthy) {
      return fail(Code::kUnavailable, "device_gone", id + ": " + device->note);
    }
    const auto real = std::find_if(reals.begin(), reals.end(),
                                   [&](const Real& one) { return one.id == id; });
    if (real == reals.end()) continue;  // cpu and simulated chips need no node
    for (const catalog::BackEnd& back_end : back_ends_) {
      if (back_end.id != real->back_end) continue;
      for (const std::string& pattern : back_end.device_nodes) {
        for (const std::string& path : globbed(root_ + pattern)) {
          const auto number = number_at_end(path);
          if (number && *number != real->index) continue;  // another device's
          struct stat info{};
          if (!taken.insert(path).second || stat(path.c_str(), &info) != 0) continue;
          if (!S_ISCHR(info.st_mode) && !S_ISBLK(info.st_mode)) continue;
          nodes.push_back({path.substr(root_.size()), S_ISBLK(info.st_mode),
                           static_cast<int64_t>(major(info.st_rdev)),
                           static_cast<int64_t>(minor(info.st_rdev))});
        }
      }
    }
  }
  return nodes;
}

}  // namespace anychip::agent
