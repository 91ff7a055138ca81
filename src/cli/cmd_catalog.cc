// Lists of what there is: catalogue, offers, nodes, disks, the account.
#include <map>

#include <fmt/format.h>

#include "catalog/catalog.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::cli {
namespace {

using json::int_at;
using json::string_at;

// The items whose `key` is `name` (all for ""); nothing found names the nearest ones.
Result<json::object> only(json::object list, std::string_view key, const std::string& name,
                          std::string_view what) {
  if (name.empty()) return list;
  json::array kept;
  std::vector<std::string> known;
  for (const json::value& item : json::array_at(list, "items")) {
    known.push_back(string_at(item.as_object(), key));
    if (known.back() == name) kept.push_back(item);
  }
  if (kept.empty()) {
    std::string hint;
    for (const std::string& near : catalog::nearest(name, known)) {
      hint += (hint.empty() ? "did you mean " : ", ") + near;
    }
    return fail(Code::kNotFound, fmt::format("{}_unknown", what),
                fmt::format("there is no {} '{}'", what, name), hint);
  }
  list["items"] = std::move(kept);
  return list;
}

using AddRow = std::function<void(Table&, const json::object&)>;

Status show_list(Context& context, const json::object& list, std::vector<Column> columns,
                 const AddRow& add_row, std::string_view nothing) {
  if (context.is_json()) {
    context.print(list);
    return {};
  }
  Table table(std::move(columns));
  for (const json::value& item : json::array_at(list, "items")) {
    if (item.is_object()) add_row(table, item.get_object());
  }
  if (table.size() == 0) {
    context.say(nothing);
    return {};
  }
  context.print(table);
  return {};
}

Result<json::object> list_from(Context& context, const std::string& target) {
  TRY(Api* const api, context.api());
  return api->list(target);
}

std::string joined(const json::array& items, std::string_view between = ", ") {
  std::string out;
  for (const json::value& item : items) {
    if (!item.is_string()) continue;
    if (!out.empty()) out += between;
    out += std::string_view(item.get_string());
  }
  return out;
}

// "cpu 1/2, tpu-sim 2/2": free of all, by chip.
std::string devices_text(const json::object& node) {
  std::map<std::string, std::pair<int, int>> by_chip;
  for (const json::value& value : json::array_at(node, "devices")) {
    const json::object& device = value.as_object();
    auto& [free, all] = by_chip[string_at(device, "chip")];
    const std::string state = string_at(device, "state");
    free += state == "free" ? 1 : 0;
    all += state == "gone" ? 0 : 1;
  }
  std::string out;
  for (const auto& [chip, counts] : by_chip) {
    out += fmt::format("{}{} {}/{}", out.empty() ? "" : ", ", chip, counts.first, counts.second);
  }
  return out;
}

std::string images_text(const json::object& node) {
  std::string out;
  for (const json::value& value : json::array_at(node, "images")) {
    const json::object& image = value.as_object();
    const std::string state = string_at(image, "state");
    const bool is_begun = state == "preparing" && !string_at(image, "progress_text").empty();
    if (state == "preparing" && !is_begun) continue;  // nobody has asked for it yet
    out += fmt::format("{}{}/{} {}", out.empty() ? "" : ", ", string_at(image, "image"),
                       string_at(image, "variant"), state);
    if (is_begun) out += fmt::format(" {} %", int_at(image, "progress_percent"));
  }
  return out;
}

}  // namespace

Status cmd_offer(Context& context, const NameOptions& options) {
  TRY(json::object list, list_from(context, "/v1/offers"));
  TRY(list, only(std::move(list), "chip", options.name, "chip"));
  return show_list(
      context, list,
      {{"CHIP"},
       {"NAME", Align::kLeft, true},
       {"BACK END"},
       {"NODE", Align::kLeft, true},
       {"FREE", Align::kRight},
       {"MEMORY", Align::kRight},
       {"PRICE", Align::kRight},
       {"NOTE", Align::kLeft, true}},
      [](Table& table, const json::object& item) {
        const int64_t free = int_at(item, "count_free");
        table.add({Cell(string_at(item, "chip"), Style::kStrong), string_at(item, "name"),
                   string_at(item, "back_end"), string_at(item, "node"),
                   Cell(fmt::format("{}/{}", free, int_at(item, "count_total")),
                        free > 0 ? Style::kGood : Style::kWarn),
                   format_bytes(int_at(item, "memory_bytes")),
                   yuan_per_hour(int_at(item, "price_micros_per_hour")),
                   Cell(string_at(item, "price_note"), Style::kFaint)});
      },
      "no chips are offered: is the agent running? (`anychip node`)");
}

Status cmd_chip(Context& context, const NameOptions& options) {
  TRY(json::object list, list_from(context, "/v1/chips"));
  const char* key = "id";
  for (const json::value& item : json::array_at(list, "items")) {
    if (!item.as_object().contains("id")) key = "chip";
    break;
  }
  TRY(list, only(std::move(list), key, options.name, "chip"));
  return show_list(
      context, list,
      {{"CHIP"},
       {"NAME", Align::kLeft, true},
       {"VENDOR", Align::kLeft, true},
       {"BACK END"},
       {"MEMORY", Align::kRight},
       {"PRICE", Align::kRight},
       {"NOTE", Align::kLeft, true}},
      [key](Table& table, const json::object& item) {
        const int64_t price = int_at(item, "price_micros_per_hour");
        table.add({Cell(string_at(item, key), Style::kStrong), string_at(item, "name"),
                   string_at(item, "vendor"), string_at(item, "back_end"),
                   format_bytes(int_at(item, "memory_bytes")),
                   price > 0 ? yuan_per_hour(price) : "-",
                   Cell(string_at(item, "price_note"), Style::kFaint)});
      },
      "the catalogue holds no chips");
}

Status cmd_image(Context& context, const NameOptions& options) {
  TRY(json::object list, list_from(context, "/v1/images"));
  TRY(list, only(std::move(list), "id", options.name, "image"));
  return show_list(
      context, list,
      {{"IMAGE"}, {"VARIANT"}, {"BACK END"}, {"KIND"}, {"CHIPS", Align::kLeft, true}},
      [](Table& table, const json::object& item) {
        for (const json::value& value : json::array_at(item, "variants")) {
          const json::object& variant = value.as_object();
          const std::string chips = joined(json::array_at(variant, "chips"));
          table.add(
              {Cell(string_at(item, "id"), Style::kStrong), string_at(variant, "id"),
               string_at(variant, "back_end"), string_at(variant, "kind"),
               chips.empty() ? Cell("every chip of its back end", Style::kFaint) : Cell(chips)});
        }
      },
      "the catalogue holds no images");
}

Status cmd_template(Context& context, const NameOptions& options) {
  TRY(json::object list, list_from(context, "/v1/templates"));
  TRY(list, only(std::move(list), "id", options.name, "template"));
  return show_list(
      context, list,
      {{"TEMPLATE"},
       {"NAME", Align::kLeft, true},
       {"IMAGE"},
       {"CHIP"},
       {"COMMAND", Align::kLeft, true},
       {"EXPECTED COST", Align::kLeft, true}},
      [](Table& table, const json::object& item) {
        table.add({Cell(string_at(item, "id"), Style::kStrong), string_at(item, "name"),
                   string_at(item, "image"), string_at(item, "chip"),
                   joined(json::array_at(item, "command"), " "),
                   Cell(string_at(item, "expected_cost"), Style::kFaint)});
      },
      "the catalogue holds no templates");
}

Status cmd_node(Context& context) {
  TRY(const json::object list, list_from(context, "/v1/nodes"));
  return show_list(
      context, list,
      {{"NODE", Align::kLeft, true},
       {"STATE"},
       {"FREE", Align::kLeft, true},
       {"IMAGES", Align::kLeft, true},
       {"DISK FREE", Align::kRight},
       {"LAST SEEN", Align::kLeft}},
      [](Table& table, const json::object& item) {
        const std::string state = string_at(item, "state");
        table.add({Cell(string_at(item, "name"), Style::kStrong),
                   Cell(state, state == "ready" ? Style::kGood : Style::kBad), devices_text(item),
                   images_text(item), format_bytes(int_at(item, "pool_free_bytes")),
                   format_time(string_at(item, "last_seen_at"))});
      },
      "no node has enrolled: `anychip up` starts the agent");
}

Status cmd_instance(Context& context, const NameOptions& options) {
  if (!options.name.empty()) {
    TRY(Api* const api, context.api());
    TRY(const json::object item, api->get("/v1/instances/" + net::url_encode(options.name)));
    if (context.is_json()) {
      context.print(item);
      return {};
    }
    Table table({{"FIELD"}, {"VALUE", Align::kLeft, true}});
    for (const auto& field : item) {
      const bool is_text = field.value().is_string();
      table.add(
          {Cell(std::string(field.key()), Style::kFaint),
           is_text ? std::string(field.value().get_string()) : json::serialize(field.value())});
    }
    context.print(table);
    return {};
  }
  TRY(const json::object list, list_from(context, "/v1/instances"));
  return show_list(
      context, list,
      {{"INSTANCE"},
       {"RUN", Align::kLeft, true},
       {"STATE"},
       {"CHIP"},
       {"DEVICES", Align::kLeft, true}},
      [](Table& table, const json::object& item) {
        const std::string state = string_at(item, item.contains("state") ? "state" : "phase");
        table.add({string_at(item, "id"), string_at(item, "run_id"),
                   Cell(state, style_of_state(state)), string_at(item, "chip"),
                   joined(json::array_at(item, "device_ids"))});
      },
      "no instances");
}

Status cmd_volume(Context& context) {
  TRY(const json::object list, list_from(context, "/v1/volumes"));
  return show_list(
      context, list,
      {{"VOLUME"},
       {"KIND"},
       {"RUN", Align::kLeft, true},
       {"STATE"},
       {"SIZE", Align::kRight},
       {"USED", Align::kRight},
       {"ATTACHED TO", Align::kLeft, true},
       {"GENERATION", Align::kRight}},
      [](Table& table, const json::object& item) {
        table.add({string_at(item, "id"), string_at(item, "kind"), string_at(item, "run_id"),
                   string_at(item, "state"), format_bytes(int_at(item, "size_bytes")),
                   format_bytes(int_at(item, "used_bytes")), string_at(item, "attached_to"),
                   std::to_string(int_at(item, "attach_generation"))});
      },
      "no volumes");
}

Status cmd_snapshot(Context& context) {
  TRY(const json::object list, list_from(context, "/v1/snapshots"));
  return show_list(
      context, list,
      {{"SNAPSHOT"},
       {"OF VOLUME", Align::kLeft, true},
       {"RUN", Align::kLeft, true},
       {"STATE"},
       {"SIZE", Align::kRight},
       {"WRITERS STOPPED", Align::kRight},
       {"MADE"}},
      [](Table& table, const json::object& item) {
        const int64_t freeze_us = int_at(item, "freeze_us");
        table.add({string_at(item, "id"), string_at(item, "volume_id"), string_at(item, "run_id"),
                   string_at(item, "state"), format_bytes(int_at(item, "size_bytes")),
                   freeze_us > 0 ? format_span(freeze_us) : "-",
                   format_time(string_at(item, "created_at"))});
      },
      "no snapshots");
}

Status cmd_account_show(Context& context) {
  TRY(Api* const api, context.api());
  TRY(const json::object account, api->get("/v1/account"));
  if (context.is_json()) {
    context.print(account);
    return {};
  }
  Table table({{"ACCOUNT"}, {"ID", Align::kLeft, true}, {"BALANCE", Align::kRight}});
  const int64_t balance = int_at(account, "balance_micros");
  table.add({Cell(string_at(account, "name"), Style::kStrong), string_at(account, "id"),
             Cell(yuan(balance), balance > 0 ? Style::kGood : Style::kBad)});
  context.print(table);
  return {};
}

Status cmd_account_new(Context& context, const std::string& name) {
  const std::string token_path = sys::join(context.data, "server/admin.token");
  Result<std::string> admin = sys::read_file(token_path);
  if (!admin) {
    return fail(
        admin.error().code == Code::kNotFound ? Code::kPermissionDenied : admin.error().code,
        "admin_token_missing",
        fmt::format("cannot read {}: only who runs the server makes accounts", token_path),
        "run this on the server's machine with the same data folder (ANYCHIP_DATA)");
  }
  while (!admin->empty() && (admin->back() == '\n' || admin->back() == ' ')) admin->pop_back();
  TRY(Api* const own, context.api());
  TRY(const auto api, Api::connect(own->url(), *admin, context.language, context.data));
  TRY(const json::object made, api->post("/v1/accounts", {{"name", name}}));
  const std::string token = string_at(made, "token");
  ClientFile file;
  if (Result<ClientFile> old = load_client_file(context.data)) file = std::move(*old);
  file.url = own->url();
  if (!file.account.empty()) file.accounts[file.account] = file.token;
  file.account = name;
  file.token = token;
  file.accounts[name] = token;
  TRY_VOID(save_client_file(context.data, file));
  if (context.is_json()) {
    context.print(made);
    return {};
  }
  const json::object& account = json::object_at(made, "account");
  context.terminal.out(
      fmt::format("account {} with {}\n", name, yuan(int_at(account, "balance_micros"))));
  context.say("Commands use it from now on; `anychip account use NAME` goes back to another.");
  return {};
}

Status cmd_account_use(Context& context, const std::string& name) {
  TRY(ClientFile file, load_client_file(context.data));
  const std::string token = string_at(file.accounts, name);
  if (token.empty()) {
    std::string known;
    for (const auto& entry : file.accounts)
      known += (known.empty() ? "" : ", ") + std::string(entry.key());
    return fail(Code::kNotFound, "account_unknown",
                fmt::format("no token of an account '{}' is kept here", name),
                known.empty() ? "`anychip account new NAME` makes one" : "known: " + known);
  }
  if (!file.account.empty()) file.accounts[file.account] = file.token;
  file.account = name;
  file.token = token;
  TRY_VOID(save_client_file(context.data, file));
  context.say(fmt::format("using account {}", name));
  return {};
}

}  // namespace anychip::cli
