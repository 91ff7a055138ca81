// What is remembered of one container on disk: the spec (intent, written before any effect) and how
// far it is. A kill between two steps leaves a record from which the step is repeated or undone.
#pragma once

#include <cstdint>
#include <string>

#include "agent/local/container_paths.h"
#include "agent/runtime.h"
#include "base/error.h"

namespace anychip::agent {

enum class ContainerStep {
  kPreparing,  // disks, mounts, bundle are being made: nothing of the command has run
  kCreated,    // runc has made it; the command waits
  kStarted,    // `runc start` was or is about to be called
  kExited,
  kRemoving,
  kRemoved,
  kFailed,     // could not be started; its effects were undone
};

struct ContainerStatus {
  ContainerStep step = ContainerStep::kPreparing;
  int64_t generation = 0;
  std::string boot_id;
  uint32_t first_host_id = 0;  // ids 0..65535 of the container are first_host_id.. on the host
  int64_t started_us = 0, ended_us = 0;  // CLOCK_BOOTTIME of boot_id
  int64_t last_seen_us = 0;              // last proof of life
  int exit_code = 0;
  bool is_oom = false, is_supervisor_lost = false;
  int64_t memory_peak_bytes = 0, cpu_time_us = 0;
};

Status save_spec(const InstancePaths& paths, const ContainerSpec& spec);
Result<ContainerSpec> load_spec(const InstancePaths& paths);
Status save_status(const InstancePaths& paths, const ContainerStatus& status);  // durable
Status note_status(const InstancePaths& paths, const ContainerStatus& status);  // without fsync
Result<ContainerStatus> load_status(const InstancePaths& paths);

}  // namespace anychip::agent
