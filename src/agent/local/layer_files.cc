#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "agent/local/layer_build.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::agent {
namespace {

constexpr std::string_view kBuildOutput = "@lib/";

Status copy_file(const std::string& from, const std::string& to) {
  TRY_VOID(sys::make_folders(sys::parent_of(to)));
  TRY(auto source, sys::open_file(from, O_RDONLY));
  TRY(auto target, sys::open_file(to, O_WRONLY | O_CREAT | O_EXCL, 0644));
  for (int64_t offset = 0;;) {
    TRY(const auto bytes, sys::read_range(source.get(), offset, 1 << 20));
    if (bytes.empty()) break;
    TRY_VOID(sys::write_all(target.get(), bytes));
    offset += static_cast<int64_t>(bytes.size());
  }
  if (::fchmod(target.get(), 0644) != 0) return fail_errno("write " + to, errno);
  return {};
}

// The digest was taken when the catalogue was read; what is copied must be what it was taken of.
Status check_unchanged(const LayerBuild& build) {
  TRY(const auto fresh,
      catalog::Catalog::load(build.options.installation_root, build.options.share));
  TRY(const catalog::Layer* layer, fresh.layer(build.layer.id));
  if (layer->digest == build.layer.digest) return {};
  return fail(Code::kAborted, "installation_changed",
              fmt::format("files of the layer {} changed since the agent started", build.layer.id),
              "restart it: anychip down, then anychip up");
}

}  // namespace

Status build_files_layer(const LayerBuild& build) {
  TRY_VOID(check_unchanged(build));
  for (const auto& [from, to] : build.layer.files) {
    const bool is_output = from.starts_with(kBuildOutput);
    const std::string source =
        is_output ? build.options.share + "/lib/" + from.substr(kBuildOutput.size())
                  : build.options.installation_root + "/" + from;
    TRY_VOID(copy_file(source, build.root + to));
  }
  return check_unchanged(build);
}

Result<TreeFacts> facts_of_tree(const std::string& root) {
  std::string path = root;
  char* const paths[] = {path.data(), nullptr};
  const std::unique_ptr<FTS, decltype(&::fts_close)> tree(
      ::fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, nullptr), &::fts_close);
  if (!tree) return fail_errno("walk " + root, errno);
  TreeFacts facts;
  while (const FTSENT* entry = ::fts_read(tree.get())) {
    if (entry->fts_info == FTS_DP || entry->fts_info == FTS_NS || entry->fts_info == FTS_ERR)
      continue;
    const struct stat& info = *entry->fts_statp;
    if (info.st_uid > 65535 || info.st_gid > 65535) {
      return fail(Code::kInternal, "id_out_of_range",
                  fmt::format("{} is owned by an id beyond 65535", entry->fts_path));
    }
    facts.bytes += static_cast<int64_t>(info.st_blocks) * 512;
    facts.files += 1;
  }
  return facts;
}

}  // namespace anychip::agent
