#include "server/blobs.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/check.h"
#include "base/failpoint.h"
#include "sys/archive.h"
#include "sys/files.h"

namespace anychip::server {
namespace {

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

class FolderBlobs final : public Blobs {
 public:
  explicit FolderBlobs(std::string folder) : folder_(std::move(folder)) {}

  Status put(const std::string& digest, const std::string& bytes) override {
    CHECK(is_digest(digest));
    FAILPOINT("server.blob.put");
    return sys::write_file_durable(path_of(digest), bytes, 0600);
  }
  Result<std::string> get(const std::string& digest) override {
    if (!is_digest(digest)) return fail(Code::kNotFound, "workdir_not_found", "no such workdir");
    auto read = sys::read_file(path_of(digest), sys::kWorkdirBytesMax + (64 << 20));
    if (!read && read.error().code == Code::kNotFound) {
      return fail(Code::kNotFound, "workdir_not_found", "the workdir is not stored here");
    }
    return read;
  }
  bool has(const std::string& digest) override {
    return is_digest(digest) && sys::exists(path_of(digest));
  }

 private:
  std::string path_of(const std::string& digest) const {
    return folder_ + "/" + digest + ".tar.zst";
  }
  std::string folder_;
};

tl::unexpected<Error> malformed() {
  return fail(Code::kInvalidArgument, "archive_malformed", "the workdir is not a tar.zst archive");
}

std::string_view without_dot(std::string_view path) {
  while (path.starts_with("./")) path.remove_prefix(2);
  return path;
}

class FolderWorkdirs final : public Workdirs {
 public:
  FolderWorkdirs(std::string root, std::string share, std::string scratch, Blobs& blobs)
      : root_(std::move(root)),
        share_(std::move(share)),
        scratch_(std::move(scratch)),
        blobs_(blobs) {}

  Result<std::vector<std::string>> list(const std::string& bytes) override {
    const std::unique_ptr<struct archive, decltype(&::archive_read_free)> reader(
        ::archive_read_new(), &::archive_read_free);
    ::archive_read_support_filter_zstd(reader.get());
    ::archive_read_support_format_tar(reader.get());
    if (::archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
      return malformed();
    }
    constexpr size_t kEntriesMax = 200'000;
    std::vector<std::string> names;
    while (true) {
      archive_entry* entry = nullptr;
      const int code = ::archive_read_next_header(reader.get(), &entry);
      if (code == ARCHIVE_EOF) return names;
      if (code < ARCHIVE_WARN || names.size() >= kEntriesMax) return malformed();
      const char* path = ::archive_entry_pathname(entry);
      if (path == nullptr) return malformed();
      if (::archive_entry_filetype(entry) != AE_IFDIR) names.emplace_back(without_dot(path));
    }
  }

  Result<std::string> digest_of(const catalog::Template& of) override {
    const std::lock_guard lock(mutex_);  // two first uses at once pack once
    const auto known = digests_.find(of.id);
    if (known != digests_.end() && blobs_.has(known->second)) return known->second;
    sys::PackOptions options;
    for (const auto& [file, path] : of.data) {
      const std::string source = share_ + "/" + file;
      if (!sys::exists(source)) {
        return fail(Code::kFailedPrecondition, "template_data_missing",
                    fmt::format("template {} needs {}, which is not prepared here", of.id, file),
                    "run `make demo`, or `sh scripts/demo`, which prepares it");
      }
      options.extra_files.emplace_back(source, path);
    }
    const std::string archive =
        fmt::format("{}/template-{}-{}.tar.zst", scratch_, of.id, ::getpid());
    TRY(const sys::Packed packed, sys::pack_folder(root_ + "/" + of.workdir, archive, options));
    auto bytes = sys::read_file(archive, sys::kWorkdirBytesMax + (64 << 20));
    TRY_VOID(sys::remove_file(archive));
    if (!bytes) return tl::unexpected(std::move(bytes).error());
    if (!blobs_.has(packed.digest)) TRY_VOID(blobs_.put(packed.digest, *bytes));
    digests_[of.id] = packed.digest;
    return packed.digest;
  }

 private:
  std::string root_, share_, scratch_;
  Blobs& blobs_;
  std::mutex mutex_;
  std::map<std::string, std::string> digests_;
};

}  // namespace

std::unique_ptr<Blobs> open_blobs(std::string folder) {
  return std::make_unique<FolderBlobs>(std::move(folder));
}

std::unique_ptr<Workdirs> open_workdirs(std::string root, std::string share, std::string scratch,
                                        Blobs& blobs) {
  return std::make_unique<FolderWorkdirs>(std::move(root), std::move(share), std::move(scratch),
                                          blobs);
}

}  // namespace anychip::server
