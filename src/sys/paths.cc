#include "sys/paths.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "sys/files.h"

namespace anychip::sys {

std::string absolute_path(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::weakly_canonical(path, error);
  if (error || absolute.is_relative()) absolute = std::filesystem::absolute(path, error);
  std::string text = absolute.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string join(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

Result<std::string> installation_root() {
  if (const char* given = std::getenv("ANYCHIP_ROOT"); given != nullptr && *given != '\0') {
    std::string root = absolute_path(given);
    if (is_folder(join(root, "catalog/images"))) return root;
    return fail(Code::kNotFound, "installation_not_found",
                "ANYCHIP_ROOT is " + root + ", which holds no folder catalog/");
  }
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return fail_errno("read /proc/self/exe", error.value());
  for (std::string folder = parent_of(program); true; folder = parent_of(folder)) {
    if (is_folder(join(folder, "catalog/images"))) return folder;
    if (folder == "/") break;
  }
  return fail(Code::kNotFound, "installation_not_found",
              "no folder above " + program + " holds catalog/",
              "run the program from its installation, or set ANYCHIP_ROOT");
}

Result<std::string> data_folder() {
  const auto from = [](const char* variable) -> std::string {
    const char* text = std::getenv(variable);
    return text == nullptr ? "" : text;
  };
  if (const std::string given = from("ANYCHIP_DATA"); !given.empty()) return absolute_path(given);
  if (const std::string xdg = from("XDG_DATA_HOME"); !xdg.empty() && xdg.front() == '/') {
    return absolute_path(join(xdg, "anychip"));
  }
  if (const std::string home = from("HOME"); !home.empty()) {
    return absolute_path(join(home, ".local/share/anychip"));
  }
  return fail(Code::kFailedPrecondition, "data_folder_unknown",
              "neither ANYCHIP_DATA nor HOME is set",
              "set ANYCHIP_DATA to a folder on a local disk");
}

}  // namespace anychip::sys
