// The Core's files on a real machine: workdirs by digest in a folder, template folders packed into
// it.
#pragma once

#include <memory>
#include <string>

#include "server/core.h"

namespace anychip::server {

// DATA/server/workdirs/DIGEST.tar.zst
std::unique_ptr<Blobs> open_blobs(std::string folder);

// `root`: the installation, which template folders are relative to; `share`: prepared data files;
// `scratch`: a folder for archives under way. Thread-safe.
std::unique_ptr<Workdirs> open_workdirs(std::string root, std::string share, std::string scratch,
                                        Blobs& blobs);

}  // namespace anychip::server
