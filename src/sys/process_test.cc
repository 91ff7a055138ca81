// Child processes: output, exit codes, limits, timeouts, cancel, orphans.
#include "sys/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace anychip::sys {
namespace {

RunSpec shell(const std::string& script) {
  RunSpec spec;
  spec.argv = {"sh", "-c", script};
  return spec;
}

TEST(Process, GivesOutputExitCodeAndInput) {
  RunSpec spec = shell("cat; echo oops >&2; pwd; exit 7");
  spec.input = std::string(300'000, 'i');  // more than a pipe holds
  spec.cwd = "/";
  const auto result = run(spec);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->out, spec.input + "/\n");
  EXPECT_EQ(result->err, "oops\n");
  EXPECT_EQ(run(shell("kill -9 $$"))->exit_code, 128 + 9);
}

TEST(Process, AFailureSaysWhatTheProgramSaid) {
  const auto failed = run_ok({"sh", "-c", "echo first; echo the reason >&2; exit 3"});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().reason, "command_failed");
  EXPECT_NE(failed.error().message.find("the reason"), std::string::npos);
  EXPECT_EQ(run_ok({"anychip-no-such-program"}).error().reason, "program_not_found");
  EXPECT_EQ(run(RunSpec{}).error().reason, "command_empty");
}

TEST(Process, NothingIsInterpretedByAShell) {
  EXPECT_EQ(run_ok({"echo", "$HOME; ls", "*"})->out, "$HOME; ls *\n");
}

TEST(Process, OutputIsBoundedAndTheEndIsKept) {
  RunSpec spec = shell(
      "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); "
      "done; echo last");
  spec.output_bytes_max = 1000;
  const auto result = run(spec);
  EXPECT_EQ(result->out.size(), 1000u);
  EXPECT_TRUE(result->out.ends_with("last\n"));
}

TEST(Process, TimeoutKillsTheWholeGroup) {
  RunSpec spec = shell("sleep 100 & echo $!; wait");
  spec.timeout = milliseconds(400);
  std::string said;
  spec.on_output = [&](std::string_view bytes) { said += bytes; };
  EXPECT_EQ(run(spec).error().reason, "process_timeout");
  const pid_t grandchild = std::atoi(said.c_str());
  ASSERT_GT(grandchild, 0);
  for (int i = 0; i < 100 && is_alive(grandchild); ++i) ::usleep(10'000);
  EXPECT_FALSE(is_alive(grandchild));
}

TEST(Process, CancelEndsItSoon) {
  std::atomic<bool> cancel{false};
  RunSpec spec = shell("sleep 100");
  spec.cancel = &cancel;
  std::thread canceller([&] {
    ::usleep(200'000);
    cancel = true;
  });
  const MonoTime begin = RealClock{}.mono_now();
  EXPECT_EQ(run(spec).error().code, Code::kCancelled);
  EXPECT_LT((RealClock{}.mono_now() - begin).ms(), 5000);
  canceller.join();
}

TEST(Process, AGrandchildThatKeepsThePipeDoesNotDelayUs) {
  const MonoTime begin = RealClock{}.mono_now();
  const auto result = run(shell("sleep 20 & echo started $!"));
  ASSERT_TRUE(result);
  EXPECT_LT((RealClock{}.mono_now() - begin).ms(), 10'000);
  ::kill(std::atoi(result->out.c_str() + 8), SIGKILL);
}

TEST(Process, OurDescriptorsAreNotInheritedUnlessGiven) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // on purpose without close-on-exec
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  RunSpec spec = shell("ls /proc/self/fd | wc -l; echo given >&3");
  spec.inherit_fds = {{ends[1], 3}};
  const auto result = run(spec);
  ::close(leaked);
  ::close(ends[1]);
  EXPECT_LE(std::atoi(result->out.c_str()), 5) << "0 1 2, the given one, and ls's own";
  EXPECT_EQ(*read_range(ends[0], 0, 0), "");
  char word[16] = {};
  EXPECT_EQ(::read(ends[0], word, sizeof word), 6);
  ::close(ends[0]);
}

TEST(Process, EndsWithUsWhenAskedTo) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    RunSpec spec = shell("echo $$ >&3; exec sleep 100");
    spec.is_ended_with_us = true;
    spec.inherit_fds = {{ends[1], 3}};
    (void)run(spec);
    ::_exit(0);
  }
  char word[16] = {};
  ASSERT_GT(::read(ends[0], word, sizeof word - 1), 0);
  const pid_t grandchild = std::atoi(word);
  EXPECT_TRUE(is_alive(grandchild));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (int i = 0; i < 300 && is_alive(grandchild); ++i) ::usleep(10'000);
  EXPECT_FALSE(is_alive(grandchild));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Process, EnvironmentIsReplacedOrClean) {
  ::setenv("ANYCHIP_TEST_A", "old", 1);
  RunSpec spec = shell("echo $ANYCHIP_TEST_A$ANYCHIP_TEST_B");
  spec.environment = {{"ANYCHIP_TEST_B", "b"}};
  EXPECT_EQ(run(spec)->out, "oldb\n");
  spec.environment = {{"ANYCHIP_TEST_A", "new"}};
  EXPECT_EQ(run(spec)->out, "new\n");
  spec.environment.clear();
  spec.is_environment_clean = true;
  EXPECT_EQ(run(spec)->out, "\n");
}

TEST(Process, DetachedOutlivesAndOrphansAreReapedWithoutStealingFromRun) {
  ASSERT_TRUE(set_subreaper());
  std::atomic<bool> stop{false};
  std::atomic<int> reaped_count{0};
  std::thread reaper([&] {
    while (!stop) {
      reaped_count += static_cast<int>(reap_orphans().size());
      ::usleep(1000);
    }
  });
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(run(shell("exit 5"))->exit_code, 5) << "taken by the reaper";
  ASSERT_TRUE(run(shell("(sleep 0.1; exit 3) & exit 0")));  // its orphan becomes ours
  const auto detached = spawn_detached({{"sleep", "0.2"}, {}, "/", "", {}});
  ASSERT_TRUE(detached);
  EXPECT_TRUE(is_alive(*detached));
  EXPECT_GT(*start_ticks_of(*detached), 0);
  for (int i = 0; i < 300 && reaped_count < 2; ++i) ::usleep(10'000);
  stop = true;
  reaper.join();
  EXPECT_GE(reaped_count, 2);
  EXPECT_FALSE(is_alive(*detached));
}

}  // namespace
}  // namespace anychip::sys
