// For tests: one run on one node, moved by words. A word is what a node, a user or time does:
//   run CHIP | pass SECONDS | stop | switch CHIP [AT_STEP] | cancel | lost | back
//   device ID gone|back | snapshots ready|failed
//   old|target|current PHASE [EXIT]      phases of types.h; also `oom N`, `orphaned`
//   old|target|current steps FIRST LAST  with losses that go on; `nan`, `jump` for bad ones
#pragma once

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "fleet/instance.h"
#include "fleet/run.h"
#include "fleet/switch.h"

namespace anychip::fleet {

class World {
 public:
  Facts facts;
  Limits limits;
  WallTime now{1'000'000'000'000};
  SeededRandom random{3};
  std::vector<std::string> refused;  // reasons of the last command

  explicit World(int64_t restarts_max = 1) {
    facts.nodes.push_back({NodeId{"node"}, true, now});
    for (const auto& [id, chip] : {std::pair<const char*, const char*>{"cpu-0", "cpu"},
                                   {"cpu-1", "cpu"},
                                   {"sim-0", "sim"},
                                   {"sim-1", "sim"}}) {
      facts.devices.push_back({NodeId{"node"}, id, chip, true, {}});
    }
    facts.run.id = RunId::make(now, random);
    facts.run.name = "demo";
    facts.run.restarts_max = restarts_max;
  }
  Context context() { return {now, random, limits}; }
  static Target target_of(const std::string& chip) {
    Target target;
    target.chip = chip;
    target.back_end = chip == "cpu" ? "cpu" : "tpu";
    target.price = RatePerHour{3'600'000'000};
    return target;
  }
  Instance* who(const std::string& name) {
    if (name == "current" || !facts.active) return facts.instance(facts.run.instance);
    return facts.instance(name == "old" ? facts.active->old_instance
                                        : facts.active->target_instance);
  }

  void play(const std::string& words) {
    std::istringstream lines(words);
    for (std::string line; std::getline(lines, line, ';');) word(line);
  }
  void word(const std::string& line) {
    std::istringstream in(line);
    std::string verb;
    if (!(in >> verb)) return;
    if (verb == "old" || verb == "target" || verb == "current")
      observe_words(verb, in);
    else
      command(verb, in);
    refresh_losses();
    advance(facts, context());
  }
  void see(Instance& instance, Observation seen) {
    seen.ran_us = std::max(seen.ran_us, instance.ran_us);
    observe(instance, seen, now);
  }

 private:
  void command(const std::string& verb, std::istringstream& in) {
    std::string a, b;
    in >> a >> b;
    if (verb == "run") {
      begin_run(facts, context(), target_of(a), *place({a, 1, {}, {}}, facts.devices, facts.nodes));
    } else if (verb == "pass") {
      now = now + seconds(std::stoll(a));
    } else if (verb == "stop") {
      note(request_stop(facts, context(), "user"));
    } else if (verb == "cancel") {
      note(cancel_switch(facts, context()));
    } else if (verb == "switch") {
      do_switch(a, b);
    } else if (verb == "lost" || verb == "back") {
      if (verb == "back" && !facts.nodes[0].is_ready) facts.nodes[0].ready_since = now;
      facts.nodes[0].is_ready = verb == "back";
    } else if (verb == "device") {
      for (Device& device : facts.devices) {
        if (device.id == a) device.is_healthy = b == "back";
      }
    } else if (verb == "snapshots") {
      for (Snapshot& snapshot : facts.snapshots) {
        if (snapshot.state != SnapshotState::kWanted) continue;
        snapshot.state = a == "ready" ? SnapshotState::kReady : SnapshotState::kFailed;
        snapshot.error = a == "ready" ? "" : "EIO";
      }
    } else {
      CHECK_MSG(false, verb);
    }
  }
  void note(const Status& status) {
    refused.clear();
    if (!status) refused.push_back(status.error().reason);
  }
  void do_switch(const std::string& chip, const std::string& at_step) {
    SwitchWish wish;
    if (!at_step.empty()) wish.at_step = std::stoll(at_step);
    const Target target = target_of(chip);
    refused.clear();
    for (const Refusal& refusal : check_switch(facts, &target, wish))
      refused.push_back(refusal.reason);
    if (refused.empty()) CHECK(begin_switch(facts, context(), target, wish).has_value());
  }
  void observe_words(const std::string& name, std::istringstream& in) {
    Instance* instance = who(name);
    if (instance == nullptr) return;
    std::string what;
    int64_t a = 0, b = 0;
    in >> what >> a >> b;
    Observation seen;
    if (what == "steps" || what == "nan" || what == "jump") return add_steps(*instance, what, a, b);
    if (what == "oom" || what == "orphaned") {
      seen.is_oom = what == "oom";
      seen.is_supervisor_lost = what == "orphaned";
      what = "exited";
    }
    CHECK(parse(what, seen.phase));
    if (seen.phase == Phase::kExited) seen.exit_code = a;
    if (seen.phase == Phase::kFailed) seen.error_message = "it would not start";
    seen.are_streams_sent = seen.phase >= Phase::kExited;
    seen.ran_us = instance->ran_us + (seen.phase == Phase::kRunning ? 1'000'000 : 0);
    see(*instance, seen);
  }
  void add_steps(Instance& instance, const std::string& what, int64_t first, int64_t last) {
    Leg* leg = facts.leg_of(instance);
    if (leg == nullptr) return;
    for (int64_t step = first; step <= last; ++step) {
      leg->steps += 1, leg->fresh_steps += 1;
      if (!leg->first_step) leg->first_step = step;
      leg->last_step = std::max(leg->last_step.value_or(step), step);
      const double loss = what == "nan"    ? std::numeric_limits<double>::quiet_NaN()
                          : what == "jump" ? 50.0
                                           : 2.0;
      losses_.push_back({leg->id, loss});
    }
  }
  void refresh_losses() {
    facts.target_losses.clear();
    facts.baseline_losses.assign(20, 2.0);
    const Instance* target = facts.active ? facts.instance(facts.active->target_instance) : nullptr;
    for (const auto& [leg, loss] : losses_) {
      if (target != nullptr && leg == target->leg) facts.target_losses.push_back(loss);
    }
  }

  std::vector<std::pair<LegId, double>> losses_;
};

}  // namespace anychip::fleet
