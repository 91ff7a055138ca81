#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "agent/local/pool_impl.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "sys/loop.h"
#include "sys/mounts.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

constexpr int64_t kPoolFreeBytesMin = 256ll << 20;

// What cannot name a file must not become a path.
template <class AnyId>
Status check_id(const AnyId& id) {
  if (is_id_text(AnyId::kPrefix, id.text)) return {};
  return fail(Code::kInvalidArgument, "id_malformed", "'" + id.text + "' is not an id");
}

tl::unexpected<Error> volume_missing(const VolumeId& id) {
  return fail(Code::kNotFound, "volume_missing", "the volume " + id.text + " is not on this node");
}

}  // namespace

// An empty file system of exactly this size, made once; volumes are clones of it, so making one
// takes milliseconds and only the blocks it changes.
Result<std::string> Pool::Impl::template_of(int64_t size_bytes) {
  const std::lock_guard lock(template_mutex_);
  const std::string path = fmt::format("{}/{}.img", layout_.templates, size_bytes);
  if (sys::exists(path)) return path;
  const std::string unfinished = path + ".tmp";
  {
    TRY(auto fd, sys::open_file(unfinished, O_RDWR | O_CREAT | O_TRUNC, 0600));
    if (::ftruncate(fd.get(), size_bytes) != 0) return fail_errno("size " + unfinished, errno);
  }
  TRY_VOID(sys::run_ok(
      {"mkfs.xfs", "-q", "-f", "-K", "-s", "size=4096", "-m", "reflink=1", unfinished}));
  FAILPOINT("pool.template.made");
  TRY_VOID(sys::sync_file(unfinished));
  TRY_VOID(sys::rename_durable(unfinished, path));
  return path;
}

Status Pool::Impl::check_space() const {
  TRY(const auto space, sys::space_of(layout_.pool));
  if (space.free_bytes >= kPoolFreeBytesMin) return {};
  return fail(Code::kResourceExhausted, "pool_full",
              fmt::format("the disk pool has only {} MiB free", space.free_bytes >> 20),
              "remove volumes or snapshots that are not needed");
}

Status Pool::Impl::fill_image(const VolumeRecord& record) {
  std::string source;
  if (record.from_snapshot.empty()) {
    TRY(source, template_of(record.size_bytes));
  } else {
    source = layout_.image_of(record.from_snapshot);
  }
  const std::string image = layout_.image_of(record.volume);
  TRY_VOID(sys::clone_file(source, image));
  FAILPOINT("pool.volume.cloned");
  if (record.needs_grow && ::truncate(image.c_str(), record.size_bytes) != 0) {
    return fail_errno("grow " + image, errno);
  }
  TRY_VOID(sys::sync_file(image));
  return sys::sync_folder(layout_.volumes);
}

Status Pool::Impl::ensure_volume(const VolumeId& id, int64_t size_bytes, const SnapshotId& from) {
  TRY_VOID(check_id(id));
  const auto lock = lock_object(id.text);
  if (const auto record = volume_record(id); record && record->state == RecordState::kReady) {
    if (record->size_bytes >= size_bytes) return {};
    return fail(Code::kFailedPrecondition, "volume_size_differs",
                fmt::format("the volume {} is there with {} bytes", id.text, record->size_bytes));
  }
  if (size_bytes < kVolumeBytesMin && from.empty()) {
    return fail(Code::kInvalidArgument, "volume_too_small",
                fmt::format("a volume has at least {} MiB", kVolumeBytesMin >> 20));
  }
  TRY_VOID(check_space());
  VolumeRecord record;
  record.volume = id;
  record.size_bytes = (size_bytes + 4095) / 4096 * 4096;
  record.from_snapshot = from;
  std::unique_lock<std::mutex> snapshot_lock;
  if (!from.empty()) {
    TRY_VOID(check_id(from));
    snapshot_lock = lock_object(from.text);
    const auto snapshot = snapshot_record(from);
    if (!snapshot || snapshot->state != RecordState::kReady) {
      return fail(Code::kNotFound, "snapshot_missing",
                  "the snapshot " + from.text + " is not on this node");
    }
    record.size_bytes = std::max(record.size_bytes, snapshot->size_bytes);
    record.needs_grow = record.size_bytes > snapshot->size_bytes;
  }
  TRY_VOID(save(record));
  FAILPOINT("pool.volume.sidecar");
  if (Status filled = fill_image(record); !filled) {
    if (const Status deleted = delete_volume(record); !deleted) {
      log::warn("pool.volume_undeleted", {{"volume", id.text}, {"error", deleted.error().message}});
    }
    return filled;
  }
  record.state = RecordState::kReady;
  return save(record);
}

Status Pool::Impl::remove_volume(const VolumeId& id) {
  const auto lock = lock_object(id.text);
  auto record = volume_record(id);
  if (!record) return {};
  if (!record->holders.empty()) {
    return fail(Code::kFailedPrecondition, "volume_in_use",
                "the volume " + id.text + " is attached to " + record->holders.front().text);
  }
  record->state = RecordState::kRemoving;
  TRY_VOID(save(*record));
  FAILPOINT("pool.volume.removing");
  return delete_volume(std::move(*record));
}

Status Pool::Impl::delete_volume(VolumeRecord record) {
  TRY_VOID(unmount_volume(record.volume));
  TRY_VOID(sys::remove_file(layout_.image_of(record.volume)));
  FAILPOINT("pool.volume.image_removed");
  TRY_VOID(sys::remove_file(layout_.sidecar_of(record.volume)));
  TRY_VOID(sys::sync_folder(layout_.volumes));
  forget(record.volume);
  return {};
}

Status Pool::Impl::mount_volume(VolumeRecord& record) {
  const std::string target = layout_.mount_of(record.volume);
  const std::string image = layout_.image_of(record.volume);
  TRY(const auto mounted, sys::mounted_at(target));
  if (mounted) return {};
  // Never two devices on one image: a lazily detached mount may still be written to.
  TRY(const bool is_free, sys::wait_loop_free(image, seconds(1)));
  if (!is_free) {
    return fail(Code::kUnavailable, "volume_busy",
                "the volume " + record.volume.text + " is still being released");
  }
  TRY_VOID(sys::make_folders(target, 0711));
  TRY(const auto loop, sys::attach_loop(image));
  // nouuid: every clone has the uuid of its template or parent.
  TRY_VOID(sys::mount_file_system(loop.path, target, "xfs", MS_NODEV | MS_NOSUID | MS_NOATIME,
                                  "nouuid,discard"));
  if (!record.needs_grow) return {};
  TRY_VOID(sys::run_ok({"xfs_growfs", target}));
  record.needs_grow = false;
  return save(record);
}

Result<MountedVolume> Pool::Impl::attach(const VolumeId& id, const InstanceId& instance,
                                         int64_t generation) {
  TRY_VOID(check_id(id));
  const auto lock = lock_object(id.text);
  auto record = volume_record(id);
  if (!record || record->state != RecordState::kReady) return volume_missing(id);
  if (generation < record->attach_generation) {
    return fail(Code::kFailedPrecondition, "generation_stale",
                fmt::format("the volume {} was attached with generation {} since", id.text,
                            record->attach_generation));
  }
  auto& holders = record->holders;
  const bool is_holder = std::find(holders.begin(), holders.end(), instance) != holders.end();
  const size_t others = holders.size() - (is_holder ? 1 : 0);
  if (generation > record->attach_generation && others > 0) {
    const InstanceId& other = holders.front() == instance ? holders.back() : holders.front();
    return fail(Code::kFailedPrecondition, "volume_in_use",
                fmt::format("the volume {} is still attached to {}", id.text, other.text));
  }
  const VolumeRecord before = *record;
  if (!is_holder) holders.push_back(instance);
  record->attach_generation = generation;
  TRY_VOID(save(*record));
  FAILPOINT("pool.attach.sidecar");
  if (const Status mounted = mount_volume(*record); !mounted) {
    VolumeRecord undone = before;
    undone.needs_grow = record->needs_grow;
    TRY_VOID(save(undone));
    return tl::unexpected(mounted.error());
  }
  FAILPOINT("pool.attach.mounted");
  return MountedVolume{layout_.mount_of(id)};
}

Status Pool::Impl::unmount_volume(const VolumeId& id) {
  const std::string target = layout_.mount_of(id);
  TRY(const bool is_lazy, sys::unmount(target));
  TRY(const bool is_free,
      sys::wait_loop_free(layout_.image_of(id), is_lazy ? seconds(1) : seconds(5)));
  if (!is_free) {
    return fail(Code::kUnavailable, "volume_busy",
                "the volume " + id.text + " is still in use by a process",
                "try again when it has ended");
  }
  if (::rmdir(target.c_str()) != 0 && errno != ENOENT) return fail_errno("remove " + target, errno);
  return {};
}

Status Pool::Impl::detach(const VolumeId& id, const InstanceId& instance) {
  const auto lock = lock_object(id.text);
  auto record = volume_record(id);
  if (!record) return {};
  auto& holders = record->holders;
  const auto holder = std::find(holders.begin(), holders.end(), instance);
  if (holder == holders.end()) return {};
  if (holders.size() == 1) TRY_VOID(unmount_volume(id));
  FAILPOINT("pool.detach.unmounted");
  holders.erase(holder);
  return save(*record);
}

}  // namespace anychip::agent
