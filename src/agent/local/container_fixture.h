// A node in a temporary folder for tests that need root: a pool, an image made of one busybox layer.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/local/runtime_local.h"
#include "base/rng.h"
#include "base/time.h"
#include "sys/files.h"
#include "sys/mounts.h"

namespace anychip::agent {

inline void pause_ms(int64_t ms) {
  const timespec wait{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&wait, nullptr);
}

class FolderImages final : public ImageSource {
 public:
  explicit FolderImages(std::vector<std::string> layers) : layers_(std::move(layers)) {}
  Status ensure(const std::string&, const std::string&, const std::string&) override { return {}; }
  Result<std::vector<std::string>> layer_paths(const std::string& image, const std::string&) override {
    if (image != "busybox") return fail(Code::kFailedPrecondition, "image_not_ready", image);
    return layers_;
  }
  std::vector<std::pair<std::string, std::string>> environment(const std::string&,
                                                               const std::string&) override {
    return {{"FROM_IMAGE", "yes"}};
  }
  std::vector<ImageSeen> seen() override { return {{"busybox", "cpu", "d", true, 100, ""}}; }
  void cancel() override {}

 private:
  std::vector<std::string> layers_;
};

// Two layers as an image has: a base, and packages under /opt/anychip. Empty text = worked.
inline std::string make_layers(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const char* name : {"bin", "proc", "dev", "sys", "tmp", "etc", "run", "root", "usr/bin", "opt"}) {
    fs::create_directories(folder + "/base/" + name, error);
  }
  std::string busybox = "/bin/busybox";
  if (!fs::exists(busybox)) busybox = "/usr/bin/busybox";
  if (!fs::exists(busybox)) return "busybox-static is not installed";
  fs::copy_file(busybox, folder + "/base/bin/busybox", fs::copy_options::overwrite_existing, error);
  if (error) return error.message();
  chmod((folder + "/base/bin/busybox").c_str(), 0755);
  for (const char* applet : {"sh", "id", "ls", "echo", "cat", "touch", "sleep", "mount", "mknod", "dd",
                             "tail", "seq", "setsid", "hostname", "ln", "mkdir", "rm", "sync", "df",
                             "unshare", "chroot", "kill", "stat", "chown", "true", "head", "wc", "find", "nc"}) {
    fs::create_symlink("busybox", folder + "/base/bin/" + applet, error);
  }
  if (!sys::write_file_atomic(folder + "/base/usr/bin/python3", "#!/bin/sh\necho python \"$@\"\n", 0755)) {
    return "cannot write the layer";
  }
  chmod((folder + "/base/tmp").c_str(), 01777);
  fs::create_directories(folder + "/packages/opt/anychip/env/bin", error);
  const Status written =
      sys::write_file_atomic(folder + "/packages/opt/anychip/env/marker", "packages\n");
  return written ? "" : written.error().to_string();
}

struct Node {
  std::string data;
  std::unique_ptr<FolderImages> images;
  std::unique_ptr<LocalRuntime> runtime;
  RealClock clock;

  explicit Node(std::string folder) : data(std::move(folder)) {
    images = std::make_unique<FolderImages>(
        std::vector<std::string>{data + "/layers/base", data + "/layers/packages"});
  }
  Status open() {
    LocalRuntimeOptions options;
    options.data = data;
    options.pool.size_bytes = 4ll << 30;
    options.log_bytes_max = 256ll << 20;
    catalog::Chip chip;
    chip.id = "cpu";
    chip.back_end = "cpu";
    chip.price = RatePerHour{120'000};  // a CPU without a price is not offered
    chip.default_count_per_node = 2;
    TRY(runtime, LocalRuntime::open(options, *images, {chip}, {}, clock));
    return {};
  }
  void close() { runtime.reset(); }

  Status perform(Operation operation, int64_t patience_ms = 60'000) {
    const OperationId id = runtime->begin(std::move(operation));
    for (int64_t waited = 0; waited < patience_ms; waited += 1) {
      for (OperationDone& done : runtime->take_done()) {
        if (done.id == id) return std::move(done.status);
      }
      pause_ms(1);
    }
    return fail(Code::kDeadlineExceeded, "test_timeout", "the operation did not end");
  }
  std::optional<ContainerSeen> seen(const InstanceId& instance) {
    for (ContainerSeen& one : runtime->inventory().containers) {
      if (one.instance == instance) return one;
    }
    return std::nullopt;
  }
  std::optional<ContainerSeen> wait_exit(const InstanceId& instance, int64_t patience_ms = 20'000) {
    for (int64_t waited = 0; waited < patience_ms; waited += 2) {
      auto one = seen(instance);
      if (!one || one->phase == ContainerPhase::kExited) return one;
      pause_ms(2);
    }
    return seen(instance);
  }
  std::string read(const InstanceId& instance, Stream stream = Stream::kLog) {
    std::string all;
    while (true) {
      auto more = runtime->read_stream(instance, stream, static_cast<int64_t>(all.size()), 1 << 20);
      if (!more || more->empty()) return more ? all : all + more.error().to_string();
      all += *more;
    }
  }
  std::string wait_log(const InstanceId& instance, std::string_view text, int64_t patience_ms = 10'000) {
    std::string all;
    for (int64_t waited = 0; waited < patience_ms; waited += 5) {
      all = read(instance);
      if (all.find(text) != std::string::npos) return all;
      pause_ms(5);
    }
    return all;
  }
};

template <class T>
T new_id() {
  static SecureRandom random;
  return T::make(RealClock{}.wall_now(), random);
}

inline ContainerSpec shell_spec(const InstanceId& instance, const VolumeId& disk, const std::string& script) {
  ContainerSpec spec;
  spec.instance = instance;
  spec.generation = 1;
  spec.image = "busybox";
  spec.variant = "cpu";
  spec.system_disk = disk;
  spec.command = {"/bin/sh", "-c", script};
  spec.memory_bytes = 128 << 20;
  spec.pids_max = 64;
  return spec;
}

}  // namespace anychip::agent
