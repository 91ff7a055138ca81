#include <fmt/format.h>

#include "agent/local/pool_impl.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/time.h"
#include "sys/freeze.h"
#include "sys/loop.h"
#include "sys/mounts.h"

namespace anychip::agent {

// Writers stand still between freeze and thaw only: what is dirty is flushed before, and the clone
// is made durable after. FrozenFileSystem thaws however this function is left, and when we die.
Status Pool::Impl::clone_mounted(SnapshotRecord& record, const std::string& mount_point) {
  const RealClock clock;
  const MonoTime flush_begin = clock.mono_now();
  TRY_VOID(sys::sync_file_system(mount_point));
  const MonoTime freeze_begin = clock.mono_now();
  record.flush_us = (freeze_begin - flush_begin).us;
  TRY(auto frozen, sys::FrozenFileSystem::freeze(mount_point));
  FAILPOINT("pool.snapshot.frozen");
  TRY_VOID(sys::clone_file(layout_.image_of(record.volume), layout_.image_of(record.snapshot)));
  FAILPOINT("pool.snapshot.cloned");
  TRY_VOID(frozen.thaw());
  record.freeze_us = (clock.mono_now() - freeze_begin).us;
  return {};
}

Status Pool::Impl::take_snapshot(const SnapshotId& id, const VolumeId& volume) {
  if (!is_id_text(SnapshotId::kPrefix, id.text)) {
    return fail(Code::kInvalidArgument, "id_malformed", "'" + id.text + "' is not an id");
  }
  const auto volume_lock = lock_object(volume.text);
  const auto snapshot_lock = lock_object(id.text);
  if (const auto old = snapshot_record(id); old && old->state == RecordState::kReady) {
    if (old->volume == volume) return {};
    return fail(Code::kAlreadyExists, "snapshot_exists",
                "the snapshot " + id.text + " is of another volume");
  }
  const auto source = volume_record(volume);
  if (!source || source->state != RecordState::kReady) {
    return fail(Code::kNotFound, "volume_missing",
                "the volume " + volume.text + " is not on this node");
  }
  TRY_VOID(check_space());
  SnapshotRecord record;
  record.snapshot = id;
  record.volume = volume;
  record.size_bytes = source->size_bytes;
  TRY_VOID(save(record));
  FAILPOINT("pool.snapshot.sidecar");
  const auto clone = [&]() -> Status {
    const std::string mount_point = layout_.mount_of(volume);
    TRY(const auto mounted, sys::mounted_at(mount_point));
    if (mounted) return clone_mounted(record, mount_point);
    TRY(const bool is_free, sys::wait_loop_free(layout_.image_of(volume), seconds(1)));
    if (!is_free) {
      return fail(Code::kUnavailable, "volume_busy",
                  "the volume " + volume.text + " is still being released");
    }
    return sys::clone_file(layout_.image_of(volume), layout_.image_of(id));
  };
  Status cloned = clone();
  if (cloned) cloned = sys::sync_file(layout_.image_of(id));
  if (cloned) cloned = sys::sync_folder(layout_.snapshots);
  if (!cloned) {
    if (const Status deleted = delete_snapshot(record); !deleted) {
      log::warn("pool.snapshot_undeleted",
                {{"snapshot", id.text}, {"error", deleted.error().message}});
    }
    return cloned;
  }
  FAILPOINT("pool.snapshot.synced");
  record.state = RecordState::kReady;
  return save(record);
}

Status Pool::Impl::remove_snapshot(const SnapshotId& id) {
  const auto lock = lock_object(id.text);
  auto record = snapshot_record(id);
  if (!record) return {};
  record->state = RecordState::kRemoving;
  TRY_VOID(save(*record));
  FAILPOINT("pool.snapshot.removing");
  return delete_snapshot(std::move(*record));
}

Status Pool::Impl::delete_snapshot(SnapshotRecord record) {
  TRY_VOID(sys::remove_file(layout_.image_of(record.snapshot)));
  TRY_VOID(sys::remove_file(layout_.sidecar_of(record.snapshot)));
  TRY_VOID(sys::sync_folder(layout_.snapshots));
  forget(record.snapshot);
  return {};
}

}  // namespace anychip::agent
