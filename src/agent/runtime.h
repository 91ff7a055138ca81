// What a node can do, seen by the agent's logic: one interface, a real implementation
// (agent/local: runc, loop devices, overlay) and a simulated one (sim/). The truth about what exists
// is the Runtime's inventory, never the agent's memory: after a restart the agent asks and adopts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"

namespace anychip::agent {

// --- what is asked for ---------------------------------------------------------------------------
struct EnsureImage {           // build or verify; done when usable
  std::string image, variant;  // catalogue ids
  std::string digest;          // must equal the node's own catalogue, else "image_digest_mismatch"
};
struct EnsureVolume {
  VolumeId volume;
  int64_t size_bytes = 0;
  SnapshotId from_snapshot;  // empty = new and empty
};
struct RemoveVolume { VolumeId volume; };  // refused while attached: "volume_in_use"
struct TakeSnapshot {          // of a volume, attached or not: syncfs, freeze, clone, thaw
  SnapshotId snapshot;
  VolumeId volume;
};
struct RemoveSnapshot { SnapshotId snapshot; };

struct VolumeMount {
  VolumeId volume;
  std::string path;  // absolute, in the container
  int64_t attach_generation = 0;
  bool is_read_only = false;
};
struct ContainerSpec {
  InstanceId instance;
  int64_t generation = 0;  // fencing: a newer one replaces, an older one is refused "generation_stale"
  std::string image, variant, digest;
  VolumeId system_disk;
  std::string workdir_path;    // host file (tar.zst) to unpack into /workspace on first start; "" = none
  std::string workdir_digest;  // sha256 of that file; unpacked once per system disk and digest
  std::vector<VolumeMount> volumes;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string cwd = "/workspace";
  int64_t memory_bytes = 0;    // 0 = no limit
  int64_t cpu_millis = 0;      // 1000 = one core; 0 = no limit
  int64_t pids_max = 4096;
  std::vector<std::string> device_ids;
};
struct StartContainer { ContainerSpec spec; };
// Kills everything in it (success = empty cgroup), unmounts, releases the attach of its volumes.
// Repeatable; done when nothing of it is left but the volumes themselves and its log.
struct RemoveContainer { InstanceId instance; };
struct ForgetInstance { InstanceId instance; };  // its log and folder too

using Operation = std::variant<EnsureImage, EnsureVolume, RemoveVolume, TakeSnapshot, RemoveSnapshot,
                               StartContainer, RemoveContainer, ForgetInstance>;
using OperationId = int64_t;

struct OperationDone {
  OperationId id = 0;
  Status status;
};

// --- what is there -------------------------------------------------------------------------------
struct ImageSeen {
  std::string image, variant, digest;
  bool is_ready = false;
  int progress_percent = 0;
  std::string progress_text;  // "torch: installing"
};
struct VolumeSeen {
  VolumeId volume;
  int64_t size_bytes = 0, used_bytes = 0;
  InstanceId attached_to;  // empty = free
  int64_t attach_generation = 0;
};
struct SnapshotSeen {
  SnapshotId snapshot;
  VolumeId volume;
  int64_t size_bytes = 0;
  int64_t freeze_us = 0;  // how long writers were stopped
};
enum class ContainerPhase { kStarting, kRunning, kExited };
struct ContainerSeen {
  InstanceId instance;
  int64_t generation = 0;
  ContainerPhase phase = ContainerPhase::kStarting;
  int exit_code = 0;         // 128 + signal when killed by one
  bool is_oom = false;
  bool is_supervisor_lost = false;  // conmon died: exit code unknown
  MonoTime started;          // when the command began (CLOCK_BOOTTIME; survives agent restarts)
  std::optional<MonoTime> ended;
  int64_t memory_bytes = 0, memory_peak_bytes = 0;
  int64_t cpu_time_us = 0;
  std::vector<VolumeMount> volumes;
};
struct DeviceSeen {
  std::string id;    // "tpu-sim-0"
  std::string chip;  // catalogue id, "" = unknown
  bool is_healthy = true;
  std::string note;
};
struct Inventory {
  std::vector<ImageSeen> images;
  std::vector<VolumeSeen> volumes;
  std::vector<SnapshotSeen> snapshots;
  std::vector<ContainerSeen> containers;
  std::vector<DeviceSeen> devices;
  int64_t pool_bytes = 0, pool_free_bytes = 0;
  bool has_instant_snapshot = true;
};

enum class Stream { kLog, kMetrics };

class Runtime {
 public:
  virtual ~Runtime() = default;
  // Never blocks. Operations on the same object run in the order given; others may run at once.
  virtual OperationId begin(Operation operation) = 0;
  virtual std::vector<OperationDone> take_done() = 0;
  virtual Inventory inventory() = 0;  // cheap: called several times a second
  virtual Status signal(const InstanceId& instance, int signal_number) = 0;  // to the command (init)
  // Bytes [offset, offset + bytes_max) of the container's log (stdout and stderr, in order) or of
  // its metrics file; shorter at the end; "" when there is nothing (yet).
  virtual Result<std::string> read_stream(const InstanceId& instance, Stream stream, int64_t offset,
                                          int64_t bytes_max) = 0;
  // Replaces /run/anychip/control/control.json of the container, atomically.
  virtual Status write_control(const InstanceId& instance, std::string_view json_text) = 0;
};

}  // namespace anychip::agent
