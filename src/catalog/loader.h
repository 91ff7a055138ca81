// Builds a Catalog from the files; internal to this module.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catalog/catalog.h"
#include "catalog/reader.h"

namespace anychip::catalog {

class Loader {
 public:
  Loader(std::string root, std::string share) : root_(std::move(root)), share_(std::move(share)) {}
  Result<Catalog> load();

 private:
  struct Price {
    RatePerHour rate;
    std::string note;
    Place place;
  };

  void load_back_ends();

  // load_chips.cc
  void load_chip_facts();
  void load_chip_row(const std::vector<std::string>& cells, const Place& place);
  void load_chip_data();
  void assign_back_ends(Fields& data);
  void load_own_chip(Fields fields);
  void load_aliases(Fields& data);
  void load_prices();
  void load_price(Fields fields, int64_t cny_micros_per_usd);
  void settle_simulated();
  void check_chips();

  // load_images.cc
  void load_images();
  void load_image(const std::string& file);
  void load_layer(Fields fields);
  void load_layer_files(Fields& fields, Layer& layer, std::string& content);
  void add_layer_file(const Place& place, const std::string& from, const std::string& to,
                      Layer& layer, std::string& content);
  Variant load_variant(Fields fields);
  void settle_layers_of(Variant& variant, const Place& place);

  void load_templates();
  void load_template(const std::string& file);
  void check_template(Fields& fields, const Template& task);

  std::vector<std::string> yaml_files_in(const std::string& folder);
  Chip* find_chip(std::string_view id);
  const BackEnd* find_back_end(std::string_view id) const;
  const Layer* find_layer(std::string_view id) const;
  // Notes a malformed id, or one that `taken` already holds.
  void check_id(const std::string& id, const Place& place, std::string_view what,
                std::map<std::string, Place>& taken);
  // "...; did you mean X?" or ""
  static std::string suggest(std::string_view word, const std::vector<std::string>& known);
  std::vector<std::string> chip_ids() const;
  std::vector<std::string> back_end_ids() const;

  std::string root_;
  std::string share_;
  Problems problems_;
  Catalog catalog_;
  std::map<std::string, Place> chip_places_, back_end_places_, layer_places_, image_places_,
      template_places_;
  std::map<std::string, Place> alias_places_;
  std::map<std::string, Price> prices_;
};

}  // namespace anychip::catalog
