// Mounts of this mount namespace, and detached mount trees (open_tree, move_mount, idmap).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "sys/files.h"

namespace anychip::sys {

struct MountEntry {
  int id = 0, parent_id = 0;
  std::string device;  // "7:3"
  std::string root;    // path in its file system
  std::string target, source, type, options;
};
Result<std::vector<MountEntry>> mount_table();  // /proc/self/mountinfo, in its order
Result<std::optional<MountEntry>> mounted_at(const std::string& target);  // the topmost one

Status mount_file_system(const std::string& source, const std::string& target,
                         const std::string& type, unsigned long flags = 0,
                         const std::string& options = {});
// umount, repeated while EBUSY for `patience`, then MNT_DETACH. Not mounted = done. true: it had
// to be detached lazily (somebody still holds it: look whether the device becomes free).
Result<bool> unmount(const std::string& target, Duration patience = milliseconds(500));

// Detached trees, named by a descriptor; gone with it unless attached.
Result<Fd> clone_tree(const std::string& path, bool is_recursive = false);
Result<Fd> make_user_namespace(uint32_t first_host_id, uint32_t count = 65536);  // 0.. -> first..
Status idmap_tree(const Fd& tree, const Fd& user_namespace);
Status set_tree_read_only(const Fd& tree);
Status attach_tree(const Fd& tree, const std::string& target);

}  // namespace anychip::sys
