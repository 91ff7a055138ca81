// Where things lie: the installation (the folder that holds catalog/) and the data folder.
#pragma once

#include <string>

#include "base/error.h"

namespace anychip::sys {

// Absolute, without "." "..", no links resolved for parts that do not exist.
std::string absolute_path(const std::string& path);
std::string join(std::string_view folder, std::string_view name);
std::string parent_of(const std::string& path);
std::string name_of(const std::string& path);

// The nearest folder above /proc/self/exe that holds catalog/ (ANYCHIP_ROOT overrides).
Result<std::string> installation_root();
// ANYCHIP_DATA, else $XDG_DATA_HOME/anychip, else ~/.local/share/anychip; absolute; not created.
Result<std::string> data_folder();

}  // namespace anychip::sys
