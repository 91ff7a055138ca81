#include "cli/parser.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "catalog/catalog.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/help.h"
#include "net/problem.h"
#include "sys/paths.h"

namespace anychip::cli {
namespace {

using Chosen = std::function<Status(Context&)>;

// Everything the command line can set; lives as long as one call.
struct Parsed {
  std::string output = "table", data, language;
  bool is_yes = false;
  UpOptions up;
  DownOptions down;
  NameOptions name;
  RunOptions run;
  PsOptions ps;
  LogsOptions logs;
  MetricsOptions metrics;
  EventsOptions events;
  SwitchOptions move;
  StopOptions stop;
  WaitOptions wait;
  CompareOptions compare;
  ServerArguments server;
  AgentArguments agent;
  std::string action, word, shell, list_word;
  Chosen chosen;
};

CLI::App& command(CLI::App& app, Parsed& parsed, const char* name, Chosen chosen) {
  const CommandHelp* help = help_of(name);
  CLI::App* sub = app.add_subcommand(name, help == nullptr ? "" : std::string(help->summary));
  if (help != nullptr) {
    sub->footer((help->text.empty() ? "" : "\n" + std::string(help->text) + "\n") +
                "\nExamples:\n" + std::string(help->examples));
  }
  sub->fallthrough();
  sub->callback([&parsed, chosen = std::move(chosen)] { parsed.chosen = chosen; });
  return *sub;
}

void add_machine_commands(CLI::App& app, Parsed& p) {
  CLI::App& up = command(app, p, "up", [&p](Context& c) { return cmd_up(c, p.up); });
  up.add_option("--port", p.up.port,
                "port of the API on 127.0.0.1; 0 = the one used before, else any")
      ->check(CLI::Range(0, 65535));
  up.add_option("--pool-gib", p.up.pool_gib, "size of the disk pool when it is made, GiB")
      ->check(CLI::Range(1, 1 << 20));
  up.add_option("--node", p.up.node_name, "name of this node (default: the host name)");
  CLI::App& down = command(app, p, "down", [&p](Context& c) { return cmd_down(c, p.down); });
  down.add_option("run", p.down.run, "stop and delete this run instead");
  down.add_flag("--all", p.down.is_all, "end all containers too; unmount and detach everything");
  command(app, p, "doctor", [](Context& c) { return cmd_doctor(c); });
}

Status account_action(Context& context, const Parsed& p) {
  if (p.action.empty() || p.action == "show") return cmd_account_show(context);
  if (p.word.empty()) {
    return fail(Code::kInvalidArgument, "usage", fmt::format("account {} needs a name", p.action));
  }
  return p.action == "new" ? cmd_account_new(context, p.word) : cmd_account_use(context, p.word);
}

void add_catalog_commands(CLI::App& app, Parsed& p) {
  CLI::App& account = command(app, p, "account", [&p](Context& c) { return account_action(c, p); });
  account.add_option("action", p.action, "show, new or use")
      ->check(CLI::IsMember({"show", "new", "use"}));
  account.add_option("name", p.word, "the account's name");
  const auto list = [&](const char* name, const char* what,
                        Status (*run)(Context&, const NameOptions&)) {
    CLI::App& sub = command(app, p, name, [&p, run](Context& c) {
      if (p.name.name == "list") p.name.name.clear();
      return run(c, p.name);
    });
    sub.add_option("name", p.name.name, what);
  };
  list("offer", "only this chip", cmd_offer);
  list("chip", "only this chip", cmd_chip);
  list("image", "only this image", cmd_image);
  list("template", "only this template", cmd_template);
  const auto plain = [&](const char* name, Status (*run)(Context&)) {
    CLI::App& sub = command(app, p, name, [run](Context& c) { return run(c); });
    sub.add_option("action", p.list_word, "list")->check(CLI::IsMember({"list"}));
  };
  plain("node", cmd_node);
  plain("volume", cmd_volume);
  plain("snapshot", cmd_snapshot);
  CLI::App& instance = command(app, p, "instance", [&p](Context& c) {
    if (p.action == "show" && p.name.name.empty()) {
      return Status(fail(Code::kInvalidArgument, "usage", "instance show needs an id"));
    }
    return cmd_instance(c, p.name);
  });
  instance.add_option("action", p.action, "list or show")->check(CLI::IsMember({"list", "show"}));
  instance.add_option("id", p.name.name, "the instance's id");
}

void add_run_command(CLI::App& app, Parsed& p) {
  CLI::App& run = command(app, p, "run", [&p](Context& c) { return cmd_run(c, p.run); });
  run.add_option("-f,--file", p.run.file, "task file (anychip.yaml)");
  run.add_option("--name", p.run.name, "name of the run, unique in the project");
  run.add_option("--template", p.run.template_id, "start from this template");
  run.add_option("--image", p.run.image, "image, e.g. pytorch");
  run.add_option("--chip", p.run.chip, "CHIP or CHIP:COUNT; `anychip offer` lists them");
  run.add_option("--count", p.run.count, "how many chips");
  run.add_option("--workdir", p.run.workdir,
                 "folder to pack (default: the current one, without a template)");
  run.add_flag("--no-workdir", p.run.is_without_workdir, "pack nothing");
  run.add_option("-e,--env", p.run.environment, "KEY=VALUE for the command; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  run.add_option("--memory", p.run.memory, "memory limit, e.g. 8GiB");
  run.add_option("--system-disk", p.run.system_disk, "size of the system disk");
  run.add_option("--checkpoint-disk", p.run.checkpoint_disk, "size of the checkpoint volume");
  run.add_option("--restarts-max", p.run.restarts_max,
                 "restarts after a crash, from the last checkpoint");
  run.add_option("--stop-at-step", p.run.stop_at_step, "checkpoint and stop after this step");
  run.add_option("--reference-of", p.run.reference_of,
                 "this run is the uninterrupted one that RUN is compared with");
  run.add_flag("--dry-run", p.run.is_dry_run, "show the price, start nothing");
  run.add_flag("-w,--watch,--follow", p.run.is_watching, "follow its log until it ends");
  run.add_flag("--wait", p.run.is_waiting, "wait until it ends");
}

void add_look_commands(CLI::App& app, Parsed& p) {
  CLI::App& ps = command(app, p, "ps", [&p](Context& c) { return cmd_ps(c, p.ps); });
  ps.add_option("--state", p.ps.state, "only runs in this state");
  ps.add_flag("-w,--watch", p.ps.is_watching, "draw anew each second");
  const auto with_run = [&](CLI::App& sub, std::string& run) {
    sub.add_option("run", run, "name or id of the run")->required();
  };
  with_run(command(app, p, "show", [&p](Context& c) { return cmd_show(c, p.word); }), p.word);
  CLI::App& logs = command(app, p, "logs", [&p](Context& c) { return cmd_logs(c, p.logs); });
  with_run(logs, p.logs.run);
  logs.add_flag("-f,--follow", p.logs.is_following, "go on until the run has ended");
  logs.add_option("--leg", p.logs.leg, "only this leg (0 = the first)");
  CLI::App& metrics =
      command(app, p, "metrics", [&p](Context& c) { return cmd_metrics(c, p.metrics); });
  with_run(metrics, p.metrics.run);
  metrics.add_option("--after-step", p.metrics.after_step, "only later steps");
  metrics.add_option("--leg", p.metrics.leg, "only this leg");
  metrics.add_option("--limit", p.metrics.limit, "at most so many");
  CLI::App& events =
      command(app, p, "events", [&p](Context& c) { return cmd_events(c, p.events); });
  with_run(events, p.events.run);
  events.add_flag("-f,--follow", p.events.is_following, "go on until the run has ended");
  CLI::App& wait = command(app, p, "wait", [&p](Context& c) { return cmd_wait(c, p.wait); });
  with_run(wait, p.wait.run);
  wait.add_option("--step", p.wait.step, "until this step is done");
  wait.add_option("--state", p.wait.state, "until it is in this state");
  wait.add_option("--timeout", p.wait.timeout, "give up after, e.g. 90, 5m, 2h (exit status 9)");
  CLI::App& compare =
      command(app, p, "compare", [&p](Context& c) { return cmd_compare(c, p.compare); });
  compare.add_option("run", p.compare.run, "name or id of the run");
  compare.add_option("--against", p.compare.against, "the run to compare the loss with");
  compare.add_option("--html", p.compare.html_path, "also write the report to this file");
  compare.add_option("--input", p.compare.input,
                     "render a saved JSON document instead of asking the server");
  compare.add_flag("--check", p.compare.is_checking,
                   "exit status 1 unless the loss stays in its band");
}

void add_change_commands(CLI::App& app, Parsed& p) {
  CLI::App& stop = command(app, p, "stop", [&p](Context& c) { return cmd_stop(c, p.stop); });
  stop.add_option("run", p.stop.run, "name or id of the run")->required();
  stop.add_flag("--wait", p.stop.is_waiting, "until it has ended");
  CLI::App& move = command(app, p, "switch", [&p](Context& c) { return cmd_switch(c, p.move); });
  move.add_option("run", p.move.run, "name or id of the run")->required();
  move.add_option("--to", p.move.to, "CHIP or CHIP:COUNT");
  move.add_option("--count", p.move.count, "how many chips");
  move.add_option("--at-step", p.move.at_step,
                  "checkpoint after exactly this step (default: as soon as prepared)");
  move.add_option("--verify-steps", p.move.verify_steps,
                  "steps on the new chip before the old one is given up");
  move.add_flag("--wait", p.move.is_waiting, "show the eight steps until it is settled");
  move.add_flag("--cancel", p.move.is_cancelling, "take back the switch that is under way");
  move.add_flag("--list", p.move.is_listing, "all switches of the run");
}

void add_process_commands(CLI::App& app, Parsed& p) {
  CLI::App& server = command(app, p, "server", {});
  server.add_option("--port", p.server.port, "port; 0 = any free one")->check(CLI::Range(0, 65535));
  server.add_option("--address", p.server.address, "address to listen on");
  CLI::App& agent = command(app, p, "agent", {});
  agent.add_option("--name", p.agent.node_name, "name of this node (default: the host name)");
  agent.add_option("--server", p.agent.server_url,
                   "the server's URL (default: the one of this data folder)");
  agent.add_option("--join-token-file", p.agent.join_token_file, "file with the join token");
  agent.add_option("--pool-gib", p.agent.pool_gib, "size of the disk pool when it is made, GiB");
  CLI::App& completion = command(app, p, "completion", [&p, &app](Context& c) -> Status {
    TRY(const std::string script, completion_script(p.shell, words_of(app)));
    c.terminal.out(script);
    return {};
  });
  completion.add_option("shell", p.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  CLI::App& names = command(app, p, "__names", [&p](Context& c) { return cmd_names(c, p.word); });
  names.add_option("kind", p.word);
  names.group("");
  command(app, p, "version", [](Context& c) { return cmd_version(c); });
}

void add_everything(CLI::App& app, Parsed& p) {
  app.set_help_flag("-h,--help", "show this");
  app.add_option("-o,--output", p.output, "table or json (compare: also html)")
      ->check(CLI::IsMember({"table", "json", "html"}))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--data", p.data, "data folder")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--lang", p.language, "en or zh")
      ->check(CLI::IsMember({"en", "zh"}))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag("-y,--yes", p.is_yes, "answer yes where a command would ask");
  app.require_subcommand(0, 1);
  add_machine_commands(app, p);
  add_catalog_commands(app, p);
  add_run_command(app, p);
  add_look_commands(app, p);
  add_change_commands(app, p);
  add_process_commands(app, p);
}

// --- around the parse
// ------------------------------------------------------------------------------

bool wants_json(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") return false;
    if (word == "-ojson" || word == "--output=json") return true;
    if ((word == "-o" || word == "--output") && i + 1 < arguments.size() &&
        arguments[i + 1] == "json")
      return true;
  }
  return false;
}

int report_error(const Terminal& terminal, const Error& error, bool is_json) {
  if (is_json) {
    terminal.err(net::problem_response(error).body + "\n");
  } else {
    const bool has_colour = terminal.has_colour && terminal.err_is_tty;
    terminal.err(styled("error: ", Style::kBad, has_colour) + error_text(error) + "\n");
  }
  return exit_code_of(error.code);
}

// The first word that is neither an option nor the value of a global one.
std::string command_word(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "-o" || word == "--output" || word == "--data" || word == "--lang") {
      ++i;
    } else if (!word.starts_with("-")) {
      return word;
    }
  }
  return {};
}

// --lang before the parse: the overview is shown without one.
std::string language_word(const std::vector<std::string>& arguments) {
  const auto option = std::find(arguments.begin(), arguments.end(), "--lang");
  return option != arguments.end() && option + 1 != arguments.end() ? *(option + 1) : std::string();
}

Status check_command_word(const std::string& word) {
  if (word.empty() || word == "__names" || help_of(word) != nullptr) return {};
  std::vector<std::string> known;
  for (const CommandHelp& help : command_helps()) known.emplace_back(help.name);
  const std::vector<std::string> near = catalog::nearest(word, known);
  std::string hint = "`anychip help` lists all commands";
  if (!near.empty()) hint = fmt::format("did you mean {}? {}", near.front(), hint);
  return fail(Code::kInvalidArgument, "command_unknown",
              fmt::format("there is no command '{}'", word), hint);
}

std::string language_of(const std::string& given) {
  if (!given.empty()) return given;
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0')
      return std::string_view(value).starts_with("zh") ? "zh" : "en";
  }
  return "en";
}

Result<std::string> data_of(const std::string& given) {
  if (!given.empty()) return sys::absolute_path(given);
  return sys::data_folder();
}

Result<int> run_parsed(Parsed& p, const std::string& name, Terminal terminal,
                       const ProcessMains& mains) {
  TRY(const std::string data, data_of(p.data));
  p.server.data = p.agent.data = data;
  if (name == "server" || name == "agent") {
    const bool is_server = name == "server";
    if (is_server && mains.server) return mains.server(p.server);
    if (!is_server && mains.agent) return mains.agent(p.agent);
    return fail(Code::kUnimplemented, "not_built",
                fmt::format("this binary was built without the {}", name));
  }
  if (p.output == "html" && name != "compare") {
    return fail(Code::kInvalidArgument, "usage",
                fmt::format("-o html is for compare, not for {}", name));
  }
  static const RealClock kClock;
  Context context;
  context.terminal = std::move(terminal);
  context.output = p.output == "json"   ? Output::kJson
                   : p.output == "html" ? Output::kHtml
                                        : Output::kTable;
  context.data = data;
  context.language = language_of(p.language);
  context.clock = &kClock;
  TRY_VOID(p.chosen(context));
  return 0;
}

}  // namespace

std::vector<CommandWords> words_of(const CLI::App& app) {
  std::vector<CommandWords> words;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name().starts_with("__")) continue;
    CommandWords command{sub->get_name(), sub->get_description(), {}, false};
    for (const CLI::Option* option : sub->get_options()) {
      for (const std::string& name : option->get_lnames()) command.options.push_back("--" + name);
      for (const std::string& name : option->get_snames()) command.options.push_back("-" + name);
      if (option->get_positional() && option->get_name(true) == "run") command.takes_run = true;
    }
    words.push_back(std::move(command));
  }
  words.push_back({"help", "one command's page", {}, false});
  return words;
}

int run_command_line(std::vector<std::string> arguments, Terminal terminal,
                     const ProcessMains& mains) {
  Parsed p;
  // What follows "--" belongs to the run's command, whatever it looks like.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) {
    p.run.command.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  if (!arguments.empty() && arguments[0] == "help") {
    arguments.erase(arguments.begin());
    if (!arguments.empty()) arguments.emplace_back("--help");
  }
  const bool is_json = wants_json(arguments);
  const std::string word = command_word(arguments);
  const bool wants_help =
      arguments.empty() || arguments.back() == "-h" || arguments.back() == "--help";
  if (word.empty() && wants_help) {
    terminal.out(overview(language_of(language_word(arguments))));
    return 0;
  }
  if (word.empty() && arguments[0] == "--version") arguments[0] = "version";
  if (const Status known = check_command_word(word); !known)
    return report_error(terminal, known.error(), is_json);
  CLI::App app("", "anychip");
  add_everything(app, p);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    terminal.out(chosen.empty() ? overview(language_of(p.language))
                                : chosen.front()->help("anychip"));
    return 0;
  } catch (const CLI::ParseError& error) {
    const std::string hint =
        word.empty() ? "`anychip help`" : fmt::format("`anychip help {}` shows its options", word);
    return report_error(terminal, Error{Code::kInvalidArgument, "usage", error.what(), hint, {}},
                        is_json);
  }
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    return report_error(
        terminal,
        Error{Code::kInvalidArgument, "usage", "no command is given", "`anychip help`", {}},
        is_json);
  }
  const std::string name = chosen.front()->get_name();
  if (!p.run.command.empty() && name != "run") {
    return report_error(
        terminal,
        Error{Code::kInvalidArgument, "usage", "only `run` takes a command after --", "", {}},
        is_json);
  }
  const Result<int> status = run_parsed(p, name, terminal, mains);
  return status ? *status : report_error(terminal, status.error(), is_json);
}

}  // namespace anychip::cli
