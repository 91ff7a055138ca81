// A node without a machine: agent::Runtime over virtual time. Its containers run a training program
// that keeps the container contract (contract §3). It outlives its agent: a killed agent's
// containers go on, and operations under way end well or leave nothing, as a real kill does.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/runtime.h"
#include "base/json.h"
#include "base/rng.h"
#include "sim/events.h"
#include "sim/faults.h"
#include "sim/trace.h"
#include "sim/truth.h"

namespace anychip::sim {

struct RuntimeParts {
  EventQueue& queue;
  Random& random;
  const Faults& faults;
  Trace& trace;
  Truth& truth;
  const Clock& clock;
};

class SimRuntime final : public agent::Runtime {
 public:
  SimRuntime(std::string name, RuntimeParts parts, std::vector<agent::DeviceSeen> devices);

  agent::OperationId begin(agent::Operation operation) override;
  std::vector<agent::OperationDone> take_done() override;
  agent::Inventory inventory() override;
  Status signal(const InstanceId& instance, int signal_number) override;
  Result<std::string> read_stream(const InstanceId& instance, agent::Stream stream, int64_t offset,
                                  int64_t bytes_max) override;
  Status write_control(const InstanceId& instance, std::string_view json_text) override;

  // Called when something has changed that the agent would be woken for.
  void on_change(std::function<void()> wake) { wake_ = std::move(wake); }
  void agent_killed();
  void crash_some_process();
  void lose_some_supervisor();
  void vanish_some_device(Duration for_how_long);
  int64_t count_live() const;

 private:
  struct Disk {
    int64_t size_bytes = 0;
    InstanceId attached_to;
    int64_t attach_generation = 0;
    int64_t checkpoint_step = 0;  // what is in it: the newest whole checkpoint
  };
  struct Taken {
    VolumeId volume;
    Disk content;
  };
  struct Image {
    std::string digest;
    bool is_ready = false;
    int percent = 0;
  };
  struct Container {
    agent::ContainerSpec spec;
    agent::ContainerPhase phase = agent::ContainerPhase::kStarting;
    MonoTime started;  // of the node's own clock
    std::optional<MonoTime> ended;
    int exit_code = 0;
    bool is_oom = false, is_supervisor_lost = false;
    bool is_term_sent = false;
    int64_t step = 0, steps_total = 0, save_every = 0;
    Duration step_time;
    std::optional<int64_t> stop_at_step;
    int64_t life = 0;  // events of an earlier life do nothing
  };
  struct Pending {
    agent::Operation operation;
    bool is_dropped = false;
  };

  Duration time_of(const agent::Operation& operation);
  void finish(agent::OperationId id);
  Status apply(const agent::EnsureImage& operation);
  Status apply(const agent::EnsureVolume& operation);
  Status apply(const agent::RemoveVolume& operation);
  Status apply(const agent::TakeSnapshot& operation);
  Status apply(const agent::RemoveSnapshot& operation);
  Status apply(const agent::StartContainer& operation);
  Status apply(const agent::RemoveContainer& operation);
  Status apply(const agent::ForgetInstance& operation);
  bool is_injected(uint32_t percent) { return parts_.random.chance(percent); }

  // The training program (training.cc).
  void launch(Container& container);
  void begin_steps(const InstanceId& instance, int64_t life);
  void do_step(const InstanceId& instance, int64_t life);
  void save_checkpoint(Container& container);
  bool stops_here(Container& container);
  void end(Container& container, int exit_code, bool is_by_fault);
  void write_metrics(const Container& container, json::object line);
  void write_log(const Container& container, const std::string& line);
  Disk* checkpoint_disk(const Container& container);
  LegTruth& truth_of(const Container& container);
  Container* find_live(const InstanceId& instance, int64_t life);
  void check_alone(const Container& container);
  void changed() {
    if (wake_) wake_();
  }
  std::vector<Container*> running();

  std::string name_;
  RuntimeParts parts_;
  std::vector<agent::DeviceSeen> devices_;
  std::set<std::string> vanished_;
  std::map<std::string, Image> images_;
  std::map<VolumeId, Disk> volumes_;
  std::map<SnapshotId, Taken> snapshots_;
  std::map<InstanceId, Container> containers_;
  std::map<InstanceId, LegTruth*> folders_;  // logs: stay until ForgetInstance
  std::map<agent::OperationId, Pending> pending_;
  std::map<std::string, MonoTime> busy_until_;  // per object, in the order given
  std::vector<agent::OperationDone> done_;
  agent::OperationId last_id_ = 0;
  int64_t last_life_ = 0;
  std::function<void()> wake_;
};

}  // namespace anychip::sim
