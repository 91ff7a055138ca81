#include "pjrt/hooks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

namespace anychip::pjrt {
namespace {

constexpr std::string_view kDeviceCountOption = "cpu_device_count";
constexpr std::string_view kMemoryOption = "anychip_memory_bytes";  // ours: the limit of a device

std::string_view name_of(const abi::NamedValue& option) { return {option.name, option.name_size}; }

// The options the framework gave, without ours, with the device count if it gave none.
std::vector<abi::NamedValue> options_for_real(Shim& shim, const abi::ClientCreateArgs& args) {
  std::vector<abi::NamedValue> options;
  bool has_count = false;
  for (size_t i = 0; i < args.num_options; ++i) {
    const abi::NamedValue& option = args.create_options[i];
    if (name_of(option) == kMemoryOption && option.type == abi::kInt64) {
      shim.memory.set_limit(std::max<int64_t>(option.int64_value, 0));
      continue;
    }
    has_count = has_count || name_of(option) == kDeviceCountOption;
    options.push_back(option);
  }
  if (!has_count) {
    abi::NamedValue count{};
    count.struct_size = ANYCHIP_PJRT_SIZE(abi::NamedValue, value_size);
    count.name = kDeviceCountOption.data();
    count.name_size = kDeviceCountOption.size();
    count.type = abi::kInt64;
    count.int64_value = shim.settings.device_count;
    count.value_size = 1;
    options.push_back(count);
  }
  return options;
}

// Takes out the option that the refusal names; when it names none, all but the device count, then
// that too. False: nothing is left to take out.
bool drop_refused(Shim& shim, std::vector<abi::NamedValue>& options, const std::string& message) {
  auto refused = options.end();
  for (auto it = options.begin(); it != options.end(); ++it) {
    const bool is_named = message.find(name_of(*it)) != std::string::npos;
    if (is_named && (refused == options.end() || it->name_size > refused->name_size)) refused = it;
  }
  const size_t before = options.size();
  if (refused != options.end()) {
    options.erase(refused);
  } else {
    std::erase_if(options,
                  [](const abi::NamedValue& o) { return name_of(o) != kDeviceCountOption; });
    if (options.size() == before) options.clear();
  }
  shim.counters.options_dropped += static_cast<int64_t>(before - options.size());
  return options.size() < before;
}

// A plugin refuses options it does not know; which ones differs between plugins and versions, so it
// is asked rather than guessed.
abi::Error* create_client(Shim& shim, abi::ClientCreateArgs& args) {
  std::vector<abi::NamedValue> options = options_for_real(shim, args);
  const abi::NamedValue* const given_options = args.create_options;
  const size_t given_count = args.num_options;
  abi::Error* error = nullptr;
  for (;;) {
    args.create_options = options.data();
    args.num_options = options.size();
    error = shim.call_real(abi::kClientCreate, args);
    if (error == nullptr || shim.code_of(error) != abi::kInvalidArgument) break;
    if (!drop_refused(shim, options, shim.message_of(error))) break;
    shim.destroy(error);
  }
  args.create_options = given_options;
  args.num_options = given_count;
  if (error == nullptr) shim.add_devices_of(args.client);
  return error;
}

abi::Error* memory_stats(Shim& shim, abi::DeviceMemoryStatsArgs& args) {
  const int index = shim.memory.index_of(args.device);
  const int64_t limit = shim.memory.limit_bytes();
  if (index == MemoryAccount::kNoDevice || limit == 0) {
    // The plugin's own figures are better than ours where it has them and no limit of ours holds.
    abi::Error* error = shim.call_real(abi::kDeviceMemoryStats, args);
    if (error == nullptr || index == MemoryAccount::kNoDevice) return error;
    shim.destroy(error);
  }
  const MemoryAccount::Use use = shim.memory.use(index);
  // Everything after `device` is an answer; what newer callers know beyond our struct is said to be
  // unset, or they would read what happened to be there.
  constexpr size_t kFirst = offsetof(abi::DeviceMemoryStatsArgs, bytes_in_use);
  std::memset(reinterpret_cast<char*>(&args) + kFirst, 0, args.struct_size - kFirst);
  args.bytes_in_use = use.bytes;
  args.peak_bytes_in_use = use.peak_bytes;
  args.peak_bytes_in_use_is_set = true;
  args.num_allocs = use.allocations;
  args.num_allocs_is_set = true;
  args.largest_alloc_size = use.largest_bytes;
  args.largest_alloc_size_is_set = true;
  args.bytes_limit = limit;
  args.bytes_limit_is_set = limit > 0;
  if (args.struct_size >=
      ANYCHIP_PJRT_SIZE(abi::DeviceMemoryStatsArgs, peak_allocated_bytes_is_set)) {
    args.peak_allocated_bytes = use.peak_bytes;
    args.peak_allocated_bytes_is_set = true;
  }
  return nullptr;
}

abi::Error* error_destroy(void* raw) noexcept {
  Shim::instance().destroy(static_cast<abi::ErrorDestroyArgs*>(raw)->error);
  return nullptr;
}

// Errors of ours are answered here, others by whoever made them.
template <class Args, abi::Entry kEntry, auto kAnswer>
abi::Error* error_entry(void* raw) noexcept {
  auto& args = *static_cast<Args*>(raw);
  if (is_ours(args.error)) {
    kAnswer(args);
    return nullptr;
  }
  return Shim::instance().call_real(kEntry, args);
}

void answer_message(abi::ErrorMessageArgs& args) {
  const std::string& text = message_of_ours(args.error);
  args.message = text.c_str();
  args.message_size = text.size();
}
void answer_code(abi::ErrorGetCodeArgs& args) { args.code = code_of_ours(args.error); }
void answer_payloads(abi::ErrorForEachPayloadArgs&) {}  // ours carry none

void install_error_hooks(abi::Api& table) {
  using abi::ErrorForEachPayloadArgs;
  replace(table, abi::kErrorDestroy, error_destroy);
  replace(table, abi::kErrorMessage,
          error_entry<abi::ErrorMessageArgs, abi::kErrorMessage, answer_message>);
  replace(table, abi::kErrorGetCode,
          error_entry<abi::ErrorGetCodeArgs, abi::kErrorGetCode, answer_code>);
  replace(table, abi::kErrorForEachPayload,
          error_entry<ErrorForEachPayloadArgs, abi::kErrorForEachPayload, answer_payloads>);
}

abi::Error* refuse(void*) noexcept {
  return make_error(abi::kFailedPrecondition, Shim::instance().failure());
}
abi::Error* succeed(void*) noexcept { return nullptr; }
abi::Error* no_attributes(void* raw) noexcept {
  auto& args = *static_cast<abi::PluginAttributesArgs*>(raw);
  args.attributes = nullptr;
  args.num_attributes = 0;
  return nullptr;
}

}  // namespace

void replace(abi::Api& table, abi::Entry entry, abi::Function function) {
  if (table.covers(entry) && table.entries[entry] != nullptr) table.entries[entry] = function;
}

abi::Error* out_of_memory(Shim& shim, int device_index, int64_t wanted_bytes) {
  const auto text = [](int64_t n) { return std::to_string(n); };
  std::string message = "out of device memory: " + text(wanted_bytes) + " bytes wanted, " +
                        text(shim.memory.use(device_index).bytes) + " of " +
                        text(shim.memory.limit_bytes()) + " bytes are in use on this device";
  // A framework that runs ahead may report only that "an argument failed": say the cause once.
  if (shim.counters.out_of_memory.fetch_add(1) == 0) {
    std::fprintf(stderr, "anychip-pjrt: %s\n", message.c_str());
  }
  return make_error(abi::kResourceExhausted, std::move(message));
}

int64_t device_bytes_of(const Shim& shim, abi::Buffer* buffer, int64_t fallback) {
  abi::BufferSizeArgs args{};
  args.buffer = buffer;
  return shim.ask_real(abi::kBufferOnDeviceSizeInBytes, args)
             ? static_cast<int64_t>(args.on_device_size_in_bytes)
             : fallback;
}

void install_hooks(abi::Api& table) {
  install_error_hooks(table);
  replace(table, abi::kClientCreate,
          guarded<abi::ClientCreateArgs, create_client,
                  ANYCHIP_PJRT_SIZE(abi::ClientCreateArgs, client)>);
  replace(table, abi::kDeviceMemoryStats,
          guarded<abi::DeviceMemoryStatsArgs, memory_stats,
                  ANYCHIP_PJRT_SIZE(abi::DeviceMemoryStatsArgs, bytes_limit_is_set)>);
  install_buffer_hooks(table);
  install_execute_hooks(table);
}

// A framework initialises a plugin and asks its attributes before it makes a client; those succeed,
// so that the reason reaches the place where frameworks report errors.
void install_failure(abi::Api& table) {
  table.struct_size = sizeof(abi::Api);
  table.version = {ANYCHIP_PJRT_SIZE(abi::ApiVersion, minor_version), nullptr, 0, 114};
  std::fill(std::begin(table.entries), std::end(table.entries), refuse);
  install_error_hooks(table);
  table.entries[abi::kPluginInitialize] = succeed;
  table.entries[abi::kPluginAttributes] = no_attributes;
}

}  // namespace anychip::pjrt
