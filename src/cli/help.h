// What each command is for, in words: shown by `anychip help`, `anychip CMD --help`, completion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anychip::cli {

struct CommandHelp {
  std::string_view name, group, summary, text, examples;
};

const std::vector<CommandHelp>& command_helps();
const CommandHelp* help_of(std::string_view command);  // nullptr: no such command
std::string overview();                                // all commands by group

}  // namespace anychip::cli
