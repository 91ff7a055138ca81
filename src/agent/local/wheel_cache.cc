#include "agent/local/wheel_cache.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "agent/local/layer_build.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "sys/files.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

constexpr std::string_view kFetchPrefix = ".fetch-";  // + process id + random

// Scratch folders of agents that were killed while they fetched.
Status sweep_fetches(const std::string& folder) {
  TRY(const auto names, sys::list_folder(folder));
  for (const std::string& name : names) {
    if (!name.starts_with(kFetchPrefix)) continue;
    const pid_t pid = std::atoi(name.c_str() + kFetchPrefix.size());
    if (pid <= 0 || !sys::is_alive(pid)) TRY_VOID(sys::remove_tree(sys::join(folder, name)));
  }
  return {};
}

std::string title_of(const Pin& pin) { return pin.name + " " + pin.version; }

// pip's words -> one sentence. Their full text is too long for a progress line and a report.
tl::unexpected<Error> explain(const Pin& pin, const std::string& said) {
  const auto has = [&](std::string_view words) { return said.find(words) != std::string::npos; };
  if (has("DO NOT MATCH THE HASHES")) {
    return fail(
        Code::kFailedPrecondition, "wheel_hash_mismatch",
        fmt::format("the wheel of {} that this node's pip offers matches none of its pinned hashes",
                    title_of(pin)),
        "the site serves its own build: add its sha256 to the requirements, or take it out of "
        "find-links");
  }
  if (has("No space left on device")) {
    return fail(Code::kResourceExhausted, "disk_full",
                "the disk is full while fetching " + title_of(pin),
                "free some space, then try again: what is fetched is kept");
  }
  if (has("No module named pip")) {
    return fail(Code::kFailedPrecondition, "pip_missing", "python3 on this node has no pip",
                "apt-get install python3-pip");
  }
  if (has("Max retries") || has("NewConnectionError") || has("Name or service") ||
      has("name resolution") || has("timed out") || has("Connection refused")) {
    return fail(
        Code::kUnavailable, "network_missing",
        "no network: this node's package index cannot be reached to fetch " + title_of(pin),
        "connect the node, or point its pip configuration at a mirror or a folder of wheels");
  }
  if (has("No matching distribution") || has("Could not find a version")) {
    return fail(Code::kUnavailable, "wheel_unavailable",
                fmt::format("this node's pip finds no wheel of {}", title_of(pin)),
                "check the node's network and its pip configuration (pip config list)");
  }
  const size_t error = said.rfind("ERROR: ");
  return fail(Code::kUnavailable, "wheel_unavailable",
              fmt::format("fetching {} failed: {}", title_of(pin),
                          error == std::string::npos
                              ? said.substr(said.size() - std::min<size_t>(said.size(), 300))
                              : said.substr(error + 7, 300)));
}

}  // namespace

Result<std::string> sha256_of_file(const std::string& path) {
  TRY(auto fd, sys::open_file(path, O_RDONLY));
  Sha256 hash;
  for (int64_t offset = 0;;) {
    TRY(const auto bytes, sys::read_range(fd.get(), offset, 1 << 20));
    if (bytes.empty()) return hash.finish_hex();
    hash.update(bytes);
    offset += static_cast<int64_t>(bytes.size());
  }
}

Result<int64_t> content_bytes_of_wheel(const std::string& path) {
  const std::unique_ptr<struct archive, decltype(&::archive_read_free)> reader(
      ::archive_read_new(), &::archive_read_free);
  ::archive_read_support_format_zip_seekable(reader.get());
  if (::archive_read_open_filename(reader.get(), path.c_str(), 1 << 16) != ARCHIVE_OK) {
    return fail(Code::kDataLoss, "wheel_unreadable", path + " is not a wheel");
  }
  int64_t bytes = 0;
  archive_entry* entry = nullptr;
  while (::archive_read_next_header(reader.get(), &entry) == ARCHIVE_OK)
    bytes += ::archive_entry_size(entry);
  return bytes;
}

Result<std::string> WheelCache::find(const Pin& pin, const std::string& folder) const {
  TRY(const auto names, sys::list_folder(folder));
  for (const std::string& name : names) {
    if (!is_wheel_of(name, pin)) continue;
    const std::string path = sys::join(folder, name);
    TRY(const std::string digest, sha256_of_file(path));
    if (std::find(pin.sha256.begin(), pin.sha256.end(), digest) != pin.sha256.end()) return path;
  }
  return std::string();
}

Result<std::string> WheelCache::fetch(const Pin& pin, const std::string& python_version,
                                      const std::string& work, const std::atomic<bool>& cancel,
                                      const std::function<void(const std::string&)>& report) {
  const std::string requirement = work + "/requirement.txt", out = work + "/out",
                    scratch = work + "/tmp";
  TRY_VOID(sys::make_folders(out));
  TRY_VOID(sys::make_folders(scratch));
  TRY_VOID(sys::write_file_atomic(requirement, pin.line + "\n"));
  sys::RunSpec spec;
  spec.argv = {"python3",
               "-m",
               "pip",
               "download",
               "--no-deps",
               "--require-hashes",
               "--only-binary=:all:",
               "--disable-pip-version-check",
               "--no-input",
               "--progress-bar=off",
               "--python-version",
               python_version,
               "-d",
               out,
               "-r",
               requirement};
  spec.environment = {{"TMPDIR", scratch}, {"LC_ALL", "C.UTF-8"}};
  spec.timeout = hours(2);
  spec.is_ended_with_us = true;
  spec.cancel = &cancel;
  spec.on_tick = [&] {
    const auto facts = facts_of_tree(work);
    const int64_t megabytes = facts ? facts->bytes / 1'000'000 : 0;
    report(megabytes == 0 ? title_of(pin) + ": downloading"
                          : fmt::format("{}: downloading, {} MB", title_of(pin), megabytes));
  };
  TRY(const auto result, sys::run(spec));
  if (result.exit_code != 0) return explain(pin, result.out + result.err);
  TRY(const auto names, sys::list_folder(out));
  if (names.empty()) return std::string();  // its marker says: not here
  TRY(const std::string path, find(pin, out));
  if (path.empty()) return explain(pin, "DO NOT MATCH THE HASHES");
  const std::string kept = sys::join(folder_, sys::name_of(path));
  TRY_VOID(sys::sync_file(path));
  FAILPOINT("image.wheel.fetched");
  TRY_VOID(sys::rename_durable(path, kept));
  return kept;
}

Result<std::string> WheelCache::ensure(const Pin& pin, const std::string& python_version,
                                       const std::atomic<bool>& cancel,
                                       const std::function<void(const std::string&)>& report) {
  TRY_VOID(sys::make_folders(folder_));
  TRY(std::string path, find(pin, folder_));
  if (!path.empty()) return path;
  report(title_of(pin) + ": downloading");
  TRY_VOID(sweep_fetches(folder_));
  std::string work = fmt::format("{}/{}{}-XXXXXX", folder_, kFetchPrefix, ::getpid());
  if (::mkdtemp(work.data()) == nullptr) return fail_errno("make a folder in " + folder_, errno);
  auto fetched = fetch(pin, python_version, work, cancel, report);
  TRY_VOID(sys::remove_tree(work));
  return fetched;
}

}  // namespace anychip::agent
