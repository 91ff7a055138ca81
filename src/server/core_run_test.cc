// A run from POST to its bill, over the Core with a hand-made node: what it costs to the
// micro-yuan, what a crash, a vanished chip, a silent node and an empty wallet do to it.
#include "server/core_test.h"

#include <fmt/format.h>

#include "base/money.h"

namespace anychip::server {
namespace {

class RunTest : public CoreTest {};

TEST_F(RunTest, FromQueuedToFinishedAndBilledToTheMicroYuan) {
  const Answer made = start_run("demo");
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_EQ(json::string_at(made.body, "state"), "queued");
  ASSERT_TRUE(until_state("demo", "running"));
  const std::string backend =
      json::string_at(json::object_at(current("demo").spec, "environment"), "ANYCHIP_BACKEND");
  EXPECT_EQ(backend, "cpu");
  EXPECT_EQ(json::array_at(current("demo").spec, "command").at(3).as_string(), "cpu");
  train(current("demo"), 1, 40);
  rounds(20);
  exit(current("demo"), 0);
  current("demo").ran_us = 12'345'678;
  ASSERT_TRUE(until_state("demo", "finished"));
  const json::object first = leg("demo", 0);
  EXPECT_EQ(json::int_at(first, "metered_us"), 12'345'678);
  EXPECT_EQ(json::int_at(first, "cost_micros"), 120'000LL * 12'345'678 / 3'600'000'000);
  EXPECT_EQ(json::int_at(run("demo"), "cost_micros"), 411);
  EXPECT_EQ(balance(), 10'000'000 - 411);
  EXPECT_EQ(json::int_at(first, "first_step"), 1);
  EXPECT_EQ(json::int_at(first, "last_step"), 40);
  EXPECT_DOUBLE_EQ(json::number_at(first, "steps_per_second"), 4.0);
  EXPECT_EQ(json::int_at(first, "peak_memory_bytes"), 2000);
  EXPECT_EQ(json::string_at(first, "memory_source"), "process");
  rounds(3);
  EXPECT_TRUE(json::array_at(desired(), "instances").empty()) << "proved gone, so dropped";
  const json::object offers = get("/v1/offers").body;
  for (const json::value& offer : json::array_at(offers, "items")) {
    EXPECT_EQ(json::int_at(offer.as_object(), "count_free"),
              json::int_at(offer.as_object(), "count_total"));
  }
}

TEST_F(RunTest, CostNeverFallsWhileItRuns) {
  ASSERT_EQ(start_run("demo", "sim-a").status, 201);
  int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    round();
    const int64_t cost = json::int_at(run("demo"), "cost_micros");
    EXPECT_GE(cost, last);
    last = cost;
  }
  EXPECT_GT(last, 0);
  train(current("demo"), 1, 2);
  ASSERT_EQ(post("/v1/runs/demo/stop").status, 200);
  for (int i = 0; i < 5; ++i) {
    round();
    EXPECT_GE(json::int_at(run("demo"), "cost_micros"), last);
  }
}

TEST_F(RunTest, BillingEndsAtTheStopRequest) {
  ASSERT_EQ(start_run("demo", "sim-a").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  train(current("demo"), 1, 5);
  rounds(4);
  obeys_stop_ = false;
  const int64_t ran_at_request = current("demo").ran_us;
  ASSERT_EQ(post("/v1/runs/demo/stop").status, 200);
  EXPECT_EQ(state("demo"), "stopping");
  rounds(20);  // ten more seconds to write its checkpoint: not billed
  exit(current("demo"), 75);
  ASSERT_TRUE(until_state("demo", "stopped"));
  EXPECT_EQ(json::int_at(leg("demo", 0), "metered_us"), ran_at_request);
  EXPECT_NE(json::string_at(run("demo"), "state_reason").find("with a checkpoint"),
            std::string::npos);
}

TEST_F(RunTest, StopIsBilledByTheServersWordWhenTheNodeHearsItLate) {
  ASSERT_EQ(start_run("demo", "sim-a").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  train(current("demo"), 1, 5);
  rounds(2);
  const int64_t ran = current("demo").ran_us;
  is_answering_ = false;  // the agent is away for ten seconds; its container goes on
  round(seconds(2));
  ASSERT_EQ(post("/v1/runs/demo/stop").status, 200);
  round(seconds(8));
  is_answering_ = true;
  ASSERT_TRUE(until_state("demo", "stopped"));
  EXPECT_EQ(json::int_at(leg("demo", 0), "metered_us"), ran + 2'000'000);
}

TEST_F(RunTest, CrashRestartsOnTheSameDisksThenGivesUpInOneSentence) {
  ASSERT_EQ(start_run("demo", "cpu", {{"restarts_max", 2}}).status, 201);
  std::string checkpoint;
  for (int crash = 0; crash < 3; ++crash) {
    ASSERT_TRUE(until_state("demo", "running"));
    const json::object volume = json::array_at(current("demo").spec, "volumes").at(0).as_object();
    if (crash == 0) checkpoint = json::string_at(volume, "volume_id");
    EXPECT_EQ(json::string_at(volume, "volume_id"), checkpoint);
    EXPECT_EQ(json::int_at(volume, "attach_generation"), crash + 1);
    train(current("demo"), crash * 10 + 1, crash * 10 + 8);
    round();
    exit(current("demo"), 1);
    round();
  }
  ASSERT_TRUE(until_state("demo", "failed"));
  EXPECT_EQ(json::int_at(run("demo"), "restarts"), 2);
  EXPECT_EQ(legs("demo").size(), 3u);
  EXPECT_EQ(json::string_at(run("demo"), "state_reason"),
            "it ended with exit code 1; it was restarted 2 times already");
}

TEST_F(RunTest, OutOfMemoryIsToldApart) {
  ASSERT_EQ(start_run("demo", "cpu", {{"restarts_max", 0}}).status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  train(current("demo"), 1, 3);
  current("demo").is_oom = true;
  exit(current("demo"), 137);
  ASSERT_TRUE(until_state("demo", "failed"));
  EXPECT_EQ(json::string_at(run("demo"), "state_reason").find("it ran out of memory"), 0u);
}

TEST_F(RunTest, AnErrorBeforeTheFirstStepIsNotTriedAgain) {
  ASSERT_EQ(start_run("demo").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  round();
  send(current("demo"), "metrics",
       "{\"event\":\"error\",\"reason\":\"checkpoint_foreign\",\"message\":\"the checkpoint was "
       "made "
       "with another --seed\"}\n");
  exit(current("demo"), 1);
  ASSERT_TRUE(until_state("demo", "failed"));
  EXPECT_EQ(json::int_at(run("demo"), "restarts"), 0);
  EXPECT_EQ(json::string_at(run("demo"), "state_reason"),
            "the checkpoint was made with another --seed (exit code 1)");
  EXPECT_FALSE(json::bool_at(leg("demo", 0), "voided"))
      << "a script of its own fault is billed for what it ran";
}

TEST_F(RunTest, LostSupervisorAndVanishedChipRestartOnAnEqualFreeDevice) {
  ASSERT_EQ(start_run("demo", "sim-a").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  train(current("demo"), 1, 8);
  round();
  current("demo").is_supervisor_lost = true;
  exit(current("demo"), 0);
  ASSERT_TRUE(until([&] { return legs("demo").size() == 2; }));
  ASSERT_TRUE(until_state("demo", "running"));
  train(current("demo"), 5, 12);
  const std::string device =
      std::string(json::array_at(current("demo").spec, "device_ids").at(0).as_string());
  lost_devices_.insert(device);
  ASSERT_TRUE(until([&] { return legs("demo").size() == 3; }));
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_NE(json::array_at(current("demo").spec, "device_ids").at(0).as_string(), device);
  EXPECT_EQ(json::string_at(leg("demo", 1), "end_reason"), "device " + device + " is gone");
  // The curve: a repeated step is the last leg's.
  const json::array curve = json::array_at(get("/v1/runs/demo/metrics").body, "items");
  ASSERT_EQ(curve.size(), 12u);
  EXPECT_EQ(json::int_at(curve.at(3).as_object(), "leg_index"), 0);
  EXPECT_EQ(json::int_at(curve.at(4).as_object(), "leg_index"), 1);
}

TEST_F(RunTest, ExitSeventyFiveUnaskedIsAStopWithCheckpointAndStopAtStepSaysSo) {
  ASSERT_EQ(start_run("demo", "cpu", {{"stop_at_step", 9}}).status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_EQ(json::int_at(current("demo").spec, "stop_at_step"), 9);
  exit(current("demo"), 75);
  ASSERT_TRUE(until_state("demo", "stopped"));
  EXPECT_EQ(json::string_at(run("demo"), "state_reason"), "stopped at step 9 as asked");
}

TEST_F(RunTest, ASilentNodeMakesTheRunLostBillingStandsAndItIsAdoptedWhenItReturns) {
  ASSERT_EQ(start_run("demo", "sim-a").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  train(current("demo"), 1, 5);
  rounds(4);
  const std::string instance = json::string_at(current("demo").spec, "instance_id");
  const int64_t proved = current("demo").ran_us;
  is_answering_ = false;
  for (int i = 0; i < 80; ++i) round(seconds(1));
  EXPECT_EQ(state("demo"), "lost");
  EXPECT_EQ(json::int_at(leg("demo", 0), "metered_us"), proved);
  EXPECT_EQ(
      json::string_at(json::array_at(get("/v1/nodes").body, "items").at(0).as_object(), "state"),
      "lost");
  EXPECT_EQ(post("/v1/runs/demo/switch", {{"chip", "sim-b"}}).code(), "node_lost");
  is_answering_ = true;
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_EQ(json::string_at(current("demo").spec, "instance_id"), instance);
  EXPECT_EQ(json::int_at(current("demo").spec, "generation"), 1);
  EXPECT_EQ(legs("demo").size(), 1u);
  EXPECT_EQ(json::int_at(leg("demo", 0), "metered_us"), container(instance).ran_us)
      << "the proof came late: the container had gone on";
}

TEST_F(RunTest, WithTheAgentAwayAStartWaitsAndGoesOnWhenItReturns) {
  is_answering_ = false;
  for (int i = 0; i < 40; ++i) round(seconds(1));
  ASSERT_EQ(start_run("demo").status, 201);
  round();
  EXPECT_EQ(state("demo"), "queued");
  EXPECT_EQ(json::string_at(run("demo"), "state_reason"), "waiting for its node to report");
  is_answering_ = true;
  EXPECT_TRUE(until_state("demo", "running"));
}

TEST_F(RunTest, AnEmptyWalletStopsTheRunWithACheckpointAndTheFloorHolds) {
  ASSERT_EQ(start_run("demo", "sim-a", {{"count", 2}}).status, 201);  // ¥17.28 an hour
  ASSERT_TRUE(until_state("demo", "running"));
  train(current("demo"), 1, 5);
  for (int i = 0; i < 2200 && state("demo") == "running"; ++i) round(seconds(1));
  ASSERT_TRUE(until_state("demo", "stopped"));
  EXPECT_EQ(json::string_at(run("demo"), "state_reason"),
            "the balance is used up, with a checkpoint");
  EXPECT_GE(10'000'000 - json::int_at(run("demo"), "cost_micros"), 0) << "never below zero";
  EXPECT_LT(balance(), 20'000);
  rounds(4);
  const Answer refused = start_run("more", "sim-a");
  EXPECT_EQ(refused.status, 402);
  EXPECT_EQ(refused.code(), "funds_insufficient");
}

TEST_F(RunTest, DeletingAnEndedRunFreesItsNameAndDisksButNotWhatItCost) {
  ASSERT_EQ(start_run("demo").status, 201);
  ASSERT_TRUE(until_state("demo", "running"));
  EXPECT_EQ(call("DELETE", "/v1/runs/demo", {}, token_).code(), "run_active");
  train(current("demo"), 1, 40);
  rounds(20);
  exit(current("demo"), 0);
  ASSERT_TRUE(until_state("demo", "finished"));
  const int64_t left = balance();
  EXPECT_LT(left, 10'000'000);
  EXPECT_EQ(call("DELETE", "/v1/runs/demo", {}, token_).status, 204);
  EXPECT_EQ(get("/v1/runs/demo").status, 404);
  EXPECT_EQ(balance(), left);
  rounds(3);
  EXPECT_TRUE(json::array_at(desired(), "volumes").empty());
  EXPECT_EQ(start_run("demo").status, 201);
}

TEST_F(RunTest, AnImageThatCannotBeBuiltFailsTheRunInItsWords) {
  images_failing_.insert("sim-a");
  ASSERT_EQ(start_run("demo", "sim-a").status, 201);
  ASSERT_TRUE(until_state("demo", "failed"));
  EXPECT_EQ(json::string_at(run("demo"), "state_reason"), "the image cannot be built");
  EXPECT_EQ(json::int_at(run("demo"), "cost_micros"), 0);
}

}  // namespace
}  // namespace anychip::server
