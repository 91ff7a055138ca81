// A tiny PJRT plugin for tests: devices without computing power, buffers that are only a size.
// A "program" is the text "outputs SIZE temp BYTES alias BYTES", run as: make that many outputs.
// FAKE_ENTRIES cuts its table short, as an older plugin's; FAKE_NO_STATS hides program sizes.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "pjrt/c_api.h"

namespace abi = anychip::pjrt::abi;

extern "C" {
__attribute__((visibility("default"))) const abi::Api* GetPjrtApi();
__attribute__((visibility("default"))) int fake_live_buffers();
__attribute__((visibility("default"))) int fake_executions();
__attribute__((visibility("default"))) const char* fake_client_options();
}

namespace {

struct FakeError : abi::Error {
  abi::ErrorCode code = abi::kInternal;
  std::string message;
};
struct FakeMemory {
  int device = 0;
};
struct FakeDevice {
  FakeMemory memory;
  FakeMemory host_memory;
};
struct FakeBuffer {
  size_t bytes = 0;
  FakeDevice* device = nullptr;
  FakeMemory* memory = nullptr;
  bool is_deleted = false;
};
struct FakeProgram {
  int outputs = 0;
  long long bytes = 0, temp = 0, alias = 0;
};

FakeDevice devices[2];
abi::Device* device_handles[2];
std::atomic<int> live_buffers{0};
std::atomic<int> executions{0};
std::string client_options;

// What tests leave behind stays reachable, so that a leak checker speaks of the shim only.
std::mutex kept_mutex;
auto& kept = *new std::set<const void*>;
template <class T>
T* keep(T* object) {
  const std::lock_guard lock(kept_mutex);
  kept.insert(object);
  return object;
}
template <class T>
void drop(T* object) {
  {
    const std::lock_guard lock(kept_mutex);
    kept.erase(object);
  }
  delete object;
}

abi::Error* refuse(abi::ErrorCode code, std::string message) {
  auto* error = new FakeError;
  error->code = code;
  error->message = std::move(message);
  return error;
}

abi::Buffer* new_buffer(size_t bytes, FakeDevice* device, FakeMemory* memory) {
  ++live_buffers;
  return reinterpret_cast<abi::Buffer*>(keep(new FakeBuffer{bytes, device, memory, false}));
}
FakeBuffer& of(abi::Buffer* buffer) { return *reinterpret_cast<FakeBuffer*>(buffer); }

abi::Error* unimplemented(void*) { return refuse(abi::kUnimplemented, "the fake lacks this"); }
abi::Error* newest_entry(void* raw) {  // past what the shim's header knows
  static_cast<abi::Head*>(raw)->extension_start = reinterpret_cast<abi::Extension*>(42);
  return nullptr;
}

abi::Error* error_destroy(void* raw) {
  delete static_cast<FakeError*>(static_cast<abi::ErrorDestroyArgs*>(raw)->error);
  return nullptr;
}
abi::Error* error_message(void* raw) {
  auto& args = *static_cast<abi::ErrorMessageArgs*>(raw);
  const auto& error = *static_cast<const FakeError*>(args.error);
  args.message = error.message.c_str();
  args.message_size = error.message.size();
  return nullptr;
}
abi::Error* error_code(void* raw) {
  auto& args = *static_cast<abi::ErrorGetCodeArgs*>(raw);
  args.code = static_cast<const FakeError*>(args.error)->code;
  return nullptr;
}

abi::Error* client_create(void* raw) {
  auto& args = *static_cast<abi::ClientCreateArgs*>(raw);
  client_options.clear();
  for (size_t i = 0; i < args.num_options; ++i) {
    const abi::NamedValue& option = args.create_options[i];
    const std::string name(option.name, option.name_size);
    if (name == "anonymous") return refuse(abi::kInvalidArgument, "some option is not known");
    if (name != "cpu_device_count" && name != "good") {
      return refuse(abi::kInvalidArgument, "unexpected option name " + name);
    }
    client_options += name + "=" + std::to_string(option.int64_value) + ";";
  }
  if (std::getenv("FAKE_BROKEN") != nullptr) return refuse(abi::kInternal, "the device is on fire");
  args.client = reinterpret_cast<abi::Client*>(&devices);
  return nullptr;
}

abi::Error* client_devices(void* raw) {
  auto& args = *static_cast<abi::ClientAddressableDevicesArgs*>(raw);
  for (int i = 0; i < 2; ++i) device_handles[i] = reinterpret_cast<abi::Device*>(&devices[i]);
  args.addressable_devices = device_handles;
  args.num_addressable_devices = 2;
  return nullptr;
}
abi::Error* default_memory(void* raw) {
  auto& args = *static_cast<abi::DeviceDefaultMemoryArgs*>(raw);
  auto* device = reinterpret_cast<FakeDevice*>(args.device);
  args.memory = reinterpret_cast<abi::Memory*>(&device->memory);
  return nullptr;
}

abi::Error* from_host(void* raw) {
  auto& args = *static_cast<abi::ClientBufferFromHostBufferArgs*>(raw);
  size_t bytes = static_cast<size_t>(abi::kBitsOfType[args.type]) / 8;
  for (size_t i = 0; i < args.num_dims; ++i) bytes *= static_cast<size_t>(args.dims[i]);
  auto* device = reinterpret_cast<FakeDevice*>(args.device);
  auto* memory = reinterpret_cast<FakeMemory*>(args.memory);
  args.buffer = new_buffer(bytes, device, memory);
  return nullptr;
}

abi::Error* compile(void* raw) {
  auto& args = *static_cast<abi::ClientCompileArgs*>(raw);
  const std::string code(args.program->code, args.program->code_size);
  auto* program = keep(new FakeProgram);
  const int found = std::sscanf(code.c_str(), "%d %lld temp %lld alias %lld", &program->outputs,
                                &program->bytes, &program->temp, &program->alias);
  if (found != 4) {
    drop(program);
    return refuse(abi::kInvalidArgument, "not a program");
  }
  args.executable = reinterpret_cast<abi::LoadedExecutable*>(program);
  return nullptr;
}

abi::Error* execute(void* raw) {
  auto& args = *static_cast<abi::LoadedExecutableExecuteArgs*>(raw);
  const auto& program = *reinterpret_cast<FakeProgram*>(args.executable);
  ++executions;
  for (size_t d = 0; d < args.num_devices; ++d) {
    for (int i = 0; i < program.outputs; ++i) {
      args.output_lists[d][i] =
          new_buffer(static_cast<size_t>(program.bytes), &devices[d], &devices[d].memory);
    }
    // An aliased program takes its first argument's memory over.
    if (program.alias > 0 && args.num_args > 0) of(args.argument_lists[d][0]).is_deleted = true;
  }
  return nullptr;
}

abi::Error* program_devices(void* raw) {
  auto& args = *static_cast<abi::LoadedExecutableAddressableDevicesArgs*>(raw);
  args.addressable_devices = device_handles;
  args.num_addressable_devices = 2;
  return nullptr;
}
abi::Error* program_inner(void* raw) {
  auto& args = *static_cast<abi::LoadedExecutableGetExecutableArgs*>(raw);
  args.executable = reinterpret_cast<abi::Executable*>(args.loaded_executable);
  return nullptr;
}
abi::Error* output_count(void* raw) {
  auto& args = *static_cast<abi::ExecutableNumOutputsArgs*>(raw);
  args.num_outputs = static_cast<size_t>(reinterpret_cast<FakeProgram*>(args.executable)->outputs);
  return nullptr;
}
abi::Error* program_sizes(void* raw) {
  if (std::getenv("FAKE_NO_STATS") != nullptr) return unimplemented(raw);
  auto& args = *static_cast<abi::ExecutableMemoryStatsArgs*>(raw);
  const auto& program = *reinterpret_cast<FakeProgram*>(args.executable);
  args.output_size_in_bytes = program.outputs * program.bytes;
  args.temp_size_in_bytes = program.temp;
  args.alias_size_in_bytes = program.alias;
  return nullptr;
}
abi::Error* no_effect(void*) { return nullptr; }
abi::Error* program_destroy(void* raw) {
  drop(reinterpret_cast<FakeProgram*>(
      static_cast<abi::LoadedExecutableDestroyArgs*>(raw)->executable));
  return nullptr;
}

abi::Error* buffer_destroy(void* raw) {
  drop(&of(static_cast<abi::BufferArgs*>(raw)->buffer));
  --live_buffers;
  return nullptr;
}
abi::Error* buffer_delete(void* raw) {
  of(static_cast<abi::BufferArgs*>(raw)->buffer).is_deleted = true;
  return nullptr;
}
abi::Error* buffer_is_deleted(void* raw) {
  auto& args = *static_cast<abi::BufferIsDeletedArgs*>(raw);
  args.is_deleted = of(args.buffer).is_deleted;
  return nullptr;
}
abi::Error* buffer_size(void* raw) {
  auto& args = *static_cast<abi::BufferSizeArgs*>(raw);
  args.on_device_size_in_bytes = of(args.buffer).bytes;
  return nullptr;
}
abi::Error* copy_to_device(void* raw) {
  auto& args = *static_cast<abi::BufferCopyToDeviceArgs*>(raw);
  auto* device = reinterpret_cast<FakeDevice*>(args.dst_device);
  args.dst_buffer = new_buffer(of(args.buffer).bytes, device, &device->memory);
  return nullptr;
}
abi::Error* to_host(void* raw) {
  auto& args = *static_cast<abi::BufferToHostBufferArgs*>(raw);
  if (args.dst == nullptr) {
    args.dst_size = of(args.src).bytes;
  } else {
    std::memset(args.dst, 7, args.dst_size);
  }
  return nullptr;
}

struct FakeApi {
  abi::Api known;
  abi::Function newer[3];
};

FakeApi make_api() {
  FakeApi api{};
  const char* cut = std::getenv("FAKE_ENTRIES");
  const size_t entries =
      cut == nullptr ? abi::kEntryCount + 3 : static_cast<size_t>(std::atoi(cut));
  api.known.struct_size = offsetof(abi::Api, entries) + entries * sizeof(abi::Function);
  api.known.version = {sizeof(abi::ApiVersion), nullptr,
                       std::getenv("FAKE_MAJOR") != nullptr ? 1 : 0, 115};
  for (abi::Function& entry : api.known.entries) entry = unimplemented;
  for (abi::Function& entry : api.newer) entry = newest_entry;
  abi::Function* const at = api.known.entries;
  at[abi::kErrorDestroy] = error_destroy;
  at[abi::kErrorMessage] = error_message;
  at[abi::kErrorGetCode] = error_code;
  at[abi::kPluginInitialize] = no_effect;
  at[abi::kClientCreate] = client_create;
  at[abi::kClientAddressableDevices] = client_devices;
  at[abi::kDeviceDefaultMemory] = default_memory;
  at[abi::kClientBufferFromHostBuffer] = from_host;
  at[abi::kClientCompile] = compile;
  at[abi::kLoadedExecutableExecute] = execute;
  at[abi::kLoadedExecutableAddressableDevices] = program_devices;
  at[abi::kLoadedExecutableGetExecutable] = program_inner;
  at[abi::kLoadedExecutableDestroy] = program_destroy;
  at[abi::kExecutableNumOutputs] = output_count;
  at[abi::kExecutableGetCompiledMemoryStats] = program_sizes;
  at[abi::kExecutableDestroy] = no_effect;
  at[abi::kBufferDestroy] = buffer_destroy;
  at[abi::kBufferDelete] = buffer_delete;
  at[abi::kBufferIsDeleted] = buffer_is_deleted;
  at[abi::kBufferOnDeviceSizeInBytes] = buffer_size;
  at[abi::kBufferCopyToDevice] = copy_to_device;
  at[abi::kBufferToHostBuffer] = to_host;
  return api;
}

}  // namespace

const abi::Api* GetPjrtApi() {
  static const FakeApi api = make_api();
  return &api.known;
}
int fake_live_buffers() { return live_buffers; }
int fake_executions() { return executions; }
const char* fake_client_options() { return client_options.c_str(); }
