// The built library over a fake plugin. Each test loads a copy of both files, so that it starts
// with fresh state and its own environment.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pjrt/testing/plugin_user.h"

namespace anychip::pjrt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Pair;
using Buffers = std::vector<abi::Buffer*>;

class ShimTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "anychip-pjrt-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::copy_file(SHIM_FILE, folder_ / "shim.so");
    fs::copy_file(FAKE_FILE, folder_ / "fake.so");
    set("ANYCHIP_PJRT_REAL", (folder_ / "fake.so").string());
  }
  void TearDown() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
    fs::remove_all(folder_);
  }
  void set(const std::string& name, const std::string& value) {
    names_.push_back(name);
    setenv(name.c_str(), value.c_str(), 1);
  }
  template <class F>
  F symbol(const char* file, const char* name) {
    void* library = dlopen((folder_ / file).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    return reinterpret_cast<F>(dlsym(library, name));
  }
  PluginUser load() { return PluginUser(symbol<const abi::Api* (*)()>("shim.so", "GetPjrtApi")()); }
  PluginUser with_client(const std::vector<std::pair<std::string, int64_t>>& options = {}) {
    PluginUser user = load();
    EXPECT_THAT(user.take(user.create_client(options)), Pair(abi::kOk, ""));
    return user;
  }
  std::string stats() { return symbol<const char* (*)()>("shim.so", "anychip_pjrt_stats_json")(); }
  int64_t stat(const std::string& key) {
    const std::string text = stats();
    const size_t at = text.find("\"" + key + "\":");
    EXPECT_NE(at, std::string::npos) << key;
    return std::atoll(text.c_str() + at + key.size() + 3);
  }
  int fake(const char* name) { return symbol<int (*)()>("fake.so", name)(); }
  std::string fake_options() {
    return symbol<const char* (*)()>("fake.so", "fake_client_options")();
  }

  fs::path folder_;
  std::vector<std::string> names_;
};

TEST_F(ShimTest, DropsTheOptionsThePluginRefusesAndSetsTheDeviceCount) {
  set("ANYCHIP_PJRT_DEVICE_COUNT", "2");
  with_client({{"premapped_buffer_size", 1}, {"good", 5}, {"goodness", 2}});
  EXPECT_EQ(fake_options(), "good=5;cpu_device_count=2;");
  EXPECT_EQ(stat("options_dropped"), 2);
}

TEST_F(ShimTest, KeepsTheCallersDeviceCountAndTakesItsOwnOption) {
  PluginUser user = with_client({{"cpu_device_count", 8}, {"anychip_memory_bytes", 4096}});
  EXPECT_EQ(fake_options(), "cpu_device_count=8;");
  EXPECT_EQ(user.memory_stats().bytes_limit, 4096);
}

TEST_F(ShimTest, ARefusalThatNamesNoOptionEndsWithoutOptions) {
  with_client({{"anonymous", 1}});
  EXPECT_EQ(fake_options(), "cpu_device_count=1;");
}

TEST_F(ShimTest, OtherErrorsOfThePluginReachTheCaller) {
  set("FAKE_BROKEN", "1");
  PluginUser user = load();
  EXPECT_THAT(user.take(user.create_client()), Pair(abi::kInternal, "the device is on fire"));
}

TEST_F(ShimTest, CountsTransfersProgramsAndBytes) {
  PluginUser user = with_client();
  abi::Buffer* input = nullptr;
  ASSERT_EQ(user.to_device(100, &input), nullptr);
  abi::LoadedExecutable* program = nullptr;
  ASSERT_EQ(user.compile("2 1000 temp 300 alias 0", &program), nullptr);
  Buffers outputs(2);
  ASSERT_EQ(user.execute(program, {input}, outputs), nullptr);
  char bytes[64];
  abi::BufferToHostBufferArgs question{};
  question.src = outputs[0];
  ASSERT_EQ(user.call(abi::kBufferToHostBuffer, question), nullptr);
  EXPECT_EQ(stat("device_to_host_transfers"), 0);  // only the size was asked for
  question.dst = bytes;
  question.dst_size = sizeof bytes;
  ASSERT_EQ(user.call(abi::kBufferToHostBuffer, question), nullptr);
  EXPECT_EQ(stat("host_to_device_transfers"), 1);
  EXPECT_EQ(stat("host_to_device_bytes"), 400);
  EXPECT_EQ(stat("device_to_host_transfers"), 1);
  EXPECT_EQ(stat("device_to_host_bytes"), 64);
  EXPECT_EQ(stat("compiles"), 1);
  EXPECT_EQ(stat("executions"), 1);
  EXPECT_EQ(stat("bytes_in_use"), 400 + 2000);
  EXPECT_EQ(stat("peak_bytes"), 400 + 2000 + 300);
  for (abi::Buffer* buffer : {input, outputs[0], outputs[1]}) {
    ASSERT_EQ(user.release(abi::kBufferDestroy, buffer), nullptr);
  }
  EXPECT_EQ(stat("bytes_in_use"), 0);
  EXPECT_EQ(stat("buffers"), 0);
  EXPECT_EQ(fake("fake_live_buffers"), 0);
}

TEST_F(ShimTest, PastTheLimitIsACleanErrorAndFreeingHelps) {
  set("ANYCHIP_PJRT_MEMORY_BYTES", "1000");
  PluginUser user = with_client();
  abi::Buffer *first = nullptr, *second = nullptr;
  ASSERT_EQ(user.to_device(200, &first), nullptr);
  EXPECT_THAT(
      user.take(user.to_device(51, &second)),
      Pair(abi::kResourceExhausted,
           "out of device memory: 204 bytes wanted, 800 of 1000 bytes are in use on this device"));
  EXPECT_EQ(fake("fake_live_buffers"), 1);
  EXPECT_EQ(user.to_device(50, &second), nullptr);  // exactly full
  abi::Buffer* elsewhere = nullptr;
  EXPECT_EQ(user.to_device(250, &elsewhere, 1), nullptr);  // the limit is per device
  ASSERT_EQ(user.release(abi::kBufferDestroy, first), nullptr);
  EXPECT_EQ(user.to_device(200, &first), nullptr);
  EXPECT_EQ(stat("out_of_memory"), 1);
}

TEST_F(ShimTest, AProgramThatDoesNotFitIsNotRun) {
  set("ANYCHIP_PJRT_MEMORY_BYTES", "1000");
  PluginUser user = with_client();
  abi::LoadedExecutable *fits = nullptr, *too_big = nullptr;
  ASSERT_EQ(user.compile("1 500 temp 500 alias 0", &fits), nullptr);
  ASSERT_EQ(user.compile("1 500 temp 501 alias 0", &too_big), nullptr);
  Buffers outputs(1);
  EXPECT_EQ(user.take(user.execute(too_big, {}, outputs)).first, abi::kResourceExhausted);
  EXPECT_EQ(fake("fake_executions"), 0);
  EXPECT_EQ(stat("bytes_in_use"), 0);
  EXPECT_EQ(user.execute(fits, {}, outputs), nullptr);
  EXPECT_EQ(stat("bytes_in_use"), 500);  // the temporaries are back
  EXPECT_EQ(user.take(user.execute(fits, {}, outputs)).first, abi::kResourceExhausted);
}

TEST_F(ShimTest, ALaunchThatFitsOnOneDeviceOnlyTakesNothingOnAny) {
  set("ANYCHIP_PJRT_MEMORY_BYTES", "1000");
  PluginUser user = with_client();
  abi::Buffer* filler = nullptr;
  ASSERT_EQ(user.to_device(200, &filler, 1), nullptr);
  abi::LoadedExecutable* program = nullptr;
  ASSERT_EQ(user.compile("1 500 temp 0 alias 0", &program), nullptr);
  Buffers first(1), second(1);
  abi::Buffer* const* arguments[2] = {nullptr, nullptr};
  abi::Buffer** outputs[2] = {first.data(), second.data()};
  abi::LoadedExecutableExecuteArgs args{};
  args.executable = program;
  args.argument_lists = arguments;
  args.num_devices = 2;
  args.output_lists = outputs;
  EXPECT_EQ(user.take(user.call(abi::kLoadedExecutableExecute, args)).first,
            abi::kResourceExhausted);
  EXPECT_EQ(user.memory_stats(0).bytes_in_use, 0);
  EXPECT_EQ(user.memory_stats(1).bytes_in_use, 800);
  ASSERT_EQ(user.release(abi::kBufferDestroy, filler), nullptr);
  EXPECT_EQ(user.call(abi::kLoadedExecutableExecute, args), nullptr);
  EXPECT_EQ(user.memory_stats(0).bytes_in_use, 500);
  EXPECT_EQ(user.memory_stats(1).bytes_in_use, 500);
}

// A training step that donates its state runs for ever in the memory of one state.
TEST_F(ShimTest, DonatedArgumentsGiveTheirMemoryToTheOutputs) {
  set("ANYCHIP_PJRT_MEMORY_BYTES", "1000");
  PluginUser user = with_client();
  abi::Buffer* state = nullptr;
  ASSERT_EQ(user.to_device(200, &state), nullptr);
  abi::LoadedExecutable* step = nullptr;
  ASSERT_EQ(user.compile("1 800 temp 100 alias 800", &step), nullptr);
  for (int i = 0; i < 5; ++i) {
    Buffers outputs(1);
    ASSERT_THAT(user.take(user.execute(step, {state}, outputs)), Pair(abi::kOk, ""));
    EXPECT_EQ(stat("bytes_in_use"), 800);  // before the donated handle is dropped
    ASSERT_EQ(user.release(abi::kBufferDestroy, state), nullptr);
    state = outputs[0];
    EXPECT_EQ(stat("bytes_in_use"), 800);
  }
}

TEST_F(ShimTest, DeletedThenDestroyedCountsOnce) {
  PluginUser user = with_client();
  abi::Buffer *kept = nullptr, *gone = nullptr;
  ASSERT_EQ(user.to_device(10, &kept), nullptr);
  ASSERT_EQ(user.to_device(20, &gone), nullptr);
  ASSERT_EQ(user.release(abi::kBufferDelete, gone), nullptr);
  EXPECT_EQ(stat("bytes_in_use"), 40);
  ASSERT_EQ(user.release(abi::kBufferDestroy, gone), nullptr);
  EXPECT_EQ(stat("bytes_in_use"), 40);
}

TEST_F(ShimTest, HostMemorySpacesAndUnknownProgramSizesDoNotCountAsDeviceMemory) {
  set("FAKE_NO_STATS", "1");
  PluginUser user = with_client();
  int not_a_device_memory = 0;
  abi::Buffer* buffer = nullptr;
  ASSERT_EQ(user.to_device(1000, &buffer, 0, reinterpret_cast<abi::Memory*>(&not_a_device_memory)),
            nullptr);
  EXPECT_EQ(stat("bytes_in_use"), 0);
  abi::LoadedExecutable* program = nullptr;
  ASSERT_EQ(user.compile("1 500 temp 100 alias 0", &program), nullptr);
  Buffers outputs(1);
  ASSERT_EQ(user.execute(program, {}, outputs), nullptr);
  EXPECT_EQ(stat("bytes_in_use"), 500);  // the output is seen after it is made
}

TEST_F(ShimTest, MemoryStatsLeaveNothingToChance) {
  set("ANYCHIP_PJRT_MEMORY_BYTES", "1000");
  PluginUser user = with_client();
  abi::Buffer *a = nullptr, *b = nullptr;
  ASSERT_EQ(user.to_device(100, &a), nullptr);
  ASSERT_EQ(user.to_device(50, &b), nullptr);
  ASSERT_EQ(user.release(abi::kBufferDestroy, a), nullptr);
  const abi::DeviceMemoryStatsArgs use = user.memory_stats();
  EXPECT_EQ(use.bytes_in_use, 200);
  EXPECT_TRUE(use.peak_bytes_in_use_is_set);
  EXPECT_EQ(use.peak_bytes_in_use, 600);
  EXPECT_EQ(use.peak_allocated_bytes, 600);
  EXPECT_EQ(use.num_allocs, 2);
  EXPECT_EQ(use.largest_alloc_size, 400);
  EXPECT_TRUE(use.bytes_limit_is_set);
  EXPECT_EQ(use.bytes_limit, 1000);
  EXPECT_FALSE(use.pool_bytes_is_set);
  EXPECT_EQ(use.pool_bytes, 0);
  EXPECT_EQ(user.memory_stats(1).bytes_in_use, 0);
}

TEST_F(ShimTest, WithoutALimitNoneIsClaimed) {
  PluginUser user = with_client();
  EXPECT_FALSE(user.memory_stats().bytes_limit_is_set);
}

TEST_F(ShimTest, EntriesNewerThanOursPassThrough) {
  PluginUser user = load();
  const auto* entries = reinterpret_cast<const abi::Function*>(user.api() + 1);
  EXPECT_EQ(user.api()->struct_size, sizeof(abi::Api) + 3 * sizeof(abi::Function));
  abi::Head args{sizeof(abi::Head), nullptr};
  ASSERT_EQ(entries[2](&args), nullptr);
  EXPECT_EQ(args.extension_start, reinterpret_cast<abi::Extension*>(42));
}

TEST_F(ShimTest, AnOlderPluginsShortTableStaysShort) {
  set("FAKE_ENTRIES", std::to_string(abi::kBufferToHostBuffer + 1));
  PluginUser user = with_client();
  EXPECT_FALSE(user.api()->covers(abi::kBufferCopyToMemory));
  abi::LoadedExecutable* program = nullptr;
  ASSERT_EQ(user.compile("1 500 temp 100 alias 0", &program), nullptr);
  Buffers outputs(1);
  ASSERT_EQ(user.execute(program, {}, outputs), nullptr);
  EXPECT_EQ(stat("bytes_in_use"), 500);
}

TEST_F(ShimTest, ArgumentsTooShortAreRefused) {
  PluginUser user = with_client();
  abi::ClientBufferFromHostBufferArgs args{};
  args.struct_size = sizeof(abi::Head);
  EXPECT_THAT(user.take(user.call(abi::kClientBufferFromHostBuffer, args)),
              Pair(abi::kInvalidArgument, HasSubstr("16 bytes, at least 120")));
}

// Since 0.112 a framework may use an error through the functions it points to.
TEST_F(ShimTest, ErrorsWorkThroughTheirOwnFunctionsToo) {
  set("ANYCHIP_PJRT_MEMORY_BYTES", "1");
  PluginUser user = with_client();
  abi::Buffer* buffer = nullptr;
  abi::Error* error = user.to_device(10, &buffer);
  ASSERT_NE(error, nullptr);
  const char* text = nullptr;
  size_t size = 0;
  error->functions->message(error, &text, &size);
  EXPECT_THAT(std::string(text, size), HasSubstr("out of device memory"));
  EXPECT_EQ(error->functions->get_code(error), abi::kResourceExhausted);
  abi::ErrorForEachPayloadArgs payloads{};
  payloads.error = error;
  EXPECT_EQ(user.call(abi::kErrorForEachPayload, payloads), nullptr);
  error->functions->destroy(error);
}

TEST_F(ShimTest, FaultsStrikeAtTheNthCallOnly) {
  set("ANYCHIP_PJRT_FAULT", "execute:2=error");
  PluginUser user = with_client();
  abi::LoadedExecutable* program = nullptr;
  ASSERT_EQ(user.compile("0 0 temp 0 alias 0", &program), nullptr);
  Buffers outputs;
  EXPECT_EQ(user.execute(program, {}, outputs), nullptr);
  EXPECT_THAT(user.take(user.execute(program, {}, outputs)),
              Pair(abi::kInternal, HasSubstr("a fault was injected")));
  EXPECT_EQ(user.execute(program, {}, outputs), nullptr);
  EXPECT_EQ(stat("executions"), 2);
}

TEST_F(ShimTest, WritesItsCountersWhenTheProcessExits) {
  const std::string file = (folder_ / "stats.jsonl").string();
  set("ANYCHIP_PJRT_STATS", file);
  EXPECT_EXIT(
      {
        PluginUser user = with_client();
        abi::Buffer* buffer = nullptr;
        user.to_device(25, &buffer);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"host_to_device_bytes\":100,"));
  EXPECT_THAT(text.str(), testing::EndsWith("}\n"));
}

TEST_F(ShimTest, ThreadsAtOnceKeepTheAccountExact) {
  set("ANYCHIP_PJRT_MEMORY_BYTES", "1000000");
  PluginUser user = with_client();
  abi::LoadedExecutable* program = nullptr;
  ASSERT_EQ(user.compile("2 60 temp 40 alias 0", &program), nullptr);
  constexpr int kThreads = 8, kRounds = 500;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        abi::Buffer* input = nullptr;
        Buffers outputs(2);
        failures += user.to_device(16, &input) != nullptr;
        failures += user.execute(program, {input}, outputs) != nullptr;
        for (abi::Buffer* buffer : {input, outputs[0], outputs[1]}) {
          failures += user.release(abi::kBufferDestroy, buffer) != nullptr;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(stat("bytes_in_use"), 0);
  EXPECT_EQ(stat("buffers"), 0);
  EXPECT_EQ(stat("executions"), kThreads * kRounds);
  EXPECT_LE(stat("peak_bytes"), kThreads * (64 + 160));
}

struct Broken {
  const char* name;
  const char* variable;
  const char* value;
  const char* message;
};
class ShimBrokenTest : public ShimTest, public testing::WithParamInterface<Broken> {};

TEST_P(ShimBrokenTest, ClientCreateSaysWhyInsteadOfAborting) {
  const Broken& broken = GetParam();
  std::string value = broken.value;
  if (value == "SELF") value = (folder_ / "shim.so").string();
  if (value == "EMPTY") {
    value = (folder_ / "empty.so").string();
    std::ofstream(value) << "not a library";
  }
  set(broken.variable, value);
  testing::internal::CaptureStderr();
  PluginUser user = load();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(broken.message));
  abi::Head nothing{sizeof(abi::Head), nullptr};
  EXPECT_EQ(user.call(abi::kPluginInitialize, nothing), nullptr);
  abi::PluginAttributesArgs attributes{};
  attributes.num_attributes = 99;
  EXPECT_EQ(user.call(abi::kPluginAttributes, attributes), nullptr);
  EXPECT_EQ(attributes.num_attributes, 0u);
  EXPECT_THAT(user.take(user.create_client()),
              Pair(abi::kFailedPrecondition, HasSubstr(broken.message)));
  EXPECT_EQ(user.take(user.call(abi::kBufferCopyToMemory, nothing)).first,
            abi::kFailedPrecondition);
  EXPECT_EQ(stat("executions"), 0);
}

constexpr Broken kBroken[] = {
    {"unset", "ANYCHIP_PJRT_REAL", "", "ANYCHIP_PJRT_REAL is not set"},
    {"missing", "ANYCHIP_PJRT_REAL", "/nowhere/x.so",
     "/nowhere/x.so: cannot open shared object file"},
    {"not_a_library", "ANYCHIP_PJRT_REAL", "EMPTY", "empty.so: file too short"},
    {"not_a_plugin", "ANYCHIP_PJRT_REAL", "libm.so.6", "libm.so.6 exports no GetPjrtApi"},
    {"itself", "ANYCHIP_PJRT_REAL", "SELF", "ANYCHIP_PJRT_REAL names this library itself"},
    {"other_major", "FAKE_MAJOR", "1", "speaks PJRT version 1.115"},
    {"memory", "ANYCHIP_PJRT_MEMORY_BYTES", "16GB", "must be a whole number of bytes, not '16GB'"},
    {"memory_negative", "ANYCHIP_PJRT_MEMORY_BYTES", "-1",
     "must be a whole number of bytes, not '-1'"},
    {"count", "ANYCHIP_PJRT_DEVICE_COUNT", "0", "must be from 1 to 4096, not '0'"},
    {"fault_site", "ANYCHIP_PJRT_FAULT", "sleep:1=error", "must look like execute:20=error"},
    {"fault_count", "ANYCHIP_PJRT_FAULT", "execute:x=error", "must look like execute:20=error"},
    {"fault_action", "ANYCHIP_PJRT_FAULT", "execute:1=burn", "must look like execute:20=error"},
};
INSTANTIATE_TEST_SUITE_P(All, ShimBrokenTest, testing::ValuesIn(kBroken),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace anychip::pjrt
