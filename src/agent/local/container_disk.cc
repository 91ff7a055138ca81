#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agent/local/container.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "sys/archive.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

// The folder `name` below `parent`, made if absent; a symbolic link in its place is refused.
Result<sys::Fd> enter_folder(int parent, const char* name) {
  if (mkdirat(parent, name, 0755) != 0 && errno != EEXIST) {
    return fail_errno(std::string("make the folder ") + name, errno);
  }
  auto folder = sys::open_beneath(parent, name, O_RDONLY | O_DIRECTORY);
  if (!folder) return tl::unexpected(std::move(folder).error().within(std::string("open ") + name));
  return folder;
}

// `python` for images that only have python3 (Debian's). Only where no layer says otherwise.
Status link_python(int upper, const std::vector<std::string>& layers) {
  bool has_python3 = false;
  for (const std::string& layer : layers) {
    if (sys::exists(layer + "/usr/bin/python") || sys::exists(layer + "/usr/local/bin/python")) return {};
    has_python3 = has_python3 || sys::exists(layer + "/usr/bin/python3");
  }
  if (!has_python3) return {};
  TRY(const sys::Fd usr, enter_folder(upper, "usr"));
  TRY(const sys::Fd local, enter_folder(usr.get(), "local"));
  TRY(const sys::Fd bin, enter_folder(local.get(), "bin"));
  if (symlinkat("/usr/bin/python3", bin.get(), "python") != 0 && errno != EEXIST) {
    return fail_errno("link python", errno);
  }
  return {};
}

json::object state_of(const std::string& path) {
  const auto text = sys::read_file(path, 1 << 16);
  if (!text) return {};
  auto root = json::parse(*text);
  return root && root->is_object() ? std::move(root->get_object()) : json::object{};
}

}  // namespace

Status prepare_system_disk(const std::string& disk, const ContainerSpec& spec,
                           const std::vector<std::string>& layers) {
  // `disk` itself is never shown to the tenant, so upper, work and io are what we made.
  const std::string state_path = disk + "/state.json";
  const json::object before = state_of(state_path);
  json::object state = before;
  TRY_VOID(sys::make_folders(disk + "/upper"));
  TRY_VOID(sys::make_folders(disk + "/work"));
  TRY(const sys::Fd upper, sys::open_file(disk + "/upper", O_RDONLY | O_DIRECTORY));
  const std::string owner = spec.instance.text + " " + std::to_string(spec.generation);
  if (json::string_at(state, "io_of") != owner) {
    // A disk cloned from a snapshot brings the metrics of another leg.
    TRY_VOID(sys::remove_tree(disk + "/io"));
    TRY_VOID(sys::make_folders(disk + "/io/control"));
    state["io_of"] = owner;
  }
  TRY_VOID(sys::make_folders(disk + "/io/control"));
  FAILPOINT("container.io_made");
  if (!json::bool_at(state, "has_python")) {
    TRY_VOID(link_python(upper.get(), layers));
    state["has_python"] = true;
  }
  if (spec.workdir_path.empty() || json::string_at(state, "workdir_digest") == spec.workdir_digest) {
    // A tenant may have put a link at /workspace; only unpacking insists on a folder.
    if (mkdirat(upper.get(), "workspace", 0755) != 0 && errno != EEXIST) {
      return fail_errno("make /workspace", errno);
    }
  } else {
    TRY(const sys::Fd workspace, enter_folder(upper.get(), "workspace"));
    if (auto unpacked = sys::unpack_archive(spec.workdir_path, workspace.get()); !unpacked) {
      return tl::unexpected(std::move(unpacked).error().within("unpack the workdir"));
    }
    state["workdir_digest"] = spec.workdir_digest;
  }
  FAILPOINT("container.workdir_unpacked");
  if (state == before) return {};
  // Written once, last: after a kill before it all of the above is done again, and changes nothing.
  return sys::write_file_durable(state_path, json::serialize(state) + "\n", 0600);
}

}  // namespace anychip::agent
