// What the pool writes down beside each image file, and where everything lies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"

namespace anychip::agent {

struct PoolLayout {
  explicit PoolLayout(const std::string& data_folder);
  std::string agent;                          // DATA/agent
  std::string lock_file;                      // DATA/agent/pool.lock
  std::string backing;                        // DATA/agent/pool.img
  std::string pool;                           // DATA/agent/pool: the mounted pool
  std::string volumes, snapshots, templates;  // folders in it
  std::string mounts;                         // DATA/agent/mounts

  std::string image_of(const VolumeId& id) const { return volumes + "/" + id.text + ".img"; }
  std::string sidecar_of(const VolumeId& id) const { return volumes + "/" + id.text + ".json"; }
  std::string image_of(const SnapshotId& id) const { return snapshots + "/" + id.text + ".img"; }
  std::string sidecar_of(const SnapshotId& id) const { return snapshots + "/" + id.text + ".json"; }
  std::string mount_of(const VolumeId& id) const { return mounts + "/" + id.text; }
};

enum class RecordState { kCreating, kReady, kRemoving };

struct VolumeRecord {
  VolumeId volume;
  RecordState state = RecordState::kCreating;
  int64_t size_bytes = 0;
  bool needs_grow = false;  // the file is larger than the file system in it, until first mounted
  SnapshotId from_snapshot;
  int64_t attach_generation = 0;    // of the newest attach, kept after the detach
  std::vector<InstanceId> holders;  // instances it is attached to
};

struct SnapshotRecord {
  SnapshotId snapshot;
  VolumeId volume;
  RecordState state = RecordState::kCreating;
  int64_t size_bytes = 0;  // of the volume
  int64_t flush_us = 0;    // syncfs before the freeze: writers go on meanwhile
  int64_t freeze_us = 0;   // writers stood still
};

std::string to_json_text(const VolumeRecord& record);
std::string to_json_text(const SnapshotRecord& record);
Result<VolumeRecord> parse_volume_record(std::string_view text);
Result<SnapshotRecord> parse_snapshot_record(std::string_view text);

}  // namespace anychip::agent
