// Runs and switches as a table: what happens, and where it must lead. Words: fleet_world.h.
#include <gtest/gtest.h>

#include "fleet/fleet_world.h"

namespace anychip::fleet {
namespace {

struct Case {
  const char* name;
  const char* words;
  const char* run_state;
  const char* switch_state;  // "" = no switch
  size_t legs;
  const char* reason;  // part of the run's or the switch's reason
};

constexpr const char* kRunning = "run cpu; current preparing; current running; current steps 1 30;";
constexpr const char* kPrepared = "switch sim; target preparing; target prepared;";
constexpr const char* kMoved = "old exited 75; snapshots ready; old gone; target running;";

const Case kCases[] = {
    // --- the life of a run
    {"queued", "run cpu", "queued", "", 1, ""},
    {"preparing", "run cpu; current preparing", "preparing", "", 1, ""},
    {"starting", "run cpu; current starting", "preparing", "", 1, ""},
    {"running", kRunning, "running", "", 1, ""},
    {"finished", "R current exited 0", "finished", "", 1, ""},
    {"finished_stays", "R current exited 0; current running; stop; pass 99999; current failed",
     "finished", "", 1, ""},
    {"stopped_by_itself", "R current exited 75", "stopped", "", 1, "by itself"},
    {"crash_waits_for_proof", "R current exited 1", "preparing", "", 1, "exit code 1"},
    {"crash_restarts", "R current exited 1; current gone; current running", "running", "", 2, ""},
    {"crash_twice_fails", "R current exited 1; current gone; current running; current exited 3",
     "failed", "", 2, "exit code 3"},
    {"signal", "R current exited 139; current gone; current exited 139", "failed", "", 2,
     "signal 11"},
    {"oom", "R current oom 137; current gone; current oom 137", "failed", "", 2, "out of memory"},
    {"orphaned", "R current orphaned; current gone; current running", "running", "", 2, ""},
    {"vanished_container", "R current gone; current running", "running", "", 2, ""},
    {"never_started", "run cpu; current failed", "failed", "", 1, "would not start"},
    {"queued_too_long", "run cpu; pass 1801", "failed", "", 1, "stayed queued for 30 minutes"},
    {"start_too_long", "run cpu; current starting; pass 601", "failed", "", 1, "stayed starting"},
    {"device_gone", "R device cpu-0 gone; current exited 137; current gone; current running",
     "running", "", 2, ""},
    {"device_gone_no_other", "R device cpu-0 gone; device cpu-1 gone; current gone; pass 100",
     "preparing", "", 1, "waiting for a free cpu"},
    {"device_gone_for_good", "R device cpu-0 gone; device cpu-1 gone; current gone; pass 901",
     "failed", "", 1, "no equal device"},
    {"stop", "R stop", "stopping", "", 1, ""},
    {"stop_done", "R stop; current exited 75", "stopped", "", 1, "with a checkpoint"},
    {"stop_killed", "R stop; current exited 137", "stopped", "", 1, "before a checkpoint"},
    {"stop_finished_first", "R stop; current exited 0", "finished", "", 1, ""},
    {"stop_before_start", "run cpu; stop; current gone", "stopped", "", 1, ""},
    {"stop_unanswered", "R stop; pass 151; current gone", "stopped", "", 1, ""},
    {"stop_in_restart", "R current exited 1; stop; current gone", "stopped", "", 1, ""},
    {"lost", "R lost", "lost", "", 1, ""},
    {"lost_and_back", "R lost; pass 99999; back; current running", "running", "", 1, ""},
    {"lost_then_exit", "R lost; current exited 0; back", "finished", "", 1, ""},
    {"lost_before_touched", "run cpu; lost; pass 99999", "queued", "", 1, "waiting for its node"},
    {"limits_wait_for_the_node", "run cpu; current starting; lost; pass 9999; back; pass 500",
     "preparing", "", 1, ""},
    // --- the switch
    {"prepare", "R switch sim; target preparing", "switching", "active", 1, ""},
    {"prepare_fails", "R switch sim; target failed", "running", "failed", 1,
     "could not be made ready"},
    {"prepare_too_long", "R switch sim; pass 7201", "running", "failed", 1,
     "was not ready within 120 minutes"},
    {"prepare_device_gone", "R switch sim; device sim-0 gone", "running", "failed", 1,
     "device sim-0 is gone"},
    {"crash_in_prepare", "R switch sim; old exited 1; current gone; current running", "running",
     "failed", 2, "ended by itself"},
    {"finish_in_prepare", "R switch sim; old exited 0", "finished", "refused", 1,
     "came to its end"},
    {"checkpoint", "R P", "switching", "active", 1, ""},
    {"at_step_waits", "R switch sim 50; target prepared; pass 3600", "switching", "active", 1, ""},
    {"at_step_reached_early",
     "R switch sim 50; old exited 75; target prepared; snapshots ready; old gone", "switching",
     "active", 2, ""},
    {"killed_past_the_grace", "R P old exited 137; snapshots ready; old gone; target running",
     "switching", "active", 2, ""},
    {"never_answers", "R P pass 151; old gone; snapshots ready; target running", "switching",
     "active", 2, ""},
    {"inherit_waits_for_both", "R P old exited 75; snapshots ready", "switching", "active", 1, ""},
    {"inherit_snapshot_fails",
     "R P old exited 75; snapshots failed; old gone; target gone; current running", "running",
     "fell_back", 2, "snapshot failed: EIO"},
    {"inherit_too_long", "R P old exited 75; pass 301; old gone; target gone; current running",
     "running", "fell_back", 2, "did not move within 5 minutes"},
    {"verify", "R P M", "switching", "active", 2, ""},
    {"settled", "R P M target steps 31 35", "running", "done", 2, ""},
    {"settled_then_finished", "R P M target steps 31 35; current exited 0", "finished", "done", 2,
     ""},
    {"finished_while_verifying", "R P M target steps 31 32; target exited 0", "finished", "done", 2,
     ""},
    {"resume_too_long",
     "R P old exited 75; snapshots ready; old gone; pass 601; target gone; current running",
     "running", "fell_back", 3, "did not start within"},
    {"verify_too_long", "R P M pass 1201; target gone; current running", "running", "fell_back", 3,
     "0 of the first 5 steps"},
    {"jump", "R P M target jump 31 31; target gone; current running", "running", "fell_back", 3,
     "outside the old curve's band"},
    {"nan", "R P M target nan 31 31; target gone; current running", "running", "fell_back", 3,
     "not a finite number"},
    {"target_dies", "R P M target exited 1; target gone; current running", "running", "fell_back",
     3, "exit code 1"},
    {"target_oom", "R P M target oom 137; target gone; current running", "running", "fell_back", 3,
     "out of memory"},
    {"target_device_gone", "R P M device sim-0 gone; target gone; current running", "running",
     "fell_back", 3, "device sim-0 is gone"},
    {"fall_back_waits_for_a_device",
     "R P M device cpu-0 gone; device cpu-1 gone; target exited 1; target gone", "preparing",
     "fell_back", 2, ""},
    {"cancel_early", "R P cancel", "switching", "active", 1, "cancelled"},
    {"cancel_before_checkpoint", "R switch sim; cancel; target gone", "running", "cancelled", 1,
     "cancelled"},
    {"cancel_late", "R P M cancel; target gone; current running", "running", "cancelled", 3,
     "cancelled"},
    {"stop_in_prepare", "R switch sim; stop; current exited 75", "stopped", "cancelled", 1, ""},
    {"stop_in_verify", "R P M stop; current exited 75", "stopped", "cancelled", 2, ""},
    {"stop_while_falling_back", "R P M target exited 1; stop; current gone", "stopped", "cancelled",
     2, ""},
    {"lost_in_inherit",
     "R P old exited 75; lost; pass 9999; back; snapshots ready; old gone; target running; target "
     "steps 31 35",
     "running", "done", 2, ""},
};

std::string expand(std::string words) {
  const auto replace = [&](const std::string& key, const std::string& text) {
    for (size_t at = words.find(key); at != std::string::npos; at = words.find(key, at)) {
      words.replace(at, key.size(), text);
    }
  };
  replace("R ", kRunning);
  replace("P ", kPrepared);
  replace("M ", kMoved);
  if (words.ends_with(" P") || words.ends_with(";P")) words.replace(words.size() - 1, 1, kPrepared);
  if (words.ends_with(";M")) words.replace(words.size() - 1, 1, kMoved);
  return words;
}

class Table : public testing::TestWithParam<Case> {};

TEST_P(Table, LeadsWhereItMust) {
  const Case& wanted = GetParam();
  World world;
  world.play(expand(wanted.words));
  const Facts& facts = world.facts;
  EXPECT_EQ(name_of(facts.run.state), wanted.run_state) << facts.run.state_reason;
  EXPECT_EQ(facts.active ? name_of(facts.active->state) : "", wanted.switch_state);
  EXPECT_EQ(facts.legs.size(), wanted.legs);
  const std::string reason =
      facts.run.state_reason + " | " + (facts.active ? facts.active->reason : "");
  EXPECT_NE(reason.find(wanted.reason), std::string::npos) << reason;
}

void PrintTo(const Case& entry, std::ostream* out) { *out << entry.words; }

INSTANTIATE_TEST_SUITE_P(Fleet, Table, testing::ValuesIn(kCases),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST(SwitchChecks, AllReasonsAtOnce) {
  World world;
  world.play(kRunning);
  world.facts.run.stop_at_step = 40;
  SwitchWish wish;
  wish.verify_steps = 0;
  wish.at_step = 20;
  Target target = World::target_of("sim");
  target.count = 3;
  std::vector<std::string> reasons;
  for (const Refusal& one : check_switch(world.facts, &target, wish)) reasons.push_back(one.reason);
  EXPECT_EQ(reasons, (std::vector<std::string>{"verify_steps_invalid", "at_step_passed",
                                               "count_exceeds_total"}));
  wish = {.at_step = 40, .verify_steps = 5};
  EXPECT_EQ(check_switch(world.facts, nullptr, wish).at(0).reason, "at_step_after_stop");
}

TEST(SwitchChecks, OneAtATimeAndNeverOfAnEndedRun) {
  World world;
  world.play(expand("R switch sim; switch sim"));
  EXPECT_EQ(world.refused, std::vector<std::string>{"switch_active"});
  world.play("old exited 0; target gone; switch sim");
  EXPECT_EQ(world.refused, std::vector<std::string>{"run_ended"});
  world.play("stop");
  EXPECT_EQ(world.refused, std::vector<std::string>{"run_ended"});
  world.play("cancel");
  EXPECT_EQ(world.refused, std::vector<std::string>{"switch_not_active"});
}

TEST(SwitchDisks, ForwardMovesTheCheckpointVolumeBackwardTakesTheSnapshots) {
  World world;
  world.play(expand("R P M "));
  const VolumeId checkpoint = world.facts.instances[0].checkpoint;
  EXPECT_EQ(world.facts.instances[1].checkpoint, checkpoint);
  EXPECT_EQ(world.facts.instances[1].attach_generation, 2);
  EXPECT_NE(world.facts.instances[1].system_disk, world.facts.instances[0].system_disk);
  world.play("target exited 1; target gone");
  const Instance& back = world.facts.instances[2];
  EXPECT_NE(back.checkpoint, checkpoint);
  EXPECT_EQ(world.facts.volume(back.checkpoint)->from_snapshot,
            world.facts.active->checkpoint_snapshot);
  EXPECT_FALSE(world.facts.volume(checkpoint)->is_wanted);
  EXPECT_EQ(back.device_ids, world.facts.instances[0].device_ids)
      << "its own device was held for it";
  EXPECT_TRUE(world.facts.legs[1].is_voided) << "no step, no bill";
}

}  // namespace
}  // namespace anychip::fleet
