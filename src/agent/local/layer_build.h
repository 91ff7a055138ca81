// How one layer comes to be: three kinds, each fills `root`. Used by ImageStore only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agent/local/image_store.h"
#include "base/error.h"
#include "catalog/catalog.h"

namespace anychip::agent {

struct LayerBuild {
  const catalog::Layer& layer;
  const ImageStoreOptions& options;
  std::string work;                // scratch folder of this build, in the store
  std::string root;                // to be filled; exists, empty
  std::vector<std::string> lower;  // roots of the layers below, lowest first
  const std::atomic<bool>& cancel;
  std::function<void(int percent, const std::string& text)> report;
};

Status build_debian_layer(const LayerBuild& build);  // layer_debian.cc
Status build_pip_layer(const LayerBuild& build);     // layer_pip.cc
Status build_files_layer(const LayerBuild& build);   // layer_files.cc

// Shell text for the start of a build that runs in a mount namespace of its own: such a namespace
// begins as a copy of all mounts, and as long as it lives it would keep every volume busy that was
// mounted then. So it lets go of them: whatever is on a loop device or below /run/anychip, but for
// what the store itself (ANYCHIP_KEEP) lies on.
constexpr const char* kLetGoOfVolumes =
    "while read -r _ _ _ _ at rest; do case \"$at $rest\" in /run/anychip/*|*' - '*' /dev/loop'*) "
    "case \"$ANYCHIP_KEEP/\" in \"${at%/}\"/*) ;; *) umount -l \"$at\" 2>/dev/null || true ;; esac "
    ";; esac; "
    "done < /proc/self/mountinfo\n";

// Folders every base offers, so that nothing must be created in a read-only image.
const std::vector<std::string>& mount_points_of_a_base();

// The mirror and keyring the machine's own apt uses for a suite (layer_debian.cc).
struct DebianMirror {
  std::string url, keyring;  // keyring "" = debootstrap's default
};
Result<DebianMirror> find_debian_mirror(const std::string& apt_folder, const std::string& suite);

struct TreeFacts {
  int64_t bytes = 0, files = 0;
};
// Counts; an owner beyond 65535 is an error "id_out_of_range" (it could not be mapped).
Result<TreeFacts> facts_of_tree(const std::string& root);

}  // namespace anychip::agent
