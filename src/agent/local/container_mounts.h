// Getting rid of mounts. A volume is free only when no mount namespace of the machine holds it any
// more; a program that once copied all mounts into a private namespace (`unshare --mount`, services
// with private mounts) does, for as long as it lives, and does not know it.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace anychip::agent {

// Unmounts everything below the folder, the last mounted first.
Status unmount_below(const std::string& folder);

// In every *other* mount namespace: detaches what lies at or below these folders of ours. Nothing
// else of those namespaces is touched. Returns how many mounts were detached.
int detach_in_other_namespaces(const std::vector<std::string>& folders);

// Targets of a mountinfo text at or below one of the folders, in its order (octal escapes undone).
std::vector<std::string> mounts_below(const std::string& mountinfo, const std::vector<std::string>& folders);

}  // namespace anychip::agent
