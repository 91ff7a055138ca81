#include "cli/task_file.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace anychip::cli {
namespace {

TEST(TaskFile, ReadsWhatItSays) {
  const auto task = parse_task_file(
      "# a training\r\nname: poems\r\nimage: pytorch\nchip: tpu-sim:2\ncount: 2\nworkdir: src\n"
      "command: [python, train.py, --backend, cpu]\nenvironment: {SEED: 7, WORDS: '春 "
      "眠'}\nstop_at_step: 100\n",
      "anychip.yaml");
  ASSERT_TRUE(task) << task.error().to_string();
  EXPECT_EQ(task->name, "poems");
  EXPECT_EQ(task->chip, "tpu-sim:2");
  EXPECT_EQ(task->count, 2);
  EXPECT_EQ(task->stop_at_step, 100);
  EXPECT_EQ(task->command, (std::vector<std::string>{"python", "train.py", "--backend", "cpu"}));
  ASSERT_EQ(task->environment.size(), 2u);
  EXPECT_EQ(task->environment[1].second, "春 眠");
}

TEST(TaskFile, ACommandMayBeOneLine) {
  const auto task =
      parse_task_file("command: python train.py --title 'two words' \"a\\\"b\" c\\ d\n", "t.yaml");
  ASSERT_TRUE(task) << task.error().to_string();
  EXPECT_EQ(task->command, (std::vector<std::string>{"python", "train.py", "--title", "two words",
                                                     "a\"b", "c d"}));
}

void expect_malformed(const std::string& text, const std::string& says) {
  const auto task = parse_task_file(text, "anychip.yaml");
  ASSERT_FALSE(task) << text;
  EXPECT_EQ(task.error().reason, "task_malformed");
  EXPECT_EQ(exit_code_of(task.error().code), 3);
  EXPECT_NE(task.error().message.find("anychip.yaml"), std::string::npos);
  EXPECT_NE(task.error().message.find(says), std::string::npos) << task.error().message;
  EXPECT_EQ(task.error().message.find('\n'), std::string::npos) << "one sentence";
}

TEST(TaskFile, EveryMistakeHasItsOwnSentence) {
  expect_malformed(std::string("\x7f"
                               "ELF\0\1\2",
                               7),
                   "not a text file");
  expect_malformed("\xff\xfe\x00", "not a text file");
  expect_malformed("just words", "must be a map");
  expect_malformed("- a\n- b\n", "must be a map");
  expect_malformed("", "must be a map");
  expect_malformed("name: [a]\n", "'name' must be a text");
  expect_malformed("name: x\ncount: many\n", "line 2: 'count' must be a whole number");
  expect_malformed("comand: ls\n", "did you mean 'command'?");
  expect_malformed("command: {a: b}\n", "'command' must be");
  expect_malformed("command: 'echo \"open'\n", "opened but not closed");
  expect_malformed("environment: [A]\n", "'environment' must be a map");
  expect_malformed("name: x\nenvironment: {a: b\n", "line");
  expect_malformed("a: *nowhere\n", "line");
}

TEST(TaskFile, GarbageIsAlwaysRefusedAndNeverCrashes) {
  SeededRandom random(20261130);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random.below(400) + 16, '\0');
    random.fill({reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
    expect_malformed(bytes, "anychip.yaml");
  }
}

TEST(TaskFile, DeepNestingIsRefusedNotFollowed) {
  const auto task =
      parse_task_file("a: " + std::string(3000, '[') + std::string(3000, ']'), "anychip.yaml");
  EXPECT_FALSE(task);
}

}  // namespace
}  // namespace anychip::cli
