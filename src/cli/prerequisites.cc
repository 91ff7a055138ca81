#include "cli/prerequisites.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "cli/format.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::cli {
namespace {

struct Program {
  std::string_view name, package, why;
};
constexpr Program kProgramsNeeded[] = {
    {"runc", "runc", "runs the containers"},
    {"conmon", "conmon", "keeps a container's log and exit code"},
    {"mkfs.xfs", "xfsprogs", "makes the disks"},
    {"debootstrap", "debootstrap", "makes the base layer of images"},
    {"python3", "python3", "fetches the packages of image layers"},
};

std::string first_line_of(const std::string& path) {
  Result<std::string> text = sys::read_file(path);
  if (!text) return {};
  return text->substr(0, text->find('\n'));
}

bool is_program_there(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string folders = std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    if (end > begin &&
        access(sys::join(folders.substr(begin, end - begin), name).c_str(), X_OK) == 0)
      return true;
    begin = end + 1;
  }
  return false;
}

std::set<std::string> known_file_systems() {
  std::set<std::string> known;
  const std::string text = sys::read_file("/proc/filesystems").value_or("");
  for (const std::string name : {"overlay", "xfs"}) {
    if (text.find("\t" + name + "\n") != std::string::npos) known.insert(name);
  }
  utsname host{};
  if (uname(&host) != 0) return known;
  const std::string modules =
      sys::read_file(fmt::format("/lib/modules/{}/modules.dep", host.release)).value_or("");
  for (const std::string name : {"overlay", "xfs"}) {
    if (modules.find("/" + name + ".ko") != std::string::npos) known.insert(name);
  }
  return known;
}

bool has_cgroup_controller(std::string_view name) {
  const std::string v1 = sys::read_file("/proc/cgroups").value_or("");
  const std::string v2 = first_line_of("/sys/fs/cgroup/cgroup.controllers");
  // On v2 devices are limited by BPF: no controller of that name exists.
  if (name == "devices" && v2.find("memory") != std::string::npos) return true;
  return v1.find(fmt::format("\n{}\t", name)) != std::string::npos ||
         v2.find(name) != std::string::npos;
}

std::string nearest_existing(std::string path) {
  while (path.size() > 1 && !sys::exists(path)) path = sys::parent_of(path);
  return path;
}

Check check(std::string name, bool is_there, std::string detail, std::string way_out) {
  if (is_there) way_out.clear();
  return {std::move(name), is_there ? Check::State::kOk : Check::State::kMissing, std::move(detail),
          std::move(way_out)};
}

Check disk_check(const MachineFacts& facts) {
  Check disk{"disk space", Check::State::kOk,
             fmt::format("{} free for {}", format_bytes(facts.free_bytes), facts.data), ""};
  if (facts.free_bytes >= kFreeBytesGood) return disk;
  disk.state = facts.free_bytes < kFreeBytesMin ? Check::State::kMissing : Check::State::kWarn;
  disk.way_out = fmt::format(
      "free some space, or choose another disk with ANYCHIP_DATA=DIR; {} are needed, {} are good",
      format_bytes(kFreeBytesMin), format_bytes(kFreeBytesGood));
  return disk;
}

}  // namespace

Result<MachineFacts> read_machine(const std::string& data) {
  MachineFacts facts;
  facts.is_root = geteuid() == 0;
  facts.file_systems = known_file_systems();
  facts.has_loop_control = access("/dev/loop-control", F_OK) == 0;
  const std::string namespaces = first_line_of("/proc/sys/user/max_user_namespaces");
  facts.user_namespaces_max = std::strtoll(namespaces.c_str(), nullptr, 10);
  facts.has_memory_cgroup = has_cgroup_controller("memory");
  facts.has_devices_cgroup = has_cgroup_controller("devices");
  for (const Program& program : kProgramsNeeded) {
    if (is_program_there(program.name)) facts.programs.emplace(program.name);
  }
  facts.data = data;
  TRY(const sys::Space space, sys::space_of(nearest_existing(data)));
  facts.free_bytes = space.free_bytes;
  return facts;
}

std::vector<Check> judge(const MachineFacts& facts) {
  std::vector<Check> checks;
  checks.push_back(check("root", facts.is_root,
                         facts.is_root ? "yes" : "no: containers, mounts and loop devices need it",
                         "run it as root: sudo anychip up"));
  const auto kernel = [&](std::string name, bool is_there, std::string_view why,
                          std::string way_out) {
    checks.push_back(check(std::move(name), is_there,
                           is_there ? "yes" : fmt::format("not in this kernel: {}", why),
                           std::move(way_out)));
  };
  kernel("kernel: overlay", facts.file_systems.contains("overlay"), "images are stacked with it",
         "use a kernel with overlayfs (CONFIG_OVERLAY_FS)");
  kernel("kernel: xfs", facts.file_systems.contains("xfs"),
         "disks and instant snapshots are made with it", "use a kernel with XFS (CONFIG_XFS_FS)");
  kernel("kernel: loop devices", facts.has_loop_control, "each disk is a file behind one",
         "modprobe loop; inside a container, pass /dev/loop-control through");
  kernel("kernel: user namespaces", facts.user_namespaces_max > 0,
         "every container runs in its own", "sysctl user.max_user_namespaces=10000");
  kernel("kernel: memory cgroup", facts.has_memory_cgroup, "memory limits need it",
         "boot with cgroup_enable=memory");
  kernel("kernel: devices cgroup", facts.has_devices_cgroup, "it keeps chips apart",
         "use a kernel with CONFIG_CGROUP_DEVICE or cgroup v2");
  for (const Program& program : kProgramsNeeded) {
    const bool is_there = facts.programs.contains(std::string(program.name));
    checks.push_back(check(fmt::format("program: {}", program.name), is_there,
                           is_there ? "yes" : fmt::format("not found: {}", program.why),
                           fmt::format("apt-get install {}", program.package)));
  }
  checks.push_back(disk_check(facts));
  return checks;
}

Status all_present(const std::vector<Check>& checks) {
  Error error;
  for (const Check& entry : checks) {
    if (entry.state != Check::State::kMissing) continue;
    error.fields.push_back(
        {"", fmt::format("{}: {} ({})", entry.name, entry.detail, entry.way_out)});
  }
  if (error.fields.empty()) return {};
  error.code = Code::kFailedPrecondition;
  error.reason = "prerequisite_missing";
  error.message =
      error.fields.size() == 1
          ? fmt::format("this machine lacks something: {}", error.fields.front().message)
          : fmt::format("this machine lacks {} things", error.fields.size());
  error.hint = "nothing was changed; `anychip doctor` checks again";
  return tl::unexpected(std::move(error));
}

}  // namespace anychip::cli
