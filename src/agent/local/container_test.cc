// Containers on this machine, for real: needs root, runc, conmon, xfs and the busybox package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>

#include "agent/local/container_fixture.h"
#include "agent/local/container_mounts.h"
#include "agent/local/layer_build.h"
#include "base/hash.h"
#include "sys/archive.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kDiskBytes = 512ll << 20;

// What a whole suite leaves behind would stay on the machine: counted at its end.
std::vector<std::string> leftovers(const std::string& data) {
  std::vector<std::string> left;
  const NodePaths paths = NodePaths::of(data, "/run/anychip");
  const auto table = sys::mount_table();
  if (table) {
    for (const auto& entry : *table) {
      if (entry.target.starts_with(data + "/") || entry.target.starts_with(paths.run)) {
        left.push_back("mount " + entry.target);
      }
    }
  }
  const auto loops = sys::run_ok({"losetup", "-a"});
  if (loops && loops->out.find(data) != std::string::npos) left.push_back("loop " + loops->out);
  const auto roots = CgroupRoots::of_this_machine();
  if (roots) {
    for (const std::string& root : roots->all) {
      if (sys::exists(root + "/" + paths.label)) left.push_back("cgroup " + root);
    }
  }
  if (sys::exists(paths.run)) left.push_back("folder " + paths.run);
  return left;
}

class ContainerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (geteuid() != 0) return;
    std::string pattern = "/tmp/anychip-containers-XXXXXX";
    folder_ = mkdtemp(pattern.data());  // 0700: nobody but root may walk it
    problem_ = make_layers(folder_ + "/layers");
    if (!problem_.empty()) return;
    node_ = new Node(folder_);
    if (const Status opened = node_->open(); !opened) problem_ = opened.error().to_string();
  }
  static void TearDownTestSuite() {
    if (node_ == nullptr) return;
    if (node_->runtime == nullptr) {
      ASSERT_TRUE(node_->open());
    }
    for (const ContainerSeen& seen : node_->runtime->inventory().containers) {
      EXPECT_TRUE(node_->perform(RemoveContainer{seen.instance}));
    }
    const Status closed = node_->runtime->close();
    EXPECT_TRUE(closed) << closed.error().to_string();
    node_->close();
    delete node_;
    node_ = nullptr;
    EXPECT_THAT(leftovers(folder_), ::testing::IsEmpty());
    std::filesystem::remove_all(folder_);
  }
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    if (problem_.find("not installed") != std::string::npos) GTEST_SKIP() << problem_;
    ASSERT_EQ(problem_, "");
    if (node_->runtime == nullptr) {
      ASSERT_TRUE(node_->open());
    }
  }
  static VolumeId new_volume(int64_t bytes = kDiskBytes) {
    const VolumeId volume = new_id<VolumeId>();
    const Status made = node_->perform(EnsureVolume{volume, bytes, {}});
    EXPECT_TRUE(made) << made.error().to_string();
    return volume;
  }
  static ContainerSpec new_spec(const std::string& script) {
    return shell_spec(new_id<InstanceId>(), new_volume(), script);
  }
  static void start(const ContainerSpec& spec) {
    const Status started = node_->perform(StartContainer{spec});
    ASSERT_TRUE(started) << started.error().to_string();
  }
  // Runs it to its end and removes it: its log.
  static std::string run(const ContainerSpec& spec, int* exit_code = nullptr) {
    start(spec);
    const auto seen = node_->wait_exit(spec.instance);
    if (!seen || seen->phase != ContainerPhase::kExited) return "did not end";
    if (exit_code != nullptr) *exit_code = seen->exit_code;
    std::string log = node_->read(spec.instance);
    remove(spec.instance);
    return log;
  }
  static void remove(const InstanceId& instance) {
    const Status removed = node_->perform(RemoveContainer{instance});
    ASSERT_TRUE(removed) << removed.error().to_string();
  }
  static Cgroups cgroups() {
    return Cgroups(CgroupRoots::of_this_machine().value(), NodePaths::of(folder_, "/run/anychip").label);
  }

  static inline std::string folder_, problem_;
  static inline Node* node_ = nullptr;
};

TEST_F(ContainerTest, RunsACommandAndKeepsItsLogAndExitCode) {
  ContainerSpec spec = new_spec(
      "id; printf part; sleep 0.05; echo ial; echo err >&2; echo $GREETING $FROM_IMAGE $HOME; hostname;"
      "cat /proc/self/uid_map; python works; pwd; exit 3");
  spec.environment["GREETING"] = "hello world";
  const MonoTime before = node_->clock.mono_now();
  start(spec);
  const auto seen = node_->wait_exit(spec.instance);
  const MonoTime after = node_->clock.mono_now();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->phase, ContainerPhase::kExited);
  EXPECT_EQ(seen->exit_code, 3);
  EXPECT_FALSE(seen->is_oom);
  EXPECT_FALSE(seen->is_supervisor_lost);
  ASSERT_TRUE(seen->ended);
  EXPECT_GE(seen->started, before);
  EXPECT_GE((*seen->ended - seen->started).us, 50'000);
  EXPECT_LE(*seen->ended, after);
  const std::string log = node_->read(spec.instance);
  EXPECT_THAT(log, HasSubstr("uid=0 gid=0"));
  EXPECT_THAT(log, HasSubstr("partial\n"));
  EXPECT_THAT(log, HasSubstr("err\n"));
  EXPECT_THAT(log, HasSubstr("hello world yes /root\n"));
  EXPECT_THAT(log, HasSubstr("ins-"));
  EXPECT_THAT(log, HasSubstr("python works\n/workspace\n"));
  EXPECT_THAT(log, ::testing::ContainsRegex("0 +[2-9][0-9]{5} +65536"));  // no host id inside
  remove(spec.instance);
  EXPECT_FALSE(node_->seen(spec.instance));
  EXPECT_EQ(node_->read(spec.instance), log);  // the log outlives the container
  EXPECT_TRUE(node_->perform(RemoveContainer{spec.instance}));
  EXPECT_EQ(node_->perform(StartContainer{spec}).error().reason, "instance_removed");
  EXPECT_TRUE(node_->perform(ForgetInstance{spec.instance}));
  EXPECT_FALSE(node_->runtime->read_stream(spec.instance, Stream::kLog, 0, 10));
}

TEST_F(ContainerTest, StartToExitLatency) {
  ContainerSpec warm = new_spec("true");
  run(warm);
  std::vector<int64_t> whole_us, start_us;
  for (int i = 0; i < 5; ++i) {
    ContainerSpec spec = shell_spec(new_id<InstanceId>(), warm.system_disk, "true");
    const MonoTime before = node_->clock.mono_now();
    start(spec);
    start_us.push_back((node_->clock.mono_now() - before).us);
    ASSERT_TRUE(node_->wait_exit(spec.instance));
    whole_us.push_back((node_->clock.mono_now() - before).us);
    remove(spec.instance);
  }
  std::sort(whole_us.begin(), whole_us.end());
  std::sort(start_us.begin(), start_us.end());
  std::printf("StartContainer to started: min %.1f ms, median %.1f ms; to exit seen: min %.1f ms, median %.1f ms\n",
              static_cast<double>(start_us[0]) / 1e3, static_cast<double>(start_us[2]) / 1e3,
              static_cast<double>(whole_us[0]) / 1e3, static_cast<double>(whole_us[2]) / 1e3);
  EXPECT_LT(whole_us[0], 5'000'000);
}

TEST_F(ContainerTest, ACommandThatIsNotThereIsSaidAndLeavesNothing) {
  ContainerSpec spec = new_spec("");
  spec.command = {"no-such-program"};
  const Status started = node_->perform(StartContainer{spec});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().reason, "command_not_found") << started.error().to_string();
  EXPECT_FALSE(node_->seen(spec.instance));
  for (const VolumeSeen& volume : node_->runtime->inventory().volumes) {
    if (volume.volume == spec.system_disk) {
      EXPECT_TRUE(volume.attached_to.empty());
    }
  }
  spec.command = {"/bin/sh", "-c", "echo second try"};
  EXPECT_THAT(run(spec), HasSubstr("second try"));
}

TEST_F(ContainerTest, AnOlderGenerationIsRefusedANewerReplaces) {
  ContainerSpec spec = new_spec("echo first; sleep 100");
  spec.generation = 5;
  start(spec);
  ContainerSpec older = spec;
  older.generation = 4;
  EXPECT_EQ(node_->perform(StartContainer{older}).error().reason, "generation_stale");
  EXPECT_TRUE(node_->perform(StartContainer{spec}));  // again: nothing happens
  ContainerSpec newer = spec;
  newer.generation = 6;
  newer.command[2] = "echo second; sleep 100";
  start(newer);
  EXPECT_EQ(node_->seen(spec.instance)->generation, 6);
  EXPECT_THAT(node_->wait_log(spec.instance, "second"), Not(HasSubstr("first")));
  remove(spec.instance);
}

TEST_F(ContainerTest, TheWorkdirIsUnpackedOncePerDiskAndDigest) {
  const std::string source = folder_ + "/workdir-source";
  ASSERT_TRUE(sys::make_folders(source + "/lib"));
  ASSERT_TRUE(sys::write_file_atomic(source + "/train.sh", "echo trained $1\n"));
  ASSERT_TRUE(sys::write_file_atomic(source + "/lib/data", "data\n"));
  const auto packed = sys::pack_folder(source, folder_ + "/workdir.tar.zst");
  ASSERT_TRUE(packed) << packed.error().to_string();
  ContainerSpec spec = new_spec("sh train.sh one; cat lib/data; echo changed > lib/data; ls -ln train.sh");
  spec.workdir_path = folder_ + "/workdir.tar.zst";
  spec.workdir_digest = packed->digest;
  const std::string log = run(spec);
  EXPECT_THAT(log, HasSubstr("trained one\ndata\n"));
  EXPECT_THAT(log, ::testing::ContainsRegex(" 0 +0 .*train.sh"));  // root's own inside
  spec.instance = new_id<InstanceId>();
  spec.command[2] = "cat lib/data";
  EXPECT_EQ(run(spec), "changed\n");
}

TEST_F(ContainerTest, VolumesAreIdmappedAndTheirSizeIsAWall) {
  ContainerSpec spec = new_spec(
      "echo kept > /checkpoints/step1; chown 1000 /checkpoints/step1; ls -ln /checkpoints/step1;"
      "dd if=/dev/zero of=/checkpoints/big bs=1M count=400; echo dd=$?");
  const VolumeId volume = new_volume(336ll << 20);
  spec.volumes = {{volume, "/checkpoints", 1, false}};
  const std::string log = run(spec);
  EXPECT_THAT(log, ::testing::ContainsRegex("1000 +0 "));
  EXPECT_THAT(log, HasSubstr("No space left on device"));
  EXPECT_THAT(log, HasSubstr("dd=1"));
  ContainerSpec reader = new_spec("cat /checkpoints/step1; echo x > /checkpoints/y || echo refused");
  reader.volumes = {{volume, "/checkpoints", 2, true}};
  const std::string read = run(reader);
  EXPECT_THAT(read, HasSubstr("kept\n"));
  EXPECT_THAT(read, HasSubstr("refused"));
}

TEST_F(ContainerTest, TheSystemDiskIsAWallToo) {
  int exit_code = 0;
  const std::string log = run(new_spec("dd if=/dev/zero of=/fill bs=1M count=2000; exit $?"), &exit_code);
  EXPECT_THAT(log, HasSubstr("No space left on device"));
  EXPECT_EQ(exit_code, 1);
}

TEST_F(ContainerTest, OutOfMemoryIsToldFromAnOrdinaryKill) {
  ContainerSpec greedy = new_spec("exec tail /dev/zero");
  greedy.memory_bytes = 64 << 20;
  start(greedy);
  auto seen = node_->wait_exit(greedy.instance);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->exit_code, 137);
  EXPECT_TRUE(seen->is_oom);
  EXPECT_FALSE(sys::exists("oom")) << "conmon left its mark in the agent's own folder";
  remove(greedy.instance);
  ContainerSpec killed = new_spec("sleep 100");
  start(killed);
  ASSERT_TRUE(node_->runtime->signal(killed.instance, SIGKILL));
  seen = node_->wait_exit(killed.instance);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->exit_code, 137);
  EXPECT_FALSE(seen->is_oom);
  EXPECT_FALSE(seen->is_supervisor_lost);
  remove(killed.instance);
}

TEST_F(ContainerTest, ProcessesAreLimited) {
  ContainerSpec spec = new_spec("for i in $(seq 40); do sleep 20 & done; echo all of them");
  spec.pids_max = 16;
  const std::string log = run(spec);
  EXPECT_THAT(log, HasSubstr("can't fork"));
  EXPECT_THAT(log, Not(HasSubstr("all of them")));
}

TEST_F(ContainerTest, RemoveKillsATreeThatDoesNotWantToGo) {
  ContainerSpec spec = new_spec(
      "trap '' TERM HUP INT; for i in 1 2 3 4 5; do setsid sh -c \"trap '' TERM HUP; sleep 1000 & wait\" & done;"
      "echo up; while true; do sleep 1000; done");
  start(spec);
  EXPECT_THAT(node_->wait_log(spec.instance, "up"), HasSubstr("up"));
  EXPECT_GE(cgroups().processes(spec.instance, CgroupPart::kContainer).size(), 7u);
  ASSERT_TRUE(node_->runtime->signal(spec.instance, SIGTERM));
  pause_ms(50);
  EXPECT_EQ(node_->seen(spec.instance)->phase, ContainerPhase::kRunning);
  remove(spec.instance);
  EXPECT_TRUE(cgroups().processes(spec.instance, CgroupPart::kContainer).empty());
  EXPECT_TRUE(cgroups().processes(spec.instance, CgroupPart::kSupervisor).empty());
}

TEST_F(ContainerTest, SigtermReachesTheCommand) {
  ContainerSpec spec = new_spec("trap 'echo saved; exit 75' TERM; echo up; while true; do sleep 0.02; done");
  start(spec);
  node_->wait_log(spec.instance, "up");
  ASSERT_TRUE(node_->runtime->signal(spec.instance, SIGTERM));
  const auto seen = node_->wait_exit(spec.instance);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->exit_code, 75);
  EXPECT_THAT(node_->read(spec.instance), HasSubstr("saved"));
  remove(spec.instance);
}

TEST_F(ContainerTest, SigtermToACommandThatDoesNotHandleItEndsItAtOnce) {
  ContainerSpec spec = new_spec("echo up; exec sleep 1000");
  start(spec);
  node_->wait_log(spec.instance, "up");
  pause_ms(50);  // exec
  ASSERT_TRUE(node_->runtime->signal(spec.instance, SIGTERM));
  const auto seen = node_->wait_exit(spec.instance, 5000);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->phase, ContainerPhase::kExited);
  EXPECT_EQ(seen->exit_code, 137);
  remove(spec.instance);
}

// `sh -c "cd somewhere; python train.py"`: the shell hears nothing, the training does.
TEST_F(ContainerTest, SigtermReachesTheTrainingBehindAShell) {
  ContainerSpec spec = new_spec(
      "sh -c \"trap 'echo noted' USR1; trap 'echo saved; exit 75' TERM; echo up; while true; do sleep 0.02; done\"; exit $?");
  start(spec);
  node_->wait_log(spec.instance, "up");
  ASSERT_TRUE(node_->runtime->signal(spec.instance, SIGUSR1));
  EXPECT_THAT(node_->wait_log(spec.instance, "noted"), HasSubstr("noted"));
  ASSERT_TRUE(node_->runtime->signal(spec.instance, SIGTERM));
  const auto seen = node_->wait_exit(spec.instance, 5000);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->phase, ContainerPhase::kExited);
  EXPECT_EQ(seen->exit_code, 75);
  EXPECT_THAT(node_->read(spec.instance), HasSubstr("saved"));
  remove(spec.instance);
}

TEST_F(ContainerTest, TheNetworkIsLoopbackOnly) {
  const std::string log = run(new_spec(
      "ls /sys/class/net; (echo hello | nc -l -p 5000 >/dev/null) & sleep 0.3; nc localhost 5000; cat /etc/hosts"));
  EXPECT_THAT(log, ::testing::StartsWith("lo\nhello\n127.0.0.1 localhost ins-"));
}

TEST_F(ContainerTest, MetricsAndControlPassBothWays) {
  ContainerSpec spec = new_spec(
      "echo '{\"step\":1}' > $ANYCHIP_METRICS; printf '{\"st' >> $ANYCHIP_METRICS; echo half;"
      "while [ ! -e $ANYCHIP_CONTROL ]; do sleep 0.02; done; cat $ANYCHIP_CONTROL;"
      "echo x > $ANYCHIP_CONTROL || echo refused; rm -f /run/anychip/control/control.json || echo refused2;"
      "echo 'ep\":2}' >> $ANYCHIP_METRICS");
  start(spec);
  node_->wait_log(spec.instance, "half");
  EXPECT_EQ(node_->read(spec.instance, Stream::kMetrics), "{\"step\":1}\n");  // only whole lines
  ASSERT_TRUE(node_->runtime->write_control(spec.instance, "{\"stop_at_step\":7}"));
  ASSERT_TRUE(node_->wait_exit(spec.instance));
  const std::string log = node_->read(spec.instance);
  EXPECT_THAT(log, HasSubstr("{\"stop_at_step\":7}"));
  EXPECT_THAT(log, HasSubstr("refused\n"));
  EXPECT_THAT(log, HasSubstr("refused2"));
  const std::string metrics = "{\"step\":1}\n{\"step\":2}\n";
  EXPECT_EQ(node_->read(spec.instance, Stream::kMetrics), metrics);
  remove(spec.instance);
  EXPECT_EQ(node_->read(spec.instance, Stream::kMetrics), metrics);  // saved before the disk went
}

TEST_F(ContainerTest, MetricsThatPointElsewhereAreNotFollowed) {
  ContainerSpec spec = new_spec("ln -s /etc/passwd $ANYCHIP_METRICS; echo linked; sleep 100");
  start(spec);
  node_->wait_log(spec.instance, "linked");
  EXPECT_EQ(node_->read(spec.instance, Stream::kMetrics), "");
  remove(spec.instance);
  EXPECT_EQ(node_->read(spec.instance, Stream::kMetrics), "");
}

TEST_F(ContainerTest, ADiskFromASnapshotBeginsWithEmptyMetrics) {
  ContainerSpec spec = new_spec("echo '{\"step\":1}' > $ANYCHIP_METRICS; echo mine > /root/file; sync; sleep 100");
  start(spec);
  for (int i = 0; i < 500 && node_->read(spec.instance, Stream::kMetrics).empty(); ++i) pause_ms(10);
  const SnapshotId snapshot = new_id<SnapshotId>();
  ASSERT_TRUE(node_->perform(TakeSnapshot{snapshot, spec.system_disk}));  // while it runs
  const VolumeId clone = new_id<VolumeId>();
  ASSERT_TRUE(node_->perform(EnsureVolume{clone, kDiskBytes, snapshot}));
  ContainerSpec heir = shell_spec(new_id<InstanceId>(), clone, "ls -A /run/anychip; cat /root/file");
  const std::string log = run(heir);
  EXPECT_EQ(log, "control\nmine\n");
  remove(spec.instance);
}

TEST_F(ContainerTest, TheWaysOutAreClosed) {
  ContainerSpec spec = new_spec(
      "try() { if why=$(\"$@\" 2>&1); then echo \"ESCAPED: $*\"; else echo \"closed: $*: $why\"; fi; }\n"
      "try sh -c 'echo 1 > /proc/sys/kernel/panic'\n"
      "try sh -c 'echo c > /proc/sysrq-trigger'\n"
      "try mount -t tmpfs none /tmp\n"
      "try mount -o remount,rw /opt/anychip\n"
      "try unshare -U true\n"
      "try unshare -m true\n"
      "try chroot / /bin/true\n"
      "try mknod /tmp/disk b 259 0\n"
      "try sh -c 'mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem'\n"
      "try sh -c 'echo x > /opt/anychip/env/marker'\n"
      "try sh -c 'echo 999999999 > /sys/fs/cgroup/memory/memory.limit_in_bytes'\n"
      "try mkdir /sys/fs/cgroup/memory/sub\n"
      "try ls " + folder_ + "/agent\n"
      "try head -c 1 /proc/kcore\n"
      "try kill -0 2\n"
      "cat /opt/anychip/env/marker; ls /dev | wc -l; cat /proc/self/status");
  const std::string log = run(spec);
  EXPECT_THAT(log, Not(HasSubstr("ESCAPED"))) << log;
  EXPECT_THAT(log, Not(HasSubstr("not found"))) << log;  // closed by the kernel, not by a missing tool
  std::printf("%s", log.substr(0, log.find("packages")).c_str());
  EXPECT_THAT(log, HasSubstr("packages\n"));  // readable, not writable
  EXPECT_THAT(log, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(log, HasSubstr("Seccomp:\t2"));
}

TEST_F(ContainerTest, TwoInstancesShareNothing) {
  ContainerSpec a = new_spec("echo secret > /root/secret; echo up; sleep 100");
  start(a);
  node_->wait_log(a.instance, "up");
  ContainerSpec b = new_spec("cat /proc/self/uid_map; ls /root; find / -name secret 2>/dev/null; ls /proc");
  const std::string log = run(b);
  EXPECT_THAT(log, Not(HasSubstr("secret")));
  EXPECT_THAT(log, ::testing::ContainsRegex("0 +265536 +65536"));  // another range of ids
  remove(a.instance);
}

// An image build copies all mounts into a namespace of its own and lives for minutes.
TEST_F(ContainerTest, AnImageBuildDoesNotKeepVolumesBusy) {
  ContainerSpec spec = new_spec("echo up; sleep 1000");
  start(spec);
  node_->wait_log(spec.instance, "up");
  const std::string script = std::string(kLetGoOfVolumes) + "echo let go; exec sleep 30";
  sys::DetachedSpec build;
  build.argv = {"unshare", "--mount", "sh", "-c", script};
  build.environment = {{"ANYCHIP_KEEP", folder_ + "/store"}};
  build.log_path = folder_ + "/build.log";
  const auto pid = sys::spawn_detached(build);
  ASSERT_TRUE(pid);
  for (int i = 0; i < 500 && sys::read_file(build.log_path).value_or("").empty(); ++i) pause_ms(10);
  const Status removed = node_->perform(RemoveContainer{spec.instance});
  EXPECT_TRUE(removed) << removed.error().to_string();
  EXPECT_TRUE(sys::is_alive(*pid));
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
}

// Any other program that copied all mounts into a private namespace, and knows nothing of us.
TEST_F(ContainerTest, AForeignMountNamespaceDoesNotKeepVolumesBusy) {
  ContainerSpec spec = new_spec("echo up; sleep 1000");
  start(spec);
  node_->wait_log(spec.instance, "up");
  sys::DetachedSpec other;
  other.argv = {"unshare", "--mount", "sh", "-c", "echo unshared; exec sleep 30"};
  other.log_path = folder_ + "/other.log";
  const auto pid = sys::spawn_detached(other);
  ASSERT_TRUE(pid);
  for (int i = 0; i < 500 && sys::read_file(other.log_path).value_or("").empty(); ++i) pause_ms(10);
  const std::string mountinfo = "/proc/" + std::to_string(*pid) + "/mountinfo";
  const std::vector<std::string> ours{NodePaths::of(folder_, "/run/anychip").instance(spec.instance).run};
  EXPECT_FALSE(mounts_below(sys::read_file(mountinfo).value(), ours).empty());
  const Status removed = node_->perform(RemoveContainer{spec.instance});
  EXPECT_TRUE(removed) << removed.error().to_string();
  EXPECT_TRUE(mounts_below(sys::read_file(mountinfo).value(), ours).empty());
  EXPECT_TRUE(sys::is_alive(*pid));
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
}

TEST_F(ContainerTest, ALostSupervisorIsSeenAndNothingRunsOn) {
  ContainerSpec spec = new_spec("echo up; sleep 1000");
  start(spec);
  node_->wait_log(spec.instance, "up");
  const auto supervisor = cgroups().processes(spec.instance, CgroupPart::kSupervisor);
  ASSERT_EQ(supervisor.size(), 1u);
  ASSERT_EQ(kill(supervisor[0], SIGKILL), 0);
  const auto seen = node_->wait_exit(spec.instance);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->phase, ContainerPhase::kExited);
  EXPECT_TRUE(seen->is_supervisor_lost);
  EXPECT_NE(seen->exit_code, 0);
  EXPECT_TRUE(cgroups().processes(spec.instance, CgroupPart::kContainer).empty());
  remove(spec.instance);
}

TEST_F(ContainerTest, ContainersOutliveTheAgentAndAreAdopted) {
  ContainerSpec spec = new_spec("for i in $(seq 1000); do echo line $i; sleep 0.01; done");
  start(spec);
  node_->wait_log(spec.instance, "line 5\n");
  const auto before = node_->seen(spec.instance);
  const std::string part = node_->runtime->read_stream(spec.instance, Stream::kLog, 0, 20).value();
  node_->close();
  pause_ms(100);
  ASSERT_TRUE(node_->open());
  const auto after = node_->seen(spec.instance);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->phase, ContainerPhase::kRunning);
  EXPECT_EQ(after->started, before->started);
  const std::string rest = node_->runtime->read_stream(spec.instance, Stream::kLog, 20, 1 << 20).value();
  EXPECT_TRUE((part + rest).starts_with("line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n"));
  node_->close();
  // It ends while nobody looks: the end is still known, with its time.
  const auto kill_now = cgroups().processes(spec.instance, CgroupPart::kContainer);
  ASSERT_FALSE(kill_now.empty());
  const MonoTime killed_at = node_->clock.mono_now();
  for (const pid_t pid : kill_now) kill(pid, SIGKILL);
  pause_ms(1500);
  ASSERT_TRUE(node_->open());
  const auto ended = node_->seen(spec.instance);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->phase, ContainerPhase::kExited);
  EXPECT_EQ(ended->exit_code, 137);
  ASSERT_TRUE(ended->ended);
  EXPECT_LT(*ended->ended - killed_at, seconds(1));
  remove(spec.instance);
}

}  // namespace
}  // namespace anychip::agent
