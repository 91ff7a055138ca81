// Whatever a node says in whatever order, however often and however late, and whatever users do in
// between: at most one leg is alive, no device has two lessees, metered time never falls, an ended
// run stays ended, and the machines come to rest.
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fleet/fleet_world.h"

namespace anychip::fleet {
namespace {

struct Before {
  RunState state;
  std::string reason;
  std::vector<int64_t> metered;
};

void check_invariants(World& world, const Before& before) {
  Facts& facts = world.facts;
  int alive = 0;
  std::set<std::string> leased;
  for (Instance& instance : facts.instances) {
    if (facts.leg_of(instance) != nullptr && instance.phase != Phase::kGone) alive += 1;
    if (!instance.holds_devices) continue;
    for (const std::string& device : instance.device_ids) {
      RC_ASSERT(leased.insert(device).second);
      for (const Device& one : facts.devices) {
        if (one.id == device) RC_ASSERT(one.lessee == instance.id);
      }
    }
  }
  RC_ASSERT(alive <= 1);
  for (const Device& device : facts.devices) {
    RC_ASSERT(device.lessee.empty() || leased.contains(device.id));
  }
  for (size_t i = 0; i < before.metered.size(); ++i) {
    RC_ASSERT(facts.legs[i].metered_us >= before.metered[i]);
    RC_ASSERT(facts.legs[i].cost.micros == 0 || !facts.legs[i].is_voided);
  }
  if (is_ended(before.state)) RC_ASSERT(facts.run.state == before.state);
  if (is_ended(facts.run.state)) RC_ASSERT(!facts.has_active_switch());
  std::set<int64_t> indices;
  for (const Leg& leg : facts.legs) RC_ASSERT(indices.insert(leg.index).second);
}

std::string random_word() {
  const auto any = [](std::initializer_list<const char*> words) {
    return std::string(*rc::gen::elementOf(std::vector<const char*>(words)));
  };
  switch (*rc::gen::inRange(0, 12)) {
    case 0:
      return "pass " + std::to_string(*rc::gen::elementOf(std::vector<int>{1, 5, 100, 700, 8000}));
    case 1: return any({"switch sim", "switch cpu", "switch sim 60"});
    case 2: return any({"cancel", "stop", "lost", "back", "back"});
    case 3:
      return any(
          {"device cpu-0 gone", "device cpu-0 back", "device sim-0 gone", "device sim-0 back"});
    case 4: return any({"snapshots ready", "snapshots ready", "snapshots failed"});
    case 5:
      return any({"old", "target", "current"}) +
             any({" steps 1 6", " steps 31 36", " nan 31 31", " jump 31 31"});
    default:
      return any({"old ", "target ", "current ", "current "}) +
             any({"preparing", "prepared", "starting", "running", "running", "exited 0",
                  "exited 75", "exited 75", "exited 1", "oom 137", "orphaned", "failed", "gone",
                  "gone", "gone"});
  }
}

// A step towards what the state machines wait for, so that deep states are reached too.
std::string helpful_word(World& world) {
  for (const char* name : {"target", "old", "current"}) {
    const Instance* instance = world.who(name);
    if (instance == nullptr || instance->is_closed) continue;
    const std::string who = std::string(name) + " ";
    if (instance->desired == Desired::kGone && instance->phase != Phase::kGone) return who + "gone";
    if (instance->desired == Desired::kStop && instance->phase == Phase::kRunning)
      return who + "exited 75";
    if (instance->desired == Desired::kPrepare && instance->phase < Phase::kPrepared)
      return who + "prepared";
    if (instance->desired == Desired::kRun && instance->phase < Phase::kRunning)
      return who + "running";
  }
  for (const Snapshot& snapshot : world.facts.snapshots) {
    if (snapshot.state == SnapshotState::kWanted) return "snapshots ready";
  }
  if (world.facts.run.state == RunState::kRunning) {
    return world.facts.legs.back().target.chip == "cpu" ? "switch sim" : "switch cpu";
  }
  return "target steps 31 36";
}

RC_GTEST_PROP(FleetProperty, AnyOrderOfObservations, ()) {
  World world(*rc::gen::inRange<int64_t>(0, 4));
  world.word(*rc::gen::elementOf(std::vector<std::string>{"run cpu", "run sim"}));
  const int length = *rc::gen::inRange(10, 80);
  const int help_percent = *rc::gen::elementOf(std::vector<int>{0, 40, 80});
  for (int i = 0; i < length; ++i) {
    Before before{world.facts.run.state, world.facts.run.state_reason, {}};
    for (const Leg& leg : world.facts.legs) before.metered.push_back(leg.metered_us);
    const bool is_help = *rc::gen::inRange(0, 100) < help_percent;
    const std::string word = is_help ? helpful_word(world) : random_word();
    RC_LOG() << word << "\n";
    world.word(word);
    check_invariants(world, before);
    const Facts rested = world.facts;
    advance(world.facts, world.context());
    RC_ASSERT(world.facts.run == rested.run);
    RC_ASSERT(world.facts.instances == rested.instances);
    RC_ASSERT(world.facts.active == rested.active);
  }
  const auto& last = world.facts.active;
  RC_TAG(std::string(name_of(world.facts.run.state)) + ", switch " +
         std::string(last ? name_of(last->state) : "none"));
}

// However a run is treated: once the node obeys, everything is given back.
RC_GTEST_PROP(FleetProperty, AStoppedRunGivesEverythingBack, ()) {
  World world(*rc::gen::inRange<int64_t>(0, 4));
  world.word("run cpu");
  const int length = *rc::gen::inRange(0, 40);
  for (int i = 0; i < length; ++i) {
    const std::string word = *rc::gen::inRange(0, 3) > 0 ? helpful_word(world) : random_word();
    RC_LOG() << word << "\n";
    world.word(word);
  }
  world.play("back; stop");
  for (int i = 0; i < 60; ++i) {
    world.word("pass 6");
    for (Instance& instance : world.facts.instances) {
      Observation seen;
      seen.are_streams_sent = true;
      if (instance.desired == Desired::kStop && instance.phase == Phase::kRunning) {
        seen.phase = Phase::kExited;
        seen.exit_code = 75;
        world.see(instance, seen);
      } else if (instance.desired == Desired::kGone) {
        seen.phase = Phase::kGone;
        world.see(instance, seen);
      }
    }
    world.word("pass 1");
  }
  RC_ASSERT(is_ended(world.facts.run.state));
  for (const Instance& instance : world.facts.instances) RC_ASSERT(instance.is_closed);
  for (const Device& device : world.facts.devices) RC_ASSERT(device.lessee.empty());
  for (const Leg& leg : world.facts.legs)
    RC_ASSERT(leg.state == LegState::kEnded || leg.steps >= 0);
}

}  // namespace
}  // namespace anychip::fleet
