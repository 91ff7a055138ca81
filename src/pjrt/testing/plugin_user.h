// A framework in miniature: calls a plugin's table as torch or JAX would. For the tests.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/c_api.h"

namespace anychip::pjrt {

class PluginUser {
 public:
  explicit PluginUser(const abi::Api* api) : api_(api) {}
  const abi::Api* api() const { return api_; }

  template <class Args>
  abi::Error* call(abi::Entry entry, Args& args) const {
    if (args.struct_size == 0) args.struct_size = sizeof(Args);
    return api_->entries[entry](&args);
  }
  // Code and text of an error, which is destroyed; {kOk, ""} without one.
  std::pair<abi::ErrorCode, std::string> take(abi::Error* error) const {
    if (error == nullptr) return {abi::kOk, ""};
    abi::ErrorMessageArgs message{};
    message.error = error;
    call(abi::kErrorMessage, message);
    abi::ErrorGetCodeArgs code{};
    code.error = error;
    call(abi::kErrorGetCode, code);
    const std::pair<abi::ErrorCode, std::string> taken{
        code.code, std::string(message.message, message.message_size)};
    abi::ErrorDestroyArgs destroy{};
    destroy.error = error;
    call(abi::kErrorDestroy, destroy);
    return taken;
  }

  // Makes the client; options are integers.
  abi::Error* create_client(const std::vector<std::pair<std::string, int64_t>>& options = {}) {
    std::vector<abi::NamedValue> values(options.size());
    for (size_t i = 0; i < options.size(); ++i) {
      values[i].struct_size = sizeof(abi::NamedValue);
      values[i].name = options[i].first.c_str();
      values[i].name_size = options[i].first.size();
      values[i].type = abi::kInt64;
      values[i].int64_value = options[i].second;
      values[i].value_size = 1;
    }
    abi::ClientCreateArgs args{};
    args.create_options = values.data();
    args.num_options = values.size();
    abi::Error* error = call(abi::kClientCreate, args);
    client_ = args.client;
    if (error == nullptr) find_devices();
    return error;
  }
  abi::Client* client() const { return client_; }
  abi::Device* device(size_t i) const { return devices_.at(i); }

  abi::Error* to_device(int64_t floats, abi::Buffer** made, size_t device_index = 0,
                        abi::Memory* memory = nullptr, const void* data = nullptr) const {
    abi::ClientBufferFromHostBufferArgs args{};
    args.client = client_;
    args.data = data;
    args.type = abi::kTypeF32;
    args.dims = &floats;
    args.num_dims = 1;
    args.device = device(device_index);
    args.memory = memory;
    abi::Error* error = call(abi::kClientBufferFromHostBuffer, args);
    *made = error == nullptr ? args.buffer : nullptr;
    if (error == nullptr) finish(args.done_with_host_buffer);
    return error;
  }
  abi::Error* compile(std::string text, abi::LoadedExecutable** made,
                      const std::string& format = "mlir", const std::string& options = "") const {
    abi::Program program{};
    program.struct_size = sizeof program;
    program.code = text.data();
    program.code_size = text.size();
    program.format = format.c_str();
    program.format_size = format.size();
    abi::ClientCompileArgs args{};
    args.client = client_;
    args.program = &program;
    args.compile_options = options.data();
    args.compile_options_size = options.size();
    abi::Error* error = call(abi::kClientCompile, args);
    *made = args.executable;
    return error;
  }
  // Runs on the first device; `outputs` has as many places as the program has outputs.
  abi::Error* execute(abi::LoadedExecutable* program, const std::vector<abi::Buffer*>& arguments,
                      std::vector<abi::Buffer*>& outputs,
                      abi::ExecuteOptions* options = nullptr) const {
    abi::Buffer* const* argument_list = arguments.data();
    abi::Buffer** output_list = outputs.data();
    abi::LoadedExecutableExecuteArgs args{};
    args.executable = program;
    args.options = options;
    args.argument_lists = &argument_list;
    args.num_devices = 1;
    args.num_args = arguments.size();
    args.output_lists = &output_list;
    return call(abi::kLoadedExecutableExecute, args);
  }
  // Waits for the copy.
  abi::Error* to_host(abi::Buffer* buffer, void* data, size_t bytes) const {
    abi::BufferToHostBufferArgs args{};
    args.src = buffer;
    args.dst = data;
    args.dst_size = bytes;
    abi::Error* error = call(abi::kBufferToHostBuffer, args);
    if (error == nullptr) finish(args.event);
    return error;
  }
  abi::Error* release(abi::Entry entry, abi::Buffer* buffer) const {
    abi::BufferArgs args{};
    args.buffer = buffer;
    return call(entry, args);
  }
  abi::DeviceMemoryStatsArgs memory_stats(size_t device_index = 0) const {
    abi::DeviceMemoryStatsArgs args;
    std::memset(&args, 0x5a, sizeof args);  // a caller that does not clear its struct
    args.struct_size = sizeof args;
    args.extension_start = nullptr;
    args.device = device(device_index);
    take(call(abi::kDeviceMemoryStats, args));
    return args;
  }

 private:
  void finish(abi::Event* event) const {
    if (event == nullptr) return;
    abi::EventArgs args{};
    args.event = event;
    take(call(abi::kEventAwait, args));
    take(call(abi::kEventDestroy, args));
  }
  void find_devices() {
    abi::ClientAddressableDevicesArgs args{};
    args.client = client_;
    take(call(abi::kClientAddressableDevices, args));
    devices_.assign(args.addressable_devices,
                    args.addressable_devices + args.num_addressable_devices);
  }

  const abi::Api* api_;
  abi::Client* client_ = nullptr;
  std::vector<abi::Device*> devices_;
};

}  // namespace anychip::pjrt
