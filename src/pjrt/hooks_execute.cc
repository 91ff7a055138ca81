// Programs: compiling, running them within the memory limit, and what their runs leave behind.
#include "pjrt/hooks.h"

namespace anychip::pjrt {
namespace {

using abi::LoadedExecutableExecuteArgs;

template <class Args, abi::Entry kEntry>
abi::Error* compile(Shim& shim, Args& args) {
  if (abi::Error* fault = shim.settings.fault.hit(Fault::Site::kCompile)) return fault;
  abi::Error* error = shim.call_real(kEntry, args);
  if (error == nullptr) ++shim.counters.compiles;
  return error;
}

abi::Error* load(Shim& shim, abi::ExecutableDeserializeAndLoadArgs& args) {
  abi::Error* error = shim.call_real(abi::kExecutableDeserializeAndLoad, args);
  if (error == nullptr) ++shim.counters.loads;
  return error;
}

abi::Error* destroy_program(Shim& shim, abi::LoadedExecutableDestroyArgs& args) {
  shim.forget_program(args.executable);
  return shim.call_real(abi::kLoadedExecutableDestroy, args);
}

// Which device launch position `at` runs on.
int device_of_launch(const Shim& shim, const LoadedExecutableExecuteArgs& args,
                     const ProgramFacts& facts, size_t at) {
  const bool has_choice =
      args.struct_size >= ANYCHIP_PJRT_SIZE(LoadedExecutableExecuteArgs, execute_device);
  if (has_choice && args.execute_device != nullptr)
    return shim.memory.index_of(args.execute_device);
  return at < facts.devices.size() ? facts.devices[at] : MemoryAccount::kNoDevice;
}

// Arguments that were donated are gone after the call; their memory went into the outputs or back.
void forget_donated(Shim& shim, const LoadedExecutableExecuteArgs& args, size_t at) {
  for (size_t i = 0; i < args.num_args; ++i) {
    abi::BufferIsDeletedArgs question{};
    question.buffer = args.argument_lists[at][i];
    if (shim.ask_real(abi::kBufferIsDeleted, question) && question.is_deleted) {
      shim.memory.forget(question.buffer);
    }
  }
}

// What was reserved for the launch becomes the outputs' real sizes; temporaries are given back.
// They may still be in use by a device that runs behind: the peak has counted them already.
void settle_launch(Shim& shim, const LoadedExecutableExecuteArgs& args, const ProgramFacts& facts,
                   int index, size_t at, int64_t reserved_bytes) {
  forget_donated(shim, args, at);
  if (index == MemoryAccount::kNoDevice) return;
  int64_t output_bytes = 0;
  for (size_t i = 0; args.output_lists != nullptr && i < facts.output_count; ++i) {
    abi::Buffer* const output = args.output_lists[at][i];
    if (output == nullptr) continue;
    const int64_t bytes = device_bytes_of(shim, output, 0);
    shim.memory.track(output, index, bytes);
    output_bytes += bytes;
  }
  shim.memory.adjust(index, output_bytes - reserved_bytes);
}

abi::Error* execute(Shim& shim, LoadedExecutableExecuteArgs& args) {
  if (abi::Error* fault = shim.settings.fault.hit(Fault::Site::kExecute)) return fault;
  const std::shared_ptr<const ProgramFacts> facts = shim.facts_of(args.executable);
  const int64_t bytes = facts->result_bytes + facts->working_bytes;
  const auto give_back = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      shim.memory.adjust(device_of_launch(shim, args, *facts, i), -bytes);
    }
  };
  for (size_t at = 0; at < args.num_devices; ++at) {
    const int index = device_of_launch(shim, args, *facts, at);
    if (shim.memory.reserve(index, bytes)) continue;
    give_back(at);
    return out_of_memory(shim, index, bytes);
  }
  if (abi::Error* error = shim.call_real(abi::kLoadedExecutableExecute, args)) {
    give_back(args.num_devices);
    return error;
  }
  for (size_t at = 0; at < args.num_devices; ++at) {
    settle_launch(shim, args, *facts, device_of_launch(shim, args, *facts, at), at, bytes);
  }
  ++shim.counters.executions;
  return nullptr;
}

}  // namespace

void install_execute_hooks(abi::Api& table) {
  replace(table, abi::kClientCompile,
          guarded<abi::ClientCompileArgs, compile<abi::ClientCompileArgs, abi::kClientCompile>,
                  ANYCHIP_PJRT_SIZE(abi::ClientCompileArgs, executable)>);
  replace(table, abi::kCompile,
          guarded<abi::Head, compile<abi::Head, abi::kCompile>, sizeof(abi::Head)>);
  replace(table, abi::kExecutableDeserializeAndLoad,
          guarded<abi::ExecutableDeserializeAndLoadArgs, load,
                  ANYCHIP_PJRT_SIZE(abi::ExecutableDeserializeAndLoadArgs, loaded_executable)>);
  replace(table, abi::kLoadedExecutableDestroy,
          guarded<abi::LoadedExecutableDestroyArgs, destroy_program,
                  ANYCHIP_PJRT_SIZE(abi::LoadedExecutableDestroyArgs, executable)>);
  replace(table, abi::kLoadedExecutableExecute,
          guarded<LoadedExecutableExecuteArgs, execute,
                  ANYCHIP_PJRT_SIZE(LoadedExecutableExecuteArgs, device_complete_events)>);
}

}  // namespace anychip::pjrt
