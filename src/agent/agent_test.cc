#include "agent/agent.h"

#include <csignal>

#include <gtest/gtest.h>

#include "agent/test_fakes.h"
#include "base/hash.h"

namespace anychip::agent {
namespace {

using testing::FakeClock;
using testing::FakeFiles;
using testing::FakeLink;
using testing::FakeRuntime;

constexpr std::string_view kPoll = "/agent/v1/desired";
constexpr std::string_view kReport = "/agent/v1/report";
constexpr std::string_view kStreams = "/agent/v1/streams";

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    files.identity = R"({"node_id":"nod_1","node_key":"key"})";
    restart();
  }
  void restart() {
    agent = Agent::create({runtime, link, files, clock, random},
                          {.node_name = "n", .join_token = "join", .boot_id = "boot"});
    link.sent.clear();
    link.replies.clear();
  }
  void pass(Duration time) {
    for (int64_t left = time.us; left > 0; left -= 100'000) {
      clock.now = clock.now + milliseconds(100);
      agent->tick();
    }
  }
  // One instance `ins_1` of leg `leg_1` with a system disk and a checkpoint volume.
  static std::string instance(const std::string& want, const std::string& more = "") {
    return R"({"instance_id":"ins_1","generation":1,"run_id":"run_1","leg_id":"leg_1","desired":")" +
           want + R"(","image":"pytorch","variant":"cpu","digest":"d","command":["python"],)" +
           R"("environment":{},"cwd":"/workspace","workdir_digest":null,"system_disk":"vol_s",)" +
           R"("volumes":[{"volume_id":"vol_c","path":"/checkpoints","attach_generation":1,)" +
           R"("read_only":false}],"memory_bytes":0,"cpu_millis":0,"pids_max":100,)" +
           R"("device_ids":["cpu-0"],"stop_grace_ms":10000)" + more + "}";
  }
  static std::string desired(int version, const std::string& instances,
                             const std::string& state = "present") {
    return R"({"version":)" + std::to_string(version) +
           R"(,"node_id":"nod_1","images":[{"image":"pytorch","variant":"cpu","digest":"d"}],)" +
           R"("volumes":[{"volume_id":"vol_s","size_bytes":1,"from_snapshot":null,"desired":")" +
           state + R"("},{"volume_id":"vol_c","size_bytes":1,"from_snapshot":null,"desired":")" +
           state + R"("}],"snapshots":[],"instances":[)" + instances + "]}";
  }
  void want(const std::string& text) {
    agent->tick();
    ASSERT_TRUE(link.answer(kPoll, 200, text));
    agent->tick();
  }
  void make_ready() {
    runtime.seen.images = {{"pytorch", "cpu", "d", true, 100, ""}};
    runtime.seen.volumes = {{VolumeId{"vol_s"}, 1, 0, {}, 0}, {VolumeId{"vol_c"}, 1, 0, {}, 0}};
  }
  void make_running() {
    make_ready();
    ContainerSeen seen;
    seen.instance = InstanceId{"ins_1"};
    seen.generation = 1;
    seen.phase = ContainerPhase::kRunning;
    seen.started = clock.now;
    runtime.seen.containers = {seen};
  }
  void make_exited(int exit_code) {
    ContainerSeen& seen = runtime.seen.containers.at(0);
    seen.phase = ContainerPhase::kExited;
    seen.exit_code = exit_code;
    seen.ended = clock.now;
  }
  // What a report made from now on says of ins_1.
  json::object reported() {
    link.answer(kReport, 200, R"({"version":0})");  // one under way says what was before
    pass(milliseconds(1100));
    FakeLink::Sent* sent = link.find(kReport);
    if (sent == nullptr) return {};
    const json::value root = *json::parse(sent->request.body);
    link.answer(kReport, 200, R"({"version":0})");
    for (const json::value& one : json::array_at(root.get_object(), "instances")) {
      if (json::string_at(one.get_object(), "instance_id") == "ins_1") return one.get_object();
    }
    return {};
  }
  std::string phase() {
    return json::string_at(reported(), "phase");
  }

  FakeClock clock;
  FakeRuntime runtime;
  FakeLink link;
  FakeFiles files;
  SeededRandom random{1};
  std::unique_ptr<Agent> agent;
};

TEST_F(AgentTest, EnrolsAndKeepsTheIdentity) {
  files.identity.clear();
  restart();
  agent->tick();
  ASSERT_NE(link.find("/agent/v1/enrol"), nullptr);
  EXPECT_NE(link.sent[0].request.body.find("\"join_token\":\"join\""), std::string::npos);
  link.lose("/agent/v1/enrol");
  agent->tick();
  EXPECT_TRUE(link.sent.empty()) << "no pause after a failure";
  pass(seconds(1));
  ASSERT_TRUE(link.answer("/agent/v1/enrol", 200, R"({"node_id":"nod_7","node_key":"secret"})"));
  agent->tick();
  EXPECT_NE(files.identity.find("nod_7"), std::string::npos);
  ASSERT_NE(link.find(kPoll), nullptr);
  EXPECT_EQ(net::header(link.find(kPoll)->request.headers, "authorization"), "Bearer secret");
}

TEST_F(AgentTest, EnrolsAgainWhenTheKeyIsRefused) {
  agent->tick();
  ASSERT_TRUE(link.answer(kPoll, 401));
  agent->tick();
  EXPECT_NE(link.find("/agent/v1/enrol"), nullptr);
}

TEST_F(AgentTest, PausesGrowWhileTheServerIsAway) {
  int polls = 0;
  for (int i = 0; i < 36000; ++i) {  // an hour
    clock.now = clock.now + milliseconds(100);
    agent->tick();
    while (link.lose(kPoll)) ++polls;
    while (link.lose(kReport)) {
    }
    ASSERT_LE(link.sent.size(), 4u);
  }
  EXPECT_LT(polls, 600);
  EXPECT_GT(polls, 200) << "it must come back within the cap";
}

TEST_F(AgentTest, ImageThenVolumesThenStart) {
  want(desired(1, instance("run")));
  EXPECT_EQ(runtime.count<EnsureImage>(), 1u);
  EXPECT_EQ(runtime.count<EnsureVolume>(), 2u);
  EXPECT_EQ(runtime.count<StartContainer>(), 0u);
  EXPECT_EQ(phase(), "preparing");
  while (!runtime.begun.empty()) runtime.finish();
  make_ready();
  agent->tick();
  ASSERT_EQ(runtime.count<StartContainer>(), 1u);
  pass(seconds(5));
  EXPECT_EQ(runtime.begun.size(), 1u) << "one operation per object at a time";
  const ContainerSpec spec = std::get<StartContainer>(runtime.finish()).spec;
  EXPECT_EQ(spec.device_ids, std::vector<std::string>{"cpu-0"});
  EXPECT_EQ(spec.volumes.at(0).path, "/checkpoints");
  make_running();
  EXPECT_EQ(phase(), "running");
  EXPECT_TRUE(runtime.begun.empty());
}

TEST_F(AgentTest, NeverStartedAgainAfterItsExitOrDisappearance) {
  make_running();
  want(desired(1, instance("run")));
  make_exited(75);
  EXPECT_EQ(phase(), "exited");
  restart();
  runtime.seen.containers.clear();  // gone without our doing
  want(desired(2, instance("run")));
  EXPECT_EQ(phase(), "exited");
  EXPECT_EQ(json::int_at(reported(), "exit_code"), 75);
  EXPECT_TRUE(runtime.begun.empty());
}

TEST_F(AgentTest, WaitsWhileAVolumeIsAttachedElsewhere) {
  make_ready();
  runtime.seen.volumes[1].attached_to = InstanceId{"ins_0"};
  want(desired(1, instance("run")));
  pass(seconds(2));
  EXPECT_EQ(runtime.count<StartContainer>(), 0u);
  const json::object seen = reported();
  EXPECT_EQ(json::string_at(json::object_at(seen, "error"), "reason"), "volume_in_use");
  runtime.seen.volumes[1].attached_to = {};
  agent->tick();
  EXPECT_EQ(runtime.count<StartContainer>(), 1u);
}

TEST_F(AgentTest, StartIsTriedThreeTimesThenFailed) {
  make_ready();
  want(desired(1, instance("run")));
  for (int i = 0; i < 3; ++i) {
    pass(seconds(5));
    ASSERT_EQ(runtime.count<StartContainer>(), 1u) << i;
    runtime.finish(fail(Code::kInternal, "runc_failed", "no"));
  }
  pass(seconds(120));
  EXPECT_EQ(runtime.count<StartContainer>(), 0u);
  const json::object seen = reported();
  EXPECT_EQ(json::string_at(seen, "phase"), "failed");
  EXPECT_EQ(json::string_at(json::object_at(seen, "error"), "reason"), "runc_failed");
  restart();
  want(desired(1, instance("run")));
  EXPECT_TRUE(runtime.begun.empty()) << "given up stays given up over a restart";
}

TEST_F(AgentTest, PermanentFailureIsReportedAtOnce) {
  want(desired(1, instance("run")));
  while (!runtime.begun.empty()) {
    const bool is_image = std::holds_alternative<EnsureImage>(runtime.begun.front().operation);
    runtime.finish(is_image ? Status(fail(Code::kFailedPrecondition, "image_digest_mismatch", "no"))
                            : Status{});
  }
  make_ready();
  runtime.seen.images.clear();
  agent->tick();
  EXPECT_EQ(phase(), "failed");
}

TEST_F(AgentTest, StopIsOneTermThenKillAfterTheGrace) {
  make_running();
  want(desired(1, instance("run")));
  pass(seconds(3));
  link.answer(kPoll, 200, desired(2, instance("stop")));
  agent->tick();
  pass(seconds(1));
  ASSERT_EQ(runtime.signals.size(), 1u);
  EXPECT_EQ(runtime.signals[0].second, SIGTERM);
  restart();  // the grace goes on from when stop was first seen
  want(desired(2, instance("stop")));
  pass(seconds(8));
  EXPECT_EQ(runtime.signals.size(), 1u) << "a second SIGTERM after the restart";
  const json::object seen = reported();
  EXPECT_NEAR(static_cast<double>(json::int_at(seen, "stop_seen_ran_us")), 3.0e6, 2e5);
  pass(seconds(2));
  ASSERT_GE(runtime.signals.size(), 2u);
  EXPECT_EQ(runtime.signals[1].second, SIGKILL);
  make_exited(137);
  const size_t count = runtime.signals.size();
  EXPECT_EQ(phase(), "exited");
  EXPECT_EQ(runtime.signals.size(), count);
  EXPECT_TRUE(runtime.begun.empty()) << "disks and container stay";
}

TEST_F(AgentTest, StopBeforeStartStartsNothing) {
  want(desired(1, instance("stop")));
  EXPECT_EQ(runtime.count<StartContainer>(), 0u);
  const json::object seen = reported();
  EXPECT_EQ(json::string_at(seen, "phase"), "failed");
  EXPECT_EQ(json::string_at(json::object_at(seen, "error"), "reason"), "stopped_before_start");
}

TEST_F(AgentTest, GoneKeepsTheLastNumbersAndIsSaidUntilDropped) {
  make_running();
  want(desired(1, instance("run")));
  pass(seconds(4));
  link.answer(kPoll, 200, desired(2, instance("gone")));
  agent->tick();
  ASSERT_EQ(runtime.signals.size(), 1u);
  EXPECT_EQ(runtime.signals[0].second, SIGKILL);
  EXPECT_EQ(runtime.count<RemoveContainer>(), 0u);
  make_exited(137);
  const int64_t ran_us = (clock.now - runtime.seen.containers[0].started).us;
  agent->tick();
  agent->tick();
  ASSERT_EQ(runtime.count<RemoveContainer>(), 1u);
  runtime.finish();
  runtime.seen.containers.clear();
  EXPECT_EQ(phase(), "gone");
  restart();
  want(desired(2, instance("gone")));
  const json::object seen = reported();
  EXPECT_EQ(json::string_at(seen, "phase"), "gone");
  EXPECT_EQ(json::int_at(seen, "ran_us"), ran_us);
  EXPECT_TRUE(runtime.begun.empty());
  // Dropped by the server: its log may go now, and then it is not reported any more.
  link.answer(kPoll, 200, desired(3, ""));
  pass(milliseconds(500));
  ASSERT_EQ(runtime.count<ForgetInstance>(), 1u);
  runtime.finish();
  pass(milliseconds(500));
  EXPECT_TRUE(reported().empty());
}

TEST_F(AgentTest, RemovesAContainerThatHangsEvenWithoutAnExitCode) {
  make_running();
  want(desired(1, instance("gone")));
  pass(seconds(4));
  EXPECT_EQ(runtime.count<RemoveContainer>(), 0u);
  pass(seconds(3));
  EXPECT_EQ(runtime.count<RemoveContainer>(), 1u);
}

TEST_F(AgentTest, OrphansGoOnlyWithANewEnoughDesiredOfThisServer) {
  make_running();
  want(desired(5, instance("run")));
  restart();
  pass(seconds(3));
  EXPECT_TRUE(runtime.signals.empty()) << "nothing is known yet";
  want(desired(4, ""));  // older than the one that named it
  pass(seconds(2));
  EXPECT_TRUE(runtime.signals.empty());
  std::string other = desired(6, "");
  other.replace(other.find("nod_1"), 5, "nod_9");
  link.answer(kPoll, 200, other);
  pass(seconds(2));
  EXPECT_TRUE(runtime.signals.empty());
  link.answer(kPoll, 200, desired(6, ""));
  pass(seconds(2));
  ASSERT_FALSE(runtime.signals.empty());
  EXPECT_EQ(runtime.signals[0].second, SIGKILL);
}

TEST_F(AgentTest, VolumesGoWhenFreeAndUnknownOnesAreLeftAlone) {
  make_ready();
  runtime.seen.volumes[0].attached_to = InstanceId{"ins_0"};
  runtime.seen.volumes.push_back({VolumeId{"vol_x"}, 1, 0, {}, 0});
  want(desired(1, "", "gone"));
  ASSERT_EQ(runtime.count<RemoveVolume>(), 1u);
  EXPECT_EQ(std::get<RemoveVolume>(runtime.finish()).volume.text, "vol_c");
  runtime.seen.volumes.erase(runtime.seen.volumes.begin() + 1);
  pass(seconds(2));
  EXPECT_EQ(runtime.count<RemoveVolume>(), 0u);
  runtime.seen.volumes[0].attached_to = {};
  agent->tick();
  EXPECT_EQ(runtime.count<RemoveVolume>(), 1u);
}

TEST_F(AgentTest, StopAtStepGoesIntoControlAndIsTakenBack) {
  make_running();
  want(desired(1, instance("run", R"(,"stop_at_step":500)")));
  pass(seconds(1));
  ASSERT_EQ(runtime.controls.size(), 1u);
  EXPECT_EQ(runtime.controls[0].second, R"({"stop_at_step":500})");
  link.answer(kPoll, 200, desired(2, instance("run", R"(,"stop_at_step":null)")));
  pass(seconds(1));
  ASSERT_EQ(runtime.controls.size(), 2u);
  EXPECT_EQ(runtime.controls[1].second, "{}");
}

TEST_F(AgentTest, FetchesTheWorkdirFirstAndRefusesADamagedOne) {
  make_ready();
  const std::string digest = sha256_hex("tar");
  std::string text = desired(1, instance("prepare"));
  text.replace(text.find("\"workdir_digest\":null"), 21, "\"workdir_digest\":\"" + digest + "\"");
  want(text);
  ASSERT_NE(link.find("/agent/v1/workdirs/"), nullptr);
  link.answer("/agent/v1/workdirs/", 200, "tampered");
  EXPECT_EQ(phase(), "preparing");
  EXPECT_TRUE(files.workdirs.empty());
  pass(seconds(2));
  ASSERT_TRUE(link.answer("/agent/v1/workdirs/", 200, "tar"));
  EXPECT_EQ(phase(), "prepared");
  EXPECT_TRUE(files.workdirs.contains(digest));
  EXPECT_TRUE(runtime.begun.empty()) << "prepare starts nothing";
}

TEST_F(AgentTest, ReportsAtOnceOnChangesAndWithGrowingSequence) {
  make_running();
  want(desired(1, instance("run")));
  pass(seconds(3));
  const json::value first = *json::parse(link.find(kReport)->request.body);
  link.answer(kReport, 200, R"({"version":1})");
  agent->tick();
  agent->tick();
  link.answer(kReport, 200, R"({"version":1})");
  agent->tick();
  EXPECT_EQ(link.find(kReport), nullptr) << "nothing changed within the second";
  make_exited(0);
  agent->tick();
  ASSERT_NE(link.find(kReport), nullptr);
  const json::value second = *json::parse(link.find(kReport)->request.body);
  restart();
  clock.now = clock.now + milliseconds(1);
  agent->tick();
  const json::value third = *json::parse(link.find(kReport)->request.body);
  EXPECT_LT(json::int_at(first.get_object(), "sequence"), json::int_at(second.get_object(), "sequence"));
  EXPECT_LT(json::int_at(second.get_object(), "sequence"), json::int_at(third.get_object(), "sequence"));
}

TEST_F(AgentTest, AVersionSeenInTheReportsAnswerIsFetchedWhenThePollWasLost) {
  want(desired(1, ""));
  pass(seconds(3));
  ASSERT_NE(link.find(kPoll), nullptr);
  const int64_t lost = link.find(kPoll)->id;
  while (link.answer(kReport, 200, R"({"version":2})")) agent->tick();
  bool is_polled_again = false;
  for (const FakeLink::Sent& sent : link.sent) {
    is_polled_again = is_polled_again || (sent.id != lost && sent.request.target ==
                                          "/agent/v1/desired?after=1&wait_s=0");
  }
  EXPECT_TRUE(is_polled_again);
}

TEST_F(AgentTest, LogsGoByAckedOffsetsAndGoOnAfterARestart) {
  make_running();
  runtime.streams[{"ins_1", Stream::kLog}] = "one\ntwo\nthr";
  want(desired(1, instance("run")));
  agent->tick();
  FakeLink::Sent* sent = link.find(kStreams);
  ASSERT_NE(sent, nullptr);
  EXPECT_NE(sent->request.body.find(R"("offset":0,"data":"one\ntwo\n")"), std::string::npos);
  restart();  // the ack got lost; the server has 8 bytes
  runtime.streams[{"ins_1", Stream::kLog}] += "ee\nrest";
  agent->tick();
  ASSERT_TRUE(link.answer(kStreams, 200, R"({"acked":[{"leg_id":"leg_1","stream":"log","offset":8}]})"));
  agent->tick();
  ASSERT_NE(link.find(kStreams), nullptr);
  EXPECT_NE(link.find(kStreams)->request.body.find(R"("offset":8,"data":"three\n")"), std::string::npos);
  make_exited(0);
  ASSERT_TRUE(link.answer(kStreams, 200, R"({"acked":[{"leg_id":"leg_1","stream":"log","offset":14}]})"));
  agent->tick();
  ASSERT_NE(link.find(kStreams), nullptr) << "after the exit the line without an end goes too";
  EXPECT_NE(link.find(kStreams)->request.body.find(R"("offset":14,"data":"rest")"), std::string::npos);
  ASSERT_TRUE(link.answer(kStreams, 200, R"({"acked":[{"leg_id":"leg_1","stream":"log","offset":18}]})"));
  want(desired(2, instance("run")));
  EXPECT_TRUE(json::bool_at(reported(), "streams_complete"));
}

}  // namespace
}  // namespace anychip::agent
