#include "cli/completion.h"

#include <fmt/format.h>

#include "cli/text.h"

namespace anychip::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string bash(const std::vector<CommandWords>& commands) {
  std::string names, cases, run_commands;
  for (const CommandWords& command : commands) {
    names += (names.empty() ? "" : " ") + command.name;
    cases += fmt::format("    {}) options=\"{}\" ;;\n", command.name, joined(command.options));
    if (command.takes_run) run_commands += (run_commands.empty() ? "" : "|") + command.name;
  }
  return fmt::format(
      "# anychip completion for bash: source <(anychip completion bash)\n"
      "_anychip() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" before=\"${{COMP_WORDS[COMP_CWORD-1]}}\" "
      "options=\"\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"{0}\" -- \"$word\")); "
      "return; fi\n"
      "  case \"$before\" in\n"
      "    --chip|--to) COMPREPLY=($(compgen -W \"$(anychip __names chips 2>/dev/null)\" -- "
      "\"$word\")); return ;;\n"
      "    --template) COMPREPLY=($(compgen -W \"$(anychip __names templates 2>/dev/null)\" -- "
      "\"$word\")); return ;;\n"
      "    --against|--reference-of) COMPREPLY=($(compgen -W \"$(anychip __names runs "
      "2>/dev/null)\" -- \"$word\")); return ;;\n"
      "    -o|--output) COMPREPLY=($(compgen -W \"table json html\" -- \"$word\")); return ;;\n"
      "    -f|--file|--html|--input|--workdir|--data) COMPREPLY=($(compgen -f -- \"$word\")); "
      "return ;;\n"
      "  esac\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{1}  esac\n"
      "  if [ \"${{word#-}}\" = \"$word\" ]; then\n"
      "    case \"${{COMP_WORDS[1]}}\" in\n"
      "      {2}) COMPREPLY=($(compgen -W \"$(anychip __names runs 2>/dev/null)\" -- \"$word\")); "
      "return ;;\n"
      "      help) COMPREPLY=($(compgen -W \"{0}\" -- \"$word\")); return ;;\n"
      "      completion) COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$word\")); return ;;\n"
      "    esac\n"
      "  fi\n"
      "  COMPREPLY=($(compgen -W \"$options -o --data --lang --help\" -- \"$word\"))\n"
      "}}\n"
      "complete -o default -F _anychip anychip\n",
      names, cases, run_commands);
}

std::string fish(const std::vector<CommandWords>& commands) {
  std::string out = "# anychip completion for fish\ncomplete -c anychip -f\n";
  for (const CommandWords& command : commands) {
    std::string summary;
    for (const char c : command.summary) summary += c == '\'' ? ' ' : c;
    out += fmt::format("complete -c anychip -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                       summary);
    const std::string here = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    if (command.takes_run)
      out += fmt::format("complete -c anychip {} -a '(anychip __names runs)'\n", here);
    for (const std::string& option : command.options) {
      if (!option.starts_with("--")) continue;
      const std::string name = option.substr(2);
      const bool is_chip = name == "chip" || name == "to";
      const std::string values = is_chip              ? " -x -a '(anychip __names chips)'"
                                 : name == "template" ? " -x -a '(anychip __names templates)'"
                                                      : "";
      out += fmt::format("complete -c anychip {} -l {}{}\n", here, name, values);
    }
  }
  return out +
         "complete -c anychip -s o -l output -x -a 'table json html'\ncomplete -c anychip -l data "
         "-r -F\n";
}

}  // namespace

Result<std::string> completion_script(std::string_view shell,
                                      const std::vector<CommandWords>& commands) {
  if (shell == "bash") return bash(commands);
  if (shell == "fish") return fish(commands);
  if (shell == "zsh") {  // zsh runs bash's function through its own bridge
    return "#compdef anychip\nautoload -U +X bashcompinit && bashcompinit\n" + bash(commands);
  }
  return fail(Code::kInvalidArgument, "usage", fmt::format("no completion for '{}'", shell),
              "bash, zsh or fish");
}

Status cmd_names(Context& context, const std::string& kind) {
  const bool is_runs = kind == "runs";
  const std::string target = is_runs               ? "/v1/runs?limit=500"
                             : kind == "templates" ? "/v1/templates"
                                                   : "/v1/offers";
  const std::string_view key = is_runs ? "name" : kind == "templates" ? "id" : "chip";
  const Result<Api*> api = context.api();
  if (!api) return {};
  const Result<json::object> list = (*api)->list(target);
  if (!list) return {};
  for (const json::value& item : json::array_at(*list, "items")) {
    if (item.is_object())
      context.terminal.out(one_line(json::string_at(item.get_object(), key)) + "\n");
  }
  return {};
}

}  // namespace anychip::cli
