// The Runtime of a real machine: pool, images, devices and containers of one data folder, behind a
// queue of operations and a watcher thread that sees containers end. Opening it over a folder that
// another agent left adopts what runs, heals what was half done, and sweeps what belongs to nobody.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/local/container.h"
#include "agent/local/devices.h"
#include "agent/local/image_store.h"
#include "agent/local/pool.h"
#include "agent/local/runtime_queue.h"
#include "agent/runtime.h"
#include "base/time.h"
#include "catalog/catalog.h"

namespace anychip::agent {

struct LocalRuntimeOptions {
  std::string data;                     // the data folder
  std::string run_root = "/run/anychip";  // mount points; every user may walk through it
  PoolOptions pool;
  int64_t log_bytes_max = 256ll << 20;  // of one container; later output is dropped
  int workers = 3;
};

class LocalRuntime final : public Runtime {
 public:
  // `images`, `clock` outlive it. chips and back_ends: of the catalogue.
  static Result<std::unique_ptr<LocalRuntime>> open(LocalRuntimeOptions options, ImageSource& images,
                                                    std::vector<catalog::Chip> chips,
                                                    std::vector<catalog::BackEnd> back_ends,
                                                    const Clock& clock);
  ~LocalRuntime() override;  // containers go on

  OperationId begin(Operation operation) override;
  std::vector<OperationDone> take_done() override;
  Inventory inventory() override;
  Status signal(const InstanceId& instance, int signal_number) override;
  Result<std::string> read_stream(const InstanceId& instance, Stream stream, int64_t offset,
                                  int64_t bytes_max) override;
  Status write_control(const InstanceId& instance, std::string_view json_text) override;

  // For `anychip down`: after all containers were removed, unmounts the volumes and the pool.
  Status close();

 private:
  LocalRuntime(ImageSource& images, std::unique_ptr<Pool> pool, Devices devices, NodePaths paths,
               Cgroups cgroups, const Clock& clock);
  Status adopt();
  void sweep_orphans();
  void watch();
  void refresh_disks();
  OperationId enqueue(Operation operation, bool is_reported);
  std::set<std::string> keys_of(const Operation& operation);
  Status perform(const Operation& operation);
  Status start(const ContainerSpec& spec);
  std::shared_ptr<Container> find(const InstanceId& instance);
  std::shared_ptr<Container> find_or_add(const InstanceId& instance);
  std::vector<std::shared_ptr<Container>> all();
  std::set<InstanceId> traces_of_instances();
  uint32_t choose_host_ids();

  ImageSource& images_;
  std::unique_ptr<Pool> pool_;
  const Devices devices_;
  ContainerParts parts_;

  std::mutex mutex_;  // guards containers_ and host id choice
  std::map<InstanceId, std::shared_ptr<Container>> containers_;
  std::map<InstanceId, uint32_t> chosen_ids_;  // of starts under way

  std::mutex cache_mutex_;
  std::vector<VolumeSeen> volumes_;
  std::vector<SnapshotSeen> snapshots_;
  std::vector<DeviceSeen> devices_seen_;
  PoolSpace space_;

  sys::Fd wake_;  // eventfd: ends the watcher
  std::unique_ptr<OperationQueue> queue_;
  std::thread watcher_;
};

// The node's image store as an ImageSource.
class StoreImages final : public ImageSource {
 public:
  StoreImages(const catalog::Catalog& catalog, ImageStore& store) : catalog_(catalog), store_(store) {}
  Status ensure(const std::string& image, const std::string& variant,
                const std::string& digest) override;
  Result<std::vector<std::string>> layer_paths(const std::string& image,
                                               const std::string& variant) override;
  std::vector<std::pair<std::string, std::string>> environment(const std::string& image,
                                                               const std::string& variant) override;
  std::vector<ImageSeen> seen() override;
  void cancel() override { store_.cancel(); }

 private:
  const catalog::Catalog& catalog_;
  ImageStore& store_;
};

}  // namespace anychip::agent
