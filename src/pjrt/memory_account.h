// How many bytes of each device are in use, held against a limit. Thread-safe: totals are atomics,
// the buffers are kept in 16 maps with a lock each, held for one look-up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "pjrt/c_api.h"

namespace anychip::pjrt {

class MemoryAccount {
 public:
  static constexpr int kDevicesMax = 256;  // of one process
  static constexpr int kNoDevice = -1;     // not a device's own memory: not counted

  struct Use {
    int64_t bytes = 0;
    int64_t peak_bytes = 0;
    int64_t largest_bytes = 0;
    int64_t allocations = 0;
  };

  void set_limit(int64_t bytes) { limit_bytes_.store(bytes, std::memory_order_relaxed); }
  int64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }

  // Each device once; `memory` is its default memory, the only one that counts as the device's.
  void add_device(const abi::Device* device, const abi::Memory* memory);
  int index_of(const abi::Device* device) const;
  int index_of(const abi::Memory* memory) const;

  // Takes bytes if the limit allows; false and no change otherwise. Always true without a limit or
  // for kNoDevice.
  bool reserve(int index, int64_t bytes);
  // Corrects what was reserved by what it turned out to be. Never refuses: the memory exists.
  void adjust(int index, int64_t delta_bytes);

  // A buffer whose bytes were reserved. forget() gives them back, once.
  void track(const abi::Buffer* buffer, int index, int64_t bytes);
  void forget(const abi::Buffer* buffer);
  std::optional<int64_t> bytes_of(const abi::Buffer* buffer) const;

  Use use(int index) const;
  int64_t bytes_in_use() const;  // of all devices together
  int64_t peak_bytes() const;    // of the device that peaked highest
  int64_t buffer_count() const;

 private:
  struct Slot {
    std::atomic<const abi::Device*> device{nullptr};
    std::atomic<const abi::Memory*> memory{nullptr};
    std::atomic<int64_t> bytes{0}, peak_bytes{0}, largest_bytes{0}, allocations{0};
  };
  struct Held {
    int index = kNoDevice;
    int64_t bytes = 0;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<const abi::Buffer*, Held> buffers;
  };
  static constexpr size_t kShards = 16;

  Shard& shard_of(const abi::Buffer* buffer);
  const Shard& shard_of(const abi::Buffer* buffer) const;
  static void raise_to(std::atomic<int64_t>& mark, int64_t value);

  std::atomic<int64_t> limit_bytes_{0};
  std::atomic<int> device_count_{0};
  std::mutex devices_mutex_;
  std::array<Slot, kDevicesMax> slots_;
  std::array<Shard, kShards> shards_;
};

}  // namespace anychip::pjrt
