// The disks of a node: one reflink pool (xfs in a sparse file, loop-mounted), in it one image file
// per volume and snapshot with a JSON sidecar beside it. The sidecar is written before the effect
// ("creating", "removing"), so whatever a kill leaves behind is completed or removed by the next
// open(). Blocking calls of milliseconds; every call is repeatable; thread-safe (one lock per
// volume, calls on different volumes run at once).
//
// Layout under DATA/agent: pool.img, pool/{volumes,snapshots,templates}/, mounts/<volume id>/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/runtime.h"
#include "base/error.h"
#include "base/ids.h"

namespace anychip::agent {

struct PoolOptions {
  int64_t size_bytes = 0;  // 0 = min(40 GiB, 70 % of the free space); only for a new pool
};

struct MountedVolume {
  std::string path;  // DATA/agent/mounts/<volume id>: host view, ids 0..65535 as on disk
};

struct PoolSpace {
  int64_t total_bytes = 0, free_bytes = 0;
};

constexpr int64_t kVolumeBytesMin = 320ll << 20;  // mkfs.xfs refuses less than 300 MB

class Pool {
 public:
  // `data` is the data folder (contract §4). Takes DATA/agent/pool.lock: a second agent on the same
  // folder gets "pool_in_use". Finds and heals whatever an earlier process left.
  static Result<std::unique_ptr<Pool>> open(const std::string& data, PoolOptions options = {});
  ~Pool();  // everything stays mounted for the next agent
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Unmounts all volumes and the pool, frees the loop devices. Attached volumes that are still in
  // use: "volume_busy", and what could be closed is closed.
  Status close();

  // Present already: done. Empty `from` = new and empty. size_bytes is a hard limit (writes beyond
  // get ENOSPC), at least kVolumeBytesMin; a volume from a snapshot is never smaller than it.
  Status ensure_volume(const VolumeId& volume, int64_t size_bytes, const SnapshotId& from = {});
  Status remove_volume(const VolumeId& volume);  // attached: "volume_in_use"; absent: done

  // Of a volume, attached or not. Attached: syncfs, freeze, clone, thaw.
  Status take_snapshot(const SnapshotId& snapshot, const VolumeId& volume);
  Status remove_snapshot(const SnapshotId& snapshot);

  // Mounts it (if it is not) and notes `instance` as a holder. The same volume may be held by any
  // number of instances at one generation. Refusals:
  //   generation_stale  a newer generation was attached before
  //   volume_in_use     an older generation still holds it: detach that instance first (fencing)
  Result<MountedVolume> attach(const VolumeId& volume, const InstanceId& instance,
                               int64_t generation);
  // The last holder's detach unmounts and waits until the loop device is really free (somebody
  // still writing = "volume_busy", holder kept, call again). Not a holder: done.
  Status detach(const VolumeId& volume, const InstanceId& instance);
  Status detach_all(const InstanceId& instance);  // every volume this instance holds

  std::vector<VolumeSeen> volumes();  // attached_to = the first holder
  std::vector<SnapshotSeen> snapshots();
  PoolSpace space();

 private:
  class Impl;  // pool_impl.h
  explicit Pool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace anychip::agent
