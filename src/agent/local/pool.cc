#include "agent/local/pool.h"

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
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

constexpr int64_t kPoolBytesDefaultMax = 40ll << 30;
constexpr int64_t kPoolBytesMin = 1ll << 30;

Result<int64_t> size_for_new_pool(const std::string& folder, int64_t asked_bytes) {
  TRY(const sys::Space space, sys::space_of(folder));
  const int64_t size_bytes =
      asked_bytes != 0 ? asked_bytes : std::min(kPoolBytesDefaultMax, space.free_bytes / 10 * 7);
  if (size_bytes < kPoolBytesMin) {
    return fail(Code::kResourceExhausted, "disk_full",
                fmt::format("{} has {} MiB free; the disk pool needs at least 1 GiB (1.5 GiB free)",
                            folder, space.free_bytes >> 20),
                "free some space, or set ANYCHIP_DATA to a folder on a larger disk");
  }
  return size_bytes / 4096 * 4096;
}

}  // namespace

Status Pool::Impl::make_backing(int64_t size_bytes) {
  if (sys::exists(layout_.backing)) return {};
  TRY(size_bytes, size_for_new_pool(layout_.agent, size_bytes));
  const std::string unfinished = layout_.backing + ".new";
  TRY_VOID(sys::remove_file(unfinished));
  {
    TRY(auto fd, sys::open_file(unfinished, O_RDWR | O_CREAT | O_EXCL, 0600));
    if (::ftruncate(fd.get(), size_bytes) != 0) return fail_errno("size " + unfinished, errno);
  }
  // 4096-byte sectors: with 512 the first FICLONE breaks direct I/O of original and clone.
  TRY_VOID(sys::run_ok({"mkfs.xfs", "-q", "-f", "-s", "size=4096", "-m", "reflink=1", unfinished}));
  FAILPOINT("pool.made");
  TRY_VOID(sys::sync_file(unfinished));
  return sys::rename_durable(unfinished, layout_.backing);
}

Status Pool::Impl::mount_pool() {
  TRY(const auto mounted, sys::mounted_at(layout_.pool));
  TRY(const auto loops, sys::loops_of(layout_.backing));
  if (mounted) {
    if (!loops.empty() && loops[0].path == mounted->source) return {};
    return fail(
        Code::kFailedPrecondition, "pool_mount_foreign",
        fmt::format("{} is a mount of {}, not of our pool file", layout_.pool, mounted->source),
        "unmount it, then start again");
  }
  TRY(const bool is_free, sys::wait_loop_free(layout_.backing, seconds(2)));
  if (!is_free) {
    return fail(Code::kFailedPrecondition, "pool_busy",
                layout_.backing + " is in use in another mount namespace",
                "end the process that holds it (fuser -m), then start again");
  }
  TRY(const auto loop, sys::attach_loop(layout_.backing));
  TRY_VOID(sys::mount_file_system(loop.path, layout_.pool, "xfs", MS_NODEV | MS_NOSUID | MS_NOATIME,
                                  "discard"));
  return {};
}

Status Pool::Impl::close() {
  Status first_problem;
  for (const auto& [id, record] : volume_records()) {
    const auto lock = lock_object(id.text);
    if (Status status = unmount_volume(id); !status && first_problem)
      first_problem = std::move(status);
  }
  TRY_VOID(first_problem);
  TRY_VOID(sys::unmount(layout_.pool));
  TRY(const bool is_free, sys::wait_loop_free(layout_.backing, seconds(5)));
  if (!is_free) {
    return fail(Code::kUnavailable, "pool_busy",
                "the disk pool is still in use by another process");
  }
  return {};
}

std::optional<VolumeRecord> Pool::Impl::volume_record(const VolumeId& id) {
  const std::lock_guard lock(mutex_);
  const auto found = volumes_.find(id);
  return found == volumes_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<SnapshotRecord> Pool::Impl::snapshot_record(const SnapshotId& id) {
  const std::lock_guard lock(mutex_);
  const auto found = snapshots_.find(id);
  return found == snapshots_.end() ? std::nullopt : std::optional(found->second);
}

std::map<VolumeId, VolumeRecord> Pool::Impl::volume_records() {
  const std::lock_guard lock(mutex_);
  return volumes_;
}

std::map<SnapshotId, SnapshotRecord> Pool::Impl::snapshot_records() {
  const std::lock_guard lock(mutex_);
  return snapshots_;
}

Status Pool::Impl::save(const VolumeRecord& record) {
  TRY_VOID(sys::write_file_durable(layout_.sidecar_of(record.volume), to_json_text(record), 0600));
  const std::lock_guard lock(mutex_);
  volumes_[record.volume] = record;
  return {};
}

Status Pool::Impl::save(const SnapshotRecord& record) {
  TRY_VOID(
      sys::write_file_durable(layout_.sidecar_of(record.snapshot), to_json_text(record), 0600));
  const std::lock_guard lock(mutex_);
  snapshots_[record.snapshot] = record;
  return {};
}

void Pool::Impl::forget(const VolumeId& id) {
  const std::lock_guard lock(mutex_);
  volumes_.erase(id);
}

void Pool::Impl::forget(const SnapshotId& id) {
  const std::lock_guard lock(mutex_);
  snapshots_.erase(id);
}

std::unique_lock<std::mutex> Pool::Impl::lock_object(const std::string& id) {
  std::mutex* object_mutex = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& slot = object_mutexes_[id];  // kept: ids are never reused, and a mutex is 40 bytes
    if (!slot) slot = std::make_unique<std::mutex>();
    object_mutex = slot.get();
  }
  return std::unique_lock(*object_mutex);
}

Pool::Pool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pool::~Pool() = default;

Result<std::unique_ptr<Pool>> Pool::open(const std::string& data, PoolOptions options) {
  if (::geteuid() != 0) {
    return fail(Code::kPermissionDenied, "root_needed",
                "the disk pool needs root: it mounts file systems",
                "start the agent as root (sudo)");
  }
  PoolLayout layout(sys::absolute_path(data));  // as the kernel names it, for loops and mounts
  TRY_VOID(sys::make_folders(layout.agent, 0711));
  TRY_VOID(sys::make_folders(layout.pool, 0700));
  TRY_VOID(sys::make_folders(layout.mounts, 0711));
  auto lock = sys::FileLock::try_acquire(layout.lock_file);
  if (!lock && lock.error().reason == "locked") {
    return fail(Code::kFailedPrecondition, "pool_in_use",
                "another agent is running on the data folder " + sys::absolute_path(data),
                "stop it first (anychip down), or set ANYCHIP_DATA to another folder");
  }
  if (!lock) return tl::unexpected(std::move(lock).error());
  auto impl = std::make_unique<Impl>(std::move(layout), std::move(*lock));
  TRY_VOID(impl->make_backing(options.size_bytes));
  TRY_VOID(impl->mount_pool());
  TRY_VOID(impl->heal());
  return std::unique_ptr<Pool>(new Pool(std::move(impl)));
}

Status Pool::close() { return impl_->close(); }
Status Pool::ensure_volume(const VolumeId& volume, int64_t size_bytes, const SnapshotId& from) {
  return impl_->ensure_volume(volume, size_bytes, from);
}
Status Pool::remove_volume(const VolumeId& volume) { return impl_->remove_volume(volume); }
Status Pool::take_snapshot(const SnapshotId& snapshot, const VolumeId& volume) {
  return impl_->take_snapshot(snapshot, volume);
}
Status Pool::remove_snapshot(const SnapshotId& snapshot) {
  return impl_->remove_snapshot(snapshot);
}
Result<MountedVolume> Pool::attach(const VolumeId& volume, const InstanceId& instance,
                                   int64_t generation) {
  return impl_->attach(volume, instance, generation);
}
Status Pool::detach(const VolumeId& volume, const InstanceId& instance) {
  return impl_->detach(volume, instance);
}

Status Pool::detach_all(const InstanceId& instance) {
  Status first_problem;
  for (const auto& [id, record] : impl_->volume_records()) {
    if (std::find(record.holders.begin(), record.holders.end(), instance) == record.holders.end())
      continue;
    if (Status status = impl_->detach(id, instance); !status && first_problem)
      first_problem = std::move(status);
  }
  return first_problem;
}

std::vector<VolumeSeen> Pool::volumes() {
  std::vector<VolumeSeen> seen;
  for (const auto& [id, record] : impl_->volume_records()) {
    if (record.state != RecordState::kReady) continue;
    seen.push_back({id, record.size_bytes, sys::allocated_bytes(impl_->layout().image_of(id)),
                    record.holders.empty() ? InstanceId{} : record.holders.front(),
                    record.attach_generation});
  }
  return seen;
}

std::vector<SnapshotSeen> Pool::snapshots() {
  std::vector<SnapshotSeen> seen;
  for (const auto& [id, record] : impl_->snapshot_records()) {
    if (record.state != RecordState::kReady) continue;
    seen.push_back({id, record.volume, record.size_bytes, record.freeze_us});
  }
  return seen;
}

PoolSpace Pool::space() {
  const auto space = sys::space_of(impl_->layout().pool);
  return space ? PoolSpace{space->total_bytes, space->free_bytes} : PoolSpace{};
}

}  // namespace anychip::agent
