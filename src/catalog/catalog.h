// The catalogue: what people edit under catalog/ (YAML and CSV), read and checked once at start.
// Pure values; load() is the only function that reads files. A new chip, back end, image, template
// or price is data: nothing here or above compares a vendor's name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/money.h"

namespace anychip::catalog {

struct BackEnd {
  std::string id;                   // "tpu": the word after --backend
  std::string torch_device;         // "tpu"
  std::string process_group;        // "gloo", "nccl", ... ; "" = none
  std::string visibility_variable;  // "CUDA_VISIBLE_DEVICES"; "" = none
  std::map<std::string, std::string> environment;
  std::vector<std::string> device_nodes;  // globs: "/dev/davinci*"
  std::vector<std::string> pci_ids;       // "19e5:d802", "10de:*"
  std::string trust;                      // "user_namespace" (default) or "host"
};

struct Chip {
  std::string id;    // "tpu-sim"
  std::string name;  // "TPU v5e (simulated)"
  std::string vendor;
  std::string back_end;      // BackEnd::id
  int64_t memory_bytes = 0;  // 0 = unknown (cpu: the node's memory); catalogue GB count as GiB
  bool is_simulated = false;
  std::string simulates;   // chip id whose list price this one shows; "" when not simulated
  RatePerHour price;       // per chip-hour; 0 = no price known, not offered
  std::string price_note;  // e.g. "list price of the chip simulated (tpu-v5e)"
  int default_count_per_node =
      0;  // simulated and cpu chips: devices an embedded node offers; 0 = number of cores
  // Facts for comparison, absent when unknown (never 0 as a guess).
  std::optional<double> bf16_tflops, memory_bandwidth_gbs, tdp_w;
};

// A layer is installed once, content-addressed by `digest`, and stacked by overlayfs.
struct Layer {
  std::string id;    // "torch"
  std::string kind;  // "debian" (debootstrap), "pip" (into /opt/anychip/env), "files"
  std::vector<std::string> packages;  // debian
  std::string suite;                  // debian: "bookworm"
  std::string requirements;           // pip: whole text of the pinned, hashed file
  // files: source path relative to the installation root (or "@lib/NAME": `share`/lib/NAME, a build
  // output) -> absolute path inside the layer. Folders of the data are expanded here to their
  // files, sorted, without __pycache__ and hidden names. Files are 0644, owned by root.
  std::vector<std::pair<std::string, std::string>> files;
  std::string digest;       // sha256 over all of the above and the content of the files
  std::string unavailable;  // why it cannot be built here ("" = it can), e.g. @lib file not built
};

struct Variant {
  std::string id;                  // "tpu-sim", "cuda"
  std::vector<std::string> chips;  // chip ids it serves; empty = every real chip of back_end
  std::string back_end;
  std::string kind;                                // "layers" or "oci"
  std::vector<std::string> layers;                 // Layer ids, lowest first
  std::string oci_reference;                       // kind oci: repository@sha256:...
  std::map<std::string, std::string> environment;  // carried by the image itself
  std::string digest;                              // over its layers' digests and environment
  std::string unavailable;  // one sentence why it cannot be used here; "" = it can
};

struct Image {
  std::string id;  // "pytorch"
  std::string description;
  std::vector<Variant> variants;
};

struct Template {
  std::string id;    // "tang-poem-gpt"
  std::string name;  // "Tang-poem GPT"
  std::string description;
  std::string image;
  std::vector<std::string> command;  // "--backend" is followed by a token the leg replaces
  std::string chip;                  // default
  int count = 1;
  std::string workdir;  // folder relative to the installation root
  std::vector<std::pair<std::string, std::string>> data;  // share file -> path in the workdir
  std::map<std::string, std::string> environment;
  int64_t memory_bytes = 0, system_disk_bytes = 0, checkpoint_bytes = 0;
  int restarts_max = 3;
  std::string expected_cost;  // words for people, with what it was measured on
};

class Catalog {
 public:
  // root: the installation (holds catalog/, python/, templates); share: prepared data files and
  // build outputs (@lib = share/lib). Every problem found is in one error "catalog_invalid", with
  // file and line. A build output that is missing is no problem of the data: what needs it is
  // marked `unavailable`.
  static Result<Catalog> load(const std::string& root, const std::string& share);

  const std::vector<BackEnd>& back_ends() const { return back_ends_; }
  const std::vector<Chip>& chips() const { return chips_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Image>& images() const { return images_; }
  const std::vector<Template>& templates() const { return templates_; }

  // Lookups by id; chip() also accepts the aliases of catalog/chips.yaml ("910B" -> ascend-910b)
  // and upper case.
  // Unknown: kNotFound "chip_unknown" (back_end_unknown, image_unknown, template_unknown) with the
  // nearest names as hint.
  Result<const Chip*> chip(std::string_view id) const;
  Result<const BackEnd*> back_end(std::string_view id) const;
  Result<const Image*> image(std::string_view id) const;
  Result<const Template*> template_by(std::string_view id) const;
  Result<const Layer*> layer(std::string_view id) const;
  // The variant of an image that serves a chip; none: kFailedPrecondition "variant_missing" naming
  // the chips it does serve; there but not usable here: kFailedPrecondition "variant_unavailable".
  Result<const Variant*> variant_for(const Image& image, const Chip& chip) const;

 private:
  friend class Loader;
  std::vector<BackEnd> back_ends_;
  std::vector<Chip> chips_;
  std::map<std::string, std::string, std::less<>> chip_aliases_;
  std::vector<Layer> layers_;
  std::vector<Image> images_;
  std::vector<Template> templates_;
};

// Up to three ids closest to `word` by edit distance, nearest first (for "did you mean"); an id
// that begins with the word counts as close. What shares next to nothing with the word is left out.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace anychip::catalog
