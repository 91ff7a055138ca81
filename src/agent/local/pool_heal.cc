// What a killed agent may have left, and how it becomes whole: a frozen file system is thawed, an
// unfinished creation removed, a begun removal finished, mounts and images nobody answers for
// swept. Everything that is touched lies under our own data folder.
#include <algorithm>

#include "agent/local/pool_impl.h"
#include "base/log.h"
#include "sys/freeze.h"
#include "sys/loop.h"
#include "sys/mounts.h"
#include "sys/paths.h"

namespace anychip::agent {
namespace {

// Names in a folder that end in `suffix`, without it.
Result<std::vector<std::string>> stems(const std::string& folder, std::string_view suffix) {
  TRY(const auto names, sys::list_folder(folder));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.ends_with(suffix)) found.push_back(name.substr(0, name.size() - suffix.size()));
  }
  return found;
}

}  // namespace

Status Pool::Impl::heal() {
  for (const std::string& folder : {layout_.volumes, layout_.snapshots, layout_.templates}) {
    TRY_VOID(sys::make_folders(folder, 0700));
  }
  TRY(const auto table, sys::mount_table());
  for (const sys::MountEntry& entry : table) {
    if (!entry.target.starts_with(layout_.mounts + "/")) continue;
    TRY(const bool was_frozen, sys::thaw_if_frozen(entry.target));
    if (was_frozen) log::warn("pool.thawed", {{"mount", entry.target}});
  }
  TRY_VOID(heal_volumes());
  TRY_VOID(heal_snapshots());
  TRY_VOID(sweep_mounts());
  TRY_VOID(sweep_files(layout_.volumes));
  TRY_VOID(sweep_files(layout_.snapshots));
  TRY(const auto unfinished, stems(layout_.templates, ".tmp"));
  for (const std::string& stem : unfinished) {
    TRY_VOID(sys::remove_file(layout_.templates + "/" + stem + ".tmp"));
  }
  return {};
}

// A sidecar that cannot be read is left alone with its image: data is never removed on a doubt.
Status Pool::Impl::heal_volumes() {
  TRY(const auto ids, stems(layout_.volumes, ".json"));
  for (const std::string& id : ids) {
    TRY(const std::string text, sys::read_file(layout_.volumes + "/" + id + ".json"));
    auto record = parse_volume_record(text);
    if (!record || record->volume.text != id) {
      log::error("pool.sidecar_unreadable", {{"volume", id}});
      continue;
    }
    if (record->state != RecordState::kReady) {
      log::warn("pool.volume_unfinished_removed", {{"volume", id}});
      TRY_VOID(delete_volume(*record));
      continue;
    }
    const std::lock_guard lock(mutex_);
    volumes_[record->volume] = std::move(*record);
  }
  return {};
}

Status Pool::Impl::heal_snapshots() {
  TRY(const auto ids, stems(layout_.snapshots, ".json"));
  for (const std::string& id : ids) {
    TRY(const std::string text, sys::read_file(layout_.snapshots + "/" + id + ".json"));
    auto record = parse_snapshot_record(text);
    if (!record || record->snapshot.text != id) {
      log::error("pool.sidecar_unreadable", {{"snapshot", id}});
      continue;
    }
    if (record->state != RecordState::kReady) {
      log::warn("pool.snapshot_unfinished_removed", {{"snapshot", id}});
      TRY_VOID(delete_snapshot(*record));
      continue;
    }
    const std::lock_guard lock(mutex_);
    snapshots_[record->snapshot] = std::move(*record);
  }
  return {};
}

// Mounts of volumes that no instance holds, mount points left empty, loop devices without a mount.
Status Pool::Impl::sweep_mounts() {
  TRY(const auto names, sys::list_folder(layout_.mounts));
  for (const std::string& name : names) {
    const VolumeId id{name};
    const auto record = volume_record(id);
    if (record && !record->holders.empty()) continue;
    if (const Status unmounted = unmount_volume(id); !unmounted) {
      log::warn("pool.volume_busy", {{"volume", name}, {"error", unmounted.error().message}});
    }
  }
  TRY(const auto table, sys::mount_table());
  TRY(const auto loops, sys::loop_devices());
  for (const sys::LoopDevice& loop : loops) {
    if (!loop.backing_file.starts_with(layout_.volumes + "/")) continue;
    const bool is_mounted =
        std::any_of(table.begin(), table.end(),
                    [&](const sys::MountEntry& entry) { return entry.source == loop.path; });
    if (!is_mounted) TRY_VOID(sys::detach_loop(loop.path));
  }
  return {};
}

Status Pool::Impl::sweep_files(const std::string& folder) {
  TRY(const auto names, sys::list_folder(folder));
  for (const std::string& name : names) {
    const bool is_orphan_image =
        name.ends_with(".img") &&
        !sys::exists(folder + "/" + name.substr(0, name.size() - 4) + ".json");
    if (!is_orphan_image && name.find(".tmp-") == std::string::npos) continue;
    log::warn("pool.leftover_removed", {{"file", name}});
    TRY_VOID(sys::remove_file(folder + "/" + name));
  }
  return {};
}

}  // namespace anychip::agent
