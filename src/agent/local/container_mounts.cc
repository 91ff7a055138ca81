#include "agent/local/container_mounts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/log.h"
#include "sys/files.h"
#include "sys/mounts.h"

namespace anychip::agent {
namespace {

std::string unescaped(const std::string& text) {  // "\040" -> " "
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string link_of(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

// A child, because a process with threads cannot change its mount namespace.
int detach_in(const sys::Fd& mount_namespace, const std::vector<std::string>& targets) {
  const pid_t pid = fork();
  if (pid < 0) return 0;
  if (pid == 0) {
    if (setns(mount_namespace.get(), CLONE_NEWNS) != 0) _exit(0);
    int detached = 0;
    for (size_t i = targets.size(); i > 0; --i) {
      if (umount2(targets[i - 1].c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) ++detached;
    }
    _exit(std::min(detached, 100));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace

std::vector<std::string> mounts_below(const std::string& mountinfo, const std::vector<std::string>& folders) {
  std::vector<std::string> targets;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, target;
    if (!(words >> id >> parent >> device >> root >> target)) continue;
    target = unescaped(target);
    for (const std::string& folder : folders) {
      if (target != folder && !target.starts_with(folder + "/")) continue;
      targets.push_back(target);
      break;
    }
  }
  return targets;
}

Status unmount_below(const std::string& folder) {
  TRY(const auto table, sys::mount_table());
  for (auto entry = table.rbegin(); entry != table.rend(); ++entry) {
    if (!entry->target.starts_with(folder + "/")) continue;
    TRY(const bool is_lazy, sys::unmount(entry->target));
    if (is_lazy) log::warn("agent.mount_detached_lazily", {{"target", entry->target}});
  }
  return {};
}

int detach_in_other_namespaces(const std::vector<std::string>& folders) {
  std::set<std::string> looked_at{link_of("/proc/self/ns/mnt")};
  int detached = 0;
  for (const std::string& name : sys::list_folder("/proc").value_or(std::vector<std::string>{})) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string process = "/proc/" + name;
    const std::string identity = link_of(process + "/ns/mnt");
    if (identity.empty() || !looked_at.insert(identity).second) continue;
    const auto text = sys::read_file(process + "/mountinfo", 16 << 20);
    if (!text) continue;
    const auto targets = mounts_below(*text, folders);
    if (targets.empty()) continue;
    const auto entered = sys::open_file(process + "/ns/mnt", O_RDONLY);
    // Between the two looks the pid may have become somebody else's.
    if (!entered || link_of("/proc/self/fd/" + std::to_string(entered->get())) != identity) continue;
    const int here = detach_in(*entered, targets);
    if (here > 0) log::info("agent.foreign_mounts_detached", {{"process", name}, {"mounts", here}});
    detached += here;
  }
  return detached;
}

}  // namespace anychip::agent
