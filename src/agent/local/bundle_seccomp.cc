#include <cerrno>
#include <set>

#include "agent/local/bundle.h"
#include "base/log.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

#if defined(__aarch64__)
constexpr std::string_view kProfileArch = "arm64";
constexpr const char* kSeccompArch = "SCMP_ARCH_AARCH64";
#else
constexpr std::string_view kProfileArch = "amd64";
constexpr const char* kSeccompArch = "SCMP_ARCH_X86_64";
#endif

// clone() flags that make namespaces: CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}.
constexpr uint64_t kNamespaceFlags = 0x7E020000;

// Root of a *nested* user namespace would have every capability over namespaces of its own, which
// is most of the kernel's attack surface. Trainings need none of these.
const std::set<std::string, std::less<>>& refused() {
  static const std::set<std::string, std::less<>> kNames = {
      "unshare", "setns", "mount", "umount", "umount2", "pivot_root", "fsopen", "fsconfig",
      "fsmount", "fspick", "move_mount", "open_tree", "mount_setattr", "chroot", "keyctl", "add_key",
      "request_key", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
      "io_uring_register", "kexec_load", "kexec_file_load", "init_module", "finit_module",
      "delete_module", "open_by_handle_at", "name_to_handle_at", "fanotify_init", "quotactl",
      "quotactl_fd", "swapon", "swapoff", "reboot", "settimeofday", "clock_settime", "iopl",
      "ioperm", "acct", "nfsservctl", "lookup_dcookie", "syslog", "vhangup"};
  return kNames;
}

bool is_listed(const json::array& array, std::string_view word) {
  for (const json::value& item : array) {
    if (item.is_string() && std::string_view(item.get_string()) == word) return true;
  }
  return false;
}

bool holds_capability(std::string_view name) {
  for (const std::string& ours : bundle_capabilities()) {
    if (ours == name) return true;
  }
  return false;
}

bool applies(const json::object& rule) {
  const json::object& includes = json::object_at(rule, "includes");
  const json::object& excludes = json::object_at(rule, "excludes");
  const json::array& arches = json::array_at(includes, "arches");
  if (!arches.empty() && !is_listed(arches, kProfileArch)) return false;
  if (is_listed(json::array_at(excludes, "arches"), kProfileArch)) return false;
  for (const json::value& cap : json::array_at(includes, "caps")) {
    if (!cap.is_string() || !holds_capability(cap.get_string())) return false;
  }
  for (const json::value& cap : json::array_at(excludes, "caps")) {
    if (cap.is_string() && holds_capability(cap.get_string())) return false;
  }
  return true;
}

void append_own_rules(json::array& rules) {
  json::array names;
  for (const std::string& name : refused()) names.emplace_back(name);
  rules.emplace_back(json::object{
      {"names", std::move(names)}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", EPERM}});
  // Its flags lie in memory, out of a filter's sight: libc then falls back to clone.
  rules.emplace_back(json::object{
      {"names", json::array{"clone3"}}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", ENOSYS}});
}

}  // namespace

json::object seccomp_without_profile() {
  json::array rules;
  append_own_rules(rules);
  for (int bit = 0; bit < 64; ++bit) {  // clone with any of the namespace flags
    const uint64_t flag = uint64_t{1} << bit;
    if ((kNamespaceFlags & flag) == 0) continue;
    rules.emplace_back(json::object{
        {"names", json::array{"clone"}},
        {"action", "SCMP_ACT_ERRNO"},
        {"errnoRet", EPERM},
        {"args", json::array{json::object{{"index", 0}, {"value", flag}, {"valueTwo", flag},
                                          {"op", "SCMP_CMP_MASKED_EQ"}}}}});
  }
  return {{"defaultAction", "SCMP_ACT_ALLOW"},
          {"architectures", json::array{kSeccompArch}},
          {"syscalls", std::move(rules)}};
}

Result<json::object> seccomp_of_profile(std::string_view profile_text) {
  TRY(const json::value root, json::parse(profile_text));
  if (!root.is_object()) {
    return fail(Code::kDataLoss, "seccomp_malformed", "the seccomp profile is no JSON object");
  }
  const json::object& profile = root.get_object();
  json::array rules;
  for (const json::value& item : json::array_at(profile, "syscalls")) {
    if (!item.is_object() || !applies(item.get_object())) continue;
    const json::object& from = item.get_object();
    json::array names;
    for (const json::value& name : json::array_at(from, "names")) {
      if (!name.is_string()) continue;
      const std::string_view text = name.get_string();
      if (text != "clone" && text != "clone3" && !refused().contains(text)) names.emplace_back(text);
    }
    if (names.empty()) continue;
    json::object rule{{"names", std::move(names)}, {"action", json::string_at(from, "action")}};
    if (from.contains("errnoRet")) rule["errnoRet"] = json::int_at(from, "errnoRet");
    if (const json::array& args = json::array_at(from, "args"); !args.empty()) rule["args"] = args;
    rules.emplace_back(std::move(rule));
  }
  if (rules.empty()) {
    return fail(Code::kDataLoss, "seccomp_malformed", "the seccomp profile has no rule for us");
  }
  append_own_rules(rules);
  rules.emplace_back(json::object{
      {"names", json::array{"clone"}},
      {"action", "SCMP_ACT_ALLOW"},
      {"args", json::array{json::object{{"index", 0}, {"value", kNamespaceFlags}, {"valueTwo", 0},
                                        {"op", "SCMP_CMP_MASKED_EQ"}}}}});
  json::object seccomp{{"defaultAction", json::string_at(profile, "defaultAction")},
                       {"architectures", json::array{kSeccompArch}},
                       {"syscalls", std::move(rules)}};
  if (profile.contains("defaultErrnoRet")) {
    seccomp["defaultErrnoRet"] = json::int_at(profile, "defaultErrnoRet");
  }
  return seccomp;
}

Result<json::object> load_seccomp(const std::string& profile_path) {
  auto text = sys::read_file(profile_path);
  if (!text && text.error().code == Code::kNotFound) {
    log::warn("agent.seccomp_profile_missing", {{"path", profile_path}});
    return seccomp_without_profile();
  }
  if (!text) return tl::unexpected(std::move(text).error());
  return seccomp_of_profile(*text);
}

}  // namespace anychip::agent
