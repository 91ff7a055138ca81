// kill -9 of the agent between any two steps of starting and removing a container: another process
// does the operation, dies at a failpoint, and a new runtime over the same folder ends it well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "agent/local/container_fixture.h"
#include "base/failpoint.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

using ::testing::IsEmpty;

const char* const kStartPoints[] = {
    "container.intended",        "container.disk_attached",  "container.io_made",
    "container.workdir_unpacked", "container.overlay_mounted", "container.volumes_mounted",
    "container.bundle_written",  "container.supervisor_ready", "container.conmon_spawned",
    "container.created",
    "container.start_intended",  "container.started"};
const char* const kRemovePoints[] = {
    "container.remove_intended", "container.killed",         "container.exit_noted",
    "container.metrics_saved",   "container.runc_deleted",   "container.removed_mounts",
    "container.detached",        "container.removed"};

ContainerSpec spec_of(const std::string& instance, const std::string& disk, const std::string& volume) {
  ContainerSpec spec = shell_spec(InstanceId{instance}, VolumeId{disk},
                                  "echo x >> /checkpoints/runs; echo '{\"step\":1}' > $ANYCHIP_METRICS;"
                                  "echo up; while true; do sleep 0.05; done");
  spec.volumes = {{VolumeId{volume}, "/checkpoints", 1, false}};
  return spec;
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

// Not a test of its own: what the other process does. Skipped unless that process is meant.
TEST(ContainerKillChild, DISABLED_Run) {
  const std::string data = variable("ANYCHIP_TEST_DATA");
  if (data.empty()) GTEST_SKIP() << "only as the child of the kill tests";
  Node node(data);
  ASSERT_TRUE(node.open());
  failpoint::arm_from_environment();
  const std::string instance = variable("ANYCHIP_TEST_INSTANCE");
  if (variable("ANYCHIP_TEST_OPERATION") == "start") {
    EXPECT_TRUE(node.perform(StartContainer{
        spec_of(instance, variable("ANYCHIP_TEST_DISK"), variable("ANYCHIP_TEST_VOLUME"))}));
  } else {
    EXPECT_TRUE(node.perform(RemoveContainer{InstanceId{instance}}));
  }
}

class ContainerKillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    std::string pattern = "/tmp/anychip-kill-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    const std::string problem = make_layers(folder_ + "/layers");
    if (!problem.empty()) GTEST_SKIP() << problem;
    node_ = std::make_unique<Node>(folder_);
    open();
    disk_ = new_id<VolumeId>();
    volume_ = new_id<VolumeId>();
    ASSERT_TRUE(node_->perform(EnsureVolume{disk_, 400ll << 20, {}}));
    ASSERT_TRUE(node_->perform(EnsureVolume{volume_, 336ll << 20, {}}));
  }
  void TearDown() override {
    if (node_ == nullptr) return;
    ASSERT_TRUE(failpoint::arm(""));
    if (node_->runtime == nullptr) open();
    const Status closed = node_->runtime->close();
    EXPECT_TRUE(closed) << closed.error().to_string();
    node_->close();
    const std::string run = NodePaths::of(folder_, "/run/anychip").run;
    EXPECT_FALSE(sys::exists(run)) << run;
    std::filesystem::remove_all(folder_);
  }
  void open() {
    Status opened = node_->open();
    // A process killed between fork and exec leaves its lock to the child for an instant.
    for (int i = 0; i < 100 && !opened && opened.error().reason == "pool_in_use"; ++i) {
      pause_ms(10);
      opened = node_->open();
    }
    ASSERT_TRUE(opened) << opened.error().to_string();
  }
  ContainerSpec new_spec() { return spec_of(new_id<InstanceId>().text, disk_.text, volume_.text); }

  // True when the child was killed at the point (and not: ended without passing it).
  bool child_dies(const std::string& operation, const std::string& point, const InstanceId& instance) {
    sys::RunSpec run;
    run.argv = {"/proc/self/exe", "--gtest_filter=ContainerKillChild.DISABLED_Run",
                "--gtest_also_run_disabled_tests"};
    run.argv[0] = std::filesystem::read_symlink("/proc/self/exe");
    run.environment = {{"ANYCHIP_TEST_DATA", folder_},         {"ANYCHIP_TEST_OPERATION", operation},
                       {"ANYCHIP_TEST_INSTANCE", instance.text}, {"ANYCHIP_TEST_DISK", disk_.text},
                       {"ANYCHIP_TEST_VOLUME", volume_.text},
                       {"ANYCHIP_FAILPOINTS", point + "=kill"}};
    const auto ran = sys::run(run);
    if (!ran || ran->exit_code != 128 + SIGKILL) {
      ADD_FAILURE() << point << ": " << (ran ? ran->out + ran->err : ran.error().to_string());
      return false;
    }
    return true;
  }
  // Nothing of the instance anywhere but in its own folder.
  std::vector<std::string> traces(const InstanceId& instance) {
    std::vector<std::string> found;
    const NodePaths paths = NodePaths::of(folder_, "/run/anychip");
    const auto table = sys::mount_table();
    EXPECT_TRUE(table);
    for (const auto& entry : *table) {
      if (entry.target.find(instance.text) != std::string::npos) found.push_back("mount " + entry.target);
    }
    const CgroupRoots roots = CgroupRoots::of_this_machine().value();
    for (const std::string& root : roots.all) {
      const std::string folder = root + "/" + paths.label + "/" + instance.text;
      if (sys::exists(folder)) found.push_back("cgroup " + folder);
    }
    for (const VolumeSeen& volume : node_->runtime->inventory().volumes) {
      if (!volume.attached_to.empty()) found.push_back("attached " + volume.volume.text);
    }
    if (sys::exists(paths.runc + "/" + instance.text)) found.push_back("runc state");
    if (sys::exists(paths.instance(instance).run)) found.push_back("run folder");
    if (sys::exists(paths.instance(instance).exit_file)) found.push_back("exit file");
    return found;
  }
  // How often commands have written their line so far (the volume is mounted for it).
  size_t runs_counted(const InstanceId& reader) {
    ContainerSpec spec = shell_spec(reader, disk_, "cat /checkpoints/runs 2>/dev/null; exit 0");
    spec.volumes = {{volume_, "/checkpoints", 1, true}};
    EXPECT_TRUE(node_->perform(StartContainer{spec}));
    EXPECT_TRUE(node_->wait_exit(reader));
    const std::string log = node_->read(reader);
    EXPECT_TRUE(node_->perform(RemoveContainer{reader}));
    return static_cast<size_t>(std::count(log.begin(), log.end(), 'x'));
  }

  std::string folder_;
  std::unique_ptr<Node> node_;
  VolumeId disk_, volume_;
};

TEST_F(ContainerKillTest, StartIsRepeatedAfterAKillAtEachStep) {
  size_t runs = 0;
  for (const char* point : kStartPoints) {
    SCOPED_TRACE(point);
    const ContainerSpec spec = new_spec();
    node_->close();
    ASSERT_TRUE(child_dies("start", point, spec.instance));
    open();
    const Status started = node_->perform(StartContainer{spec});
    ASSERT_TRUE(started) << started.error().to_string();
    node_->wait_log(spec.instance, "up");
    const auto seen = node_->seen(spec.instance);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->phase, ContainerPhase::kRunning);
    EXPECT_EQ(node_->read(spec.instance), "up\n");
    const Status removed = node_->perform(RemoveContainer{spec.instance});
    ASSERT_TRUE(removed) << removed.error().to_string();
    EXPECT_THAT(traces(spec.instance), IsEmpty());
    EXPECT_EQ(runs_counted(new_id<InstanceId>()), ++runs);  // the command ran once, never twice
  }
}

TEST_F(ContainerKillTest, AHalfStartedContainerGoesOnOrIsRemovedWithoutBeingAskedTwice) {
  for (const char* point : kStartPoints) {
    SCOPED_TRACE(point);
    const ContainerSpec spec = new_spec();
    node_->close();
    ASSERT_TRUE(child_dies("start", point, spec.instance));
    open();
    const Status removed = node_->perform(RemoveContainer{spec.instance});
    ASSERT_TRUE(removed) << removed.error().to_string();
    EXPECT_FALSE(node_->seen(spec.instance));
    EXPECT_THAT(traces(spec.instance), IsEmpty());
  }
}

TEST_F(ContainerKillTest, RemoveIsRepeatedAfterAKillAtEachStep) {
  for (const char* point : kRemovePoints) {
    SCOPED_TRACE(point);
    const ContainerSpec spec = new_spec();
    ASSERT_TRUE(node_->perform(StartContainer{spec}));
    node_->wait_log(spec.instance, "up");
    node_->close();
    ASSERT_TRUE(child_dies("remove", point, spec.instance));
    open();
    const Status removed = node_->perform(RemoveContainer{spec.instance});
    ASSERT_TRUE(removed) << removed.error().to_string();
    EXPECT_THAT(traces(spec.instance), IsEmpty());
    EXPECT_EQ(node_->read(spec.instance), "up\n");
    EXPECT_EQ(node_->read(spec.instance, Stream::kMetrics), "{\"step\":1}\n");
  }
}

TEST_F(ContainerKillTest, AFailureAtAnyStepOfStartLeavesNothingBehind) {
  for (const char* point : kStartPoints) {
    SCOPED_TRACE(point);
    const ContainerSpec spec = new_spec();
    ASSERT_TRUE(failpoint::arm(std::string(point) + "=error"));
    const Status started = node_->perform(StartContainer{spec});
    ASSERT_TRUE(failpoint::arm(""));
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().reason, "failpoint");
    EXPECT_FALSE(node_->seen(spec.instance));
    EXPECT_THAT(traces(spec.instance), IsEmpty());
    EXPECT_TRUE(node_->perform(StartContainer{spec}));
    EXPECT_TRUE(node_->perform(RemoveContainer{spec.instance}));
  }
}

// Not at one of our steps but at any instant, also inside runc and conmon.
TEST_F(ContainerKillTest, StartIsRepeatedAfterAKillAtAnyInstant) {
  SeededRandom random(20261130);
  for (int round = 0; round < 8; ++round) {
    const ContainerSpec spec = new_spec();
    node_->close();
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const auto pid = sys::spawn_detached(
        {.argv = {self, "--gtest_filter=ContainerKillChild.DISABLED_Run", "--gtest_also_run_disabled_tests"},
         .environment = {{"ANYCHIP_TEST_DATA", folder_},
                         {"ANYCHIP_TEST_OPERATION", "start"},
                         {"ANYCHIP_TEST_INSTANCE", spec.instance.text},
                         {"ANYCHIP_TEST_DISK", disk_.text},
                         {"ANYCHIP_TEST_VOLUME", volume_.text}},
         .cwd = {}, .log_path = {}, .inherit_fds = {}});
    ASSERT_TRUE(pid);
    pause_ms(static_cast<int64_t>(20 + random.below(180)));
    ::kill(*pid, SIGKILL);
    ASSERT_EQ(waitpid(*pid, nullptr, 0), *pid);
    open();
    const Status started = node_->perform(StartContainer{spec});
    ASSERT_TRUE(started) << started.error().to_string();
    EXPECT_NE(node_->wait_log(spec.instance, "up").find("up\n"), std::string::npos);
    EXPECT_TRUE(node_->perform(RemoveContainer{spec.instance}));
    EXPECT_THAT(traces(spec.instance), IsEmpty());
    EXPECT_EQ(runs_counted(new_id<InstanceId>()), static_cast<size_t>(round) + 1);
  }
}

TEST_F(ContainerKillTest, AfterARestartOfTheHostTheEndIsTheLastProofOfLife) {
  const ContainerSpec spec = new_spec();
  ASSERT_TRUE(node_->perform(StartContainer{spec}));
  node_->wait_log(spec.instance, "up");
  const MonoTime started = node_->seen(spec.instance)->started;
  node_->close();
  const InstancePaths paths = NodePaths::of(folder_, "/run/anychip").instance(spec.instance);
  auto status = load_status(paths);
  ASSERT_TRUE(status);
  status->boot_id = "another boot";
  status->last_seen_us = started.us + 5'000'000;
  ASSERT_TRUE(save_status(paths, *status));
  open();
  const auto seen = node_->seen(spec.instance);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->phase, ContainerPhase::kExited);
  EXPECT_TRUE(seen->is_supervisor_lost);
  EXPECT_EQ(seen->ended, started + seconds(5));
  EXPECT_TRUE(node_->perform(RemoveContainer{spec.instance}));
  EXPECT_THAT(traces(spec.instance), IsEmpty());
}

TEST_F(ContainerKillTest, WhatBelongsToNobodyIsSweptAtStart) {
  const ContainerSpec spec = new_spec();
  ASSERT_TRUE(node_->perform(StartContainer{spec}));
  node_->wait_log(spec.instance, "up");
  node_->close();
  // As if the instance's folder were lost.
  std::filesystem::remove_all(NodePaths::of(folder_, "/run/anychip").instance(spec.instance).folder);
  open();
  EXPECT_THAT(traces(spec.instance), IsEmpty());
}

}  // namespace
}  // namespace anychip::agent
