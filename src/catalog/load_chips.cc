// Chips and prices: chips.csv (facts), chips.yaml (ours), prices.yaml.
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "catalog/csv.h"
#include "catalog/loader.h"

namespace anychip::catalog {
namespace {

constexpr char kFactsFile[] = "catalog/chips.csv";
constexpr char kDataFile[] = "catalog/chips.yaml";
constexpr char kPricesFile[] = "catalog/prices.yaml";
constexpr std::array<std::string_view, 22> kColumns = {
    "id",          "vendor",        "name",         "year",
    "kind",        "mem_gb",        "mem_bw_gbs",   "fp32_tflops",
    "tf32_tflops", "bf16_tflops",   "fp16_tflops",  "fp8_tflops",
    "int8_tops",   "tdp_w",         "link_bw_gbs",  "scale_up_domain",
    "host_link",   "pjrt_platform", "torch_device", "source",
    "confidence",  "notes"};
enum Column : size_t {
  kId = 0,
  kVendor = 1,
  kName = 2,
  kMemory = 5,
  kBandwidth = 6,
  kBf16 = 9,
  kTdp = 13
};

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0) {
    return std::nullopt;
  }
  return value;
}

// "384-512": a size that depends on the product is known to people, unknown to a program.
bool is_range(std::string_view text) {
  const size_t dash = text.find('-');
  return dash != std::string_view::npos && parse_number(text.substr(0, dash)) &&
         parse_number(text.substr(dash + 1));
}

}  // namespace

void Loader::load_chip_facts() {
  const Result<std::string> text = read_file(root_ + "/" + kFactsFile);
  if (!text) return problems_.add({kFactsFile, 0}, text.error().message);
  const Result<std::vector<CsvRow>> rows = parse_csv(*text);
  if (!rows) return problems_.add({kFactsFile, 0}, "line " + rows.error().message);
  if (rows->empty()) return problems_.add({kFactsFile, 1}, "the header line is missing");
  const std::vector<std::string>& header = rows->front().cells;
  if (!std::equal(header.begin(), header.end(), kColumns.begin(), kColumns.end())) {
    std::string wanted;
    for (std::string_view column : kColumns)
      wanted += fmt::format("{}{}", wanted.empty() ? "" : ",", column);
    return problems_.add({kFactsFile, 1}, "the columns must be " + wanted);
  }
  for (size_t i = 1; i < rows->size(); ++i) {
    const CsvRow& row = (*rows)[i];
    const Place place{kFactsFile, row.line};
    if (row.cells.size() != kColumns.size()) {
      problems_.add(place,
                    fmt::format("{} cells, {} are expected", row.cells.size(), kColumns.size()));
      continue;
    }
    load_chip_row(row.cells, place);
  }
}

void Loader::load_chip_row(const std::vector<std::string>& cells, const Place& place) {
  const auto number = [&](Column column) -> std::optional<double> {
    const std::string& cell = cells[column];
    if (cell.empty() || is_range(cell)) return std::nullopt;
    const std::optional<double> value = parse_number(cell);
    if (!value) {
      problems_.add(place, fmt::format("{} '{}' is not a number >= 0", kColumns[column], cell));
    }
    return value;
  };
  Chip chip;
  chip.id = cells[kId];
  chip.name = cells[kName];
  chip.vendor = cells[kVendor];
  if (chip.id.empty()) problems_.add(place, "the id is empty");
  if (chip.name.empty()) problems_.add(place, "the name is empty");
  // Vendors print GB for what the driver reports in GiB (an "80 GB" H100 has 79.6 GiB).
  const double memory_gib = number(kMemory).value_or(0);
  if (memory_gib > 1e6) {
    problems_.add(place, fmt::format("mem_gb {} is beyond belief", cells[kMemory]));
  } else {
    chip.memory_bytes = static_cast<int64_t>(memory_gib * (1LL << 30));
  }
  chip.memory_bandwidth_gbs = number(kBandwidth);
  chip.bf16_tflops = number(kBf16);
  chip.tdp_w = number(kTdp);
  check_id(chip.id, place, "chip", chip_places_);
  catalog_.chips_.push_back(std::move(chip));
}

void Loader::load_chip_data() {
  std::optional<Fields> data = open_yaml(root_, kDataFile, problems_);
  if (!data) return;
  assign_back_ends(*data);
  for (Fields& fields : data->maps_or_none("chips")) load_own_chip(std::move(fields));
  load_aliases(*data);
  data->finish();
}

void Loader::assign_back_ends(Fields& data) {
  std::optional<Fields> back_ends = data.map_or_none("back_ends");
  if (!back_ends) return;
  for (const auto& [back_end, chips] : back_ends->entries()) {
    if (find_back_end(back_end.text) == nullptr) {
      problems_.add(back_end.place, fmt::format("there is no back end '{}'{}", back_end.text,
                                                suggest(back_end.text, back_end_ids())));
    }
    for (const Located& id : texts_of(chips, kDataFile, problems_)) {
      Chip* chip = find_chip(id.text);
      if (chip == nullptr) {
        problems_.add(id.place, fmt::format("there is no chip '{}' in chips.csv{}", id.text,
                                            suggest(id.text, chip_ids())));
      } else if (!chip->back_end.empty()) {
        problems_.add(id.place, fmt::format("chip '{}' has the back end '{}' already", id.text,
                                            chip->back_end));
      } else {
        chip->back_end = back_end.text;
      }
    }
  }
}

void Loader::load_own_chip(Fields fields) {
  Chip chip;
  chip.id = fields.text("id");
  chip.name = fields.text("name");
  chip.vendor = fields.text("vendor");
  chip.back_end = fields.text("back_end");
  chip.simulates = fields.text_or("simulates", "");
  chip.is_simulated = !chip.simulates.empty();
  chip.memory_bytes = fields.size_or("memory", 0);
  chip.default_count_per_node =
      static_cast<int>(std::min<int64_t>(fields.integer_or("default_count_per_node", 0), 1 << 20));
  if (!chip.back_end.empty() && find_back_end(chip.back_end) == nullptr) {
    fields.problem("back_end", fmt::format("there is no back end '{}'{}", chip.back_end,
                                           suggest(chip.back_end, back_end_ids())));
  }
  if (chip.is_simulated && chip_places_.contains(chip.simulates) == false) {
    fields.problem("simulates", fmt::format("there is no chip '{}'{}", chip.simulates,
                                            suggest(chip.simulates, chip_ids())));
  }
  fields.finish();
  check_id(chip.id, fields.place(), "chip", chip_places_);
  catalog_.chips_.push_back(std::move(chip));
}

void Loader::load_aliases(Fields& data) {
  std::optional<Fields> aliases = data.map_or_none("aliases");
  if (!aliases) return;
  for (const auto& [alias, target] : aliases->entries()) {
    const std::string chip = target.IsScalar() ? target.Scalar() : "";
    check_id(alias.text, alias.place, "alias (write it in lower case)", alias_places_);
    if (chip_places_.contains(alias.text)) {
      problems_.add(alias.place, fmt::format("alias '{}' is the id of a chip", alias.text));
    }
    if (find_chip(chip) == nullptr) {
      problems_.add(alias.place, fmt::format("alias '{}' names chip '{}', which is not there{}",
                                             alias.text, chip, suggest(chip, chip_ids())));
    }
    catalog_.chip_aliases_[alias.text] = chip;
  }
}

void Loader::load_prices() {
  std::optional<Fields> data = open_yaml(root_, kPricesFile, problems_);
  if (!data) return;
  if (data->text("currency") != "CNY") data->problem("currency", "'currency' must be CNY");
  int64_t cny_micros_per_usd = 0;
  if (std::optional<Fields> usd = data->map_or_none("usd")) {
    cny_micros_per_usd = usd->integer("cny_micros_per_usd");
    usd->text("note");
    usd->finish();
  }
  for (Fields& fields : data->maps_or_none("prices"))
    load_price(std::move(fields), cny_micros_per_usd);
  data->finish();
}

void Loader::load_price(Fields fields, int64_t cny_micros_per_usd) {
  constexpr int64_t kMicrosMax = 1'000'000LL * 1'000'000;  // a million yuan an hour: a typing error
  const std::string chip_id = fields.text("chip");
  const std::string kind = fields.text("kind");
  const int64_t micros = fields.integer("micros_per_hour");
  const std::string date = fields.text("date");
  const std::string note = fields.text("note");
  const bool is_list = kind == "list";
  if (!is_list && kind != "operator") fields.problem("kind", "'kind' must be list or operator");
  if (is_list) fields.text("source");
  if (micros > kMicrosMax) fields.problem("micros_per_hour", "more than a million yuan an hour");
  if (fields.has("usd_micros")) {
    const int64_t usd_micros = fields.integer("usd_micros");
    __extension__ using Wide = __int128;
    const Wide wanted = static_cast<Wide>(usd_micros) * cny_micros_per_usd / 1'000'000;
    if (wanted != micros) {
      fields.problem("micros_per_hour",
                     fmt::format("{} is not usd_micros {} at {} micro-yuan a dollar (= {})", micros,
                                 usd_micros, cny_micros_per_usd, static_cast<int64_t>(wanted)));
    }
  }
  fields.finish();
  Chip* chip = find_chip(chip_id);
  if (chip == nullptr) {
    fields.problem("chip",
                   fmt::format("there is no chip '{}'{}", chip_id, suggest(chip_id, chip_ids())));
    return;
  }
  if (chip->is_simulated) {
    fields.problem("chip",
                   fmt::format("'{}' is simulated: it shows the price of '{}', remove this row",
                               chip_id, chip->simulates));
    return;
  }
  std::string shown = is_list ? fmt::format("list price: {}, {}", note, date)
                              : fmt::format("set by this installation, {}: {}", date, note);
  const auto [first, is_new] = prices_.emplace(chip_id, Price{{micros}, shown, fields.place()});
  if (!is_new) {
    fields.problem("chip", fmt::format("chip '{}' has a price at line {} already", chip_id,
                                       first->second.place.line));
    return;
  }
  chip->price = {micros};
  chip->price_note = std::move(shown);
}

void Loader::settle_simulated() {
  for (Chip& chip : catalog_.chips_) {
    if (!chip.is_simulated) continue;
    const Chip* real = find_chip(chip.simulates);
    if (real == nullptr) continue;  // noted already
    if (real->is_simulated) {
      problems_.add(
          chip_places_[chip.id],
          fmt::format("'{}' simulates '{}', which is simulated itself", chip.id, real->id));
      continue;
    }
    if (chip.memory_bytes == 0) chip.memory_bytes = real->memory_bytes;
    chip.price = real->price;
    if (real->price.micros > 0) {
      chip.price_note =
          fmt::format("price of the chip simulated ({}): {}", real->id, real->price_note);
    }
  }
}

void Loader::check_chips() {
  for (const Chip& chip : catalog_.chips_) {
    if (chip.back_end.empty() && !chip.id.empty()) {
      problems_.add(chip_places_[chip.id],
                    fmt::format("no back end reaches chip '{}': add it under back_ends in {}",
                                chip.id, kDataFile));
    }
  }
}

}  // namespace anychip::catalog
