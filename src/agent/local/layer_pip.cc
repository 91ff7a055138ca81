// Python packages of a back end, in the read-only prefix /opt/anychip/env. Wheels are fetched on
// the host; they are installed where nothing of the host can be seen or reached: own mount,
// process, network, ipc and host name spaces, a root of the layers below, no capability.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>

#include <fmt/format.h>

#include "agent/local/layer_build.h"
#include "agent/local/wheel_cache.h"
#include "base/failpoint.h"
#include "base/time.h"
#include "sys/files.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

constexpr std::string_view kPrefix = "/opt/anychip/env";

// $1 lower layers, $2 upper, $3 work, $4 merged root, $5 wheels; the rest is the command. Runs in
// the new namespaces as their first process; everything it mounts is gone when it ends.
constexpr std::string_view kEnterScript = R"(set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
mount --bind "$5" "$4/wheels"
mount -o remount,bind,ro,nosuid,nodev,noexec "$4/wheels"
mount -t proc -o nosuid,nodev,noexec proc "$4/proc"
mount -t tmpfs -o nosuid,noexec,mode=755 tmpfs "$4/dev"
for node in null zero urandom; do
  touch "$4/dev/$node"
  mount --bind "/dev/$node" "$4/dev/$node"
done
root=$4
shift 5
exec chroot "$root" /usr/bin/setpriv --no-new-privs --bounding-set=-all --inh-caps=-all \
  --clear-groups "$@"
)";

// The Python of the layers below ("3.11").
Result<std::string> python_version_of(const std::vector<std::string>& lower) {
  for (auto layer = lower.rbegin(); layer != lower.rend(); ++layer) {
    for (const char* folder : {"/usr/local/bin", "/usr/bin"}) {
      const auto names = sys::list_folder(*layer + folder);
      if (!names) continue;
      for (const std::string& name : *names) {
        if (name.starts_with("python3.") &&
            name.find_first_not_of("0123456789", 8) == std::string::npos) {
          return name.substr(6);
        }
      }
    }
  }
  return fail(Code::kFailedPrecondition, "python_missing", "the layers below have no python3",
              "put python3 and python3-venv into the base layer's packages");
}

// pip of the layers below: a module, or the wheel that Debian's python3-venv brings.
Result<std::vector<std::string>> pip_command(const std::vector<std::string>& lower) {
  for (auto layer = lower.rbegin(); layer != lower.rend(); ++layer) {
    if (sys::exists(*layer + "/usr/lib/python3/dist-packages/pip"))
      return std::vector<std::string>{"-m", "pip"};
    const auto wheels = sys::list_folder(*layer + "/usr/share/python-wheels");
    if (!wheels) continue;
    for (const std::string& name : *wheels) {
      if (name.starts_with("pip-") && name.ends_with(".whl")) {
        return std::vector<std::string>{"/usr/share/python-wheels/" + name + "/pip"};
      }
    }
  }
  return fail(Code::kFailedPrecondition, "pip_missing", "the layers below have no pip",
              "put python3-venv into the base layer's packages");
}

struct Wheels {
  std::string folder;  // holds exactly the wheels to install
  std::string requirements;
  int64_t content_bytes = 0;
};

// A link where cache and store are on one disk, else a copy.
Status place_wheel(const std::string& from, const std::string& folder) {
  const std::string to = sys::join(folder, sys::name_of(from));
  if (::link(from.c_str(), to.c_str()) == 0) return {};
  TRY_VOID(sys::run_ok({"cp", "--reflink=auto", "--", from, to}, minutes(10)));
  return {};
}

Result<Wheels> gather_wheels(const LayerBuild& build, const std::string& python_version) {
  TRY(const auto pins, parse_requirements(build.layer.requirements));
  Wheels wheels;
  wheels.folder = build.work + "/wheels";
  TRY_VOID(sys::make_folders(wheels.folder));
  WheelCache cache(build.options.wheel_cache);
  for (size_t i = 0; i < pins.size(); ++i) {
    const int percent = static_cast<int>(i * 60 / pins.size());
    build.report(percent, fmt::format("{} {}", pins[i].name, pins[i].version));
    TRY(const std::string path,
        cache.ensure(pins[i], python_version, build.cancel, [&](const std::string& text) {
          build.report(percent, fmt::format("{} ({} of {})", text, i + 1, pins.size()));
        }));
    if (path.empty()) continue;
    TRY_VOID(place_wheel(path, wheels.folder));
    TRY(const int64_t bytes, content_bytes_of_wheel(path));
    wheels.content_bytes += bytes;
    wheels.requirements += pins[i].line + "\n";
  }
  return wheels;
}

tl::unexpected<Error> explain(const LayerBuild& build, const std::string& said) {
  if (said.find("No space left on device") != std::string::npos) {
    return fail(Code::kResourceExhausted, "disk_full",
                "the disk is full while installing the layer " + build.layer.id,
                "free some space, then try again");
  }
  const size_t error = said.rfind("ERROR: ");
  const size_t from =
      error != std::string::npos ? error + 7 : said.size() - std::min<size_t>(said.size(), 400);
  return fail(
      Code::kInternal, "layer_failed",
      fmt::format("installing the layer {} failed: {}", build.layer.id, said.substr(from, 400)));
}

// A layer below may fill the same prefix, and pip leaves out folders that are there already (parts
// of a namespace package, bin/). Opaque: the install sees an empty prefix, and the containers, for
// which the mark is taken off again, see both.
Status set_opaque(const std::string& folder, bool is_opaque) {
  constexpr const char* kMark = "trusted.overlay.opaque";
  const int result = is_opaque ? ::lsetxattr(folder.c_str(), kMark, "y", 1, 0)
                               : ::lremovexattr(folder.c_str(), kMark);
  if (result != 0) return fail_errno("mark " + folder, errno);
  return {};
}

// The overlay the install runs in: layers below, read-only, and an upper layer for what it writes.
struct Room {
  std::string lower, upper, work, merged;
};

Result<Room> prepare_room(const LayerBuild& build, const Wheels& wheels) {
  Room room{{}, build.work + "/upper", build.work + "/work", build.work + "/merged"};
  const std::string prefix = room.upper + std::string(kPrefix);
  for (const std::string& folder : {room.upper + "/wheels", room.upper + "/proc",
                                    room.upper + "/dev", room.work, room.merged, prefix}) {
    TRY_VOID(sys::make_folders(folder));
  }
  TRY_VOID(set_opaque(prefix, true));
  TRY_VOID(sys::make_folders(room.upper + "/tmp", 0777));
  TRY_VOID(sys::write_file_atomic(room.upper + "/requirements.txt", wheels.requirements));
  // Overlayfs wants the topmost layer first.
  for (auto layer = build.lower.rbegin(); layer != build.lower.rend(); ++layer) {
    if (layer->find_first_of(":,\\") != std::string::npos) {
      return fail(Code::kInvalidArgument, "path_unsupported",
                  "the path " + *layer + " holds ':' or ','",
                  "set ANYCHIP_IMAGE_STORE to a folder without them");
    }
    room.lower += (room.lower.empty() ? "" : ":") + *layer;
  }
  return room;
}

std::vector<std::string> install_command(const Room& room, const Wheels& wheels,
                                         const std::vector<std::string>& pip) {
  std::vector<std::string> argv;
  const auto add = [&](std::initializer_list<std::string> words) {
    argv.insert(argv.end(), words);
  };
  add({"unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"});
  add({"sh", "-c", kLetGoOfVolumes + std::string(kEnterScript), "enter"});
  add({room.lower, room.upper, room.work, room.merged, wheels.folder, "/usr/bin/python3"});
  argv.insert(argv.end(), pip.begin(), pip.end());
  add({"install", "--no-index", "--find-links=/wheels", "--no-deps", "--require-hashes"});
  add({"--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"});
  add({"--no-warn-script-location", "--root-user-action=ignore"});
  add({"--target", std::string(kPrefix), "-r", "/requirements.txt"});
  return argv;
}

Status install(const LayerBuild& build, const Wheels& wheels, const std::vector<std::string>& pip) {
  TRY(const Room room, prepare_room(build, wheels));
  sys::RunSpec spec;
  spec.argv = install_command(room, wheels, pip);
  spec.is_environment_clean = true;
  spec.environment = {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                      {"HOME", "/tmp"},
                      {"TMPDIR", "/tmp"},
                      {"LC_ALL", "C.UTF-8"},
                      {"PIP_CONFIG_FILE", "/dev/null"},
                      {"ANYCHIP_KEEP", build.options.store}};
  spec.timeout = hours(1);
  spec.is_ended_with_us = true;
  spec.cancel = &build.cancel;
  int ticks = 0;
  spec.on_tick = [&] {
    if (++ticks % 4 != 1) return;  // counting the files takes some 30 ms
    const auto facts = facts_of_tree(room.upper);
    const int64_t done = facts ? facts->bytes : 0;
    const int64_t total = std::max<int64_t>(wheels.content_bytes, 1);
    const int64_t percent = std::min<int64_t>(done * 100 / total, 100);
    build.report(60 + static_cast<int>(percent * 37 / 100),
                 percent < 100 ? fmt::format("{}: installing, {} of {} MB", build.layer.id,
                                             done / 1'000'000, total / 1'000'000)
                               : build.layer.id + ": compiling");
  };
  TRY(const auto result, sys::run(spec));
  if (result.exit_code != 0) return explain(build, result.out + result.err);
  const std::string prefix(kPrefix);
  TRY_VOID(sys::make_folders(build.root + sys::parent_of(prefix)));
  if (::rename((room.upper + prefix).c_str(), (build.root + prefix).c_str()) != 0) {
    return fail_errno("move the installed packages", errno);
  }
  return set_opaque(build.root + prefix, false);
}

}  // namespace

Status build_pip_layer(const LayerBuild& build) {
  TRY(const std::string python_version, python_version_of(build.lower));
  TRY(const auto pip, pip_command(build.lower));
  TRY(const Wheels wheels, gather_wheels(build, python_version));
  FAILPOINT("image.pip.gathered");
  return install(build, wheels, pip);
}

}  // namespace anychip::agent
