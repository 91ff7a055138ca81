// Completion scripts, made from the parser itself so that they never lag behind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/context.h"

namespace CLI {
class App;
}

namespace anychip::cli {

struct CommandWords {
  std::string name, summary;
  std::vector<std::string> options;  // "--chip", "-f"
  bool takes_run = false;            // first word: name of a run
};
std::vector<CommandWords> words_of(const CLI::App& app);  // in parser.cc, which knows CLI11

Result<std::string> completion_script(std::string_view shell,
                                      const std::vector<CommandWords>& commands);

// `anychip __names runs|chips|templates`: one per line; nothing (and success) when the server is
// away.
Status cmd_names(Context& context, const std::string& kind);

}  // namespace anychip::cli
