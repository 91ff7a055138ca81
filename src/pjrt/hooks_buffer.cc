// Buffers: what comes into a device's memory, what leaves it, what crosses to the host.
#include <span>

#include "pjrt/hooks.h"

namespace anychip::pjrt {
namespace {

// Dense size; 0 for a type or shape we cannot size (the plugin is asked after it made the buffer).
int64_t dense_bytes(int type, std::span<const int64_t> dims) {
  constexpr int kTypes = static_cast<int>(std::size(abi::kBitsOfType));
  int64_t bits = type > 0 && type < kTypes ? abi::kBitsOfType[type] : 0;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bits, dim, &bits)) return 0;
  }
  return bits / 8 + (bits % 8 != 0 ? 1 : 0);
}

int index_of_target(const Shim& shim, const abi::Device* device, const abi::Memory* memory) {
  return memory != nullptr ? shim.memory.index_of(memory) : shim.memory.index_of(device);
}

// Reserve, let the plugin make the buffer, then keep what it really takes.
template <class Args>
abi::Error* make_buffer(Shim& shim, abi::Entry entry, Args& args, abi::Buffer*& made, int index,
                        int64_t bytes) {
  if (!shim.memory.reserve(index, bytes)) return out_of_memory(shim, index, bytes);
  if (abi::Error* error = shim.call_real(entry, args)) {
    shim.memory.adjust(index, -bytes);
    return error;
  }
  if (index == MemoryAccount::kNoDevice) return nullptr;
  const int64_t real_bytes = device_bytes_of(shim, made, bytes);
  shim.memory.adjust(index, real_bytes - bytes);
  shim.memory.track(made, index, real_bytes);
  return nullptr;
}

abi::Error* from_host(Shim& shim, abi::ClientBufferFromHostBufferArgs& args) {
  if (abi::Error* fault = shim.settings.fault.hit(Fault::Site::kToDevice)) return fault;
  const int64_t bytes = dense_bytes(args.type, {args.dims, args.num_dims});
  const int index = index_of_target(shim, args.device, args.memory);
  abi::Error* error =
      make_buffer(shim, abi::kClientBufferFromHostBuffer, args, args.buffer, index, bytes);
  if (error != nullptr) return error;
  ++shim.counters.host_to_device_transfers;
  shim.counters.host_to_device_bytes += bytes;
  return nullptr;
}

abi::Error* uninitialized(Shim& shim, abi::ClientCreateUninitializedBufferArgs& args) {
  return make_buffer(shim, abi::kClientCreateUninitializedBuffer, args, args.buffer,
                     index_of_target(shim, args.device, args.memory),
                     dense_bytes(args.shape_element_type, {args.shape_dims, args.shape_num_dims}));
}

int64_t source_bytes(const Shim& shim, abi::Buffer* buffer) {
  const std::optional<int64_t> known = shim.memory.bytes_of(buffer);
  return known ? *known : device_bytes_of(shim, buffer, 0);
}

abi::Error* copy_to_device(Shim& shim, abi::BufferCopyToDeviceArgs& args) {
  return make_buffer(shim, abi::kBufferCopyToDevice, args, args.dst_buffer,
                     shim.memory.index_of(args.dst_device), source_bytes(shim, args.buffer));
}

abi::Error* copy_to_memory(Shim& shim, abi::BufferCopyToMemoryArgs& args) {
  return make_buffer(shim, abi::kBufferCopyToMemory, args, args.dst_buffer,
                     shim.memory.index_of(args.dst_memory), source_bytes(shim, args.buffer));
}

// Buffers that are filled piece by piece become known when they are handed out.
abi::Error* retrieve(Shim& shim, abi::RetrieveBufferArgs& args) {
  if (abi::Error* error = shim.call_real(abi::kRetrieveBuffer, args)) return error;
  abi::BufferMemoryArgs place{};
  place.buffer = args.buffer_out;
  if (!shim.ask_real(abi::kBufferMemory, place)) return nullptr;
  const int index = shim.memory.index_of(place.memory);
  const int64_t bytes = device_bytes_of(shim, args.buffer_out, 0);
  if (!shim.memory.reserve(index, bytes)) {
    abi::BufferArgs unwanted{};
    unwanted.buffer = args.buffer_out;
    shim.ask_real(abi::kBufferDestroy, unwanted);
    args.buffer_out = nullptr;
    return out_of_memory(shim, index, bytes);
  }
  shim.memory.track(args.buffer_out, index, bytes);
  return nullptr;
}

abi::Error* transfer(Shim& shim, abi::TransferDataArgs& args) {
  if (abi::Error* fault = shim.settings.fault.hit(Fault::Site::kToDevice)) return fault;
  if (abi::Error* error = shim.call_real(abi::kTransferData, args)) return error;
  ++shim.counters.host_to_device_transfers;
  shim.counters.host_to_device_bytes += args.transfer_size;
  return nullptr;
}

void count_to_host(Shim& shim, int64_t bytes) {
  ++shim.counters.device_to_host_transfers;
  shim.counters.device_to_host_bytes += bytes;
}

abi::Error* to_host(Shim& shim, abi::BufferToHostBufferArgs& args) {
  const bool is_question = args.dst == nullptr;  // only asks for the size
  if (!is_question) {
    if (abi::Error* fault = shim.settings.fault.hit(Fault::Site::kToHost)) return fault;
  }
  abi::Error* error = shim.call_real(abi::kBufferToHostBuffer, args);
  if (error == nullptr && !is_question) count_to_host(shim, static_cast<int64_t>(args.dst_size));
  return error;
}

abi::Error* raw_to_host(Shim& shim, abi::BufferCopyRawToHostArgs& args) {
  if (abi::Error* fault = shim.settings.fault.hit(Fault::Site::kToHost)) return fault;
  abi::Error* error = shim.call_real(abi::kBufferCopyRawToHost, args);
  if (error == nullptr) count_to_host(shim, args.transfer_size);
  return error;
}

// Forgotten before the plugin frees it: another thread may be given the same address at once.
template <abi::Entry kEntry>
abi::Error* release(Shim& shim, abi::BufferArgs& args) {
  shim.memory.forget(args.buffer);
  return shim.call_real(kEntry, args);
}

}  // namespace

void install_buffer_hooks(abi::Api& table) {
  replace(table, abi::kClientBufferFromHostBuffer,
          guarded<abi::ClientBufferFromHostBufferArgs, from_host,
                  ANYCHIP_PJRT_SIZE(abi::ClientBufferFromHostBufferArgs, buffer)>);
  replace(table, abi::kClientCreateUninitializedBuffer,
          guarded<abi::ClientCreateUninitializedBufferArgs, uninitialized,
                  ANYCHIP_PJRT_SIZE(abi::ClientCreateUninitializedBufferArgs, buffer)>);
  replace(table, abi::kBufferCopyToDevice,
          guarded<abi::BufferCopyToDeviceArgs, copy_to_device,
                  ANYCHIP_PJRT_SIZE(abi::BufferCopyToDeviceArgs, dst_buffer)>);
  replace(table, abi::kBufferCopyToMemory,
          guarded<abi::BufferCopyToMemoryArgs, copy_to_memory,
                  ANYCHIP_PJRT_SIZE(abi::BufferCopyToMemoryArgs, dst_buffer)>);
  replace(table, abi::kRetrieveBuffer,
          guarded<abi::RetrieveBufferArgs, retrieve,
                  ANYCHIP_PJRT_SIZE(abi::RetrieveBufferArgs, buffer_out)>);
  replace(table, abi::kTransferData,
          guarded<abi::TransferDataArgs, transfer,
                  ANYCHIP_PJRT_SIZE(abi::TransferDataArgs, transfer_size)>);
  replace(table, abi::kBufferToHostBuffer,
          guarded<abi::BufferToHostBufferArgs, to_host,
                  ANYCHIP_PJRT_SIZE(abi::BufferToHostBufferArgs, dst_size)>);
  replace(table, abi::kBufferCopyRawToHost,
          guarded<abi::BufferCopyRawToHostArgs, raw_to_host,
                  ANYCHIP_PJRT_SIZE(abi::BufferCopyRawToHostArgs, transfer_size)>);
  constexpr size_t kReleaseSize = ANYCHIP_PJRT_SIZE(abi::BufferArgs, buffer);
  replace(table, abi::kBufferDestroy,
          guarded<abi::BufferArgs, release<abi::kBufferDestroy>, kReleaseSize>);
  replace(table, abi::kBufferDelete,
          guarded<abi::BufferArgs, release<abi::kBufferDelete>, kReleaseSize>);
}

}  // namespace anychip::pjrt
