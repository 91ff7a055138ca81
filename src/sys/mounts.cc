#include "sys/mounts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include <fmt/format.h>

namespace anychip::sys {
namespace {

// \040 and the like of /proc/self/mountinfo
std::string unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

void sleep_ms(int64_t ms) {
  const timespec wait{ms / 1000, ms % 1000 * 1'000'000};
  ::nanosleep(&wait, nullptr);
}

}  // namespace

Result<std::vector<MountEntry>> mount_table() {
  TRY(auto text, read_file("/proc/self/mountinfo"));
  std::vector<MountEntry> entries;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    MountEntry entry;
    std::string root, target, option, source;
    fields >> entry.id >> entry.parent_id >> entry.device >> root >> target >> entry.options;
    while (fields >> option && option != "-") {
    }
    fields >> entry.type >> source;
    entry.root = unescape(root);
    entry.target = unescape(target);
    entry.source = unescape(source);
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::optional<MountEntry>> mounted_at(const std::string& target) {
  TRY(auto entries, mount_table());
  std::optional<MountEntry> found;
  for (MountEntry& entry : entries) {
    if (entry.target == target) found = std::move(entry);
  }
  return found;
}

Status mount_file_system(const std::string& source, const std::string& target,
                         const std::string& type, unsigned long flags, const std::string& options) {
  if (::mount(source.c_str(), target.c_str(), type.c_str(), flags,
              options.empty() ? nullptr : options.c_str()) != 0) {
    return fail_errno(fmt::format("mount {} at {}", source, target), errno);
  }
  return {};
}

Result<bool> unmount(const std::string& target, Duration patience) {
  for (int64_t waited_ms = 0;; waited_ms += 10) {
    if (::umount2(target.c_str(), UMOUNT_NOFOLLOW) == 0) return false;
    if (errno == EINVAL || errno == ENOENT) return false;  // not a mount point
    if (errno != EBUSY) return fail_errno("unmount " + target, errno);
    if (waited_ms >= patience.ms()) break;
    sleep_ms(10);
  }
  if (::umount2(target.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno != EINVAL) {
    return fail_errno("detach " + target, errno);
  }
  return true;
}

Result<Fd> clone_tree(const std::string& path, bool is_recursive) {
  const unsigned flags =
      OPEN_TREE_CLONE | O_CLOEXEC | (is_recursive ? static_cast<unsigned>(AT_RECURSIVE) : 0u);
  const long fd = ::syscall(SYS_open_tree, AT_FDCWD, path.c_str(), flags);
  if (fd < 0) return fail_errno("open tree " + path, errno);
  return Fd(static_cast<int>(fd));
}

Result<Fd> make_user_namespace(uint32_t first_host_id, uint32_t count) {
  // A short-lived child owns the namespace until its descriptor is ours. Raw clone without an exit
  // signal: no waitpid(-1) elsewhere takes it, and the child only ever calls pause().
  const pid_t parent = ::getpid();
  const long pid = ::syscall(SYS_clone, static_cast<unsigned long>(CLONE_NEWUSER), nullptr, nullptr,
                             nullptr, 0ul);
  if (pid < 0) return fail_errno("make a user namespace", errno);
  if (pid == 0) {
    // We may be killed before we can kill it: it holds none of our locks, and does not outlive us.
    ::syscall(SYS_close_range, 0u, ~0u, 0u);
    ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    if (::syscall(SYS_getppid) != parent) ::_exit(0);
    while (true) ::syscall(SYS_pause);
  }
  const auto map_ids = [&]() -> Result<Fd> {
    const std::string map = fmt::format("0 {} {}", first_host_id, count);
    for (const char* file : {"uid_map", "gid_map"}) {
      TRY(auto fd, open_file(fmt::format("/proc/{}/{}", pid, file), O_WRONLY));
      TRY_VOID(write_all(fd.get(), map));
    }
    return open_file(fmt::format("/proc/{}/ns/user", pid), O_RDONLY);
  };
  Result<Fd> user_namespace = map_ids();
  ::kill(static_cast<pid_t>(pid), SIGKILL);
  while (::waitpid(static_cast<pid_t>(pid), nullptr, __WALL) < 0 && errno == EINTR) {
  }
  return user_namespace;
}

namespace {
Status set_attributes(const Fd& tree, mount_attr attributes, std::string_view what) {
  if (::syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) !=
      0) {
    return fail_errno(what, errno);
  }
  return {};
}
}  // namespace

Status idmap_tree(const Fd& tree, const Fd& user_namespace) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = static_cast<uint64_t>(user_namespace.get());
  return set_attributes(tree, attributes, "map the ids of a mount");
}

Status set_tree_read_only(const Fd& tree) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  return set_attributes(tree, attributes, "make a mount read-only");
}

Status attach_tree(const Fd& tree, const std::string& target) {
  if (::syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, target.c_str(),
                MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return fail_errno("attach a mount at " + target, errno);
  }
  return {};
}

}  // namespace anychip::sys
