// Desired against inventory: begins the next operation of every object. Holds no truth: whatever it
// remembers (pauses after failures, the last kill) may be lost at any time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "agent/desired.h"
#include "agent/operations.h"
#include "agent/records.h"

namespace anychip::agent {

enum class Phase { kPreparing, kPrepared, kStarting, kRunning, kExited, kFailed, kGone };
std::string_view name_of(Phase phase);

struct InstanceStatus {
  Phase phase = Phase::kPreparing;
  std::optional<Error> error;  // with kFailed: why; else what is being tried again
};

// Fetches workdirs on behalf of the converger; the agent does it over its link.
class WorkdirFetcher {
 public:
  virtual ~WorkdirFetcher() = default;
  virtual void fetch_workdir(const std::string& digest) = 0;  // once more is harmless
};

class Converger {
 public:
  Converger(AgentParts parts, Records& records, WorkdirFetcher& fetcher)
      : parts_(parts), records_(records), fetcher_(fetcher),
        operations_(parts.runtime, parts.clock, parts.random) {}

  Operations& operations() { return operations_; }
  // What was seen goes into the records before anything acts on it.
  void observe(const Inventory& inventory);
  // `is_ours`: the Desired comes from the server this agent is enrolled with.
  void converge(const Desired& desired, const Inventory& inventory, bool is_ours);
  // Of every instance that is desired, recorded or there.
  InstanceStatus status(const InstanceId& instance, const WantedInstance* wanted,
                        const Inventory& inventory) const;
  // An instance whose log and metrics need not be kept any longer may be forgotten.
  void forget_when_shipped(const InstanceId& instance) { shipped_.insert(instance); }
  const Operations& operations() const { return operations_; }

 private:
  enum class Readiness { kReady, kWaiting, kGivenUp };
  struct Step {
    Readiness readiness = Readiness::kReady;
    std::optional<Error> error;
  };

  void converge_images(const Desired& desired, const Inventory& inventory);
  void converge_snapshots(const Desired& desired, const Inventory& inventory);
  void converge_volumes(const Desired& desired, const Inventory& inventory);
  void converge_instance(const WantedInstance& wanted, const Desired& desired,
                         const Inventory& inventory);
  void converge_orphans(const Desired& desired, const Inventory& inventory);
  Step ensure_image(const std::string& image, const std::string& variant,
                    const std::string& digest, const Inventory& inventory);
  Step ensure_volume(const WantedVolume& wanted, const Inventory& inventory);
  Step ensure_workdir(const std::string& digest);
  Step ensure_disks(const ContainerSpec& spec, const Desired& desired, const Inventory& inventory);
  Step ensure_all(const WantedInstance& wanted, const Desired& desired, const Inventory& inventory);
  void start(const WantedInstance& wanted, const Desired& desired, const Inventory& inventory);
  void stop(const WantedInstance& wanted, const ContainerSeen* seen);
  void remove(const InstanceId& instance, const ContainerSeen* seen);
  void note_stop_seen(const InstanceId& instance, const ContainerSeen& seen);
  void give_up(const InstanceId& instance, const Error& error);
  void pass_control(const WantedInstance& wanted);
  bool is_needed(const VolumeId& volume, const Desired& desired) const;
  void kill(const InstanceId& instance);

  AgentParts parts_;
  Records& records_;
  WorkdirFetcher& fetcher_;
  Operations operations_;
  struct Killed {
    MonoTime first, last;
  };
  std::map<InstanceId, Killed> killed_;
  std::map<InstanceId, std::string> control_;  // last control.json written
  std::map<InstanceId, Error> waiting_;        // why an instance is not further yet
  std::map<InstanceId, MonoTime> orphan_since_;
  std::set<InstanceId> shipped_;
};

const ContainerSeen* find_container(const Inventory& inventory, const InstanceId& instance);
const VolumeSeen* find_volume(const Inventory& inventory, const VolumeId& volume);
const SnapshotSeen* find_snapshot(const Inventory& inventory, const SnapshotId& snapshot);
std::string image_key(std::string_view image, std::string_view variant);
std::string key_of(const VolumeId& volume);
std::string key_of(const SnapshotId& snapshot);
std::string key_of(const InstanceId& instance);

}  // namespace anychip::agent
