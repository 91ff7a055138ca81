// The part of the PJRT C interface that this module touches: order of the function table, struct
// layouts, enum values. Written by us from those facts; tests/python/test_pjrt_abi.py compares every
// member and place with a published header. Rules of that interface: a struct only ever grows at its
// end, and its first member says how many bytes its creator knew, so reach a member or a table entry
// only when it is covered.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anychip::pjrt::abi {

// Handles of the plugin behind the shim; never looked into.
struct Buffer;
struct Client;
struct Device;
struct Event;
struct Executable;
struct LoadedExecutable;
struct Memory;
struct MemoryLayout;
struct TransferManager;

struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};

enum ErrorCode : int {
  kOk = 0,
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
};

// Since 0.112 an error begins with a pointer to its functions and may be used through them
// directly; before that only through the table. Ours serve both.
struct Error;
using PayloadVisitor = void (*)(const char* key, size_t key_size, const char* value,
                                size_t value_size, void* user_arg);
struct ErrorFunctions {
  size_t struct_size;
  size_t instance_size;
  Extension* extension_start;
  void (*destroy)(Error*);
  void (*message)(const Error*, const char** message, size_t* message_size);
  ErrorCode (*get_code)(const Error*);
  void (*for_each_payload)(const Error*, PayloadVisitor, void* user_arg);
};
struct Error {
  const ErrorFunctions* functions;
};

// Element types with their size in bits, in the order of the enum.
inline constexpr int kBitsOfType[] = {
    0,                       // invalid
    8,  8,   16, 32, 64,     // pred, s8, s16, s32, s64
    8,  16,  32, 64,         // u8, u16, u32, u64
    16, 32,  64, 16,         // f16, f32, f64, bf16
    64, 128,                 // c64, c128
    8,  8,   8,  8,  8,      // f8 e5m2, e4m3fn, e4m3b11fnuz, e5m2fnuz, e4m3fnuz
    4,  4,   0,              // s4, u4, token
    2,  2,   8,  8,  8,  4,  // s2, u2, f8 e4m3, e3m4, e8m0fnu, f4 e2m1fn
};
inline constexpr int kTypeF32 = 11;

enum ValueType : int { kString = 0, kInt64 = 1, kInt64List = 2, kFloat = 3, kBool = 4 };

struct NamedValue {
  size_t struct_size;
  Extension* extension_start;
  const char* name;
  size_t name_size;
  ValueType type;
  union {
    const char* string_value;
    int64_t int64_value;
    const int64_t* int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size;
};

struct ApiVersion {
  size_t struct_size;
  Extension* extension_start;
  int major_version;
  int minor_version;
};

// What every argument struct begins with.
struct Head {
  size_t struct_size;
  Extension* extension_start;
};

struct ErrorDestroyArgs {
  size_t struct_size;
  Extension* extension_start;
  Error* error;
};
struct ErrorMessageArgs {
  size_t struct_size;
  Extension* extension_start;
  const Error* error;
  const char* message;
  size_t message_size;
};
struct ErrorGetCodeArgs {
  size_t struct_size;
  Extension* extension_start;
  const Error* error;
  ErrorCode code;
};
struct ErrorForEachPayloadArgs {
  size_t struct_size;
  Extension* extension_start;
  const Error* error;
  PayloadVisitor visitor;
  void* user_arg;
};
struct PluginAttributesArgs {
  size_t struct_size;
  Extension* extension_start;
  const NamedValue* attributes;
  size_t num_attributes;
};
struct ClientCreateArgs {
  size_t struct_size;
  Extension* extension_start;
  const NamedValue* create_options;
  size_t num_options;
  void* kv_get_callback;
  void* kv_get_user_arg;
  void* kv_put_callback;
  void* kv_put_user_arg;
  Client* client;
  void* kv_try_get_callback;
  void* kv_try_get_user_arg;
};
struct ClientAddressableDevicesArgs {
  size_t struct_size;
  Extension* extension_start;
  Client* client;
  Device* const* addressable_devices;
  size_t num_addressable_devices;
};
struct Program {
  size_t struct_size;
  Extension* extension_start;
  char* code;
  size_t code_size;
  const char* format;
  size_t format_size;
};
struct ClientCompileArgs {
  size_t struct_size;
  Extension* extension_start;
  Client* client;
  const Program* program;
  const char* compile_options;
  size_t compile_options_size;
  LoadedExecutable* executable;
};
struct ClientBufferFromHostBufferArgs {
  size_t struct_size;
  Extension* extension_start;
  Client* client;
  const void* data;
  int type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;
  size_t num_byte_strides;
  int host_buffer_semantics;
  Device* device;
  Memory* memory;
  MemoryLayout* device_layout;
  Event* done_with_host_buffer;
  Buffer* buffer;
};
struct ClientCreateUninitializedBufferArgs {
  size_t struct_size;
  Extension* extension_start;
  Client* client;
  const int64_t* shape_dims;
  size_t shape_num_dims;
  int shape_element_type;
  MemoryLayout* shape_layout;
  Device* device;
  Memory* memory;
  Buffer* buffer;
};
struct TransferDataArgs {  // AsyncHostToDeviceTransferManager_TransferData
  size_t struct_size;
  Extension* extension_start;
  TransferManager* transfer_manager;
  int buffer_index;
  const void* data;
  int64_t offset;
  int64_t transfer_size;
  bool is_last_transfer;
  Event* done_with_h2d_transfer;
};
struct RetrieveBufferArgs {  // AsyncHostToDeviceTransferManager_RetrieveBuffer
  size_t struct_size;
  Extension* extension_start;
  TransferManager* transfer_manager;
  int buffer_index;
  Buffer* buffer_out;
};
struct DeviceDefaultMemoryArgs {
  size_t struct_size;
  Extension* extension_start;
  Device* device;
  Memory* memory;
};
struct DeviceMemoryStatsArgs {
  size_t struct_size;
  Extension* extension_start;
  Device* device;
  int64_t bytes_in_use;
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
  int64_t peak_allocated_bytes;  // since 0.114 at the latest
  bool peak_allocated_bytes_is_set;
};
struct ExecutableDestroyArgs {
  size_t struct_size;
  Extension* extension_start;
  Executable* executable;
};
struct ExecutableNumOutputsArgs {
  size_t struct_size;
  Extension* extension_start;
  Executable* executable;
  size_t num_outputs;
};
struct ExecutableMemoryStatsArgs {  // Executable_GetCompiledMemoryStats
  size_t struct_size;
  Extension* extension_start;
  Executable* executable;
  int64_t generated_code_size_in_bytes;
  int64_t argument_size_in_bytes;
  int64_t output_size_in_bytes;
  int64_t alias_size_in_bytes;
  int64_t temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes;
  int64_t host_argument_size_in_bytes;
  int64_t host_output_size_in_bytes;
  int64_t host_alias_size_in_bytes;
  int64_t host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes;
};
struct ExecutableDeserializeAndLoadArgs {
  size_t struct_size;
  Extension* extension_start;
  Client* client;
  const char* serialized_executable;
  size_t serialized_executable_size;
  LoadedExecutable* loaded_executable;
  const char* overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size;
};
struct LoadedExecutableDestroyArgs {
  size_t struct_size;
  Extension* extension_start;
  LoadedExecutable* executable;
};
struct LoadedExecutableGetExecutableArgs {
  size_t struct_size;
  Extension* extension_start;
  LoadedExecutable* loaded_executable;
  Executable* executable;
};
struct LoadedExecutableAddressableDevicesArgs {
  size_t struct_size;
  Extension* extension_start;
  LoadedExecutable* executable;
  Device* const* addressable_devices;
  size_t num_addressable_devices;
};
struct ExecuteOptions {
  size_t struct_size;
  Extension* extension_start;
  void* send_callbacks;
  void* recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void* context;
  const char* call_location;
  size_t num_tasks;
  int* task_ids;
  int64_t* incarnation_ids;
};
struct LoadedExecutableExecuteArgs {
  size_t struct_size;
  Extension* extension_start;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* argument_lists;
  size_t num_devices;
  size_t num_args;
  Buffer** const* output_lists;
  Event** device_complete_events;
  Device* execute_device;
};
struct EventArgs {  // Event_Destroy, Event_Await
  size_t struct_size;
  Extension* extension_start;
  Event* event;
};
struct BufferArgs {  // Buffer_Destroy, Buffer_Delete
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
};
struct BufferIsDeletedArgs {
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
  bool is_deleted;
};
struct BufferSizeArgs {  // Buffer_OnDeviceSizeInBytes
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
  size_t on_device_size_in_bytes;
};
struct BufferDeviceArgs {
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
  Device* device;
};
struct BufferMemoryArgs {
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
  Memory* memory;
};
struct BufferCopyToDeviceArgs {
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
  Device* dst_device;
  Buffer* dst_buffer;
};
struct BufferCopyToMemoryArgs {
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
  Memory* dst_memory;
  Buffer* dst_buffer;
};
struct BufferToHostBufferArgs {
  size_t struct_size;
  Extension* extension_start;
  Buffer* src;
  MemoryLayout* host_layout;
  void* dst;
  size_t dst_size;
  Event* event;
};
struct BufferCopyRawToHostArgs {
  size_t struct_size;
  Extension* extension_start;
  Buffer* buffer;
  void* dst;
  int64_t offset;
  int64_t transfer_size;
  Event* event;
};

// Bytes of a struct up to and including `member`, without trailing padding: what its creator puts
// into struct_size.
#define ANYCHIP_PJRT_SIZE(Type, member) \
  (offsetof(Type, member) + sizeof(static_cast<Type*>(nullptr)->member))

using Function = Error* (*)(void* args);

// Places in the table of the entries this module replaces or calls.
enum Entry : size_t {
  kErrorDestroy = 0,
  kErrorMessage = 1,
  kErrorGetCode = 2,
  kPluginInitialize = 3,
  kPluginAttributes = 4,
  kEventDestroy = 5,
  kEventAwait = 8,
  kClientCreate = 10,
  kClientAddressableDevices = 16,
  kClientCompile = 20,
  kClientBufferFromHostBuffer = 22,
  kDeviceDefaultMemory = 33,
  kDeviceMemoryStats = 34,
  kExecutableDestroy = 40,
  kExecutableNumOutputs = 44,
  kLoadedExecutableDestroy = 50,
  kLoadedExecutableGetExecutable = 51,
  kLoadedExecutableAddressableDevices = 52,
  kLoadedExecutableExecute = 55,
  kExecutableDeserializeAndLoad = 56,
  kBufferDestroy = 58,
  kBufferOnDeviceSizeInBytes = 64,
  kBufferDevice = 65,
  kBufferMemory = 66,
  kBufferDelete = 67,
  kBufferIsDeleted = 68,
  kBufferCopyToDevice = 69,
  kBufferToHostBuffer = 70,
  kCompile = 89,
  kBufferCopyToMemory = 92,
  kExecutableGetCompiledMemoryStats = 96,
  kBufferCopyRawToHost = 100,
  kTransferData = 102,
  kRetrieveBuffer = 104,
  kClientCreateUninitializedBuffer = 112,
  kErrorForEachPayload = 132,
  kEntryCount = 138,  // as far as 0.114 goes
};

struct Api {
  size_t struct_size;
  Extension* extension_start;
  ApiVersion version;
  Function entries[kEntryCount];

  bool covers(Entry entry) const {
    return struct_size >= offsetof(Api, entries) + (entry + 1) * sizeof(Function);
  }
};

}  // namespace anychip::pjrt::abi
