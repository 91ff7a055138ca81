// What each command is for, in words: shown by `anychip help`, `anychip CMD --help`, completion.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace anychip::cli {

struct CommandHelp {
  std::string_view name, group, summary, summary_zh, text, examples;
};

std::span<const CommandHelp> command_helps();
const CommandHelp* help_of(std::string_view command);  // nullptr: no such command
std::string overview(std::string_view language);       // all commands by group; "en" or "zh"

}  // namespace anychip::cli
