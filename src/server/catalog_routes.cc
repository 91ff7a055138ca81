#include <fmt/format.h>

#include "server/handlers.h"

namespace anychip::server {
namespace {

json::array strings(const std::vector<std::string>& list) {
  json::array array;
  for (const std::string& item : list) array.emplace_back(item);
  return array;
}

json::object chip_view(const catalog::Chip& chip) {
  return {{"id", chip.id},
          {"name", chip.name},
          {"vendor", chip.vendor},
          {"back_end", chip.back_end},
          {"memory_bytes", chip.memory_bytes},
          {"simulated", chip.is_simulated},
          {"simulates", text_or_null(chip.simulates)},
          {"price_micros_per_hour", chip.price.micros},
          {"currency", "CNY"},
          {"price_note", chip.price_note},
          {"bf16_tflops", number_or_null(chip.bf16_tflops)},
          {"memory_bandwidth_gbs", number_or_null(chip.memory_bandwidth_gbs)},
          {"tdp_w", number_or_null(chip.tdp_w)}};
}

json::object variant_view(const catalog::Variant& variant) {
  return {{"id", variant.id},
          {"back_end", variant.back_end},
          {"chips", strings(variant.chips)},
          {"kind", variant.kind},
          {"digest", variant.digest}};
}

json::object template_view(const catalog::Template& of) {
  return {{"id", of.id},
          {"name", of.name},
          {"description", of.description},
          {"image", of.image},
          {"command", strings(of.command)},
          {"chip", of.chip},
          {"count", of.count},
          {"memory_bytes", of.memory_bytes},
          {"system_disk_bytes", of.system_disk_bytes},
          {"checkpoint_bytes", of.checkpoint_bytes},
          {"restarts_max", of.restarts_max},
          {"expected_cost", of.expected_cost}};
}

template <class T, class F>
net::Outcome all_of(const std::vector<T>& items, F view) {
  json::array array;
  for (const T& item : items) array.push_back(view(item));
  return ok(list_of(std::move(array)));
}

Result<json::array> devices_of(store::Db& db, const std::string& node) {
  TRY(const auto found,
      db.query("SELECT d.id, d.chip, d.is_healthy, d.note, l.instance_id FROM devices d LEFT JOIN "
               "device_leases l ON l.node_id = d.node_id AND l.device_id = d.id "
               "WHERE d.node_id = ? ORDER BY d.id",
               node));
  json::array devices;
  for (const store::Row& row : found) {
    const bool is_healthy = row.integer(2) != 0;
    devices.push_back(json::object{{"id", row.text(0)},
                                   {"chip", row.text(1)},
                                   {"state", !is_healthy      ? "gone"
                                             : row.is_null(4) ? "free"
                                                              : "used"},
                                   {"note", row.text(3)},
                                   {"instance_id", text_or_null(row.text(4))}});
  }
  return devices;
}

Result<json::array> images_of(store::Db& db, const std::string& node) {
  TRY(const auto found,
      db.query("SELECT image, variant, digest, is_ready, progress_percent, progress_text, error "
               "FROM node_images WHERE node_id = ? ORDER BY image, variant",
               node));
  json::array images;
  for (const store::Row& row : found) {
    const bool is_ready = row.integer(3) != 0;
    const std::string state = is_ready ? "ready" : row.text(6).empty() ? "preparing" : "failed";
    images.push_back(json::object{{"image", row.text(0)},
                                  {"variant", row.text(1)},
                                  {"digest", row.text(2)},
                                  {"state", state},
                                  {"progress_percent", is_ready ? 100 : row.integer(4)},
                                  {"progress_text", row.text(5)},
                                  {"error", text_or_null(row.text(6))}});
  }
  return images;
}

}  // namespace

Result<net::Outcome> list_chips(Call& call) {
  return all_of(call.shared.parts.catalog.chips(), chip_view);
}

Result<net::Outcome> list_images(Call& call) {
  return all_of(call.shared.parts.catalog.images(), [](const catalog::Image& image) {
    json::array variants;
    for (const auto& variant : image.variants) variants.push_back(variant_view(variant));
    return json::object{
        {"id", image.id}, {"description", image.description}, {"variants", std::move(variants)}};
  });
}

Result<net::Outcome> list_templates(Call& call) {
  return all_of(call.shared.parts.catalog.templates(), template_view);
}

Result<net::Outcome> list_offers(Call& call) {
  TRY(const auto found,
      call.db.query(
          "SELECT d.chip, d.node_id, n.name, n.state, COUNT(*), SUM(l.instance_id IS NULL) "
          "FROM devices d JOIN nodes n ON n.id = d.node_id LEFT JOIN device_leases l "
          "ON l.node_id = d.node_id AND l.device_id = d.id WHERE d.is_healthy = 1 "
          "GROUP BY d.chip, d.node_id ORDER BY d.chip, d.node_id"));
  json::array offers;
  for (const store::Row& row : found) {
    const auto chip = call.shared.parts.catalog.chip(row.text(0));
    if (!chip || (*chip)->price.micros == 0) continue;  // nothing is given away by accident
    const bool is_ready = row.text(3) == "ready";
    offers.push_back(json::object{{"chip", (*chip)->id},
                                  {"name", (*chip)->name},
                                  {"back_end", (*chip)->back_end},
                                  {"node", row.text(2)},
                                  {"node_id", row.text(1)},
                                  {"node_state", row.text(3)},
                                  {"count_total", row.integer(4)},
                                  {"count_free", is_ready ? row.integer(5) : 0},
                                  {"price_micros_per_hour", (*chip)->price.micros},
                                  {"currency", "CNY"},
                                  {"simulated", (*chip)->is_simulated},
                                  {"price_note", (*chip)->price_note},
                                  {"memory_bytes", (*chip)->memory_bytes}});
  }
  return ok(list_of(std::move(offers)));
}

Result<net::Outcome> list_nodes(Call& call) {
  TRY(const auto found,
      call.db.query("SELECT id, name, state, last_seen_at, pool_bytes, pool_free_bytes, "
                    "instant_snapshot, desired_version, applied_version FROM nodes ORDER BY id"));
  json::array nodes;
  for (const store::Row& row : found) {
    TRY(json::array devices, devices_of(call.db, row.text(0)));
    TRY(json::array images, images_of(call.db, row.text(0)));
    nodes.push_back(json::object{{"id", row.text(0)},
                                 {"name", row.text(1)},
                                 {"state", row.text(2)},
                                 {"last_seen_at", WallTime{row.integer(3)}.rfc3339()},
                                 {"devices", std::move(devices)},
                                 {"images", std::move(images)},
                                 {"pool_bytes", row.integer(4)},
                                 {"pool_free_bytes", row.integer(5)},
                                 {"instant_snapshot", row.integer(6) != 0},
                                 {"desired_version", row.integer(7)},
                                 {"applied_version", row.integer(8)}});
  }
  return ok(list_of(std::move(nodes)));
}

}  // namespace anychip::server
