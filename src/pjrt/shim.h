// The state behind the plugin table: one per process, made on first use, never destroyed (threads
// of the framework may still call while the process exits).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "pjrt/memory_account.h"
#include "pjrt/settings.h"

namespace anychip::pjrt {

struct Counters {
  std::atomic<int64_t> executions{0}, compiles{0}, loads{0};
  std::atomic<int64_t> host_to_device_transfers{0}, host_to_device_bytes{0};
  std::atomic<int64_t> device_to_host_transfers{0}, device_to_host_bytes{0};
  std::atomic<int64_t> out_of_memory{0}, options_dropped{0};
};

// What is known of a loaded program before it runs.
struct ProgramFacts {
  size_t output_count = 0;
  int64_t result_bytes = 0;   // outputs that do not take over an argument's memory
  int64_t working_bytes = 0;  // temporaries, held while it runs
  std::vector<int> devices;   // MemoryAccount indices, one per launch position
};

class Shim {
 public:
  static Shim& instance();

  // The table given to the framework; built once. When there is no usable plugin behind us, a table
  // whose Client_Create says why.
  const abi::Api* api();
  const std::string& failure() const { return failure_; }  // "" = a usable plugin is behind us
  std::string stats_json() const;
  void write_stats() const;

  // Calls the plugin behind us; kUnimplemented when its table is too short for the entry.
  template <class Args>
  abi::Error* call_real(abi::Entry entry, Args& args) const {
    if (real_ == nullptr || !real_->covers(entry) || real_->entries[entry] == nullptr) {
      return make_error(abi::kUnimplemented, "the PJRT plugin behind the shim lacks this function");
    }
    return real_->entries[entry](&args);
  }
  // For questions of our own: no answer is no harm.
  template <class Args>
  bool ask_real(abi::Entry entry, Args& args) const {
    args.struct_size = sizeof(Args);
    abi::Error* error = call_real(entry, args);
    if (error != nullptr) destroy(error);
    return error == nullptr;
  }
  void destroy(abi::Error* error) const;
  std::string message_of(abi::Error* error) const;
  abi::ErrorCode code_of(abi::Error* error) const;

  std::shared_ptr<const ProgramFacts> facts_of(abi::LoadedExecutable* program);
  void forget_program(abi::LoadedExecutable* program);
  void add_devices_of(abi::Client* client);

  Settings settings;
  MemoryAccount memory;
  Counters counters;

 private:
  Shim() = default;
  void build();
  std::string load_real();  // "" or why not
  std::shared_ptr<const ProgramFacts> ask_facts(abi::LoadedExecutable* program) const;

  std::once_flag built_;
  const abi::Api* real_ = nullptr;
  std::vector<std::max_align_t> table_;  // as long as the real table, however new that is
  std::string failure_;
  std::shared_mutex programs_mutex_;
  std::unordered_map<abi::LoadedExecutable*, std::shared_ptr<const ProgramFacts>> programs_;
};

// hooks.cc: puts our functions into a copy of the real table, or into an empty one. Entries that
// the real table does not reach are left alone.
void install_hooks(abi::Api& table);
void install_failure(abi::Api& table);

}  // namespace anychip::pjrt
