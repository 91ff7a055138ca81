// The switch over the Core with a hand-made node: the eight steps, the way back at each of them,
// the user changing their mind.
#include "server/core_test.h"

#include <fmt/format.h>

namespace anychip::server {
namespace {

class SwitchTest : public CoreTest {
 protected:
  void begin(const std::string& chip = "cpu") {
    ASSERT_EQ(start_run("demo", chip, {{"system_disk_bytes", 1 << 30}}).status, 201);
    ASSERT_TRUE(until_state("demo", "running"));
    train(current("demo"), 1, 40);
    rounds(2);
    old_ = json::string_at(current("demo").spec, "instance_id");
  }
  std::string switch_state() { return json::string_at(last_switch("demo"), "state"); }
  std::string step() { return json::string_at(last_switch("demo"), "step_name"); }
  bool until_step(const std::string& name) {
    return until([&] { return step() == name; });
  }
  // The device ids that are leased, with their holder: never one twice is the table's key.
  std::map<std::string, std::string> leases() {
    std::map<std::string, std::string> held;
    const json::object node = json::array_at(get("/v1/nodes").body, "items").at(0).as_object();
    for (const json::value& device : json::array_at(node, "devices")) {
      const std::string holder = json::string_at(device.as_object(), "instance_id");
      if (!holder.empty()) held[json::string_at(device.as_object(), "id")] = holder;
    }
    return held;
  }
  std::string old_;
};

TEST_F(SwitchTest, AWholeSwitch) {
  begin();
  const std::string disk = json::string_at(container(old_).spec, "system_disk");
  const std::string data = json::string_at(
      json::array_at(container(old_).spec, "volumes").at(0).as_object(), "volume_id");
  const Answer asked = post("/v1/runs/demo/switch", {{"chip", "sim-a"}});
  ASSERT_EQ(asked.status, 202) << asked.text;
  EXPECT_EQ(json::string_at(asked.body, "step_name"), "prepare");
  EXPECT_EQ(state("demo"), "switching");
  EXPECT_EQ(leases().size(), 2u);
  ASSERT_TRUE(until_step("verify"));
  Container& target = current("demo");
  EXPECT_NE(json::string_at(target.spec, "instance_id"), old_);
  EXPECT_FALSE(containers_.contains(old_) && container(old_).phase != "gone");
  EXPECT_EQ(json::array_at(target.spec, "command").at(3).as_string(), "tpu");
  const json::object environment = json::object_at(target.spec, "environment");
  EXPECT_EQ(json::string_at(environment, "FROM_BACK_END"), "tpu");
  EXPECT_EQ(json::string_at(environment, "FROM_VARIANT"), "a");
  EXPECT_EQ(json::string_at(environment, "ANYCHIP_LEG_INDEX"), "1");
  const json::object mount = json::array_at(target.spec, "volumes").at(0).as_object();
  EXPECT_EQ(json::string_at(mount, "volume_id"), data) << "the checkpoint volume moves";
  EXPECT_EQ(json::int_at(mount, "attach_generation"), 2);
  EXPECT_NE(json::string_at(target.spec, "system_disk"), disk) << "a new disk from the snapshot";
  train(target, 41, 45);
  ASSERT_TRUE(until([&] { return switch_state() == "done"; }));
  rounds(2);
  EXPECT_EQ(state("demo"), "running");
  const json::object done = last_switch("demo");
  EXPECT_EQ(json::int_at(done, "stopped_at_step"), 40);
  EXPECT_EQ(json::int_at(done, "lost_steps"), 0);
  EXPECT_EQ(json::int_at(done, "down_time_ms"), 1000);
  EXPECT_EQ(json::int_at(leg("demo", 1), "down_time_ms"), 1000);
  EXPECT_EQ(leases().size(), 1u);
  std::vector<int64_t> steps;
  for (const json::value& entry : json::array_at(done, "timeline")) {
    if (entry.as_object().at("step").is_int64())
      steps.push_back(json::int_at(entry.as_object(), "step"));
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  // Both legs are billed by their own clocks, the old one up to its stop request.
  exit(target, 0);
  ASSERT_TRUE(until_state("demo", "finished"));
  const json::object first = leg("demo", 0), second = leg("demo", 1);
  EXPECT_EQ(json::int_at(first, "cost_micros"),
            120'000 * json::int_at(first, "metered_us") / 3'600'000'000);
  EXPECT_EQ(json::int_at(second, "cost_micros"),
            8'640'000 * json::int_at(second, "metered_us") / 3'600'000'000);
  const json::object compared = get("/v1/runs/demo/compare").body;
  EXPECT_EQ(json::int_at(json::object_at(compared, "totals"), "cost_micros"),
            json::int_at(first, "cost_micros") + json::int_at(second, "cost_micros"));
  EXPECT_EQ(json::string_at(json::array_at(compared, "legs").at(1).as_object(), "backend"), "tpu");
}

TEST_F(SwitchTest, AtStepIsPassedOnAtOnceAndTheOldLegStopsByItself) {
  begin();
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}, {"at_step", 40}}).code(),
            "at_step_passed");
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}, {"at_step", 60}}).status, 202);
  ASSERT_TRUE(until_step("checkpoint"));
  rounds(4);
  EXPECT_EQ(json::int_at(container(old_).spec, "stop_at_step"), 60);
  EXPECT_EQ(json::string_at(container(old_).spec, "desired"), "run");
  train(container(old_), 41, 60);
  exit(container(old_), 75);
  ASSERT_TRUE(until_step("verify"));
  train(current("demo"), 61, 65);
  ASSERT_TRUE(until([&] { return switch_state() == "done"; }));
  EXPECT_EQ(json::int_at(last_switch("demo"), "stopped_at_step"), 60);
}

TEST_F(SwitchTest, FallsBackByItselfWhenTheLossLeavesItsBand) {
  begin();
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until_step("verify"));
  const std::string target = json::string_at(current("demo").spec, "instance_id");
  train(current("demo"), 41, 42, 3.0);
  ASSERT_TRUE(until([&] { return switch_state() == "fell_back"; }));
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_NE(json::string_at(last_switch("demo"), "reason").find("outside the old curve's band"),
            std::string::npos);
  EXPECT_EQ(json::string_at(current("demo").spec, "image"), "torch");
  EXPECT_EQ(json::string_at(leg("demo", 2), "chip"), "cpu");
  EXPECT_FALSE(containers_.contains(target));
  EXPECT_FALSE(json::bool_at(leg("demo", 1), "voided")) << "a parity cause is billed";
  EXPECT_GT(json::int_at(leg("demo", 1), "cost_micros"), 0);
  EXPECT_EQ(leases().size(), 1u);
  train(current("demo"), 41, 50);
  EXPECT_EQ(json::array_at(get("/v1/runs/demo/metrics").body, "items").size(), 50u);
}

TEST_F(SwitchTest, NotANumberFallsBackToo) {
  begin();
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until_step("verify"));
  send(current("demo"), "metrics",
       "{\"t\":1800000100.0,\"step\":41,\"loss\":NaN,\"step_s\":0.1}\n");
  ASSERT_TRUE(until([&] { return switch_state() == "fell_back"; }));
  EXPECT_EQ(json::string_at(last_switch("demo"), "reason"),
            "the loss of step 1 after the switch is not a finite number");
}

TEST_F(SwitchTest, ATargetThatDiesBeforeItsFirstStepIsVoidedAndTheOldChipGoesOn) {
  begin();
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until_step("verify"));
  rounds(3);
  exit(current("demo"), 134);
  ASSERT_TRUE(until([&] { return switch_state() == "fell_back"; }));
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_EQ(json::string_at(last_switch("demo"), "reason"),
            "the leg on sim-a failed: it was killed by signal 6");
  EXPECT_TRUE(json::bool_at(leg("demo", 1), "voided"));
  EXPECT_EQ(json::int_at(leg("demo", 1), "cost_micros"), 0);
  EXPECT_GT(json::int_at(leg("demo", 1), "metered_us"), 0);
}

TEST_F(SwitchTest, AnImageThatCannotBeMadeReadyNeverTouchesTheOldLeg) {
  begin();
  images_failing_.insert("sim-a");
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until([&] { return switch_state() == "failed"; }));
  rounds(3);
  EXPECT_EQ(state("demo"), "running");
  EXPECT_EQ(json::string_at(container(old_).spec, "desired"), "run");
  EXPECT_EQ(legs("demo").size(), 1u);
  EXPECT_EQ(leases().size(), 1u);
}

TEST_F(SwitchTest, ASnapshotThatFailsGoesBackToTheOldDisks) {
  begin();
  snapshots_failing_.insert("all");
  const std::string disk = json::string_at(container(old_).spec, "system_disk");
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until([&] { return switch_state() == "fell_back"; }));
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_EQ(json::string_at(last_switch("demo"), "reason"), "the snapshot failed: EIO");
  EXPECT_EQ(json::string_at(current("demo").spec, "system_disk"), disk);
  EXPECT_EQ(legs("demo").size(), 2u);
}

TEST_F(SwitchTest, PastTheGraceTheLastPeriodicCheckpointCountsAndLostStepsAreTold) {
  begin();
  send(container(old_), "metrics", "{\"event\":\"checkpoint\",\"step\":30}\n");
  obeys_stop_ = false;
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until_step("checkpoint"));
  rounds(2);
  exit(container(old_), 137);  // the agent killed it past the grace
  ASSERT_TRUE(until_step("verify"));
  train(current("demo"), 31, 36);
  ASSERT_TRUE(until([&] { return switch_state() == "done"; }));
  EXPECT_EQ(json::int_at(last_switch("demo"), "lost_steps"), 10);
}

TEST_F(SwitchTest, AnOldLegThatNeverAnswersIsRemovedByForce) {
  begin();
  obeys_stop_ = false;
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until_step("checkpoint"));
  for (int i = 0; i < 160 && step() == "checkpoint"; ++i) round(seconds(1));
  EXPECT_TRUE(until_step("verify"));
}

TEST_F(SwitchTest, ARunThatEndsFirstRefusesTheSwitch) {
  begin();
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}, {"at_step", 100}}).status, 202);
  ASSERT_TRUE(until_step("checkpoint"));
  exit(container(old_), 0);
  ASSERT_TRUE(until_state("demo", "finished"));
  EXPECT_EQ(switch_state(), "refused");
  rounds(4);
  EXPECT_EQ(leases().size(), 0u);
}

TEST_F(SwitchTest, CancelBeforeTheCheckpointLeavesTheOldLegAlone) {
  begin();
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}, {"at_step", 100}}).status, 202);
  ASSERT_TRUE(until_step("checkpoint"));
  const std::string id = json::string_at(last_switch("demo"), "id");
  const Answer cancelled = post("/v1/runs/demo/switches/" + id + "/cancel");
  ASSERT_EQ(cancelled.status, 200) << cancelled.text;
  EXPECT_EQ(json::string_at(cancelled.body, "state"), "cancelled");
  rounds(3);
  EXPECT_EQ(state("demo"), "running");
  EXPECT_TRUE(container(old_).spec.at("stop_at_step").is_null());
  EXPECT_EQ(post("/v1/runs/demo/switches/" + id + "/cancel").code(), "switch_not_active");
  EXPECT_EQ(leases().size(), 1u);
}

TEST_F(SwitchTest, CancelAfterTheMoveGoesBackToTheOldChip) {
  begin();
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until_step("verify"));
  const std::string id = json::string_at(last_switch("demo"), "id");
  ASSERT_EQ(post("/v1/runs/demo/switches/" + id + "/cancel").status, 200);
  ASSERT_TRUE(until([&] { return switch_state() == "cancelled"; }));
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_EQ(json::string_at(run("demo"), "chip"), "cpu");
}

TEST_F(SwitchTest, StoppingTheRunInEachStepEndsBoth) {
  for (const std::string wanted : {"prepare", "checkpoint", "inherit", "resume", "verify"}) {
    const std::string name = "run-" + wanted;
    ASSERT_EQ(start_run(name).status, 201);
    ASSERT_TRUE(until_state(name, "running"));
    train(current(name), 1, 30);
    obeys_stop_ = wanted != "checkpoint";
    ASSERT_EQ(post("/v1/runs/" + name + "/switch", {{"chip", "sim-a"}}).status, 202);
    const auto at = [&] { return json::string_at(last_switch(name), "step_name"); };
    for (int i = 0; i < 40 && at() != wanted; ++i) round();
    EXPECT_EQ(at(), wanted);
    ASSERT_EQ(post("/v1/runs/" + name + "/stop").status, 200);
    obeys_stop_ = true;
    EXPECT_EQ(json::string_at(last_switch(name), "state"), "cancelled") << wanted;
    ASSERT_TRUE(until_state(name, "stopped")) << wanted << " " << state(name);
    rounds(4);
    EXPECT_EQ(leases().size(), 0u) << wanted;
    EXPECT_TRUE(json::array_at(desired(), "instances").empty()) << wanted;
  }
}

TEST_F(SwitchTest, SurvivesANodeThatIsAwayInTheMiddle) {
  begin();
  ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-a"}}).status, 202);
  ASSERT_TRUE(until_step("checkpoint"));
  is_answering_ = false;
  for (int i = 0; i < 400; ++i) round(seconds(1));  // beyond every limit of the steps
  EXPECT_EQ(state("demo"), "lost");
  EXPECT_EQ(switch_state(), "active");
  is_answering_ = true;
  ASSERT_TRUE(until_step("verify"));
  train(current("demo"), 41, 46);
  EXPECT_TRUE(until([&] { return switch_state() == "done"; }));
}

TEST_F(SwitchTest, ForthAndBackAndOnAgain) {
  begin();
  int64_t next = 41;
  for (const std::string chip : {"sim-a", "sim-b", "cpu"}) {
    ASSERT_EQ(post("/v1/runs/demo/switch", {{"chip", chip}}).status, 202);
    const size_t before = legs("demo").size();
    ASSERT_TRUE(until([&] { return legs("demo").size() == before + 1 && step() == "verify"; }));
    train(current("demo"), next, next + 9);
    next += 10;
    ASSERT_TRUE(until([&] { return switch_state() == "done"; }));
    rounds(3);
  }
  EXPECT_EQ(json::string_at(run("demo"), "chip"), "cpu");
  EXPECT_EQ(json::array_at(get("/v1/runs/demo/metrics").body, "items").size(), 70u);
  EXPECT_EQ(leases().size(), 1u);
}

}  // namespace
}  // namespace anychip::server
