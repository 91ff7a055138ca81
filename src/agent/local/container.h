// One instance's container on a real node: made in steps, each recorded before its effect, so that
// start() and remove() repeated after a kill at any instant end in the same state. start(), remove()
// and forget() are called one at a time (the runtime's queue); everything else at any time.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/local/cgroup.h"
#include "agent/local/conmon.h"
#include "agent/local/container_log.h"
#include "agent/local/container_paths.h"
#include "agent/local/container_record.h"
#include "agent/local/devices.h"
#include "agent/local/pool.h"
#include "agent/runtime.h"
#include "base/json.h"
#include "base/time.h"

namespace anychip::agent {

// What a container needs of the images; ImageStore behind it, a folder in tests. Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual Status ensure(const std::string& image, const std::string& variant,
                        const std::string& digest) = 0;
  virtual Result<std::vector<std::string>> layer_paths(const std::string& image,
                                                       const std::string& variant) = 0;
  virtual std::vector<std::pair<std::string, std::string>> environment(
      const std::string& image, const std::string& variant) = 0;
  virtual std::vector<ImageSeen> seen() = 0;
  virtual void cancel() = 0;
};

struct ContainerParts {  // all outlive the containers
  NodePaths paths;
  Pool& pool;
  ImageSource& images;
  Cgroups cgroups;
  Runc runc;
  const Devices& devices;
  const Clock& clock;
  std::string boot_id;
  json::object seccomp;
  int64_t log_bytes_max = 256ll << 20;
};

class Container {
 public:
  Container(ContainerParts& parts, InstanceId instance);

  // Reads its folder. A container that an earlier agent left half-started is then kStarting, with
  // needs_start() true: the runtime begins start(spec()) again.
  Status load();
  bool needs_start() const;
  ContainerSpec spec() const;

  Status start(const ContainerSpec& spec, uint32_t first_host_id);
  Status remove();
  Status forget();  // remove() first

  void observe();  // has it ended? what does it use?
  std::optional<ContainerSeen> seen() const;  // nothing before the first start and after removal
  std::optional<uint32_t> host_ids_in_use() const;
  Status signal(int signal_number);
  Result<std::string> read_stream(Stream stream, int64_t offset, int64_t bytes_max);
  Status write_control(std::string_view json_text);
  bool is_removed() const;

 private:
  Status admit(const ContainerSpec& spec, bool& is_done);
  Status build(const ContainerSpec& spec, uint32_t first_host_id);
  Status run_command();
  Status mount_root(const ContainerSpec& spec, const std::string& disk, const sys::Fd& user_namespace);
  Status mount_volumes(const ContainerSpec& spec, const sys::Fd& user_namespace);
  Status write_bundle(const ContainerSpec& spec, uint32_t first_host_id, bool has_opt);
  Status undo();  // processes, runc's state, mounts, attachments, cgroups: all of it, repeatable
  Status kill_everything();
  Status unmount_everything();
  Status save_metrics();
  void note_exit_locked();   // the end has been proved: fills status_ from what is left
  void note_usage_locked();
  bool has_exit_file() const;
  bool is_command_pending() const;
  Status save_locked();
  Status send_locked(pid_t pid, int signal_number);
  void set_step_locked(ContainerStep step) { status_.step = step; }
  Result<std::string> read_metrics(int64_t offset, int64_t bytes_max);

  ContainerParts& parts_;
  const InstanceId instance_;
  const InstancePaths paths_;

  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<ContainerLog> log_;  // replaced by each attempt to start
  bool is_known_ = false;     // has a record
  ContainerSpec spec_;
  ContainerStatus status_;
  bool is_command_pending_ = false;  // step kStarted, but `runc start` has not come back
  int64_t memory_bytes_ = 0;
  int64_t usage_noted_us_ = 0;
};

// container_check.cc: everything wrong with a spec in one error.
Status check_container_spec(const ContainerSpec& spec);

// container_disk.cc: the system disk made ready for a leg, before the overlay is mounted over it.
//   upper/ work/  the overlay's; io/ = /run/anychip, emptied for each instance; state.json ours
Status prepare_system_disk(const std::string& disk, const ContainerSpec& spec,
                           const std::vector<std::string>& layers);

}  // namespace anychip::agent
