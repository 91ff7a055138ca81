// What an agent says, folded in once whatever its order; what of it is billed.
#include "fleet/instance.h"

#include <gtest/gtest.h>

#include "fleet/run.h"

namespace anychip::fleet {
namespace {

constexpr WallTime kNow{1'000'000'000};

Observation seen(Phase phase, int64_t ran_us) {
  Observation observation;
  observation.phase = phase;
  observation.ran_us = ran_us;
  return observation;
}

TEST(Observe, PhasesOnlyMoveForward) {
  Instance instance;
  EXPECT_TRUE(observe(instance, seen(Phase::kRunning, 5), kNow));
  EXPECT_FALSE(observe(instance, seen(Phase::kPreparing, 0), kNow + seconds(1)));
  EXPECT_EQ(instance.phase, Phase::kRunning);
  EXPECT_EQ(instance.phase_at, kNow);
  Observation exit = seen(Phase::kExited, 9);
  exit.exit_code = 75;
  EXPECT_TRUE(observe(instance, exit, kNow));
  EXPECT_FALSE(observe(instance, exit, kNow)) << "said twice";
  exit.exit_code = 0;
  EXPECT_FALSE(observe(instance, exit, kNow)) << "an exit code is told once";
  EXPECT_EQ(instance.exit_code, 75);
  EXPECT_FALSE(observe(instance, seen(Phase::kFailed, 9), kNow)) << "it did start";
  EXPECT_TRUE(observe(instance, seen(Phase::kGone, 9), kNow));
  EXPECT_EQ(instance.exit_code, 75);
}

TEST(Observe, AnotherGenerationAndAClosedInstanceAreDeaf) {
  Instance instance;
  Observation stale = seen(Phase::kRunning, 5);
  stale.generation = 0;
  EXPECT_FALSE(observe(instance, stale, kNow));
  instance.is_closed = true;
  EXPECT_FALSE(observe(instance, seen(Phase::kRunning, 5), kNow));
}

TEST(Observe, NoExitCodeWithoutAnExit) {
  Instance never_started;
  Observation gone = seen(Phase::kGone, 0);
  gone.exit_code = 0;
  observe(never_started, gone, kNow);
  EXPECT_FALSE(never_started.exit_code);
  Instance orphaned;
  Observation lost = seen(Phase::kExited, 50);
  lost.exit_code = 0;
  lost.is_supervisor_lost = true;
  observe(orphaned, lost, kNow);
  EXPECT_FALSE(orphaned.exit_code) << "nobody saw how it ended";
}

TEST(Meter, NeverFallsAndEndsAtTheRequest) {
  Facts facts;
  Instance instance;
  Leg leg;
  leg.target.price = RatePerHour{3'600'000'000};  // 1 micro-yuan a microsecond
  observe(instance, seen(Phase::kRunning, 1'000), kNow);
  meter(leg, instance);
  EXPECT_EQ(leg.cost.micros, 1'000);
  SeededRandom random(1);
  const Limits limits;
  set_desired(facts, {kNow + microseconds(300), random, limits}, instance, Desired::kStop);
  observe(instance, seen(Phase::kRunning, 5'000), kNow + microseconds(4'000));
  meter(leg, instance);
  EXPECT_EQ(leg.metered_us, 1'300) << "what had run when the stop was asked for";
  Observation stopping = seen(Phase::kExited, 9'000);
  stopping.stop_seen_ran_us = 1'200;
  observe(instance, stopping, kNow + seconds(1));
  meter(leg, instance);
  EXPECT_EQ(leg.metered_us, 1'300) << "never less than shown before";
  leg.is_voided = true;
  meter(leg, instance);
  EXPECT_EQ(leg.cost.micros, 0);
  EXPECT_EQ(leg.metered_us, 1'300);
}

}  // namespace
}  // namespace anychip::fleet
