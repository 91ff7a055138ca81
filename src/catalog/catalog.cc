#include "catalog/catalog.h"

#include <algorithm>

#include <fmt/format.h>

#include "catalog/loader.h"

namespace anychip::catalog {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// Edits (insert, delete, replace, swap of neighbours) that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_back(b.size() + 1), back(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) back[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = back[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({back[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_back[j - 2] + 1);
      }
    }
    std::swap(two_back, back);
    std::swap(back, row);
  }
  return back[b.size()];
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

template <class T>
Result<const T*> find_by_id(const std::vector<T>& all, std::string_view id, std::string_view what,
                            std::string reason) {
  std::vector<std::string> known;
  for (const T& each : all) {
    if (each.id == id) return &each;
    known.push_back(each.id);
  }
  const std::vector<std::string> close = nearest(id, known);
  std::string hint = close.empty() ? fmt::format("known: {}", join(known))
                                   : fmt::format("did you mean {}?", join(close));
  return fail(Code::kNotFound, std::move(reason), fmt::format("there is no {} '{}'", what, id),
              std::move(hint));
}

}  // namespace

Result<Catalog> Catalog::load(const std::string& root, const std::string& share) {
  try {
    return Loader(root, share).load();
  } catch (const std::exception& error) {  // std::filesystem, yaml-cpp
    return fail(Code::kInvalidArgument, "catalog_invalid",
                fmt::format("the catalogue under {} cannot be read: {}", root, error.what()));
  }
}

Result<const Chip*> Catalog::chip(std::string_view id) const {
  const std::string word = lower(id);
  const auto alias = chip_aliases_.find(word);
  const std::string_view target =
      alias == chip_aliases_.end() ? std::string_view(word) : alias->second;
  for (const Chip& each : chips_) {
    if (each.id == target) return &each;
  }
  Result<const Chip*> missing = find_by_id(chips_, id, "chip", "chip_unknown");
  if (!missing && !missing.error().hint.starts_with("did you mean")) {
    missing.error().hint = "`anychip offer` lists what can be rented here";
  }
  return missing;
}

Result<const BackEnd*> Catalog::back_end(std::string_view id) const {
  return find_by_id(back_ends_, id, "back end", "back_end_unknown");
}

Result<const Image*> Catalog::image(std::string_view id) const {
  return find_by_id(images_, id, "image", "image_unknown");
}

Result<const Template*> Catalog::template_by(std::string_view id) const {
  return find_by_id(templates_, id, "template", "template_unknown");
}

Result<const Layer*> Catalog::layer(std::string_view id) const {
  return find_by_id(layers_, id, "layer", "layer_unknown");
}

Result<const Variant*> Catalog::variant_for(const Image& image, const Chip& chip) const {
  const Variant* fits = nullptr;
  for (const Variant& variant : image.variants) {
    const bool is_named =
        std::find(variant.chips.begin(), variant.chips.end(), chip.id) != variant.chips.end();
    const bool serves_back_end =
        variant.chips.empty() && variant.back_end == chip.back_end && !chip.is_simulated;
    // A variant that names the chip is made for it; one for the whole back end is second choice.
    if (is_named || (serves_back_end && fits == nullptr)) fits = &variant;
    if (is_named) break;
  }
  if (fits == nullptr) {
    std::vector<std::string> served;
    for (const Variant& variant : image.variants) {
      if (!variant.unavailable.empty()) continue;
      if (variant.chips.empty()) served.push_back("real chips of " + variant.back_end);
      served.insert(served.end(), variant.chips.begin(), variant.chips.end());
    }
    return fail(Code::kFailedPrecondition, "variant_missing",
                fmt::format("image '{}' has no variant for chip '{}'", image.id, chip.id),
                fmt::format("it serves: {}", join(served)));
  }
  if (!fits->unavailable.empty()) {
    return fail(Code::kFailedPrecondition, "variant_unavailable",
                fmt::format("variant '{}' of image '{}' cannot be used here: {}", fits->id,
                            image.id, fits->unavailable));
  }
  return fits;
}

std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kShown = 3;
  constexpr size_t kWordMax = 128;  // longer is not a typing error, and the distance is quadratic
  const std::string wanted = lower(word.substr(0, kWordMax));
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& each : known) {
    const std::string candidate = lower(each);
    const bool begins = wanted.size() >= 2 && candidate.starts_with(wanted);
    const size_t distance = begins ? 1 : edit_distance(wanted, candidate);
    const size_t distance_max = std::max(wanted.size(), candidate.size()) / 2;
    if (distance <= distance_max) ranked.emplace_back(distance, each);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < ranked.size() && i < kShown; ++i) names.push_back(ranked[i].second);
  return names;
}

}  // namespace anychip::catalog
