// Images: layers (content-addressed) and their variants. One file per image under catalog/images/.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/hash.h"
#include "catalog/loader.h"

namespace anychip::catalog {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kBuildOutput = "@lib/";

// Length before text: no two different lists of parts give the same bytes to hash.
void append_part(std::string& content, std::string_view part) {
  content += fmt::format("{}:", part.size());
  content += part;
}

bool is_hidden_or_cache(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".") || name == "__pycache__" || path.extension() == ".pyc";
}

// Regular files below `folder`, relative to it, sorted. Symbolic links are left out: what they
// point at need not be part of the installation.
std::vector<std::string> files_below(const std::string& folder, std::error_code& error) {
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (is_hidden_or_cache(it->path())) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file() && !it->is_symlink()) {
      found.push_back(fs::relative(it->path(), folder).string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool has_parent_step(std::string_view path) {
  const fs::path parts{path};
  return std::any_of(parts.begin(), parts.end(), [](const fs::path& part) { return part == ".."; });
}

// repository@sha256:<64 hex>
bool is_pinned_reference(std::string_view text) {
  const size_t at = text.find("@sha256:");
  if (at == std::string_view::npos || at == 0) return false;
  const std::string_view digest = text.substr(at + 8);
  return digest.size() == 64 && std::all_of(digest.begin(), digest.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

void Loader::load_images() {
  for (const std::string& file : yaml_files_in("catalog/images")) load_image(file);
}

void Loader::load_image(const std::string& file) {
  std::optional<Fields> data = open_yaml(root_, file, problems_);
  if (!data) return;
  Image image;
  image.id = data->text("id");
  image.description = data->text("description");
  for (Fields& fields : data->maps_or_none("layers")) load_layer(std::move(fields));
  std::map<std::string, Place> variant_places;
  for (Fields& fields : data->maps_or_none("variants")) {
    const Place place = fields.place();
    Variant variant = load_variant(std::move(fields));
    check_id(variant.id, place, "variant", variant_places);
    image.variants.push_back(std::move(variant));
  }
  if (image.variants.empty()) data->problem("variants", "an image needs at least one variant");
  data->finish();
  check_id(image.id, data->place(), "image", image_places_);
  catalog_.images_.push_back(std::move(image));
}

void Loader::load_layer(Fields fields) {
  Layer layer;
  layer.id = fields.text("id");
  layer.kind = fields.text("kind");
  std::string content;  // what the digest is taken of
  append_part(content, layer.id);
  append_part(content, layer.kind);
  if (layer.kind == "debian") {
    layer.suite = fields.text("suite");
    append_part(content, layer.suite);
    for (Located& package : fields.texts_or_none("packages")) {
      append_part(content, package.text);
      layer.packages.push_back(std::move(package.text));
    }
  } else if (layer.kind == "pip") {
    const std::string file = fields.text("requirements");
    const Result<std::string> text = read_file(root_ + "/" + file);
    if (!file.empty() && !text) fields.problem("requirements", text.error().message);
    if (text) layer.requirements = *text;
    append_part(content, layer.requirements);
  } else if (layer.kind == "files") {
    load_layer_files(fields, layer, content);
  } else if (!layer.kind.empty()) {
    fields.problem("kind", fmt::format("layer kind '{}' must be debian, pip or files", layer.kind));
  }
  fields.finish();
  layer.digest = sha256_hex(content);
  check_id(layer.id, fields.place(), "layer", layer_places_);
  catalog_.layers_.push_back(std::move(layer));
}

void Loader::load_layer_files(Fields& fields, Layer& layer, std::string& content) {
  std::vector<Fields> items = fields.maps_or_none("files");
  if (items.empty()) fields.problem("files", "'files' must name at least one file or folder");
  for (Fields& item : items) {
    const std::string from = item.text("from");
    const std::string to = item.text("to");
    item.finish();
    if (from.empty() || to.empty()) continue;
    if (!to.starts_with('/') || has_parent_step(to)) {
      item.problem("to", fmt::format("'{}' must be an absolute path without '..'", to));
      continue;
    }
    if (from.starts_with('/') || has_parent_step(from)) {
      item.problem("from", fmt::format("'{}' must be a path inside the installation", from));
      continue;
    }
    if (!from.ends_with('/')) {
      add_layer_file(item.place_of("from"), from, to, layer, content);
      continue;
    }
    std::error_code error;
    const std::vector<std::string> found = files_below(root_ + "/" + from, error);
    if (error || found.empty()) {
      item.problem("from", fmt::format("folder '{}' holds no file{}", from,
                                       error ? ": " + error.message() : ""));
    }
    const std::string base = to.ends_with('/') ? to : to + "/";
    for (const std::string& name : found) {
      add_layer_file(item.place_of("from"), from + name, base + name, layer, content);
    }
  }
}

void Loader::add_layer_file(const Place& place, const std::string& from, const std::string& to,
                            Layer& layer, std::string& content) {
  const bool is_output = from.starts_with(kBuildOutput);
  const std::string path =
      is_output ? share_ + "/lib/" + from.substr(kBuildOutput.size()) : root_ + "/" + from;
  const Result<std::string> bytes = read_file(path);
  if (!bytes && is_output) {
    layer.unavailable = fmt::format("'{}' is not built yet: run make build", path);
  } else if (!bytes) {
    problems_.add(place, bytes.error().message);
  }
  append_part(content, to);
  append_part(content, bytes ? sha256_hex(*bytes) : "");
  layer.files.emplace_back(from, to);
}

Variant Loader::load_variant(Fields fields) {
  Variant variant;
  variant.id = fields.text("id");
  variant.back_end = fields.text("back_end");
  variant.kind = fields.text("kind");
  if (!variant.back_end.empty() && find_back_end(variant.back_end) == nullptr) {
    fields.problem("back_end", fmt::format("there is no back end '{}'{}", variant.back_end,
                                           suggest(variant.back_end, back_end_ids())));
  }
  for (Located& id : fields.texts_or_none("chips")) {
    const Chip* chip = find_chip(id.text);
    if (chip == nullptr) {
      problems_.add(id.place,
                    fmt::format("there is no chip '{}'{}", id.text, suggest(id.text, chip_ids())));
    } else if (chip->back_end != variant.back_end) {
      problems_.add(id.place, fmt::format("chip '{}' has the back end '{}', the variant '{}'",
                                          id.text, chip->back_end, variant.back_end));
    }
    variant.chips.push_back(std::move(id.text));
  }
  for (auto& [name, value] : fields.text_map_or_none("environment")) {
    variant.environment[name] = value;
  }
  if (variant.kind == "layers") {
    const std::vector<Located> layers = fields.texts_or_none("layers");
    if (layers.empty()) fields.problem("layers", "'layers' must name at least one layer");
    for (const Located& id : layers) {
      variant.layers.push_back(id.text);
      settle_layers_of(variant, id.place);
    }
  } else if (variant.kind == "oci") {
    variant.oci_reference = fields.text("reference");
    const bool is_pending = fields.boolean_or("pending", false);
    if (is_pending) {
      variant.unavailable = fmt::format(
          "no digest of an image for back end '{}' is known yet (pending in the catalogue)",
          variant.back_end);
    } else if (!is_pinned_reference(variant.oci_reference)) {
      fields.problem("reference", fmt::format("'{}' must be repository@sha256:<64 hex digits>, or "
                                              "be marked pending: true",
                                              variant.oci_reference));
    }
  } else if (!variant.kind.empty()) {
    fields.problem("kind", fmt::format("variant kind '{}' must be layers or oci", variant.kind));
  }
  fields.text_or("note", "");
  fields.finish();
  std::string content;
  append_part(content, variant.oci_reference);
  for (const std::string& id : variant.layers) {
    const Layer* layer = find_layer(id);
    append_part(content, layer == nullptr ? "" : layer->digest);
  }
  for (const auto& [name, value] : variant.environment) append_part(content, name + "=" + value);
  variant.digest = sha256_hex(content);
  return variant;
}

void Loader::settle_layers_of(Variant& variant, const Place& place) {
  const std::string& id = variant.layers.back();
  const Layer* layer = find_layer(id);
  if (layer == nullptr) {
    std::vector<std::string> known;
    for (const Layer& each : catalog_.layers_) known.push_back(each.id);
    problems_.add(place, fmt::format("there is no layer '{}'{}", id, suggest(id, known)));
  } else if (!layer->unavailable.empty()) {
    variant.unavailable = layer->unavailable;
  }
}

}  // namespace anychip::catalog
