// What needs no root: log decoding, config.json, seccomp, devices, the order of operations.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "agent/local/bundle.h"
#include "agent/local/container.h"
#include "agent/local/container_log.h"
#include "agent/local/devices.h"
#include "agent/local/runtime_queue.h"
#include "base/rng.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "anychip-parts-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

const char* const kStamp = "2026-11-30T20:26:25.822542548+00:00 ";

TEST(ContainerLogTest, StripsPrefixesAndJoinsPartialLines) {
  const Folder folder;
  const std::string path = folder / "log";
  ContainerLog log(path);
  EXPECT_EQ(log.read(0, 100).value(), "");  // no file yet
  const std::string raw = std::string(kStamp) + "stdout P par\n" + kStamp + "stdout F tial\n" + kStamp +
                          "stderr F \n" + kStamp + "stderr P 10%\rF x\n" + "no prefix\n" + kStamp +
                          "stdout F cut";
  ASSERT_TRUE(sys::write_file_atomic(path, raw));
  const std::string expected = "partial\n\n10%\rF xno prefix\n";
  EXPECT_EQ(log.read(0, 1000).value(), expected);
  for (size_t offset = 0; offset <= expected.size() + 3; ++offset) {
    for (const int64_t length : {1, 3, 100}) {
      EXPECT_EQ(log.read(static_cast<int64_t>(offset), length).value(),
                offset < expected.size() ? expected.substr(offset, static_cast<size_t>(length)) : "");
    }
  }
  ASSERT_TRUE(sys::write_file_atomic(path, raw + " no more\n"));
  EXPECT_EQ(log.read(static_cast<int64_t>(expected.size()), 100).value(), "cut no more\n");
  EXPECT_FALSE(log.read(-1, 5));
}

TEST(ContainerLogTest, AFullLogEndsWithAWordAboutIt) {
  const Folder folder;
  const std::string raw = std::string(kStamp) + "stdout F one\n" + kStamp + "stdout F two\n";
  ASSERT_TRUE(sys::write_file_atomic(folder / "log", raw));
  EXPECT_EQ(ContainerLog(folder / "log", static_cast<int64_t>(raw.size()) + 1).read(0, 1000).value(),
            "one\ntwo\n");
  ContainerLog full(folder / "log", static_cast<int64_t>(raw.size()));
  const std::string all = full.read(0, 1000).value();
  EXPECT_TRUE(all.starts_with("one\ntwo\n[anychip] the log has reached its limit")) << all;
  for (size_t offset = 0; offset <= all.size(); ++offset) {
    EXPECT_EQ(full.read(static_cast<int64_t>(offset), 7).value(), all.substr(offset, 7));
  }
}

TEST(ContainerLogTest, AHundredMegabytesAreReadInTimeThatIsNotFelt) {
  const Folder folder;
  std::string raw;
  const std::string line = std::string(kStamp) + "stdout F " + std::string(90, 'x') + "\n";
  raw.reserve(static_cast<size_t>(105) << 20);
  while (raw.size() < (static_cast<size_t>(100) << 20)) raw += line;
  ASSERT_TRUE(sys::write_file_atomic(folder / "log", raw));
  const int64_t decoded = static_cast<int64_t>(raw.size() / line.size()) * 91;
  const RealClock clock;
  ContainerLog log(folder / "log");
  const MonoTime begin = clock.mono_now();
  EXPECT_EQ(log.read(decoded - 10, 100).value().size(), 10u);  // an agent that starts again
  const MonoTime first = clock.mono_now();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(log.read(decoded / 100 * i, 1000).value().size(), 1000u);
  }
  const MonoTime after = clock.mono_now();
  std::printf("100 MiB log: first read at its end %.0f ms, then any offset %.2f ms\n",
              (first - begin).seconds() * 1e3, (after - first).seconds() * 10);
  EXPECT_LT((first - begin).us, 5'000'000);
}

// Any way of reading a long log gives the same bytes, also with a reader that knows nothing yet.
TEST(ContainerLogTest, RandomReadsOfALongLogAgree) {
  const Folder folder;
  SeededRandom random(7);
  std::string raw, expected;
  while (expected.size() < 3'000'000) {
    std::string text(random.below(random.chance(2) ? 8000 : 90), 'a');
    for (char& c : text) c = static_cast<char>('a' + random.below(26));
    const bool is_partial = random.chance(10);
    raw += std::string(kStamp) + (random.chance(50) ? "stdout " : "stderr ") + (is_partial ? "P " : "F ") +
           text + "\n";
    expected += text + (is_partial ? "" : "\n");
  }
  ASSERT_TRUE(sys::write_file_atomic(folder / "log", raw));
  ContainerLog log(folder / "log");
  for (int i = 0; i < 300; ++i) {
    const auto offset = static_cast<int64_t>(random.below(expected.size()));
    const auto length = static_cast<int64_t>(random.below(random.chance(10) ? 300'000 : 3'000));
    ASSERT_EQ(log.read(offset, length).value(),
              expected.substr(static_cast<size_t>(offset), static_cast<size_t>(length)));
  }
  ContainerLog fresh(folder / "log");
  std::string all;
  while (true) {
    const std::string more = fresh.read(static_cast<int64_t>(all.size()), 65'536).value();
    if (more.empty()) break;
    all += more;
  }
  EXPECT_TRUE(all == expected);
}

ContainerSpec valid_spec() {
  SeededRandom random(1);
  ContainerSpec spec;
  spec.instance = InstanceId::make(WallTime{1}, random);
  spec.system_disk = VolumeId::make(WallTime{1}, random);
  spec.command = {"/bin/true"};
  return spec;
}

TEST(ContainerSpecTest, EverythingWrongIsNamedAtOnce) {
  EXPECT_TRUE(check_container_spec(valid_spec()));
  ContainerSpec spec = valid_spec();
  spec.command.clear();
  spec.cwd = "relative";
  spec.environment["A=B"] = "x";
  spec.memory_bytes = 1000;
  spec.volumes = {{VolumeId{"vol_1"}, "/a/../b", 1, false}, {VolumeId{"vol_2"}, "/proc/x", 1, false},
                  {VolumeId{"vol_3"}, "/ok", 1, false}, {VolumeId{"vol_3"}, "/ok", 1, false}};
  const Status checked = check_container_spec(spec);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().reason, "container_spec_invalid");
  EXPECT_EQ(checked.error().fields.size(), 8u);
  spec = valid_spec();
  spec.instance.text = "../../etc";
  EXPECT_FALSE(check_container_spec(spec));
}

BundleInput input_of(const ContainerSpec& spec) {
  BundleInput input{.spec = spec, .image_environment = {{"A", "image"}, {"B", "image"}}, .rootfs = "/r",
                    .mounts = {{"/src", "/checkpoints", true}}, .devices = {}, .first_host_id = 265'536,
                    .cgroup_path = "/x", .open_files_max = 20'000, .seccomp = {}};
  return input;
}

TEST(BundleTest, LimitsNamespacesAndEnvironment) {
  ContainerSpec spec = valid_spec();
  spec.memory_bytes = 1 << 30;
  spec.cpu_millis = 1500;
  spec.pids_max = 77;
  spec.environment["B"] = "spec";
  const auto config = json::parse(bundle_config(input_of(spec))).value().get_object();
  const auto& os = json::object_at(config, "linux");
  const auto& resources = json::object_at(os, "resources");
  EXPECT_EQ(json::int_at(json::object_at(resources, "memory"), "limit"), 1 << 30);
  EXPECT_EQ(json::int_at(json::object_at(resources, "cpu"), "quota"), 150'000);
  EXPECT_EQ(json::int_at(json::object_at(resources, "pids"), "limit"), 77);
  const auto& devices = json::array_at(resources, "devices");
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_FALSE(json::bool_at(devices[0].get_object(), "allow"));
  EXPECT_EQ(json::array_at(os, "namespaces").size(), 7u);
  const auto& process = json::object_at(config, "process");
  EXPECT_TRUE(json::bool_at(process, "noNewPrivileges"));
  const std::string environment = json::serialize(json::array_at(process, "env"));
  EXPECT_NE(environment.find("\"A=image\""), std::string::npos);
  EXPECT_NE(environment.find("\"B=spec\""), std::string::npos);
  EXPECT_NE(environment.find("PATH=/opt/anychip/env/bin:"), std::string::npos);
  for (const auto& limit : json::array_at(process, "rlimits")) {
    EXPECT_LE(json::int_at(limit.get_object(), "hard"), 20'000);  // never above the inherited one
  }
}

bool allows(const json::object& seccomp, std::string_view name) {
  for (const auto& rule : json::array_at(seccomp, "syscalls")) {
    const auto& object = rule.get_object();
    if (json::string_at(object, "action") != "SCMP_ACT_ALLOW" || object.contains("args")) continue;
    for (const auto& one : json::array_at(object, "names")) {
      if (std::string_view(one.get_string()) == name) return true;
    }
  }
  return false;
}

TEST(SeccompTest, ProfileIsReducedToOurCapabilities) {
  const auto reduced = seccomp_of_profile(R"({"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,
    "syscalls":[{"names":["read","mount","clone","clone3","unshare"],"action":"SCMP_ACT_ALLOW"},
                {"names":["bpf","quotactl2"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}},
                {"names":["arm_only"],"action":"SCMP_ACT_ALLOW","includes":{"arches":["arm"]}},
                {"names":["not_without"],"action":"SCMP_ACT_ALLOW","excludes":{"caps":["CAP_CHOWN"]}},
                {"names":["chown_it"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_CHOWN"]}}]})");
  ASSERT_TRUE(reduced) << reduced.error().to_string();
  EXPECT_TRUE(allows(*reduced, "read"));
  EXPECT_TRUE(allows(*reduced, "chown_it"));
  for (const char* name : {"mount", "clone", "clone3", "unshare", "bpf", "quotactl2", "arm_only", "not_without"}) {
    EXPECT_FALSE(allows(*reduced, name)) << name;
  }
  EXPECT_EQ(json::int_at(*reduced, "defaultErrnoRet"), 38);
  EXPECT_FALSE(seccomp_of_profile("{"));
  EXPECT_FALSE(seccomp_of_profile("{}"));
}

TEST(DevicesTest, FilesAreMadeOnceAndGoneMeansUnhealthy) {
  const Folder folder;
  catalog::Chip sim;
  sim.id = "tpu-sim";
  sim.back_end = "tpu";
  sim.is_simulated = true;
  sim.default_count_per_node = 2;
  catalog::Chip real;
  real.id = "h100";
  real.back_end = "cuda";
  const Devices devices(folder / "devices", {sim, real}, {});
  ASSERT_TRUE(devices.prepare());
  ASSERT_EQ(devices.seen().size(), 2u);
  EXPECT_TRUE(devices.seen()[1].is_healthy);
  std::filesystem::remove(folder / "devices/tpu-sim-1");
  ASSERT_TRUE(devices.prepare());  // the agent starts again: it stays away
  EXPECT_TRUE(devices.seen()[0].is_healthy);
  EXPECT_FALSE(devices.seen()[1].is_healthy);
  EXPECT_EQ(devices.seen()[1].note, "device file is gone");
  EXPECT_EQ(devices.nodes_of({"tpu-sim-1"}).error().reason, "device_gone");
  EXPECT_EQ(devices.nodes_of({"tpu-sim-9"}).error().reason, "device_unknown");
  ASSERT_TRUE(sys::write_file_atomic(folder / "devices/tpu-sim-1", ""));
  EXPECT_TRUE(devices.seen()[1].is_healthy);
  sim.default_count_per_node = 3;  // the catalogue gains one
  const Devices more(folder / "devices", {sim}, {});
  ASSERT_TRUE(more.prepare());
  EXPECT_TRUE(more.seen()[2].is_healthy);
}

TEST(DevicesTest, RealOnesAreFoundByPciId) {
  const Folder root;
  for (const auto& [address, device] : std::vector<std::pair<std::string, std::string>>{
           {"0000:81:00.0", "0xd802"}, {"0000:01:00.0", "0xd802"}, {"0000:02:00.0", "0x1234"}}) {
    const std::string folder = root / ("sys/bus/pci/devices/" + address);
    ASSERT_TRUE(sys::make_folders(folder));
    ASSERT_TRUE(sys::write_file_atomic(folder + "/vendor", "0x19e5\n"));
    ASSERT_TRUE(sys::write_file_atomic(folder + "/device", device + "\n"));
  }
  catalog::BackEnd back_end;
  back_end.id = "ascend";
  back_end.pci_ids = {"19e5:d802"};
  catalog::Chip chip;
  chip.id = "ascend-910b";
  chip.back_end = "ascend";
  const Devices devices(root / "devices", {chip}, {back_end}, root / "");
  const auto seen = devices.seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].id, "ascend-0");
  EXPECT_EQ(seen[0].chip, "ascend-910b");
  EXPECT_EQ(seen[0].note, "PCI 0000:01:00.0");
}

TEST(OperationQueueTest, SameObjectInOrderOthersAtOnce) {
  OperationQueue queue(3);
  std::mutex mutex;
  std::vector<int> order;
  std::atomic<bool> is_gate_open{false};
  const auto note = [&](int n, bool waits) {
    return [&, n, waits]() -> Status {
      while (waits && !is_gate_open) {
        const timespec pause{0, 1'000'000};
        nanosleep(&pause, nullptr);
      }
      const std::lock_guard lock(mutex);
      order.push_back(n);
      return {};
    };
  };
  queue.begin({"a", "b"}, "", note(1, true));
  queue.begin({"b", "c"}, "", note(2, false));
  queue.begin({"c"}, "", note(3, false));  // not before 2, which waits for 1
  queue.begin({"d"}, "", note(4, false));
  std::vector<OperationDone> done;
  const auto collect = [&](size_t count) {
    for (int i = 0; i < 5000 && done.size() < count; ++i) {
      for (auto& one : queue.take_done()) done.push_back(std::move(one));
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
  };
  collect(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, 4);
  is_gate_open = true;
  collect(4);
  EXPECT_EQ(order, (std::vector<int>{4, 1, 2, 3}));
}

TEST(OperationQueueTest, OneImageBuildLeavesTheOtherWorkersFree) {
  OperationQueue queue(2);
  std::atomic<bool> is_gate_open{false};
  std::atomic<int> builds{0}, most{0};
  const auto build = [&]() -> Status {
    most = std::max(most.load(), ++builds);
    while (!is_gate_open) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
    --builds;
    return {};
  };
  queue.begin({"i1"}, "image", build);
  queue.begin({"i2"}, "image", build);
  const OperationId other = queue.begin({"x"}, "", [] { return Status{}; });
  std::vector<OperationDone> done;
  for (int i = 0; i < 5000 && done.empty(); ++i) {
    done = queue.take_done();
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  is_gate_open = true;
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, other);
  queue.stop();
  EXPECT_EQ(most, 1);
}

TEST(ContainerRecordTest, SpecAndStatusSurviveTheDisk) {
  const Folder folder;
  InstancePaths paths;
  paths.spec = folder / "spec.json";
  paths.status = folder / "status.json";
  ContainerSpec spec = valid_spec();
  spec.environment = {{"A", "x\"y\n"}, {"B", ""}};
  spec.volumes = {{VolumeId{"vol_1"}, "/checkpoints", 4, true}};
  spec.device_ids = {"cpu-0"};
  spec.workdir_digest = "ab";
  ASSERT_TRUE(save_spec(paths, spec));
  const auto loaded = load_spec(paths);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->environment, spec.environment);
  EXPECT_EQ(loaded->command, spec.command);
  ASSERT_EQ(loaded->volumes.size(), 1u);
  EXPECT_TRUE(loaded->volumes[0].is_read_only);
  EXPECT_EQ(loaded->volumes[0].attach_generation, 4);
  struct stat info{};
  ASSERT_EQ(stat(paths.spec.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);  // secrets may be in the environment
  ContainerStatus status;
  status.step = ContainerStep::kExited;
  status.exit_code = 75;
  status.is_oom = true;
  status.first_host_id = 265'536;
  ASSERT_TRUE(save_status(paths, status));
  const auto back = load_status(paths);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->step, ContainerStep::kExited);
  EXPECT_EQ(back->exit_code, 75);
  EXPECT_TRUE(back->is_oom);
  EXPECT_EQ(back->first_host_id, 265'536u);
  ASSERT_TRUE(sys::write_file_atomic(paths.status, "{\"format\":1,\"step\":\"dancing\"}"));
  EXPECT_FALSE(load_status(paths));
}

}  // namespace
}  // namespace anychip::agent
