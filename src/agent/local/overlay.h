// A container's root file system: read-only image layers and a writable upper layer on the system
// disk, as one overlay. It is made by root of the container's user namespace (made by the host's
// root it comes up read-only, because that root has no id on the idmapped layers) and handed back as
// a detached mount.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "sys/files.h"

namespace anychip::agent {

struct OverlayInput {
  std::vector<sys::Fd> layers;  // detached, idmapped mounts of the layers' roots, lowest first
  sys::Fd disk;                 // detached, idmapped mount of the system disk: holds upper/, work/
  std::string meeting_point;    // an existing folder that anybody can walk to; untouched on the host
};
Result<sys::Fd> make_overlay(const OverlayInput& input, const sys::Fd& user_namespace);

}  // namespace anychip::agent
