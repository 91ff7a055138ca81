// A folder as one deterministic tar.zst (same content = same bytes, wherever it lies), and back.
// Packing respects .gitignore; unpacking trusts nothing in the archive.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace anychip::sys {

constexpr int64_t kWorkdirBytesMax = 512ll << 20;

struct PackOptions {
  int64_t bytes_max = kWorkdirBytesMax;  // of the files' content and of the archive
  bool is_gitignore_respected = true;
  // More files, {host path, path in the archive}; win over the folder's own (template data).
  std::vector<std::pair<std::string, std::string>> extra_files;
};
struct Packed {
  std::string digest;  // sha256 of the archive, hex
  int64_t archive_bytes = 0, content_bytes = 0, entries = 0;
};
// Regular files, folders and symbolic links; sockets, pipes and devices are left out. Too big:
// kInvalidArgument "workdir_too_large" with the largest folder as hint. `.git` is never packed.
Result<Packed> pack_folder(const std::string& folder, const std::string& archive_path,
                           const PackOptions& options = {});

struct UnpackOptions {
  int64_t bytes_max = kWorkdirBytesMax * 4;  // content in all
  int64_t entries_max = 1'000'000;
  int owner_id = 0;  // uid and gid of everything written
};
// Into an existing folder. Refuses ("archive_unsafe") absolute paths, "..", writing through
// symbolic links, hard links out of the folder, devices; "archive_too_large"; "archive_malformed".
Status unpack_archive(const std::string& archive_path, int folder_fd,
                      const UnpackOptions& options = {});

}  // namespace anychip::sys
