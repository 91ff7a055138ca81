#include "pjrt/memory_account.h"

#include <algorithm>

namespace anychip::pjrt {

void MemoryAccount::add_device(const abi::Device* device, const abi::Memory* memory) {
  const std::lock_guard lock(devices_mutex_);
  if (device == nullptr || index_of(device) != kNoDevice) return;
  const int index = device_count_.load(std::memory_order_relaxed);
  if (index == kDevicesMax) return;  // uncounted rather than wrong
  slots_[static_cast<size_t>(index)].device.store(device, std::memory_order_relaxed);
  slots_[static_cast<size_t>(index)].memory.store(memory, std::memory_order_relaxed);
  device_count_.store(index + 1, std::memory_order_release);
}

int MemoryAccount::index_of(const abi::Device* device) const {
  const int count = device_count_.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (slots_[static_cast<size_t>(i)].device.load(std::memory_order_relaxed) == device) return i;
  }
  return kNoDevice;
}

int MemoryAccount::index_of(const abi::Memory* memory) const {
  const int count = device_count_.load(std::memory_order_acquire);
  for (int i = 0; memory != nullptr && i < count; ++i) {
    if (slots_[static_cast<size_t>(i)].memory.load(std::memory_order_relaxed) == memory) return i;
  }
  return kNoDevice;
}

void MemoryAccount::raise_to(std::atomic<int64_t>& mark, int64_t value) {
  int64_t seen = mark.load(std::memory_order_relaxed);
  while (seen < value && !mark.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

bool MemoryAccount::reserve(int index, int64_t bytes) {
  if (index == kNoDevice) return true;
  Slot& slot = slots_[static_cast<size_t>(index)];
  const int64_t limit = limit_bytes();
  int64_t in_use = slot.bytes.load(std::memory_order_relaxed);
  do {
    // Asking for nothing is never refused, even when adjust() went over the limit.
    if (limit > 0 && bytes > 0 && bytes > limit - in_use) return false;
  } while (!slot.bytes.compare_exchange_weak(in_use, in_use + bytes, std::memory_order_relaxed));
  raise_to(slot.peak_bytes, in_use + bytes);
  return true;
}

void MemoryAccount::adjust(int index, int64_t delta_bytes) {
  if (index == kNoDevice || delta_bytes == 0) return;
  Slot& slot = slots_[static_cast<size_t>(index)];
  const int64_t before = slot.bytes.fetch_add(delta_bytes, std::memory_order_relaxed);
  raise_to(slot.peak_bytes, before + delta_bytes);
}

MemoryAccount::Shard& MemoryAccount::shard_of(const abi::Buffer* buffer) {
  return shards_[std::hash<const void*>{}(buffer) / 64 % kShards];
}

const MemoryAccount::Shard& MemoryAccount::shard_of(const abi::Buffer* buffer) const {
  return shards_[std::hash<const void*>{}(buffer) / 64 % kShards];
}

void MemoryAccount::track(const abi::Buffer* buffer, int index, int64_t bytes) {
  if (buffer == nullptr || index == kNoDevice) return;
  Held replaced;
  {
    Shard& shard = shard_of(buffer);
    const std::lock_guard lock(shard.mutex);
    Held& held = shard.buffers[buffer];
    replaced = held;  // an address seen again: its first buffer went by a way we do not see
    held = {index, bytes};
  }
  adjust(replaced.index, -replaced.bytes);
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.allocations.fetch_add(1, std::memory_order_relaxed);
  raise_to(slot.largest_bytes, bytes);
}

void MemoryAccount::forget(const abi::Buffer* buffer) {
  Held held;
  {
    Shard& shard = shard_of(buffer);
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.buffers.find(buffer);
    if (found == shard.buffers.end()) return;
    held = found->second;
    shard.buffers.erase(found);
  }
  adjust(held.index, -held.bytes);
}

std::optional<int64_t> MemoryAccount::bytes_of(const abi::Buffer* buffer) const {
  const Shard& shard = shard_of(buffer);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.buffers.find(buffer);
  if (found == shard.buffers.end()) return std::nullopt;
  return found->second.bytes;
}

MemoryAccount::Use MemoryAccount::use(int index) const {
  const Slot& slot = slots_[static_cast<size_t>(index)];
  return {slot.bytes.load(), slot.peak_bytes.load(), slot.largest_bytes.load(),
          slot.allocations.load()};
}

int64_t MemoryAccount::bytes_in_use() const {
  int64_t sum = 0;
  for (int i = 0; i < device_count_.load(std::memory_order_acquire); ++i) sum += use(i).bytes;
  return sum;
}

int64_t MemoryAccount::peak_bytes() const {
  int64_t peak = 0;
  for (int i = 0; i < device_count_.load(std::memory_order_acquire); ++i) {
    peak = std::max(peak, use(i).peak_bytes);
  }
  return peak;
}

int64_t MemoryAccount::buffer_count() const {
  int64_t count = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    count += static_cast<int64_t>(shard.buffers.size());
  }
  return count;
}

}  // namespace anychip::pjrt
