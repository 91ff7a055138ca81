#include "agent/local/image_store.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "agent/local/layer_build.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/log.h"
#include "base/time.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::agent {
namespace {

constexpr int64_t kFreeBytesMin = 2ll << 30;
constexpr Duration kProgressEvery = milliseconds(300);

void sleep_a_moment() {
  const timespec wait{0, 300'000'000};
  ::nanosleep(&wait, nullptr);
}

// How long a kind takes, roughly, next to the others; only the progress bar depends on it.
int weight_of(const catalog::Layer& layer) {
  return layer.kind == "debian" ? 30 : layer.kind == "pip" ? 60 : 1;
}

std::string from_environment(const char* name, std::string fallback) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? std::move(fallback) : sys::absolute_path(text);
}

}  // namespace

ImageStoreOptions ImageStoreOptions::of(const std::string& data,
                                        const std::string& installation_root,
                                        const std::string& share) {
  return {from_environment("ANYCHIP_IMAGE_STORE", data + "/images"),
          from_environment("ANYCHIP_WHEEL_CACHE", data + "/wheels"), installation_root, share};
}

class ImageStore::Impl {
 public:
  Impl(const catalog::Catalog& catalog, ImageStoreOptions options)
      : catalog_(catalog), options_(std::move(options)) {}

  Status ensure(const std::string& image_id, const std::string& variant_id,
                const std::string& digest);
  Result<std::vector<std::string>> layer_paths(const std::string& image_id,
                                               const std::string& variant_id) const;
  std::vector<ImageSeen> seen() const;
  void cancel() { is_cancelled_ = true; }

 private:
  using Report = std::function<void(int, const std::string&)>;

  Result<const catalog::Variant*> find(const std::string& image_id,
                                       const std::string& variant_id) const;
  std::string folder_of(const catalog::Layer& layer) const {
    return sys::join(options_.store, layer.digest);
  }
  std::string root_of(const catalog::Layer& layer) const { return folder_of(layer) + "/root"; }
  bool is_complete(const catalog::Layer& layer) const;
  Status ensure_layer(const catalog::Layer& layer, const std::vector<std::string>& lower,
                      const Report& report);
  Status build_layer(const catalog::Layer& layer, const std::vector<std::string>& lower,
                     const Report& report);
  Result<sys::FileLock> wait_for_lock(const catalog::Layer& layer, const Report& report);
  Status check_space() const;
  void note(const std::string& key, int percent, const std::string& text);

  const catalog::Catalog& catalog_;
  const ImageStoreOptions options_;
  std::atomic<bool> is_cancelled_{false};
  mutable std::mutex mutex_;                // of the two below
  mutable std::set<std::string> complete_;  // digests seen complete: never removed while we run
  std::map<std::string, ImageProgress> progress_;  // by variant digest
};

Result<const catalog::Variant*> ImageStore::Impl::find(const std::string& image_id,
                                                       const std::string& variant_id) const {
  TRY(const catalog::Image* image, catalog_.image(image_id));
  for (const catalog::Variant& variant : image->variants) {
    if (variant.id == variant_id) return &variant;
  }
  return fail(Code::kNotFound, "variant_missing",
              fmt::format("the image {} has no variant {}", image_id, variant_id));
}

bool ImageStore::Impl::is_complete(const catalog::Layer& layer) const {
  {
    const std::lock_guard lock(mutex_);
    if (complete_.contains(layer.digest)) return true;
  }
  const auto text = sys::read_file(folder_of(layer) + "/complete.json", 1 << 16);
  if (!text) return false;
  const auto facts = json::parse(*text);
  if (!facts || !facts->is_object() ||
      json::string_at(facts->get_object(), "digest") != layer.digest)
    return false;
  if (!sys::is_folder(root_of(layer))) return false;
  const std::lock_guard lock(mutex_);
  complete_.insert(layer.digest);
  return true;
}

void ImageStore::Impl::note(const std::string& key, int percent, const std::string& text) {
  const std::lock_guard lock(mutex_);
  progress_[key] = {percent, text};
}

Status ImageStore::Impl::check_space() const {
  TRY(const sys::Space space, sys::space_of(options_.store));
  if (space.free_bytes >= kFreeBytesMin) return {};
  return fail(Code::kResourceExhausted, "disk_full",
              fmt::format("{} has only {} MiB free; building an image needs 2 GiB", options_.store,
                          space.free_bytes >> 20),
              "free some space, or set ANYCHIP_IMAGE_STORE to a folder on a larger disk");
}

// Another agent (or thread) of this machine may be building the same layer: its progress is ours.
Result<sys::FileLock> ImageStore::Impl::wait_for_lock(const catalog::Layer& layer,
                                                      const Report& report) {
  while (true) {
    auto lock = sys::FileLock::try_acquire(folder_of(layer) + "/lock");
    if (lock || lock.error().reason != "locked") return lock;
    if (is_cancelled_) return fail(Code::kCancelled, "cancelled", "the build was cancelled");
    if (const auto text = sys::read_file(folder_of(layer) + "/progress.json", 1 << 16)) {
      if (const auto value = json::parse(*text); value && value->is_object()) {
        report(static_cast<int>(json::int_at(value->get_object(), "percent")),
               json::string_at(value->get_object(), "text"));
      }
    }
    sleep_a_moment();
  }
}

Status ImageStore::Impl::ensure_layer(const catalog::Layer& layer,
                                      const std::vector<std::string>& lower, const Report& report) {
  if (is_complete(layer)) return {};
  if (!layer.unavailable.empty())
    return fail(Code::kFailedPrecondition, "layer_unavailable", layer.unavailable);
  const std::string folder = folder_of(layer);
  TRY_VOID(sys::make_folders(folder));
  TRY(const auto lock, wait_for_lock(layer, report));
  if (is_complete(layer)) return {};
  TRY_VOID(check_space());
  MonoTime last{};
  const RealClock clock;
  const Report told = [&](int percent, const std::string& text) {
    report(percent, text);
    if (clock.mono_now() - last < kProgressEvery) return;
    last = clock.mono_now();
    const json::object line{{"percent", percent}, {"text", text}};
    if (!sys::write_file_atomic(folder + "/progress.json", json::serialize(line) + "\n")) last = {};
  };
  log::info("image.layer_building", {{"layer", layer.id}, {"digest", layer.digest}});
  const Status built = build_layer(layer, lower, told);
  TRY_VOID(sys::remove_file(folder + "/progress.json"));
  // Scratch only; a failure to remove it must not hide why the build failed.
  const Status cleared = sys::remove_tree(folder + "/build");
  return built ? cleared : built;
}

Status ImageStore::Impl::build_layer(const catalog::Layer& layer,
                                     const std::vector<std::string>& lower, const Report& report) {
  const std::string folder = folder_of(layer), work = folder + "/build";
  TRY_VOID(sys::remove_tree(work));
  TRY_VOID(sys::remove_tree(folder + "/root"));  // renamed, but never completed
  const LayerBuild build{layer, options_, work, work + "/root", lower, is_cancelled_, report};
  TRY_VOID(sys::make_folders(build.root));
  report(0, layer.id);
  if (layer.kind == "debian") {
    TRY_VOID(build_debian_layer(build));
  } else if (layer.kind == "pip") {
    TRY_VOID(build_pip_layer(build));
  } else if (layer.kind == "files") {
    TRY_VOID(build_files_layer(build));
  } else {
    return fail(Code::kUnimplemented, "layer_kind_unknown",
                "there is no way to build a layer of kind " + layer.kind);
  }
  report(98, layer.id + ": writing to disk");
  TRY(const TreeFacts facts, facts_of_tree(build.root));
  FAILPOINT("image.layer.built");
  TRY_VOID(sys::sync_file_system(folder));  // thousands of files: one call instead of fsync each
  TRY_VOID(sys::rename_durable(build.root, folder + "/root"));
  FAILPOINT("image.layer.renamed");
  const json::object complete{{"format", 1},
                              {"digest", layer.digest},
                              {"layer", layer.id},
                              {"kind", layer.kind},
                              {"bytes", facts.bytes},
                              {"files", facts.files},
                              {"built_at", RealClock{}.wall_now().rfc3339()}};
  TRY_VOID(sys::write_file_durable(folder + "/complete.json", json::serialize(complete) + "\n"));
  log::info("image.layer_ready",
            {{"layer", layer.id}, {"bytes", facts.bytes}, {"files", facts.files}});
  return {};
}

Status ImageStore::Impl::ensure(const std::string& image_id, const std::string& variant_id,
                                const std::string& digest) {
  TRY(const catalog::Variant* variant, find(image_id, variant_id));
  if (variant->digest != digest) {
    return fail(Code::kFailedPrecondition, "image_digest_mismatch",
                fmt::format("this node's catalogue has another {}/{} than the server's", image_id,
                            variant_id),
                "install the same version of AnyChip on both, then restart the agent");
  }
  if (!variant->unavailable.empty())
    return fail(Code::kFailedPrecondition, "variant_unavailable", variant->unavailable);
  if (variant->kind != "layers") {
    return fail(Code::kUnimplemented, "variant_unavailable",
                fmt::format("images of kind {} cannot be fetched on this node", variant->kind));
  }
  std::vector<const catalog::Layer*> layers;
  int total = 0;
  for (const std::string& id : variant->layers) {
    TRY(const catalog::Layer* layer, catalog_.layer(id));
    layers.push_back(layer);
    total += weight_of(*layer);
  }
  std::vector<std::string> lower;
  int done = 0;
  for (const catalog::Layer* layer : layers) {
    const int weight = weight_of(*layer);
    const Report report = [&](int percent, const std::string& text) {
      note(variant->digest, std::min(99, (done * 100 + weight * percent) / total), text);
    };
    if (const Status ready = ensure_layer(*layer, lower, report); !ready) {
      note(variant->digest, (done * 100) / total, ready.error().message);
      return ready;
    }
    lower.push_back(root_of(*layer));
    done += weight;
  }
  note(variant->digest, 100, "ready");
  return {};
}

Result<std::vector<std::string>> ImageStore::Impl::layer_paths(
    const std::string& image_id, const std::string& variant_id) const {
  TRY(const catalog::Variant* variant, find(image_id, variant_id));
  std::vector<std::string> paths;
  for (const std::string& id : variant->layers) {
    TRY(const catalog::Layer* layer, catalog_.layer(id));
    if (!is_complete(*layer)) {
      return fail(
          Code::kFailedPrecondition, "image_not_ready",
          fmt::format("the layer {} of {}/{} is not built on this node", id, image_id, variant_id));
    }
    paths.push_back(root_of(*layer));
  }
  if (paths.empty()) {
    return fail(Code::kFailedPrecondition, "image_not_ready",
                fmt::format("{}/{} has no layers on this node", image_id, variant_id));
  }
  return paths;
}

std::vector<ImageSeen> ImageStore::Impl::seen() const {
  std::vector<ImageSeen> all;
  for (const catalog::Image& image : catalog_.images()) {
    for (const catalog::Variant& variant : image.variants) {
      if (variant.kind != "layers") continue;
      ImageSeen one{
          image.id, variant.id, variant.digest, layer_paths(image.id, variant.id).has_value(),
          0,        {}};
      const std::lock_guard lock(mutex_);
      if (one.is_ready) {
        one.progress_percent = 100;
        one.progress_text = "ready";
      } else if (const auto found = progress_.find(variant.digest); found != progress_.end()) {
        one.progress_percent = std::min(99, found->second.percent);
        one.progress_text = found->second.text;
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

ImageStore::ImageStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImageStore::~ImageStore() = default;

Result<std::unique_ptr<ImageStore>> ImageStore::open(const catalog::Catalog& catalog,
                                                     ImageStoreOptions options) {
  options.store = sys::absolute_path(options.store);
  options.wheel_cache = sys::absolute_path(options.wheel_cache);
  TRY_VOID(sys::make_folders(options.store));
  return std::unique_ptr<ImageStore>(
      new ImageStore(std::make_unique<Impl>(catalog, std::move(options))));
}

Status ImageStore::ensure(const std::string& image, const std::string& variant,
                          const std::string& digest) {
  return impl_->ensure(image, variant, digest);
}
void ImageStore::cancel() { impl_->cancel(); }
Result<std::vector<std::string>> ImageStore::layer_paths(const std::string& image,
                                                         const std::string& variant) const {
  return impl_->layer_paths(image, variant);
}
std::vector<ImageSeen> ImageStore::seen() const { return impl_->seen(); }

}  // namespace anychip::agent
