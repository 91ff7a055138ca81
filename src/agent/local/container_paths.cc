#include "agent/local/container_paths.h"

#include <sys/stat.h>

#include "base/hash.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::agent {

NodePaths NodePaths::of(const std::string& data, const std::string& run_root) {
  const std::string folder = sys::absolute_path(data);
  NodePaths paths;
  paths.agent = folder + "/agent";
  paths.instances = paths.agent + "/instances";
  paths.exits = paths.agent + "/exits";
  paths.runc = paths.agent + "/runc";
  paths.devices = paths.agent + "/devices";
  paths.label = "anychip-" + sha256_hex(folder).substr(0, 12);
  paths.run = run_root + "/" + paths.label;
  return paths;
}

Status NodePaths::make() const {
  for (const std::string& folder : {instances, exits, runc}) {
    TRY_VOID(sys::make_folders(folder, 0700));
  }
  // Walkable, not listable, for the containers' users.
  TRY_VOID(sys::make_folders(run, 0711));
  if (chmod(run.c_str(), 0711) != 0) return fail_errno("chmod " + run, errno);
  return {};
}

InstancePaths NodePaths::instance(const InstanceId& instance) const {
  InstancePaths paths;
  paths.folder = instances + "/" + instance.text;
  paths.spec = paths.folder + "/spec.json";
  paths.status = paths.folder + "/status.json";
  paths.log = paths.folder + "/log";
  paths.metrics = paths.folder + "/metrics.jsonl";
  paths.control = paths.folder + "/control";
  paths.hosts = paths.folder + "/hosts";
  paths.run = run + "/" + instance.text;
  paths.pid = paths.run + "/pid";
  paths.conmon_pid = paths.run + "/conmon.pid";
  paths.rootfs = paths.run + "/rootfs";
  paths.io = paths.run + "/io";
  paths.opt = paths.run + "/opt";
  paths.bundle = paths.run + "/bundle";
  paths.exit_file = exits + "/" + instance.text;
  return paths;
}

}  // namespace anychip::agent
