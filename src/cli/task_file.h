// anychip.yaml: the file that says what to run. A thin reading: name, template, image, command,
// chip, count, environment, workdir and the disks; an unknown key is an error, so a typo never
// silently changes what runs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace anychip::cli {

struct TaskFile {
  std::string name, template_id, image, chip, workdir, memory, system_disk, checkpoint_disk;
  std::optional<int64_t> count, stop_at_step, restarts_max;
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;
};

// `path` is named in errors. Anything that is not such a file: kInvalidArgument "task_malformed",
// one sentence with the line where it is known.
Result<TaskFile> parse_task_file(const std::string& text, const std::string& path);

// A command line as a shell would split it, without expansion: quotes and backslashes only.
Result<std::vector<std::string>> split_words(std::string_view line);

}  // namespace anychip::cli
