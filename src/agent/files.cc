#include "agent/files.h"

#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::agent {
namespace {

// A digest comes from the server and becomes a file name.
bool is_digest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

Result<std::unique_ptr<FolderFiles>> FolderFiles::create(std::string folder) {
  TRY_VOID(sys::make_folders(sys::join(folder, "workdirs"), 0700));
  return std::unique_ptr<FolderFiles>(new FolderFiles(std::move(folder)));
}

Result<std::string> FolderFiles::load_identity() {
  return sys::read_file(sys::join(folder_, "node.json"));
}

Status FolderFiles::save_identity(std::string_view json_text) {
  return sys::write_file_durable(sys::join(folder_, "node.json"), json_text, 0600);
}

Result<std::string> FolderFiles::load_state() {
  return sys::read_file(sys::join(folder_, "state.json"));
}

Status FolderFiles::save_state(std::string_view json_text) {
  return sys::write_file_durable(sys::join(folder_, "state.json"), json_text, 0600);
}

bool FolderFiles::has_workdir(const std::string& digest) {
  return is_digest(digest) && sys::exists(workdir_path(digest));
}

Status FolderFiles::save_workdir(const std::string& digest, std::string_view bytes) {
  if (!is_digest(digest)) {
    return fail(Code::kInvalidArgument, "digest_malformed", "'" + digest + "' is no SHA-256");
  }
  return sys::write_file_durable(workdir_path(digest), bytes, 0600);
}

std::string FolderFiles::workdir_path(const std::string& digest) {
  return sys::join(sys::join(folder_, "workdirs"), digest + ".tar.zst");
}

}  // namespace anychip::agent
