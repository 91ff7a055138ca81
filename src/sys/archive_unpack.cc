#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "sys/archive.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::sys {
namespace {

tl::unexpected<Error> unsafe(std::string_view path, std::string_view why) {
  return fail(Code::kInvalidArgument, "archive_unsafe",
              fmt::format("the archive's entry '{}' {}", path.substr(0, 200), why));
}

// "./a//b/" -> "a/b"; "" for the root itself.
Result<std::string> checked_path(std::string_view raw) {
  if (raw.empty()) return unsafe(raw, "has no name");
  if (raw.front() == '/') return unsafe(raw, "has an absolute path");
  std::string path;
  while (!raw.empty()) {
    const size_t slash = raw.find('/');
    const std::string_view part = raw.substr(0, slash);
    raw.remove_prefix(slash == std::string_view::npos ? raw.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    if (part == "..") return unsafe(part, "leads out of the folder");
    if (!path.empty()) path += '/';
    path += part;
  }
  return path;
}

class Unpacker {
 public:
  Unpacker(int folder_fd, const UnpackOptions& options)
      : folder_fd_(folder_fd), options_(options) {}

  Status unpack(const std::string& archive_path) {
    const std::unique_ptr<struct archive, decltype(&::archive_read_free)> reader(
        ::archive_read_new(), &::archive_read_free);
    archive_ = reader.get();
    ::archive_read_support_filter_zstd(archive_);
    ::archive_read_support_format_tar(archive_);
    if (::archive_read_open_filename(archive_, archive_path.c_str(), 1 << 16) != ARCHIVE_OK)
      return malformed();
    while (true) {
      archive_entry* entry = nullptr;
      const int code = ::archive_read_next_header(archive_, &entry);
      if (code == ARCHIVE_EOF) return {};
      if (code < ARCHIVE_WARN) return malformed();
      entries_ += 1;
      if (entries_ > options_.entries_max) return too_large();
      TRY_VOID(take(entry));
    }
  }

 private:
  Status take(archive_entry* entry) {
    const char* raw = ::archive_entry_pathname(entry);
    if (raw == nullptr) raw = ::archive_entry_pathname_utf8(entry);
    TRY(const std::string path, checked_path(raw == nullptr ? "" : raw));
    if (path.empty()) return {};
    if (const char* target = ::archive_entry_hardlink(entry); target != nullptr) {
      return make_hard_link(path, target);
    }
    switch (::archive_entry_filetype(entry)) {
      case AE_IFDIR: return make_folder(path);
      case AE_IFREG: return make_file(path, entry);
      case AE_IFLNK: return make_link(path, ::archive_entry_symlink(entry));
      default: return unsafe(path, "is a device, pipe or socket");
    }
  }

  // The folder that `path` lies in, made where missing; a symbolic link on the way is refused by
  // the kernel (RESOLVE_NO_SYMLINKS), so no earlier entry can redirect a later one.
  Result<Fd> parent_of_entry(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
    constexpr int kFlags = O_RDONLY | O_DIRECTORY;
    auto opened = open_beneath(folder_fd_, folder, kFlags);
    if (opened) return opened;
    if (opened.error().code != Code::kNotFound) return unsafe(path, "lies behind a link or a file");
    TRY_VOID(make_folder(folder));
    return open_beneath(folder_fd_, folder, kFlags);
  }

  Status make_folder(const std::string& path) {
    TRY(auto parent, parent_of_entry(path));
    const std::string name = name_of(path);
    if (::mkdirat(parent.get(), name.c_str(), 0755) != 0) {
      if (errno != EEXIST) return fail_errno("make folder " + path, errno);
      if (!open_beneath(parent.get(), name, O_RDONLY | O_DIRECTORY))
        return unsafe(path, "replaces a file");
      return {};
    }
    return own(parent, name);
  }

  Status own(const Fd& parent, const std::string& name) {
    const auto id = static_cast<uid_t>(options_.owner_id);
    if (::geteuid() != 0 ||
        ::fchownat(parent.get(), name.c_str(), id, id, AT_SYMLINK_NOFOLLOW) == 0)
      return {};
    return fail_errno("change the owner of " + name, errno);
  }

  // A name that is there already (a folder unpacked twice, an archive naming a file twice).
  Status clear(const Fd& parent, const std::string& path) {
    if (::unlinkat(parent.get(), name_of(path).c_str(), 0) == 0 || errno == ENOENT) return {};
    if (errno == EISDIR) return unsafe(path, "replaces a folder");
    return fail_errno("replace " + path, errno);
  }

  Status make_file(const std::string& path, archive_entry* entry) {
    TRY(auto parent, parent_of_entry(path));
    TRY_VOID(clear(parent, path));
    const mode_t mode = (::archive_entry_perm(entry) & 0111) != 0 ? 0755 : 0644;
    TRY(auto fd,
        open_beneath(parent.get(), name_of(path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    if (::fchmod(fd.get(), mode) != 0) return fail_errno("write " + path, errno);
    TRY_VOID(own(parent, name_of(path)));
    char buffer[65536];
    while (true) {
      const la_ssize_t got = ::archive_read_data(archive_, buffer, sizeof buffer);
      if (got == 0) return {};
      if (got < 0) return malformed();
      bytes_ += got;
      if (bytes_ > options_.bytes_max) return too_large();
      if (auto put = write_all(fd.get(), {buffer, static_cast<size_t>(got)}); !put) {
        return tl::unexpected(std::move(put).error().within("unpack " + path));
      }
    }
  }

  Status make_link(const std::string& path, const char* target) {
    if (target == nullptr || *target == '\0') return unsafe(path, "is a link to nowhere");
    TRY(auto parent, parent_of_entry(path));
    TRY_VOID(clear(parent, path));
    if (::symlinkat(target, parent.get(), name_of(path).c_str()) != 0)
      return fail_errno("make link " + path, errno);
    return own(parent, name_of(path));
  }

  Status make_hard_link(const std::string& path, const std::string& target) {
    TRY(const std::string source, checked_path(target));
    TRY(auto source_parent, parent_of_entry(source));
    struct stat info {};
    if (::fstatat(source_parent.get(), name_of(source).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      return unsafe(path, "is a hard link to something that is no file of the archive");
    }
    TRY(auto parent, parent_of_entry(path));
    TRY_VOID(clear(parent, path));
    if (::linkat(source_parent.get(), name_of(source).c_str(), parent.get(), name_of(path).c_str(),
                 0) != 0) {
      return fail_errno("make hard link " + path, errno);
    }
    return {};
  }

  tl::unexpected<Error> malformed() {
    const char* text = ::archive_error_string(archive_);
    return fail(Code::kInvalidArgument, "archive_malformed",
                fmt::format("not a readable tar.zst: {}", text == nullptr ? "cut off" : text));
  }
  tl::unexpected<Error> too_large() const {
    return fail(Code::kInvalidArgument, "archive_too_large",
                fmt::format("the archive unpacks to more than {} MiB or {} files",
                            options_.bytes_max >> 20, options_.entries_max));
  }

  int folder_fd_;
  const UnpackOptions& options_;
  struct archive* archive_ = nullptr;
  int64_t bytes_ = 0, entries_ = 0;
};

}  // namespace

Status unpack_archive(const std::string& archive_path, int folder_fd,
                      const UnpackOptions& options) {
  return Unpacker(folder_fd, options).unpack(archive_path);
}

}  // namespace anychip::sys
