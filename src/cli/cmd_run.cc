// run: a command with its folder onto a chip.
#include <unistd.h>

#include <fmt/format.h>

#include "base/hash.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/task_file.h"
#include "sys/archive.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::cli {
namespace {

using json::int_at;
using json::string_at;

// Options win over the task file.
Result<RunOptions> merged(RunOptions options) {
  if (options.file.empty()) return options;
  Result<std::string> text = sys::read_file(options.file, 1 << 20);
  if (!text) return tl::unexpected(Error(text.error()).within("task file"));
  TRY(TaskFile task, parse_task_file(*text, options.file));
  const auto fill = [](std::string& option, std::string& from_file) {
    if (option.empty()) option = std::move(from_file);
  };
  fill(options.name, task.name);
  fill(options.template_id, task.template_id);
  fill(options.image, task.image);
  fill(options.chip, task.chip);
  fill(options.memory, task.memory);
  fill(options.system_disk, task.system_disk);
  fill(options.checkpoint_disk, task.checkpoint_disk);
  if (options.workdir.empty() &&
      !task.workdir.empty()) {  // relative to the file, not to where we stand
    options.workdir = task.workdir.front() == '/'
                          ? task.workdir
                          : sys::join(sys::parent_of(options.file), task.workdir);
  }
  if (!options.count) options.count = task.count;
  if (!options.stop_at_step) options.stop_at_step = task.stop_at_step;
  if (!options.restarts_max) options.restarts_max = task.restarts_max;
  if (options.command.empty()) options.command = std::move(task.command);
  std::vector<std::string> environment;
  for (const auto& [key, value] : task.environment) environment.push_back(key + "=" + value);
  environment.insert(environment.end(), options.environment.begin(), options.environment.end());
  options.environment = std::move(environment);
  return options;
}

Status add_bytes(json::object& body, std::string_view key, const std::string& text) {
  if (text.empty()) return {};
  TRY(const int64_t bytes, parse_bytes(text));
  body[key] = bytes;
  return {};
}

Result<json::object> body_of(const RunOptions& options) {
  json::object body;
  const auto add_text = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) body[key] = value;
  };
  const auto add_number = [&](std::string_view key, std::optional<int64_t> value) {
    if (value) body[key] = *value;
  };
  TRY(const ChipAndCount place, split_chip(options.chip, options.count));
  add_text("name", options.name);
  add_text("template", options.template_id);
  add_text("image", options.image);
  add_text("chip", place.chip);
  add_text("reference_of", options.reference_of);
  add_number("count", place.count);
  add_number("stop_at_step", options.stop_at_step);
  add_number("restarts_max", options.restarts_max);
  TRY_VOID(add_bytes(body, "memory_bytes", options.memory));
  TRY_VOID(add_bytes(body, "system_disk_bytes", options.system_disk));
  TRY_VOID(add_bytes(body, "checkpoint_bytes", options.checkpoint_disk));
  json::array command;
  for (const std::string& word : options.command) command.emplace_back(word);
  if (!command.empty()) body["command"] = std::move(command);
  json::object environment;
  for (const std::string& entry : options.environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(Code::kInvalidArgument, "environment_malformed",
                  fmt::format("--env '{}' is not KEY=VALUE", entry));
    }
    environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  if (!environment.empty()) body["environment"] = std::move(environment);
  return body;
}

// The folder to pack: --workdir; without a template the folder we stand in; else the template's
// own.
std::string folder_to_pack(const RunOptions& options) {
  if (options.is_without_workdir) return {};
  if (!options.workdir.empty()) return options.workdir;
  if (!options.template_id.empty()) return {};
  return options.file.empty() ? "." : sys::parent_of(options.file);
}

// Whether the server knows what is asked for: packing a folder for a refusal would only cost time.
Result<bool> is_image_known(Api& api, const std::string& image) {
  if (image.empty()) return true;
  TRY(const json::object images, api.list("/v1/images"));
  for (const json::value& item : json::array_at(images, "items")) {
    if (string_at(item.as_object(), "id") == image) return true;
  }
  return false;
}

Result<std::string> upload_folder(Context& context, Api& api, const std::string& folder) {
  if (!sys::is_folder(folder)) {
    return fail(Code::kNotFound, "workdir_unknown", fmt::format("there is no folder {}", folder));
  }
  std::string archive = "/tmp/anychip-workdir-XXXXXX";
  const sys::Fd made(mkstemp(archive.data()));
  if (!made.is_open()) return fail_errno("make a temporary file for the workdir", errno);
  const std::string path = sys::absolute_path(folder);
  Progress progress(context);
  progress.show(fmt::format("packing {}", path));
  const Result<sys::Packed> packed = sys::pack_folder(path, archive);
  Result<std::string> bytes = packed ? sys::read_file(archive, sys::kWorkdirBytesMax)
                                     : Result<std::string>(tl::unexpected(packed.error()));
  (void)sys::remove_file(archive);
  if (!bytes) return tl::unexpected(bytes.error());
  progress.show(fmt::format("sending {} ({} entries, {})", path, packed->entries,
                            format_bytes(packed->archive_bytes)));
  TRY(const json::object answer, api.upload("/v1/workdirs", std::move(*bytes), packed->digest));
  const std::string digest = string_at(answer, "digest");
  return digest.empty() ? packed->digest : digest;
}

Result<json::object> find_item(Api& api, const std::string& target, std::string_view key,
                               const std::string& name) {
  TRY(const json::object list, api.list(target));
  for (const json::value& item : json::array_at(list, "items")) {
    if (string_at(item.as_object(), key) == name) return item.as_object();
  }
  return json::object{};
}

// What it would cost, from the server's own offers; nothing is sent that changes anything.
Status dry_run(Context& context, Api& api, const json::object& body) {
  std::string chip = string_at(body, "chip");
  int64_t count = body.contains("count") ? int_at(body, "count") : 1;
  if (const std::string name = string_at(body, "template"); !name.empty()) {
    TRY(const json::object found, find_item(api, "/v1/templates", "id", name));
    if (found.empty())
      return cmd_template(context, {name});  // unknown: the error with the nearest names
    if (chip.empty()) chip = string_at(found, "chip");
    if (!body.contains("count") && int_at(found, "count") > 0) count = int_at(found, "count");
  }
  if (chip.empty()) {
    return fail(Code::kInvalidArgument, "chip_missing", "no chip is named",
                "add --chip NAME; `anychip offer` lists them");
  }
  TRY(const json::object offer, find_item(api, "/v1/offers", "chip", chip));
  if (offer.empty()) return cmd_offer(context, {chip});
  TRY(const json::object account, api.get("/v1/account"));
  const int64_t price = int_at(offer, "price_micros_per_hour") * count;
  const int64_t balance = int_at(account, "balance_micros");
  const int64_t lasts_us =
      price > 0
          ? static_cast<int64_t>(static_cast<double>(balance) / static_cast<double>(price) * 3.6e9)
          : 0;
  if (context.is_json()) {
    context.print(json::object{{"dry_run", true},
                               {"request", body},
                               {"chip", chip},
                               {"count", count},
                               {"price_micros_per_hour", price},
                               {"currency", "CNY"},
                               {"count_free", int_at(offer, "count_free")},
                               {"balance_micros", balance},
                               {"simulated", json::bool_at(offer, "simulated")},
                               {"price_note", string_at(offer, "price_note")}});
    return {};
  }
  context.terminal.out(
      fmt::format("{} × {} at {}{}; {} of {} free\n", chip, count, yuan_per_hour(price),
                  json::bool_at(offer, "simulated") ? " (list price of the chip simulated)" : "",
                  int_at(offer, "count_free"), int_at(offer, "count_total")));
  context.terminal.out(fmt::format("the balance of {} lasts {}\n", yuan(balance),
                                   price > 0 ? format_span(lasts_us) : "for ever"));
  context.say("dry run: nothing was started");
  return {};
}

Status finish(Context& context, const RunOptions& options, json::object run) {
  const std::string name = string_at(run, "name");
  if (!context.is_json()) {
    context.terminal.out(
        fmt::format("{}  {} on {} × {}, {}{}\n", name, string_at(run, "state"),
                    string_at(run, "chip"), std::max<int64_t>(1, int_at(run, "count")),
                    yuan_per_hour(int_at(run, "price_micros_per_hour")),
                    json::bool_at(run, "simulated") ? " (list price of the chip simulated)" : ""));
  }
  if (!options.is_watching && !options.is_waiting) {
    if (context.is_json()) {
      context.print(run);
    } else {
      context.say(fmt::format(
          "follow it with `anychip logs -f {0}`, move it with `anychip switch {0} --to CHIP`",
          name));
    }
    return {};
  }
  if (options.is_watching && !context.is_json()) {
    TRY_VOID(follow_log(context, {name, std::nullopt, true}));
  }
  TRY(run, wait_until_ended(context, name, std::nullopt));
  if (context.is_json()) context.print(run);
  if (string_at(run, "state") != "failed") return {};
  return fail(Code::kUnknown, "run_failed",
              fmt::format("run '{}' failed: {}", name, string_at(run, "state_reason")),
              fmt::format("`anychip logs {}` says more", name));
}

}  // namespace

Result<ChipAndCount> split_chip(const std::string& text, std::optional<int64_t> count) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return ChipAndCount{text, count};
  const std::string digits = text.substr(colon + 1);
  const bool is_number = !digits.empty() && digits.size() < 7 &&
                         digits.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) {
    return fail(Code::kInvalidArgument, "chip_malformed",
                fmt::format("'{}' is not CHIP or CHIP:COUNT", text));
  }
  const int64_t after_colon = std::stoll(digits);
  if (count && *count != after_colon) {
    return fail(Code::kInvalidArgument, "count_invalid",
                fmt::format("'{}' and --count {} contradict each other", text, *count));
  }
  return ChipAndCount{text.substr(0, colon), after_colon};
}

Status cmd_run(Context& context, const RunOptions& given) {
  TRY(const RunOptions options, merged(given));
  if (options.template_id.empty() && options.command.empty()) {
    return fail(
        Code::kInvalidArgument, "command_empty", "there is nothing to run",
        "name a template (--template tang-poem-gpt), a task file (-f anychip.yaml) or a command "
        "(anychip run --image pytorch --chip cpu -- python train.py)");
  }
  TRY(json::object body, body_of(options));
  TRY(Api* const api, context.api());
  if (options.is_dry_run) return dry_run(context, *api, body);
  if (const std::string folder = folder_to_pack(options); !folder.empty()) {
    TRY(const bool is_known, is_image_known(*api, options.image));
    if (is_known) {
      TRY(const std::string digest, upload_folder(context, *api, folder));
      body["workdir"] = json::object{{"digest", digest}};
    }
  }
  TRY(json::object run, api->post("/v1/runs", body));
  return finish(context, options, std::move(run));
}

}  // namespace anychip::cli
