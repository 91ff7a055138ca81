// The OCI config.json of a tenant's container: every namespace, few capabilities, no new
// privileges, seccomp, masked kernel files, limits, no devices but the usual six.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/runtime.h"
#include "base/error.h"
#include "base/json.h"

namespace anychip::agent {

struct BundleMount {
  std::string source;       // host path
  std::string destination;  // in the container
  bool is_read_only = false;
};
struct BundleDevice {
  std::string path;  // "/dev/davinci0", the same inside
  bool is_block = false;
  int64_t major = 0, minor = 0;
};
struct BundleInput {
  const ContainerSpec& spec;
  std::vector<std::pair<std::string, std::string>> image_environment;
  std::string rootfs;
  std::vector<BundleMount> mounts;  // in this order
  std::vector<BundleDevice> devices;
  uint32_t first_host_id = 0;
  std::string cgroup_path;
  int64_t open_files_max = 0;  // the inherited hard limit: above it runc fails without CAP_SYS_RESOURCE
  json::object seccomp;
};
std::string bundle_config(const BundleInput& input);

std::string bundle_hosts_file(const InstanceId& instance);  // text of /etc/hosts
const std::vector<std::string>& bundle_capabilities();

// The seccomp part: a docker-style profile (containers-common) reduced to this machine and our
// capabilities, less what a training never needs and what makes a nested user namespace. Without the
// file: everything but that.
constexpr const char* kSeccompProfilePath = "/usr/share/containers/seccomp.json";
Result<json::object> seccomp_of_profile(std::string_view profile_text);
json::object seccomp_without_profile();
Result<json::object> load_seccomp(const std::string& profile_path = kSeccompProfilePath);

}  // namespace anychip::agent
