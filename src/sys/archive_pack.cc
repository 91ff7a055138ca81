#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "base/hash.h"
#include "sys/archive.h"
#include "sys/files.h"
#include "sys/gitignore.h"
#include "sys/paths.h"

namespace anychip::sys {
namespace {

constexpr int kFolderDepthMax = 100;
constexpr size_t kEntriesMax = 500'000;

struct Source {
  std::string host_path;
  mode_t mode = 0;  // of lstat
  int64_t size_bytes = 0;
  std::string link_target;
};
using Sources = std::map<std::string, Source>;  // by path in the archive: sorted bytewise

Result<Source> source_of(const std::string& host_path) {
  struct stat info {};
  if (::lstat(host_path.c_str(), &info) != 0) return fail_errno("read " + host_path, errno);
  Source source{host_path, info.st_mode, S_ISREG(info.st_mode) ? info.st_size : 0, {}};
  if (S_ISLNK(info.st_mode)) {
    char target[4096];
    const ssize_t length = ::readlink(host_path.c_str(), target, sizeof target);
    if (length < 0) return fail_errno("read link " + host_path, errno);
    source.link_target.assign(target, static_cast<size_t>(length));
  }
  return source;
}

class Walk {
 public:
  explicit Walk(const PackOptions& options) : options_(options) {}

  Status enter(const std::string& folder, const std::string& below, int depth) {
    if (depth > kFolderDepthMax) {
      return fail(Code::kInvalidArgument, "folder_too_deep", folder + " is nested too deeply");
    }
    if (options_.is_gitignore_respected) {
      if (const auto text = read_file(join(folder, ".gitignore"), 1 << 20))
        rules_.add(below, *text);
    }
    TRY(auto names, list_folder(folder));
    for (const std::string& name : names) {
      if (name == ".git") continue;
      const std::string path = below.empty() ? name : below + "/" + name;
      TRY(auto source, source_of(join(folder, name)));
      const bool is_dir = S_ISDIR(source.mode);
      if (!is_dir && !S_ISREG(source.mode) && !S_ISLNK(source.mode)) continue;
      if (options_.is_gitignore_respected && rules_.is_ignored(path, is_dir)) continue;
      if (is_dir) TRY_VOID(enter(source.host_path, path, depth + 1));
      TRY_VOID(add(path, std::move(source)));
    }
    return {};
  }

  Status add(const std::string& path, Source source) {
    if (const auto old = sources_.find(path); old != sources_.end()) {
      content_bytes_ -= old->second.size_bytes;
      by_top_[path.substr(0, path.find('/'))] -= old->second.size_bytes;
    }
    content_bytes_ += source.size_bytes;
    by_top_[path.substr(0, path.find('/'))] += source.size_bytes;
    sources_[path] = std::move(source);
    // Counting on would take long in a home folder; the message needs the largest part only.
    if (content_bytes_ > 2 * options_.bytes_max || sources_.size() > kEntriesMax)
      return too_large();
    return {};
  }

  Status check() const { return content_bytes_ > options_.bytes_max ? too_large() : Status{}; }
  Status too_large() const {
    const auto largest = std::max_element(by_top_.begin(), by_top_.end(),
                                          [](auto& a, auto& b) { return a.second < b.second; });
    return fail(
        Code::kInvalidArgument, "workdir_too_large",
        fmt::format("the folder holds more than {} MiB", options_.bytes_max >> 20),
        fmt::format("'{}' is the largest part ({} MiB); name what is not needed in .gitignore",
                    largest == by_top_.end() ? "" : largest->first,
                    largest == by_top_.end() ? 0 : largest->second >> 20));
  }

  Sources& sources() { return sources_; }
  int64_t content_bytes() const { return content_bytes_; }

 private:
  const PackOptions& options_;
  IgnoreRules rules_;
  Sources sources_;
  std::map<std::string, int64_t> by_top_;
  int64_t content_bytes_ = 0;
};

// Where libarchive's bytes go: the file, the hash, and the count.
struct Sink {
  Fd fd;
  Sha256 hash;
  int64_t bytes = 0;
};

la_ssize_t sink_write(struct archive*, void* data, const void* buffer, size_t length) {
  Sink& sink = *static_cast<Sink*>(data);
  const std::string_view bytes(static_cast<const char*>(buffer), length);
  if (!write_all(sink.fd.get(), bytes)) return -1;
  sink.hash.update(bytes);
  sink.bytes += static_cast<int64_t>(length);
  return static_cast<la_ssize_t>(length);
}

class Writer {
 public:
  explicit Writer(Sink& sink)
      : archive_(::archive_write_new(), &::archive_write_free), sink_(sink) {}

  Status open() {
    struct archive* a = archive_.get();
    // gnutar keeps names as the bytes they are, whatever the locale.
    if (::archive_write_set_format_gnutar(a) != ARCHIVE_OK ||
        ::archive_write_add_filter_zstd(a) != ARCHIVE_OK ||
        ::archive_write_set_bytes_in_last_block(a, 1) != ARCHIVE_OK ||
        ::archive_write_open(a, &sink_, nullptr, &sink_write, nullptr) != ARCHIVE_OK) {
      return broken();
    }
    return {};
  }

  Status put(const std::string& path, const Source& source) {
    const std::unique_ptr<archive_entry, decltype(&::archive_entry_free)> entry(
        ::archive_entry_new(), &::archive_entry_free);
    ::archive_entry_set_pathname(entry.get(), path.c_str());
    ::archive_entry_set_mtime(entry.get(), 0, 0);
    ::archive_entry_set_size(entry.get(), source.size_bytes);
    // Only the executable bit survives: umasks differ between machines.
    const mode_t permissions = S_ISDIR(source.mode) || (source.mode & S_IXUSR) != 0 ? 0755 : 0644;
    ::archive_entry_set_mode(entry.get(), (source.mode & S_IFMT) | permissions);
    if (S_ISLNK(source.mode)) {
      ::archive_entry_set_perm(entry.get(), 0777);
      ::archive_entry_set_symlink(entry.get(), source.link_target.c_str());
    }
    if (::archive_write_header(archive_.get(), entry.get()) < ARCHIVE_WARN) return broken();
    return S_ISREG(source.mode) ? put_content(source) : Status{};
  }

  Status close() {
    if (::archive_write_close(archive_.get()) != ARCHIVE_OK) return broken();
    return {};
  }

 private:
  Status put_content(const Source& source) {
    TRY(auto fd, open_file(source.host_path, O_RDONLY | O_NOFOLLOW));
    int64_t left = source.size_bytes;
    for (int64_t offset = 0; left > 0;) {
      TRY(auto bytes, read_range(fd.get(), offset, std::min<int64_t>(left, 1 << 18)));
      if (bytes.empty()) {
        return fail(Code::kAborted, "workdir_changed",
                    source.host_path + " became shorter while it was read");
      }
      if (::archive_write_data(archive_.get(), bytes.data(), bytes.size()) < 0) return broken();
      offset += static_cast<int64_t>(bytes.size());
      left -= static_cast<int64_t>(bytes.size());
    }
    return {};
  }

  Status broken() {
    const char* text = ::archive_error_string(archive_.get());
    return fail(
        Code::kInternal, "archive_failed",
        fmt::format("writing the archive failed: {}", text == nullptr ? "disk full?" : text));
  }

  std::unique_ptr<struct archive, decltype(&::archive_write_free)> archive_;
  Sink& sink_;
};

// A file in "a/b/c" needs folders a and a/b, also when the folder itself has none.
void add_missing_folders(Sources& sources) {
  std::vector<std::string> missing;
  for (const auto& [path, source] : sources) {
    for (size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      missing.push_back(path.substr(0, slash));
    }
  }
  for (const std::string& path : missing)
    sources.try_emplace(path, Source{"", S_IFDIR | 0755, 0, {}});
}

Status write_archive(const Sources& sources, Sink& sink, int64_t bytes_max, const Walk& walk) {
  Writer writer(sink);
  TRY_VOID(writer.open());
  for (const auto& [path, source] : sources) {
    TRY_VOID(writer.put(path, source));
    if (sink.bytes > bytes_max) return walk.too_large();
  }
  TRY_VOID(writer.close());
  return sink.bytes > bytes_max ? walk.too_large() : Status{};
}

}  // namespace

Result<Packed> pack_folder(const std::string& folder, const std::string& archive_path,
                           const PackOptions& options) {
  if (!is_folder(folder)) {
    return fail(Code::kInvalidArgument, "workdir_missing", folder + " is not a folder");
  }
  Walk walk(options);
  TRY_VOID(walk.enter(folder, "", 0));
  for (const auto& [host_path, path] : options.extra_files) {
    TRY(auto source, source_of(host_path));
    if (!S_ISREG(source.mode)) {
      return fail(Code::kInvalidArgument, "not_a_file", host_path + " is not a file");
    }
    TRY_VOID(walk.add(path, std::move(source)));
  }
  TRY_VOID(walk.check());
  add_missing_folders(walk.sources());
  Sink sink;
  TRY(sink.fd, open_file(archive_path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  if (const Status written = write_archive(walk.sources(), sink, options.bytes_max, walk);
      !written) {
    ::unlink(archive_path.c_str());
    return tl::unexpected(written.error());
  }
  return Packed{sink.hash.finish_hex(), sink.bytes, walk.content_bytes(),
                static_cast<int64_t>(walk.sources().size())};
}

}  // namespace anychip::sys
