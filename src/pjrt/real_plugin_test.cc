// The built library over a real plugin (XLA for the CPU): what programs, buffers and limits really
// do. The plugin is the one of the layer torch-tpu-sim, where scripts/python-env puts it, or
// $ANYCHIP_TEST_PJRT_REAL; without it the tests are skipped.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pjrt/testing/plugin_user.h"

namespace anychip::pjrt {
namespace {

using testing::HasSubstr;
using testing::Pair;
using Buffers = std::vector<abi::Buffer*>;

constexpr int64_t kSide = 256;
constexpr int64_t kBytes = kSide * kSide * 4;
constexpr int64_t kLimitBytes = 16 * kBytes;
const std::string kOptions("\x1a\x04\x20\x01\x28\x01", 6);  // one replica, one partition

std::string matrix_program(const std::string& argument_attributes, const std::string& body) {
  return "module @m { func.func public @main(%a: tensor<65536xf32> " + argument_attributes +
         ") -> tensor<65536xf32> {\n" + body + "\n return %0 : tensor<65536xf32> } }";
}

class RealPluginTest : public testing::Test {
 protected:
  // One shim and one client for all tests: a plugin of this size is loaded once.
  static void SetUpTestSuite() {
    const char* named = std::getenv("ANYCHIP_TEST_PJRT_REAL");
    const std::string path = named != nullptr ? named
                                              : ANYCHIP_SOURCE_DIR
                                 "/build/venv/tpu-sim/lammps_jax_pjrt_cpu/"
                                 "pjrt_c_api_cpu_plugin.so";
    if (!std::filesystem::exists(path)) return;
    setenv("ANYCHIP_PJRT_REAL", path.c_str(), 1);
    setenv("ANYCHIP_PJRT_MEMORY_BYTES", std::to_string(kLimitBytes).c_str(), 1);
    setenv("TF_CPP_MIN_LOG_LEVEL", "3", 1);
    library_ = dlopen(SHIM_FILE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    const auto get_api = reinterpret_cast<const abi::Api* (*)()>(dlsym(library_, "GetPjrtApi"));
    user_ = new PluginUser(get_api());
    abi::Head nothing{sizeof(abi::Head), nullptr};
    ASSERT_THAT(user_->take(user_->call(abi::kPluginInitialize, nothing)), Pair(abi::kOk, ""));
    ASSERT_THAT(
        user_->take(user_->create_client({{"premapped_buffer_size", 1}, {"no_such_option", 2}})),
        Pair(abi::kOk, ""));
    EXPECT_EQ(stat("options_dropped"), 2);
  }
  void SetUp() override {
    if (user_ == nullptr) GTEST_SKIP() << "no PJRT plugin here: run scripts/python-env first";
    ones_.assign(kSide * kSide, 1.0F);
  }
  static int64_t stat(const std::string& key) {
    const auto stats =
        reinterpret_cast<const char* (*)()>(dlsym(library_, "anychip_pjrt_stats_json"));
    const std::string text = stats();
    const size_t at = text.find("\"" + key + "\":");
    return at == std::string::npos ? -1 : std::atoll(text.c_str() + at + key.size() + 3);
  }
  abi::Buffer* upload() {
    abi::Buffer* buffer = nullptr;
    EXPECT_THAT(user_->take(user_->to_device(kSide * kSide, &buffer, 0, nullptr, ones_.data())),
                Pair(abi::kOk, ""));
    return buffer;
  }
  abi::LoadedExecutable* compile(const std::string& text) {
    abi::LoadedExecutable* program = nullptr;
    EXPECT_THAT(user_->take(user_->compile(text, &program, "mlir", kOptions)), Pair(abi::kOk, ""));
    return program;
  }
  std::pair<abi::ErrorCode, std::string> run(abi::LoadedExecutable* program, abi::Buffer* argument,
                                             abi::Buffer** output) {
    abi::ExecuteOptions options{};
    options.struct_size = sizeof options;
    Buffers outputs(1);
    const auto result = user_->take(user_->execute(program, {argument}, outputs, &options));
    *output = outputs[0];
    return result;
  }
  void free(abi::Buffer* buffer) {
    EXPECT_EQ(user_->release(abi::kBufferDestroy, buffer), nullptr);
  }

  static inline void* library_ = nullptr;
  static inline PluginUser* user_ = nullptr;
  std::vector<float> ones_;
};

TEST_F(RealPluginTest, ComputesAndCounts) {
  const int64_t executions = stat("executions"), compiles = stat("compiles");
  const int64_t in_use = stat("bytes_in_use");
  abi::LoadedExecutable* doubled =
      compile(matrix_program("", " %0 = stablehlo.add %a, %a : tensor<65536xf32>"));
  abi::Buffer* input = upload();
  abi::Buffer* output = nullptr;
  ASSERT_THAT(run(doubled, input, &output), Pair(abi::kOk, ""));
  EXPECT_EQ(stat("bytes_in_use"), in_use + 2 * kBytes);
  std::vector<float> result(kSide * kSide);
  ASSERT_EQ(user_->to_host(output, result.data(), kBytes), nullptr);
  EXPECT_EQ(std::accumulate(result.begin(), result.end(), 0.0), 2.0 * kSide * kSide);
  free(input);
  free(output);
  EXPECT_EQ(stat("bytes_in_use"), in_use);
  EXPECT_EQ(stat("executions"), executions + 1);
  EXPECT_EQ(stat("compiles"), compiles + 1);
}

TEST_F(RealPluginTest, ADonatedStateRunsInItsOwnMemory) {
  abi::LoadedExecutable* step = compile(matrix_program(
      "{tf.aliasing_output = 0 : i32}", " %0 = stablehlo.add %a, %a : tensor<65536xf32>"));
  const int64_t in_use = stat("bytes_in_use");
  abi::Buffer* state = upload();
  for (int i = 0; i < 20; ++i) {
    abi::Buffer* next = nullptr;
    ASSERT_THAT(run(step, state, &next), Pair(abi::kOk, ""));
    EXPECT_EQ(stat("bytes_in_use"), in_use + kBytes) << i;  // before the old handle is dropped
    free(state);
    state = next;
  }
  std::vector<float> result(kSide * kSide);
  ASSERT_EQ(user_->to_host(state, result.data(), kBytes), nullptr);
  EXPECT_EQ(result[7], 1 << 20);
  free(state);
}

TEST_F(RealPluginTest, TheLimitEndsUploadsAndRunsCleanlyAndFreeingHelps) {
  abi::LoadedExecutable* doubled =
      compile(matrix_program("", " %0 = stablehlo.add %a, %a : tensor<65536xf32>"));
  Buffers held;
  for (int i = 0; i < 16; ++i) held.push_back(upload());
  abi::Buffer* more = nullptr;
  EXPECT_THAT(
      user_->take(user_->to_device(kSide * kSide, &more, 0, nullptr, ones_.data())),
      Pair(abi::kResourceExhausted, HasSubstr("out of device memory: 262144 bytes wanted")));
  EXPECT_THAT(run(doubled, held[0], &more),
              Pair(abi::kResourceExhausted, HasSubstr("out of device memory")));
  const abi::DeviceMemoryStatsArgs use = user_->memory_stats();
  EXPECT_EQ(use.bytes_in_use, kLimitBytes);
  EXPECT_EQ(use.peak_bytes_in_use, kLimitBytes);
  EXPECT_EQ(use.bytes_limit, kLimitBytes);
  free(held.back());
  held.pop_back();
  EXPECT_THAT(run(doubled, held[0], &more), Pair(abi::kOk, ""));
  free(more);
  for (abi::Buffer* buffer : held) free(buffer);
  EXPECT_EQ(stat("bytes_in_use"), 0);
}

TEST_F(RealPluginTest, ErrorsOfThePluginKeepTheirCodeAndText) {
  abi::LoadedExecutable* program = nullptr;
  const auto [code, text] =
      user_->take(user_->compile("this is no program", &program, "mlir", kOptions));
  EXPECT_NE(code, abi::kOk);
  EXPECT_FALSE(text.empty());
}

}  // namespace
}  // namespace anychip::pjrt
