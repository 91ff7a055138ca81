#include "cli/task_file.h"

#include <functional>
#include <map>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "catalog/catalog.h"
#include "cli/text.h"

namespace anychip::cli {
namespace {

tl::unexpected<Error> malformed(const std::string& path, std::string_view what, int line = -1) {
  const std::string where = line >= 0 ? fmt::format("{} line {}", path, line + 1) : path;
  return fail(Code::kInvalidArgument, "task_malformed", fmt::format("{}: {}", where, what),
              "a task file is YAML like: name: demo / template: tang-poem-gpt / chip: cpu / "
              "command: [python, train.py, --backend, cpu]");
}

size_t count_of(std::string_view text, std::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

// Valid UTF-8 without control characters (other than line ends and tabs).
bool is_text(std::string_view bytes) {
  std::string without_returns;
  for (const char c : bytes) {
    if (c != '\r') without_returns += c;
  }
  return count_of(printable(without_returns, true), "\uFFFD") ==
         count_of(without_returns, "\uFFFD");
}

struct Reader {
  const std::string& path;
  TaskFile task;

  Status text(const std::string& key, const YAML::Node& node, std::string& to) {
    if (!node.IsScalar())
      return malformed(path, fmt::format("'{}' must be a text", key), node.Mark().line);
    to = node.Scalar();
    return {};
  }
  Status number(const std::string& key, const YAML::Node& node, std::optional<int64_t>& to) {
    int64_t value = 0;
    if (!node.IsScalar() || !YAML::convert<int64_t>::decode(node, value)) {
      return malformed(path, fmt::format("'{}' must be a whole number", key), node.Mark().line);
    }
    to = value;
    return {};
  }
  Status command(const YAML::Node& node) {
    if (node.IsScalar()) {
      Result<std::vector<std::string>> words = split_words(node.Scalar());
      if (!words) return malformed(path, "'command': " + words.error().message, node.Mark().line);
      task.command = std::move(*words);
      return {};
    }
    if (!node.IsSequence()) {
      return malformed(path, "'command' must be a text or a list of words", node.Mark().line);
    }
    for (const YAML::Node& word : node) {
      if (!word.IsScalar())
        return malformed(path, "a word of 'command' must be a text", word.Mark().line);
      task.command.push_back(word.Scalar());
    }
    return {};
  }
  Status environment(const YAML::Node& node) {
    if (!node.IsMap()) {
      return malformed(path, "'environment' must be a map of names to texts", node.Mark().line);
    }
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
        return malformed(path, "'environment' must be a map of names to texts", node.Mark().line);
      }
      task.environment.emplace_back(entry.first.Scalar(), entry.second.Scalar());
    }
    return {};
  }
};

Status read_key(Reader& reader, const std::string& key, const YAML::Node& node) {
  TaskFile& task = reader.task;
  const std::map<std::string, std::string*> texts = {{"name", &task.name},
                                                     {"template", &task.template_id},
                                                     {"image", &task.image},
                                                     {"chip", &task.chip},
                                                     {"workdir", &task.workdir},
                                                     {"memory", &task.memory},
                                                     {"system_disk", &task.system_disk},
                                                     {"checkpoint_disk", &task.checkpoint_disk}};
  const std::map<std::string, std::optional<int64_t>*> numbers = {
      {"count", &task.count},
      {"stop_at_step", &task.stop_at_step},
      {"restarts_max", &task.restarts_max}};
  if (const auto found = texts.find(key); found != texts.end())
    return reader.text(key, node, *found->second);
  if (const auto found = numbers.find(key); found != numbers.end())
    return reader.number(key, node, *found->second);
  if (key == "command") return reader.command(node);
  if (key == "environment" || key == "env") return reader.environment(node);
  std::vector<std::string> known = {"command", "environment"};
  for (const auto& entry : texts) known.push_back(entry.first);
  for (const auto& entry : numbers) known.push_back(entry.first);
  const std::vector<std::string> near = catalog::nearest(key, known);
  return malformed(
      reader.path,
      fmt::format("unknown key '{}'{}", one_line(key),
                  near.empty() ? "" : fmt::format("; did you mean '{}'?", near.front())),
      node.Mark().line);
}

}  // namespace

Result<TaskFile> parse_task_file(const std::string& text, const std::string& path) {
  if (!is_text(text)) return malformed(path, "this is not a text file");
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap())
      return malformed(path, "this is not a task file: it must be a map of keys to values");
    Reader reader{path, {}};
    for (const auto& entry : root) {
      if (!entry.first.IsScalar())
        return malformed(path, "keys must be texts", entry.first.Mark().line);
      TRY_VOID(read_key(reader, entry.first.Scalar(), entry.second));
    }
    return std::move(reader.task);
  } catch (const YAML::Exception& error) {
    return malformed(path, one_line(error.msg), error.mark.line);
  }
}

Result<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool is_in_word = false;
  char quote = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else if (c == '\\' && quote == '"' && at + 1 < line.size()) {
        word += line[++at];
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      is_in_word = true;
    } else if (c == '\\' && at + 1 < line.size()) {
      word += line[++at];
      is_in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (is_in_word) words.push_back(std::exchange(word, {}));
      is_in_word = false;
    } else {
      word += c;
      is_in_word = true;
    }
  }
  if (quote != 0) {
    return fail(Code::kInvalidArgument, "quote_open",
                fmt::format("a {} is opened but not closed", quote));
  }
  if (is_in_word) words.push_back(std::move(word));
  return words;
}

}  // namespace anychip::cli
