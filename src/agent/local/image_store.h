// Images of a node: layers built once, content-addressed, stacked read-only under the containers.
// <store>/<layer digest>/root + complete.json (written last). Several agents of a machine may share
// the store (flock per layer). Every file in a layer is owned by ids 0..65535.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/runtime.h"
#include "base/error.h"
#include "catalog/catalog.h"

namespace anychip::agent {

struct ImageStoreOptions {
  std::string store;              // layers; default DATA/images or ANYCHIP_IMAGE_STORE
  std::string wheel_cache;        // default DATA/wheels or ANYCHIP_WHEEL_CACHE
  std::string installation_root;  // holds catalog/, python/: sources of "files" layers
  std::string share;              // build outputs: "@lib/x" = <share>/lib/x
  // Store and wheel cache from the environment or the data folder.
  static ImageStoreOptions of(const std::string& data, const std::string& installation_root,
                              const std::string& share);
};

struct ImageProgress {
  int percent = 0;
  std::string text;  // "torch 2.13.0: downloading, 84 MB"
};

class ImageStore {
 public:
  // `catalog` outlives the store.
  static Result<std::unique_ptr<ImageStore>> open(const catalog::Catalog& catalog,
                                                  ImageStoreOptions options);
  ~ImageStore();

  // Builds what is missing; blocks for minutes the first time; safe to call from several threads.
  // A wrong digest is "image_digest_mismatch"; otherwise a failure is one sentence for a person.
  Status ensure(const std::string& image, const std::string& variant, const std::string& digest);
  // At the agent's end: running and later builds return "cancelled" soon; what is fetched is kept.
  void cancel();

  // The layers' root folders, lowest first; "image_not_ready" when one is missing. Cheap.
  Result<std::vector<std::string>> layer_paths(const std::string& image,
                                               const std::string& variant) const;
  // All variants of kind "layers" in the catalogue with their state; cheap.
  std::vector<ImageSeen> seen() const;

 private:
  class Impl;
  explicit ImageStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace anychip::agent
