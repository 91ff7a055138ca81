#include "sim/checks.h"

#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/money.h"
#include "net/http.h"

namespace anychip::sim {
namespace {

class Checker {
 public:
  Checker(World& world, Outcome& outcome) : world_(world), outcome_(outcome) {}

  void run() {
    for (const auto& client : world_.clients()) {
      client_ = client.get();
      for (const ClientRun& run : client->runs()) check_run(run);
      note_disks();
    }
    check_nodes();
    check_devices_free();
  }

 private:
  template <class... Args>
  void violated(fmt::format_string<Args...> format, Args&&... args) {
    world_.truth().violated(fmt::format(format, std::forward<Args>(args)...));
  }

  const LegTruth* truth_of_leg(const std::string& leg_id) const {
    for (const auto& [id, truth] : world_.truth().legs) {
      if (truth.leg_id == leg_id) return &truth;
    }
    return nullptr;
  }

  void check_run(const ClientRun& asked) {
    ++outcome_.runs;
    outcome_.switches += static_cast<int64_t>(asked.switches.size());
    if (asked.is_deleted) return;
    const json::object run = world_.get(*client_, "/v1/runs/" + asked.id);
    const std::string state = json::string_at(run, "state");
    ++outcome_.run_states[state];
    const json::array& legs = json::array_at(run, "legs");
    check_cost(asked, run, legs);
    check_curve(asked, state, legs);
    check_log(asked, legs);
    check_resumes(asked, legs);
    check_switches(asked);
    if (state == "finished" && json::int_at(run, "exit_code") != 0) {
      violated("run {} is finished with exit code {}", asked.name, json::int_at(run, "exit_code"));
    }
    if (state == "stopped" && !asked.is_stop_asked && !has_stop_at_step(legs)) {
      violated("run {} stopped and nobody asked: {}", asked.name, json::string_at(run, "state_reason"));
    }
  }

  // A run made with stop_at_step ends by itself with 75.
  bool has_stop_at_step(const json::array& legs) const {
    if (legs.empty()) return false;
    const LegTruth* last = truth_of_leg(json::string_at(legs.back().get_object(), "id"));
    return last != nullptr && last->metrics.find(R"("by":"stop_at_step")") != std::string::npos;
  }

  void check_cost(const ClientRun& asked, const json::object& run, const json::array& legs) {
    int64_t sum_micros = 0;
    for (const json::value& item : legs) {
      const json::object& leg = item.get_object();
      const std::string id = json::string_at(leg, "id");
      const int64_t metered_us = json::int_at(leg, "metered_us");
      const int64_t cost_micros = json::int_at(leg, "cost_micros");
      const bool is_voided = json::bool_at(leg, "voided");
      sum_micros += cost_micros;
      const RatePerHour price{json::int_at(leg, "price_micros_per_hour")};
      const int64_t exact = is_voided ? 0 : cost_of(price, Duration{metered_us})->micros;
      if (cost_micros != exact) {
        violated("leg {} costs {} for {} us at {} per hour, not {}", id, cost_micros, metered_us,
                 price.micros, exact);
      }
      if (const auto seen = asked.metered_us.find(id);
          seen != asked.metered_us.end() && metered_us < seen->second) {
        violated("leg {} was metered {} us, later {} us", id, seen->second, metered_us);
      }
      const LegTruth* truth = truth_of_leg(id);
      const int64_t ran_us = truth == nullptr || !truth->ended ? 0 : (*truth->ended - truth->started).us;
      if (metered_us > ran_us) violated("leg {} is billed {} us and ran {} us", id, metered_us, ran_us);
      // Nobody stopped it and its end was seen: all of its time, no more and no less.
      if (truth != nullptr && truth->exit_code == 0 && !truth->is_by_fault && metered_us != ran_us &&
          !asked.is_stop_asked && asked.switches.empty()) {
        violated("leg {} ran {} us to its end and is billed {} us", id, ran_us, metered_us);
      }
    }
    if (sum_micros != json::int_at(run, "cost_micros")) {
      violated("run {} costs {}, its legs {}", asked.name, json::int_at(run, "cost_micros"), sum_micros);
    }
  }

  // Steps without a gap, each with the loss that only this step has.
  void check_curve(const ClientRun& asked, const std::string& state, const json::array& legs) {
    std::map<int64_t, double> curve;
    int64_t after = 0;
    for (;;) {
      const json::object page = world_.get(
          *client_, fmt::format("/v1/runs/{}/metrics?after_step={}&limit=500", asked.id, after));
      const json::array& points = json::array_at(page, "items");
      for (const json::value& item : points) {
        const int64_t step = json::int_at(item.get_object(), "step");
        if (!curve.emplace(step, json::number_at(item.get_object(), "loss")).second) {
          violated("run {} has step {} twice", asked.name, step);
        }
        after = std::max(after, step);
      }
      if (points.empty()) break;
    }
    int64_t expected = 1;
    for (const auto& [step, loss] : curve) {
      if (step != expected) {
        violated("run {} lacks step {} (next is {})", asked.name, expected, step);
        return;
      }
      if (std::abs(loss - loss_at(step)) > 1e-12) {
        violated("run {} step {}: loss {} instead of {}", asked.name, step, loss, loss_at(step));
        return;
      }
      ++expected;
    }
    // A leg that resumed takes the place of what an earlier one did after that checkpoint.
    int64_t reached = 0;
    for (const json::value& leg : legs) {
      const LegTruth* truth = truth_of_leg(json::string_at(leg.get_object(), "id"));
      if (truth != nullptr && truth->last_step > 0) reached = truth->last_step;
    }
    if (expected - 1 != reached) {
      violated("run {} reached step {}, its curve step {}", asked.name, reached, expected - 1);
    }
    if (state == "finished" && expected - 1 != asked.steps_total) {
      violated("run {} is finished at step {} of {}", asked.name, expected - 1, asked.steps_total);
    }
  }

  // After a checkpoint that was asked for nothing is lost; after a crash at most what was done since
  // the last periodic one. A switch that fell back may go on from the checkpoint before it.
  void check_resumes(const ClientRun& asked, const json::array& legs) {
    bool has_fallen_back = false;
    for (const json::value& one : world_.items(*client_, "/v1/runs/" + asked.id + "/switches")) {
      has_fallen_back = has_fallen_back || json::string_at(one.get_object(), "state") != "done";
    }
    const LegTruth* before = nullptr;
    for (const json::value& leg : legs) {
      const LegTruth* truth = truth_of_leg(json::string_at(leg.get_object(), "id"));
      if (truth == nullptr || truth->last_step == 0) continue;
      if (before != nullptr && !has_fallen_back) {
        const int64_t lost = before->last_step - truth->resumed_from;
        const int64_t most = before->exit_code == 75 ? 0 : asked.save_every;
        if (lost < 0 || lost > most) {
          violated("run {}: leg {} ended with {} at step {}, the next resumed after step {}", asked.name,
                   before->leg_id, before->exit_code, before->last_step, truth->resumed_from);
        }
      }
      before = truth;
    }
  }

  // Every byte that every container wrote, once, in order.
  void check_log(const ClientRun& asked, const json::array& legs) {
    std::string expected, got;
    for (const json::value& leg : legs) {
      const LegTruth* truth = truth_of_leg(json::string_at(leg.get_object(), "id"));
      if (truth != nullptr) expected += truth->log;
    }
    for (;;) {
      const json::object page = world_.get(
          *client_, fmt::format("/v1/runs/{}/logs?after={}&limit_bytes=100000", asked.id, got.size()));
      const std::string text = json::string_at(page, "text");
      if (text.empty()) break;
      got += text;
    }
    if (got != expected) {
      violated("run {}: its log has {} bytes, its containers wrote {}", asked.name, got.size(),
               expected.size());
    }
  }

  void check_switches(const ClientRun& asked) {
    std::map<std::string, json::object> known;
    for (const json::value& item :
         world_.items(*client_, "/v1/runs/" + asked.id + "/switches")) {
      known[json::string_at(item.get_object(), "id")] = item.get_object();
    }
    for (const auto& [id, one] : known) {
      const std::string state = json::string_at(one, "state");
      ++outcome_.switch_states[state];
      if (state == "active") violated("switch {} is still active", id);
    }
    for (const std::string& id : asked.switches) {
      if (!known.contains(id)) violated("an acknowledged switch is not there: {}", id);
    }
  }

  void note_disks() {
    for (const json::value& item : world_.items(*client_, "/v1/volumes")) {
      known_.insert(json::string_at(item.get_object(), "id"));
    }
    for (const json::value& item : world_.items(*client_, "/v1/snapshots")) {
      known_.insert(json::string_at(item.get_object(), "id"));
    }
  }

  void check_nodes() {
    for (const auto& agent : world_.agents()) {
      const agent::Inventory seen = agent->runtime().inventory();
      for (const agent::ContainerSeen& one : seen.containers) {
        violated("{} has the orphan container {}", agent->name(), one.instance.text);
      }
      for (const agent::VolumeSeen& one : seen.volumes) {
        if (!known_.contains(one.volume.text)) {
          violated("{} has the orphan volume {}", agent->name(), one.volume.text);
        }
      }
      for (const agent::SnapshotSeen& one : seen.snapshots) {
        if (!known_.contains(one.snapshot.text)) {
          violated("{} has the orphan snapshot {}", agent->name(), one.snapshot.text);
        }
      }
    }
  }

  void check_devices_free() {
    if (world_.clients().empty()) return;
    for (const json::value& node : world_.items(*world_.clients().front(), "/v1/nodes")) {
      const std::string name = json::string_at(node.get_object(), "name");
      if (json::string_at(node.get_object(), "state") != "ready") violated("node {} is not ready", name);
      for (const json::value& device : json::array_at(node.get_object(), "devices")) {
        const std::string state = json::string_at(device.get_object(), "state");
        if (state != "free") {
          violated("device {} of {} is {}", json::string_at(device.get_object(), "id"), name, state);
        }
      }
    }
  }

  World& world_;
  Outcome& outcome_;
  const Client* client_ = nullptr;
  std::set<std::string> known_;
};

}  // namespace

void check_everything(World& world, Outcome& outcome) { Checker(world, outcome).run(); }

}  // namespace anychip::sim
