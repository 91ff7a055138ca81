// Inside of Pool, shared by pool.cc (the pool itself), volume.cc, snapshot.cc and pool_heal.cc.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "agent/local/pool.h"
#include "agent/local/pool_record.h"
#include "sys/files.h"

namespace anychip::agent {

class Pool::Impl {
 public:
  Impl(PoolLayout layout, sys::FileLock lock)
      : layout_(std::move(layout)), lock_(std::move(lock)) {}

  // pool.cc
  Status make_backing(int64_t size_bytes);
  Status mount_pool();
  Status close();

  // pool_heal.cc: makes what an earlier process left whole again; fills the records.
  Status heal();

  // volume.cc
  Status ensure_volume(const VolumeId& id, int64_t size_bytes, const SnapshotId& from);
  Status remove_volume(const VolumeId& id);
  Result<MountedVolume> attach(const VolumeId& id, const InstanceId& instance, int64_t generation);
  Status detach(const VolumeId& id, const InstanceId& instance);
  Status unmount_volume(const VolumeId& id);  // until the loop device is really free
  Status delete_volume(VolumeRecord record);

  // snapshot.cc
  Status take_snapshot(const SnapshotId& id, const VolumeId& volume);
  Status remove_snapshot(const SnapshotId& id);
  Status delete_snapshot(SnapshotRecord record);

  // Copies; empty when unknown.
  std::optional<VolumeRecord> volume_record(const VolumeId& id);
  std::optional<SnapshotRecord> snapshot_record(const SnapshotId& id);
  std::map<VolumeId, VolumeRecord> volume_records();
  std::map<SnapshotId, SnapshotRecord> snapshot_records();

  const PoolLayout& layout() const { return layout_; }

 private:
  Status save(const VolumeRecord& record);  // sidecar first, then memory
  Status save(const SnapshotRecord& record);
  void forget(const VolumeId& id);
  void forget(const SnapshotId& id);
  // Held during an operation on the object: those of one object run one after the other. Lock
  // order: volume before snapshot.
  std::unique_lock<std::mutex> lock_object(const std::string& id);

  Result<std::string> template_of(int64_t size_bytes);
  Status check_space() const;
  Status fill_image(const VolumeRecord& record);
  Status mount_volume(VolumeRecord& record);
  Status clone_mounted(SnapshotRecord& record, const std::string& mount_point);
  Status heal_volumes();
  Status heal_snapshots();
  Status sweep_mounts();
  Status sweep_files(const std::string& folder);

  PoolLayout layout_;
  sys::FileLock lock_;
  std::mutex mutex_;  // of the maps below; held for moments only
  std::map<VolumeId, VolumeRecord> volumes_;
  std::map<SnapshotId, SnapshotRecord> snapshots_;
  std::map<std::string, std::unique_ptr<std::mutex>> object_mutexes_;
  std::mutex template_mutex_;
};

}  // namespace anychip::agent
