#include "fleet/place.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace anychip::fleet {
namespace {

struct Candidate {
  bool is_ready = false;
  int64_t total = 0;
  std::vector<std::string> free;
};

std::map<NodeId, Candidate> candidates(const Want& want, const std::vector<Device>& devices,
                                       const std::vector<Node>& nodes) {
  std::map<NodeId, Candidate> by_node;
  for (const Node& node : nodes) {
    if (want.node.empty() || node.id == want.node) by_node[node.id].is_ready = node.is_ready;
  }
  for (const Device& device : devices) {
    const auto found = by_node.find(device.node);
    if (found == by_node.end() || device.chip != want.chip || !device.is_healthy) continue;
    found->second.total += 1;
    if (device.lessee.empty()) found->second.free.push_back(device.id);
  }
  return by_node;
}

void take_preferred_first(std::vector<std::string>& free,
                          const std::vector<std::string>& preferred) {
  std::stable_partition(free.begin(), free.end(), [&](const std::string& id) {
    return std::find(preferred.begin(), preferred.end(), id) != preferred.end();
  });
}

}  // namespace

Result<Placement> place(const Want& want, const std::vector<Device>& devices,
                        const std::vector<Node>& nodes) {
  const auto by_node = candidates(want, devices, nodes);
  int64_t total = 0, total_max = 0, free = 0;
  const std::pair<const NodeId, Candidate>* best = nullptr;
  for (const auto& entry : by_node) {
    const Candidate& candidate = entry.second;
    const auto count_free = static_cast<int64_t>(candidate.free.size());
    total += candidate.total;
    total_max = std::max(total_max, candidate.total);
    free += count_free;
    if (count_free < want.count) continue;
    const bool is_better = best == nullptr || candidate.is_ready > best->second.is_ready ||
                           (candidate.is_ready == best->second.is_ready &&
                            candidate.free.size() < best->second.free.size());
    if (is_better) best = &entry;
  }
  if (best != nullptr) {
    Placement placement{best->first, best->second.free};
    take_preferred_first(placement.device_ids, want.preferred);
    placement.device_ids.resize(static_cast<size_t>(want.count));
    return placement;
  }
  const std::string where = want.node.empty() ? "" : " on the node that holds the run's disks";
  if (total == 0) {
    return fail(Code::kResourceExhausted, "no_capacity",
                fmt::format("no node offers chip {}{}", want.chip, where),
                "see `anychip offer` for the chips that are there");
  }
  if (want.count > total_max) {
    return fail(Code::kResourceExhausted, "count_exceeds_total",
                fmt::format("{} × {} was asked for, but at most {} are in one node{}", want.count,
                            want.chip, total_max, where),
                fmt::format("ask for {} or fewer", total_max));
  }
  return fail(Code::kResourceExhausted, "no_capacity",
              fmt::format("{} of {} {} are free{}, {} are needed", free, total, want.chip, where,
                          want.count),
              "wait for a run to end, or stop one with `anychip stop`");
}

}  // namespace anychip::fleet
