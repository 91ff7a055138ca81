// A base system by debootstrap, from the mirror that the machine's own apt uses.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "agent/local/layer_build.h"
#include "sys/files.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && text.front() != '-' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+.-") ==
             std::string_view::npos;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "deb [signed-by=/k] url suite main"
std::optional<DebianMirror> from_list(const std::string& text, const std::string& suite) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    auto words = words_of(line);
    if (words.size() < 4 || words[0] != "deb") continue;
    DebianMirror mirror;
    size_t at = 1;
    for (bool is_options = words[1].starts_with('['); is_options && at < words.size(); ++at) {
      const size_t key = words[at].find("signed-by=");
      if (key != std::string::npos) {
        mirror.keyring = words[at].substr(key + 10);
        if (mirror.keyring.ends_with(']')) mirror.keyring.pop_back();
      }
      is_options = !words[at].ends_with(']');
    }
    if (at + 2 >= words.size() || words[at + 1] != suite) continue;
    mirror.url = words[at];
    return mirror;
  }
  return std::nullopt;
}

// The deb822 form: stanzas of "Key: value" lines.
std::optional<DebianMirror> from_sources(const std::string& text, const std::string& suite) {
  std::istringstream lines(text + "\n\n");
  DebianMirror mirror;
  bool is_deb = false, is_suite = false, is_enabled = true;
  for (std::string line; std::getline(lines, line);) {
    const auto words = words_of(line);
    if (words.empty()) {
      if (is_deb && is_suite && is_enabled && !mirror.url.empty()) return mirror;
      mirror = {};
      is_deb = is_suite = false;
      is_enabled = true;
    } else if (words[0] == "Types:") {
      is_deb = has(words, "deb");
    } else if (words[0] == "Suites:") {
      is_suite = has(words, suite);
    } else if (words[0] == "URIs:" && words.size() > 1) {
      mirror.url = words[1];
    } else if (words[0] == "Signed-By:" && words.size() > 1 && words[1].starts_with('/')) {
      mirror.keyring = words[1];
    } else if (words[0] == "Enabled:" && words.size() > 1) {
      is_enabled = words[1] != "no";
    }
  }
  return std::nullopt;
}

// Debootstrap's lines ("I: Unpacking libc6...") as progress; about four per package.
class BootstrapProgress {
 public:
  explicit BootstrapProgress(const LayerBuild& build) : build_(build) {}
  void take(std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n') {
        line_ += c;
        continue;
      }
      if (line_.starts_with("I: ")) {
        lines_ += 1;
        constexpr int kLinesExpected =
            520;  // seen for a base with Python; only the bar depends on it
        build_.report(std::min(97, lines_ * 97 / kLinesExpected),
                      build_.layer.id + ": " + line_.substr(3, 80));
      }
      line_.clear();
    }
  }

 private:
  const LayerBuild& build_;
  std::string line_;
  int lines_ = 0;
};

tl::unexpected<Error> explain(const LayerBuild& build, const std::string& said) {
  const auto contains = [&](std::string_view words) {
    return said.find(words) != std::string::npos;
  };
  if (contains("No space left on device")) {
    return fail(Code::kResourceExhausted, "disk_full",
                "the disk is full while building the layer " + build.layer.id,
                "free some space, then try again: what is fetched is kept");
  }
  if (contains("Failed getting release") || contains("Couldn't download") ||
      contains("unable to resolve")) {
    return fail(Code::kUnavailable, "network_missing",
                "no network: the Debian mirror of this node cannot be reached for the layer " +
                    build.layer.id,
                "check that apt-get update works here");
  }
  std::string last;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("E: ") || line.starts_with("W: Failure")) last = line.substr(3);
  }
  return fail(Code::kInternal, "layer_failed",
              fmt::format("building the layer {} failed: {}", build.layer.id,
                          last.empty() ? "debootstrap gave no reason" : last));
}

// What no container needs or must not have: caches, documentation, the node's own names, device
// nodes.
Status trim(const std::string& root) {
  for (const char* folder : {"/var/cache/apt", "/var/lib/apt/lists", "/var/cache/debconf",
                             "/var/log", "/usr/share/doc", "/usr/share/man", "/usr/share/info",
                             "/usr/share/locale", "/usr/share/lintian", "/dev", "/run", "/tmp"}) {
    TRY_VOID(sys::remove_tree(root + folder));
    TRY_VOID(sys::make_folders(root + folder));
  }
  TRY_VOID(sys::make_folders(root + "/var/lib/apt/lists/partial"));
  TRY_VOID(sys::make_folders(root + "/var/cache/apt/archives/partial"));
  if (::chmod((root + "/tmp").c_str(), 01777) != 0) return fail_errno("chmod /tmp", errno);
  for (const char* file : {"/etc/hostname", "/etc/resolv.conf"}) {
    TRY_VOID(sys::remove_file(root + file));
    TRY_VOID(sys::write_file_atomic(root + file, ""));
  }
  for (const std::string& folder : mount_points_of_a_base())
    TRY_VOID(sys::make_folders(root + folder));
  return {};
}

}  // namespace

const std::vector<std::string>& mount_points_of_a_base() {
  static const std::vector<std::string> kFolders = {"/workspace", "/checkpoints", "/run/anychip",
                                                    "/opt/anychip/env", "/opt/anychip/lib"};
  return kFolders;
}

Result<DebianMirror> find_debian_mirror(const std::string& apt_folder, const std::string& suite) {
  std::vector<std::string> files = {apt_folder + "/sources.list"};
  if (const auto names = sys::list_folder(apt_folder + "/sources.list.d")) {
    for (const std::string& name : *names) files.push_back(apt_folder + "/sources.list.d/" + name);
  }
  for (const std::string& file : files) {
    const auto text = sys::read_file(file);
    if (!text) continue;
    auto mirror = file.ends_with(".sources") ? from_sources(*text, suite) : from_list(*text, suite);
    if (mirror) return *mirror;
  }
  return fail(Code::kFailedPrecondition, "mirror_unknown",
              fmt::format("apt on this node knows no mirror of Debian '{}'", suite),
              fmt::format("add it to {}/sources.list", apt_folder));
}

Status build_debian_layer(const LayerBuild& build) {
  const catalog::Layer& layer = build.layer;
  std::string include;
  for (const std::string& package : layer.packages) {
    if (!is_word(package))
      return fail(Code::kInvalidArgument, "package_malformed",
                  "'" + package + "' is no package name");
    include += (include.empty() ? "" : ",") + package;
  }
  if (!is_word(layer.suite))
    return fail(Code::kInvalidArgument, "suite_malformed", "'" + layer.suite + "' is no suite");
  TRY(const DebianMirror mirror, find_debian_mirror("/etc/apt", layer.suite));
  const std::string cache = sys::parent_of(build.work) + "/debs";  // kept until a build succeeds
  TRY_VOID(sys::make_folders(cache));
  sys::RunSpec spec;
  // Namespaces of its own: the mounts it makes vanish with it, and nothing of it survives a kill.
  spec.argv = {"unshare",
               "--mount",
               "--pid",
               "--fork",
               "--kill-child",
               "sh",
               "-c",
               std::string(kLetGoOfVolumes) + "exec \"$@\"",
               "sh",
               "debootstrap",
               "--variant=minbase",
               "--cache-dir=" + cache};
  if (!mirror.keyring.empty()) spec.argv.push_back("--keyring=" + mirror.keyring);
  if (!include.empty()) spec.argv.push_back("--include=" + include);
  spec.argv.insert(spec.argv.end(), {layer.suite, build.root, mirror.url});
  spec.environment = {{"LC_ALL", "C.UTF-8"},
                      {"DEBIAN_FRONTEND", "noninteractive"},
                      {"ANYCHIP_KEEP", build.options.store}};
  spec.timeout = hours(1);
  spec.is_ended_with_us = true;  // nobody writes into a build that another agent begins anew
  spec.cancel = &build.cancel;
  BootstrapProgress progress(build);
  spec.on_output = [&](std::string_view bytes) { progress.take(bytes); };
  TRY(const auto result, sys::run(spec));
  if (result.exit_code != 0) {
    const auto log = sys::read_file(build.root + "/debootstrap/debootstrap.log");
    return explain(build, result.out + result.err + (log ? *log : ""));
  }
  build.report(98, layer.id + ": removing caches and documentation");
  TRY_VOID(trim(build.root));
  return sys::remove_tree(cache);
}

}  // namespace anychip::agent
