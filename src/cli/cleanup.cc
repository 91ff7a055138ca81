#include "cli/cleanup.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "base/hash.h"
#include "sys/files.h"
#include "sys/loop.h"
#include "sys/mounts.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::cli {
namespace {

constexpr int kRoundsMax = 5;

bool is_below(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

bool has_part(std::string_view path, std::string_view name) {
  const std::string wrapped = fmt::format("/{}/", name);
  return fmt::format("{}/", path).find(wrapped) != std::string::npos;
}

// Folders named `label` in any cgroup hierarchy, with all below them, deepest first.
std::vector<std::string> cgroup_folders(const std::string& label) {
  std::vector<std::string> found;
  std::vector<std::string> roots = {"/sys/fs/cgroup"};
  if (const auto names = sys::list_folder("/sys/fs/cgroup")) {
    for (const std::string& name : *names) roots.push_back("/sys/fs/cgroup/" + name);
  }
  std::error_code error;
  for (const std::string& root : roots) {
    const std::string top = root + "/" + label;
    if (!sys::is_folder(top)) continue;
    found.push_back(top);
    for (std::filesystem::recursive_directory_iterator at(top, error), end; at != end && !error;
         at.increment(error)) {
      if (at->is_directory(error)) found.push_back(at->path().string());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return found;
}

std::vector<pid_t> pids_in(const std::string& cgroup) {
  std::vector<pid_t> pids;
  const std::string text = sys::read_file(cgroup + "/cgroup.procs").value_or("");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto pid =
        static_cast<pid_t>(std::strtol(text.substr(begin, end - begin).c_str(), nullptr, 10));
    if (pid > 1) pids.push_back(pid);
    begin = end + 1;
  }
  return pids;
}

std::vector<int> monitors_of(const std::string& data) {
  std::vector<int> found;
  const auto names = sys::list_folder("/proc");
  if (!names) return found;
  for (const std::string& name : *names) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string line = sys::read_file("/proc/" + name + "/cmdline").value_or("");
    const std::string program = sys::name_of(line.substr(0, line.find('\0')));
    if (program == "conmon" && line.find(data + "/") != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

void remove_once(const std::string& data, const Leftovers& left) {
  const std::string runc_root = data + "/agent/runc";
  for (const std::string& id : left.containers) {
    (void)sys::run_ok({"runc", "--root", runc_root, "delete", "--force", id}, seconds(20));
  }
  for (const int pid : left.monitors) (void)kill(pid, SIGKILL);
  for (const std::string& cgroup : left.cgroups) {
    for (const pid_t pid : pids_in(cgroup)) (void)kill(pid, SIGKILL);
  }
  for (auto target = left.mounts.rbegin(); target != left.mounts.rend(); ++target) {
    (void)sys::unmount(*target);
  }
  for (const std::string& device : left.loops) (void)sys::detach_loop(device);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (const std::string& cgroup : left.cgroups) (void)rmdir(cgroup.c_str());
}

std::string text_of(const Leftovers& left) {
  std::string out;
  const auto add = [&](std::string_view what, const std::vector<std::string>& items) {
    for (const std::string& item : items)
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", what, item);
  };
  add("container", left.containers);
  add("mount", left.mounts);
  add("loop device", left.loops);
  add("cgroup", left.cgroups);
  for (const int pid : left.monitors)
    out += fmt::format("{}conmon {}", out.empty() ? "" : ", ", pid);
  return out;
}

}  // namespace

std::string label_of(const std::string& data) {
  return "anychip-" + sha256_hex(sys::absolute_path(data)).substr(0, 12);
}

Result<Leftovers> find_leftovers(const std::string& data) {
  const std::string folder = sys::absolute_path(data), label = label_of(data);
  Leftovers left;
  if (const auto names = sys::list_folder(folder + "/agent/runc")) left.containers = *names;
  TRY(const std::vector<sys::LoopDevice> loops, sys::loop_devices());
  for (const sys::LoopDevice& loop : loops) {
    if (is_below(loop.backing_file, folder)) left.loops.push_back(loop.path);
  }
  TRY(const std::vector<sys::MountEntry> mounts, sys::mount_table());
  for (const sys::MountEntry& mount : mounts) {
    const bool is_our_loop =
        std::find(left.loops.begin(), left.loops.end(), mount.source) != left.loops.end();
    const bool is_ours =
        is_below(mount.target, folder) || has_part(mount.target, label) || is_our_loop;
    if (is_ours) left.mounts.push_back(mount.target);
  }
  left.cgroups = cgroup_folders(label);
  left.monitors = monitors_of(folder);
  return left;
}

Status remove_leftovers(const std::string& data, const std::function<void(std::string_view)>& say) {
  Leftovers left;
  for (int round = 0; round < kRoundsMax; ++round) {
    TRY(left, find_leftovers(data));
    if (left.is_empty()) {
      (void)sys::remove_tree("/run/anychip/" + label_of(data));
      return {};
    }
    say(fmt::format("removing {} containers, {} mounts, {} loop devices", left.containers.size(),
                    left.mounts.size(), left.loops.size()));
    remove_once(data, left);
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << round));
  }
  return fail(
      Code::kFailedPrecondition, "left_behind", "could not be removed: " + text_of(left),
      "a process of this machine still uses it (fuser -vm PATH shows which); then run it again");
}

}  // namespace anychip::cli
