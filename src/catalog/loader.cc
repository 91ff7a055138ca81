#include "catalog/loader.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace anychip::catalog {
namespace {
namespace fs = std::filesystem;
constexpr char kBackEndsFile[] = "catalog/back_ends.yaml";
}  // namespace

Result<Catalog> Loader::load() {
  load_back_ends();
  load_chip_facts();
  load_chip_data();
  load_prices();
  settle_simulated();
  check_chips();
  load_images();
  load_templates();
  if (!problems_.empty()) return tl::unexpected(problems_.to_error());
  return std::move(catalog_);
}

void Loader::load_back_ends() {
  std::optional<Fields> data = open_yaml(root_, kBackEndsFile, problems_);
  if (!data) return;
  for (Fields& fields : data->maps_or_none("back_ends")) {
    BackEnd back_end;
    back_end.id = fields.text("id");
    back_end.torch_device = fields.text("torch_device");
    back_end.process_group = fields.text_or("process_group", "");
    back_end.visibility_variable = fields.text_or("visibility_variable", "");
    for (auto& [name, value] : fields.text_map_or_none("environment")) {
      back_end.environment[name] = value;
    }
    for (Located& node : fields.texts_or_none("device_nodes")) {
      if (!node.text.starts_with("/dev/")) {
        problems_.add(node.place, fmt::format("device node '{}' must begin with /dev/", node.text));
      }
      back_end.device_nodes.push_back(std::move(node.text));
    }
    for (Located& id : fields.texts_or_none("pci_ids")) {
      const bool has_form = id.text.size() >= 6 && id.text[4] == ':' &&
                            (id.text.size() == 9 || id.text.ends_with(":*"));
      if (!has_form) {
        problems_.add(id.place,
                      fmt::format("pci id '{}' must look like 19e5:d802 or 10de:*", id.text));
      }
      back_end.pci_ids.push_back(std::move(id.text));
    }
    back_end.trust = fields.text_or("trust", "user_namespace");
    if (back_end.trust != "user_namespace" && back_end.trust != "host") {
      fields.problem("trust", "'trust' must be user_namespace or host");
    }
    fields.finish();
    check_id(back_end.id, fields.place(), "back end", back_end_places_);
    catalog_.back_ends_.push_back(std::move(back_end));
  }
  data->finish();
}

void Loader::load_templates() {
  for (const std::string& file : yaml_files_in("catalog/templates")) load_template(file);
}

void Loader::load_template(const std::string& file) {
  std::optional<Fields> data = open_yaml(root_, file, problems_);
  if (!data) return;
  Fields& fields = *data;
  Template task;
  task.id = fields.text("id");
  task.name = fields.text("name");
  task.description = fields.text("description");
  task.image = fields.text("image");
  for (Located& word : fields.texts_or_none("command")) task.command.push_back(word.text);
  task.chip = fields.text("chip");
  task.count = static_cast<int>(std::min<int64_t>(fields.integer_or("count", 1), 1 << 20));
  task.workdir = fields.text("workdir");
  for (Fields& item : fields.maps_or_none("data")) {
    task.data.emplace_back(item.text("from"), item.text("to"));
    item.finish();
  }
  for (auto& [name, value] : fields.text_map_or_none("environment")) {
    task.environment[name] = value;
  }
  task.memory_bytes = fields.size_or("memory", 0);
  task.system_disk_bytes = fields.size_or("system_disk", 0);
  task.checkpoint_bytes = fields.size_or("checkpoints", 0);
  task.restarts_max =
      static_cast<int>(std::min<int64_t>(fields.integer_or("restarts_max", 3), 1000));
  task.expected_cost = fields.text_or("expected_cost", "");
  check_template(fields, task);
  fields.finish();
  check_id(task.id, fields.place(), "template", template_places_);
  catalog_.templates_.push_back(std::move(task));
}

void Loader::check_template(Fields& fields, const Template& task) {
  if (task.command.empty()) fields.problem("command", "'command' must name a program");
  if (task.count < 1) fields.problem("count", "'count' must be at least 1");
  if (!task.image.empty() && !image_places_.contains(task.image)) {
    std::vector<std::string> known;
    for (const Image& image : catalog_.images_) known.push_back(image.id);
    fields.problem("image",
                   fmt::format("there is no image '{}'{}", task.image, suggest(task.image, known)));
  }
  if (!task.chip.empty() && find_chip(task.chip) == nullptr) {
    fields.problem(
        "chip", fmt::format("there is no chip '{}'{}", task.chip, suggest(task.chip, chip_ids())));
  }
  std::error_code ignored;
  if (!task.workdir.empty() && !fs::is_directory(root_ + "/" + task.workdir, ignored)) {
    fields.problem("workdir", fmt::format("there is no folder '{}'", task.workdir));
  }
}

std::vector<std::string> Loader::yaml_files_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(root_ + "/" + folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".yaml") {
      found.push_back(folder + "/" + it->path().filename().string());
    }
  }
  if (error) problems_.add({folder, 0}, "this folder cannot be read: " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

void Loader::check_id(const std::string& id, const Place& place, std::string_view what,
                      std::map<std::string, Place>& taken) {
  if (id.empty()) return;  // noted as missing already
  if (!is_catalog_id(id)) {
    problems_.add(place, fmt::format("{} id '{}' may hold only a-z, 0-9, '-' and '_'", what, id));
  }
  const auto [first, is_new] = taken.emplace(id, place);
  if (is_new) return;
  problems_.add(place, fmt::format("{} '{}' is already defined at {}:{}", what, id,
                                   first->second.file, first->second.line));
}

Chip* Loader::find_chip(std::string_view id) {
  for (Chip& chip : catalog_.chips_) {
    if (chip.id == id) return &chip;
  }
  return nullptr;
}

const BackEnd* Loader::find_back_end(std::string_view id) const {
  for (const BackEnd& back_end : catalog_.back_ends_) {
    if (back_end.id == id) return &back_end;
  }
  return nullptr;
}

const Layer* Loader::find_layer(std::string_view id) const {
  for (const Layer& layer : catalog_.layers_) {
    if (layer.id == id) return &layer;
  }
  return nullptr;
}

std::string Loader::suggest(std::string_view word, const std::vector<std::string>& known) {
  const std::vector<std::string> close = nearest(word, known);
  return close.empty() ? "" : fmt::format("; did you mean '{}'?", close.front());
}

std::vector<std::string> Loader::chip_ids() const {
  std::vector<std::string> ids;
  for (const Chip& chip : catalog_.chips_) ids.push_back(chip.id);
  return ids;
}

std::vector<std::string> Loader::back_end_ids() const {
  std::vector<std::string> ids;
  for (const BackEnd& back_end : catalog_.back_ends_) ids.push_back(back_end.id);
  return ids;
}

}  // namespace anychip::catalog
