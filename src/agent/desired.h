// What the server wants of this node (contract §2, Desired), as values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/runtime.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"

namespace anychip::agent {

struct WantedImage {
  std::string image, variant, digest;
};
struct WantedVolume {
  EnsureVolume volume;
  bool is_gone = false;
};
struct WantedSnapshot {
  TakeSnapshot snapshot;
  bool is_gone = false;
};
enum class Want { kPrepare, kRun, kStop, kGone };
struct WantedInstance {
  std::string leg_id;
  Want want = Want::kPrepare;
  ContainerSpec spec;  // workdir_path stays empty until it is fetched
  std::optional<int64_t> stop_at_step;
  Duration stop_grace;
};
struct Desired {
  int64_t version = 0;
  std::string node_id;
  std::vector<WantedImage> images;
  std::vector<WantedVolume> volumes;
  std::vector<WantedSnapshot> snapshots;
  std::vector<WantedInstance> instances;

  const WantedInstance* find(const InstanceId& instance) const;
};

Result<Desired> parse_desired(std::string_view text);

}  // namespace anychip::agent
