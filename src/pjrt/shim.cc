#include "pjrt/shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

extern "C" {
__attribute__((visibility("default"))) const anychip::pjrt::abi::Api* GetPjrtApi();
__attribute__((visibility("default"))) const char* anychip_pjrt_stats_json();
}

namespace anychip::pjrt {

Shim& Shim::instance() {
  static Shim* const shim = new Shim;
  return *shim;
}

const abi::Api* Shim::api() {
  std::call_once(built_, [this] { build(); });
  return reinterpret_cast<const abi::Api*>(table_.data());
}

void Shim::build() {
  settings.read_environment();
  memory.set_limit(settings.memory_bytes);
  failure_ = settings.problem.empty() ? load_real() : settings.problem;
  const size_t size =
      failure_.empty() ? std::max(real_->struct_size, sizeof(abi::Api)) : sizeof(abi::Api);
  table_.resize(size / sizeof(std::max_align_t) + 1);
  auto& table = *reinterpret_cast<abi::Api*>(table_.data());
  if (!failure_.empty()) {
    real_ = nullptr;
    std::fprintf(stderr, "anychip-pjrt: %s\n", failure_.c_str());
    install_failure(table);
  } else {
    std::memcpy(table_.data(), real_, real_->struct_size);  // entries newer than ours pass through
    install_hooks(table);
  }
  if (!settings.stats_path.empty()) std::atexit([] { instance().write_stats(); });
}

std::string Shim::load_real() {
  const std::string& path = settings.real_path;
  if (path.empty()) {
    return "ANYCHIP_PJRT_REAL is not set: it must name the PJRT plugin to stand in front of";
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return std::string("the PJRT plugin named by ANYCHIP_PJRT_REAL cannot be loaded: ") + dlerror();
  }
  using GetApi = const abi::Api* (*)();
  const auto get_api = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) return path + " exports no GetPjrtApi: it is no PJRT plugin";
  if (get_api == &GetPjrtApi) return "ANYCHIP_PJRT_REAL names this library itself";
  const abi::Api* api = get_api();
  if (api == nullptr) return path + " gave no PJRT table";
  const bool is_usable = api->covers(abi::kClientCreate) && api->version.major_version == 0;
  if (!is_usable) {
    return path + " speaks PJRT version " + std::to_string(api->version.major_version) + "." +
           std::to_string(api->version.minor_version) + ", which this shim does not know";
  }
  real_ = api;
  return "";
}

void Shim::destroy(abi::Error* error) const {
  if (is_ours(error)) return destroy_ours(error);
  abi::ErrorDestroyArgs args{};
  args.struct_size = sizeof args;
  args.error = error;
  if (real_ != nullptr && error != nullptr) real_->entries[abi::kErrorDestroy](&args);
}

std::string Shim::message_of(abi::Error* error) const {
  if (is_ours(error)) return message_of_ours(error);
  abi::ErrorMessageArgs args{};
  args.struct_size = sizeof args;
  args.error = error;
  real_->entries[abi::kErrorMessage](&args);
  return std::string(args.message, args.message_size);
}

abi::ErrorCode Shim::code_of(abi::Error* error) const {
  if (is_ours(error)) return code_of_ours(error);
  abi::ErrorGetCodeArgs args{};
  args.struct_size = sizeof args;
  args.error = error;
  real_->entries[abi::kErrorGetCode](&args);
  return args.code;
}

void Shim::add_devices_of(abi::Client* client) {
  abi::ClientAddressableDevicesArgs list{};
  list.client = client;
  if (!ask_real(abi::kClientAddressableDevices, list)) return;
  for (size_t i = 0; i < list.num_addressable_devices; ++i) {
    abi::DeviceDefaultMemoryArgs args{};
    args.device = list.addressable_devices[i];
    const bool has_memory = ask_real(abi::kDeviceDefaultMemory, args);
    memory.add_device(args.device, has_memory ? args.memory : nullptr);
  }
}

std::shared_ptr<const ProgramFacts> Shim::facts_of(abi::LoadedExecutable* program) {
  {
    const std::shared_lock lock(programs_mutex_);
    const auto found = programs_.find(program);
    if (found != programs_.end()) return found->second;
  }
  std::shared_ptr<const ProgramFacts> facts = ask_facts(program);
  const std::unique_lock lock(programs_mutex_);
  return programs_.emplace(program, std::move(facts)).first->second;
}

std::shared_ptr<const ProgramFacts> Shim::ask_facts(abi::LoadedExecutable* program) const {
  auto facts = std::make_shared<ProgramFacts>();
  abi::LoadedExecutableAddressableDevicesArgs devices{};
  devices.executable = program;
  if (ask_real(abi::kLoadedExecutableAddressableDevices, devices)) {
    for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
      facts->devices.push_back(memory.index_of(devices.addressable_devices[i]));
    }
  }
  abi::LoadedExecutableGetExecutableArgs inner{};
  inner.loaded_executable = program;
  if (!ask_real(abi::kLoadedExecutableGetExecutable, inner)) return facts;
  abi::ExecutableNumOutputsArgs outputs{};
  outputs.executable = inner.executable;
  if (ask_real(abi::kExecutableNumOutputs, outputs)) facts->output_count = outputs.num_outputs;
  abi::ExecutableMemoryStatsArgs sizes{};
  sizes.executable = inner.executable;
  if (ask_real(abi::kExecutableGetCompiledMemoryStats, sizes)) {
    const int64_t fresh = sizes.output_size_in_bytes - sizes.alias_size_in_bytes;
    facts->result_bytes = std::max<int64_t>(fresh, 0);
    facts->working_bytes = std::max<int64_t>(sizes.temp_size_in_bytes, 0);
  }
  abi::ExecutableDestroyArgs done{};
  done.executable = inner.executable;
  ask_real(abi::kExecutableDestroy, done);
  return facts;
}

void Shim::forget_program(abi::LoadedExecutable* program) {
  const std::unique_lock lock(programs_mutex_);
  programs_.erase(program);
}

std::string Shim::stats_json() const {
  const auto get = [](const std::atomic<int64_t>& value) {
    return static_cast<long long>(value.load(std::memory_order_relaxed));
  };
  char text[1024];
  const Counters& c = counters;
  std::snprintf(
      text, sizeof text,
      "{\"executions\":%lld,\"compiles\":%lld,\"loads\":%lld,"
      "\"host_to_device_transfers\":%lld,\"host_to_device_bytes\":%lld,"
      "\"device_to_host_transfers\":%lld,\"device_to_host_bytes\":%lld,"
      "\"bytes_in_use\":%lld,\"peak_bytes\":%lld,\"memory_limit_bytes\":%lld,"
      "\"buffers\":%lld,\"out_of_memory\":%lld,\"options_dropped\":%lld}",
      get(c.executions), get(c.compiles), get(c.loads), get(c.host_to_device_transfers),
      get(c.host_to_device_bytes), get(c.device_to_host_transfers), get(c.device_to_host_bytes),
      static_cast<long long>(memory.bytes_in_use()), static_cast<long long>(memory.peak_bytes()),
      static_cast<long long>(memory.limit_bytes()), static_cast<long long>(memory.buffer_count()),
      get(c.out_of_memory), get(c.options_dropped));
  return text;
}

void Shim::write_stats() const {
  const std::string line = stats_json() + "\n";
  const int file =
      open(settings.stats_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const bool is_written =
      file >= 0 && write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!is_written) {
    std::fprintf(stderr, "anychip-pjrt: the counters cannot be written to %s\n",
                 settings.stats_path.c_str());
  }
  if (file >= 0) close(file);
}

}  // namespace anychip::pjrt

const anychip::pjrt::abi::Api* GetPjrtApi() { return anychip::pjrt::Shim::instance().api(); }

// Valid until the same thread asks again.
const char* anychip_pjrt_stats_json() {
  thread_local std::string text;
  text = anychip::pjrt::Shim::instance().stats_json();
  return text.c_str();
}
