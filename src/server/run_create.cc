// POST /v1/runs: every reason against it at once, or a run with its devices, disks and first leg.
#include <algorithm>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "fleet/run.h"
#include "server/handlers.h"
#include "server/money.h"
#include "server/reconcile.h"
#include "server/resolve.h"
#include "server/rows.h"
#include "server/views.h"

namespace anychip::server {
namespace {

using fleet::Refusal;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kDiskLeast = 64 * kMiB, kDiskDefault = 1024 * kMiB, kDiskMost = int64_t{1} << 42;

struct Wish {
  fleet::Run run;
  std::string chip;
  int64_t count = 1;
  std::string reference;  // id or name
  bool has_own_workdir = false;
  std::string template_files;  // JSON list; "" = not known
};

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > 63 || name.front() == '-' || name.starts_with("run_"))
    return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

// What an exec can carry: no NUL, and not without bounds.
bool is_word(std::string_view word) {
  constexpr size_t kWordBytesMax = 64 << 10;
  return word.size() <= kWordBytesMax && word.find('\0') == std::string_view::npos;
}

class Checker {
 public:
  explicit Checker(Call& call) : call_(call) {}

  Result<Wish> read(const json::object& body) {
    Wish wish;
    read_template(body, wish);
    TRY_VOID(read_fields(body, wish));
    return wish;
  }

  Result<std::optional<fleet::Target>> check(Wish& wish) {
    TRY_VOID(check_name(wish));
    // What the template would have given is missing for that one reason.
    if (is_template_unknown_) return std::optional<fleet::Target>{};
    TRY_VOID(check_workdir(wish));
    TRY_VOID(check_reference(wish));
    if (wish.run.command.empty()) {
      refuse(Code::kInvalidArgument, "command_empty", "there is no command to run", "/command");
    }
    return resolve_target(call_.shared.parts.catalog, wish.run.image, wish.chip, wish.count,
                          refusals_);
  }

  void refuse(Code code, std::string reason, std::string message, std::string pointer,
              std::string hint = {}) {
    refusals_.push_back(
        {code, std::move(reason), std::move(message), std::move(hint), std::move(pointer)});
  }
  void refuse(const Error& error, std::string pointer) {
    refuse(error.code, error.reason, error.message, std::move(pointer), error.hint);
  }
  std::vector<Refusal>& refusals() { return refusals_; }

 private:
  void read_template(const json::object& body, Wish& wish) {
    const std::string id = json::string_at(body, "template");
    wish.run.system_disk_bytes = wish.run.checkpoint_bytes = kDiskDefault;
    if (id.empty()) return;
    const auto found = call_.shared.parts.catalog.template_by(id);
    if (!found) {
      is_template_unknown_ = true;
      return refuse(found.error(), "/template");
    }
    const catalog::Template& of = **found;
    wish.run.template_id = of.id;
    wish.run.image = of.image;
    wish.run.command = of.command;
    wish.run.environment = of.environment;
    wish.run.memory_bytes = of.memory_bytes;
    if (of.system_disk_bytes > 0) wish.run.system_disk_bytes = of.system_disk_bytes;
    if (of.checkpoint_bytes > 0) wish.run.checkpoint_bytes = of.checkpoint_bytes;
    wish.run.restarts_max = of.restarts_max;
    constexpr size_t kDigestLength = 64;
    if (call_.before.size() > kDigestLength) {
      wish.run.workdir_digest = call_.before.substr(0, kDigestLength);
      wish.template_files = call_.before.substr(kDigestLength);
    }
    wish.chip = of.chip;
    wish.count = of.count;
  }

  Status read_fields(const json::object& body, Wish& wish) {
    fleet::Run& run = wish.run;
    TRY(run.name, json::get_string(body, "name"));
    TRY(run.image, json::get_string_or(body, "image", run.image));
    TRY(wish.chip, json::get_string_or(body, "chip", wish.chip));
    TRY(wish.count, json::get_int_or(body, "count", wish.count));
    TRY(run.memory_bytes, json::get_int_or(body, "memory_bytes", run.memory_bytes));
    TRY(run.system_disk_bytes, json::get_int_or(body, "system_disk_bytes", run.system_disk_bytes));
    TRY(run.checkpoint_bytes, json::get_int_or(body, "checkpoint_bytes", run.checkpoint_bytes));
    TRY(run.restarts_max, json::get_int_or(body, "restarts_max", run.restarts_max));
    TRY(const int64_t stop_at, json::get_int_or(body, "stop_at_step", 0));
    if (stop_at != 0) run.stop_at_step = stop_at;
    TRY(wish.reference, json::get_string_or(body, "reference_of", ""));
    TRY_VOID(read_words(body, run));
    const json::object& workdir = json::object_at(body, "workdir");
    if (!workdir.empty()) {
      TRY(run.workdir_digest, json::get_string(workdir, "digest", "/workdir"));
      wish.has_own_workdir = true;
    }
    check_range(run.memory_bytes, 0, kDiskMost, "memory_bytes");
    check_range(run.system_disk_bytes, kDiskLeast, kDiskMost, "system_disk_bytes");
    check_range(run.checkpoint_bytes, kDiskLeast, kDiskMost, "checkpoint_bytes");
    check_range(run.restarts_max, 0, 100, "restarts_max");
    if (run.stop_at_step) check_range(*run.stop_at_step, 1, int64_t{1} << 52, "stop_at_step");
    return {};
  }

  Status read_words(const json::object& body, fleet::Run& run) {
    const auto wrong = [](std::string pointer, std::string message) {
      Error error{Code::kInvalidArgument, "field_invalid", message, {}, {}};
      error.fields.push_back({std::move(pointer), std::move(message)});
      return tl::unexpected(std::move(error));
    };
    if (const auto* command = body.if_contains("command");
        command != nullptr && !command->is_null()) {
      if (!command->is_array()) return wrong("/command", "'command' must be a list of strings");
      run.command.clear();
      for (const json::value& word : command->get_array()) {
        if (!word.is_string()) return wrong("/command", "'command' must be a list of strings");
        if (!is_word(word.get_string())) {
          return wrong("/command", "a word of 'command' is too long or holds a NUL byte");
        }
        run.command.emplace_back(word.get_string());
      }
    }
    if (const auto* names = body.if_contains("environment");
        names != nullptr && !names->is_null()) {
      if (!names->is_object()) return wrong("/environment", "'environment' must be an object");
      for (const auto& [name, text] : names->get_object()) {
        if (!text.is_string() || name.empty() || name.find('=') != std::string_view::npos ||
            !is_word(name) || !is_word(text.get_string())) {
          return wrong("/environment", "'environment' holds names and strings");
        }
        run.environment[name] = std::string(text.get_string());
      }
    }
    return {};
  }

  void check_range(int64_t number, int64_t least, int64_t most, std::string_view field) {
    if (number >= least && number <= most) return;
    refuse(Code::kInvalidArgument, "field_invalid",
           fmt::format("'{}' must be from {} to {}", field, least, most),
           fmt::format("/{}", field));
  }

  Status check_name(const Wish& wish) {
    const std::string& name = wish.run.name;
    if (!is_name(name)) {
      refuse(Code::kInvalidArgument, "name_invalid",
             fmt::format("'{}' is no name: 1 to 63 of a-z 0-9 - _ . and not beginning with '-' or "
                         "'run_'",
                         name),
             "/name");
      return {};
    }
    TRY(const auto taken, call_.db.query_one("SELECT 1 FROM runs WHERE project_id = ? AND name = ? "
                                             "AND deleted_at IS NULL",
                                             call_.who.project, name));
    if (taken) {
      refuse(Code::kAlreadyExists, "name_taken",
             fmt::format("a run named {} is there already", name), "/name",
             "take another name, or remove it with `anychip down`");
    }
    return {};
  }

  Status check_workdir(const Wish& wish) {
    std::string files = wish.template_files;
    if (wish.has_own_workdir) {
      TRY(const auto found, call_.db.query_one("SELECT files FROM workdirs WHERE digest = ? AND "
                                               "project_id = ?",
                                               wish.run.workdir_digest, call_.who.project));
      if (!found) {
        refuse(Code::kNotFound, "workdir_unknown", "this workdir was not uploaded",
               "/workdir/digest", "POST it to /v1/workdirs first");
        return {};
      }
      files = found->text(0);
    }
    if (call_.shared.parts.workdirs != nullptr && !files.empty()) check_script(wish, files);
    return {};
  }

  void check_script(const Wish& wish, const std::string& files_json) {
    const auto& command = wish.run.command;
    const auto script = std::find_if(command.begin(), command.end(),
                                     [](const std::string& word) { return word.ends_with(".py"); });
    if (script == command.end() || script->starts_with("/")) return;
    std::vector<std::string> files;
    rows::from_json_text(files_json, files);
    const std::string wanted = script->starts_with("./") ? script->substr(2) : *script;
    if (std::find(files.begin(), files.end(), wanted) != files.end()) return;
    refuse(Code::kInvalidArgument, "script_missing",
           fmt::format("the command runs {}, which is not in the workdir", *script), "/command",
           "start from the folder that holds it; files matched by .gitignore are left out");
  }

  Status check_reference(Wish& wish) {
    if (wish.reference.empty()) return {};
    const auto found = find_run(call_, wish.reference);
    if (!found)
      refuse(found.error(), "/reference_of");
    else
      wish.run.reference_of = *found;
    return {};
  }

  Call& call_;
  std::vector<Refusal> refusals_;
  bool is_template_unknown_ = false;
};

}  // namespace

Result<net::Outcome> create_run(Call& call) {
  TRY(const json::object body, body_of(call.request));
  Checker checker(call);
  TRY(Wish wish, checker.read(body));
  TRY(const auto target, checker.check(wish));
  fleet::Facts facts;
  TRY_VOID(load_machines(call.db, facts));
  fleet::Placement placement;
  if (target) {
    auto placed = fleet::place({target->chip, target->count, {}, {}}, facts.devices, facts.nodes);
    if (placed)
      placement = std::move(*placed);
    else
      checker.refuse(placed.error(), "/count");
    TRY(const auto unfunded, refuse_unfunded(call, target->price, "/chip"));
    if (unfunded) checker.refusals().push_back(*unfunded);
  }
  if (!checker.refusals().empty()) return refusal(call, checker.refusals());

  const fleet::Context context = call.shared.context();
  wish.run.id = RunId::make(context.now, context.random);
  wish.run.project = call.who.project;
  wish.run.created_at = wish.run.state_at = context.now;
  fleet::Facts before = facts;
  facts.run = std::move(wish.run);
  fleet::begin_run(facts, context, *target, placement);
  fleet::advance(facts, context);
  TRY_VOID(save_facts(call.db, call.shared, before, facts));
  FAILPOINT("server.run.saved");
  TRY(const json::object view, run_view(call.db, call.shared, facts.run));
  return ok(view, 201);
}

}  // namespace anychip::server
