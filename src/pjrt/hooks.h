// The functions put into the plugin's table, by what they deal with. Each is an `Error*(void*)`
// that checks how much of its arguments the caller knows and lets no exception out.
#pragma once

#include <exception>
#include <string>

#include "pjrt/shim.h"

namespace anychip::pjrt {

template <class Args, auto kBody, size_t kSizeMin>
abi::Error* guarded(void* raw) noexcept {
  auto& args = *static_cast<Args*>(raw);
  if (args.struct_size < kSizeMin) {
    return make_error(abi::kInvalidArgument,
                      "the argument struct has " + std::to_string(args.struct_size) +
                          " bytes, at least " + std::to_string(kSizeMin) + " are needed");
  }
  try {
    return kBody(Shim::instance(), args);
  } catch (const std::exception& error) {
    return make_error(abi::kInternal, std::string("the shim failed: ") + error.what());
  }
}

// hooks_buffer.cc, hooks_execute.cc
void install_buffer_hooks(abi::Api& table);
void install_execute_hooks(abi::Api& table);

// Only over an entry that is there.
void replace(abi::Api& table, abi::Entry entry, abi::Function function);

abi::Error* out_of_memory(Shim& shim, int device_index, int64_t wanted_bytes);
// What the plugin says a buffer takes; `fallback` when it does not.
int64_t device_bytes_of(const Shim& shim, abi::Buffer* buffer, int64_t fallback);

}  // namespace anychip::pjrt
