#include "pjrt/memory_account.h"

#include <map>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace anychip::pjrt {
namespace {

const abi::Device* device(int i) { return reinterpret_cast<const abi::Device*>(0x1000 + i * 64L); }
const abi::Buffer* buffer(int i) {
  return reinterpret_cast<const abi::Buffer*>(0x900000 + i * 64L);
}

TEST(MemoryAccount, KnowsEachDeviceOnceAndNoOthers) {
  MemoryAccount account;
  account.add_device(device(1), nullptr);
  account.add_device(device(1), nullptr);
  account.add_device(device(2), nullptr);
  EXPECT_EQ(account.index_of(device(2)), 1);
  EXPECT_EQ(account.index_of(device(3)), MemoryAccount::kNoDevice);
  EXPECT_EQ(account.index_of(static_cast<const abi::Memory*>(nullptr)), MemoryAccount::kNoDevice);
  EXPECT_TRUE(account.reserve(MemoryAccount::kNoDevice, 1 << 30));
  EXPECT_EQ(account.bytes_in_use(), 0);
}

TEST(MemoryAccount, MoreDevicesThanPlacesAreUncountedNotWrong) {
  MemoryAccount account;
  for (int i = 0; i < MemoryAccount::kDevicesMax + 5; ++i) account.add_device(device(i), nullptr);
  EXPECT_EQ(account.index_of(device(MemoryAccount::kDevicesMax)), MemoryAccount::kNoDevice);
}

TEST(MemoryAccount, HugeRequestsDoNotOverflow) {
  MemoryAccount account;
  account.add_device(device(0), nullptr);
  account.set_limit(100);
  EXPECT_TRUE(account.reserve(0, 60));
  EXPECT_FALSE(account.reserve(0, INT64_MAX));
  EXPECT_EQ(account.use(0).bytes, 60);
}

// Against a plain model: whatever is made, freed, freed twice or made again at the same address,
// the sum is that of the buffers alive, never over the limit, and the peak is the highest sum seen.
RC_GTEST_PROP(MemoryAccountModel, AgreesWithASum, ()) {
  MemoryAccount account;
  account.add_device(device(0), nullptr);
  account.add_device(device(1), nullptr);
  const int64_t limit = *rc::gen::inRange<int64_t>(0, 2000);
  account.set_limit(limit);
  std::map<int, std::pair<int, int64_t>> alive;
  int64_t peak[2] = {0, 0};
  const auto sum = [&](int on) {
    int64_t total = 0;
    for (const auto& [id, held] : alive) total += held.first == on ? held.second : 0;
    return total;
  };
  for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
    const int id = *rc::gen::inRange(0, 8);
    if (*rc::gen::inRange(0, 3) == 0) {
      account.forget(buffer(id));
      alive.erase(id);
    } else {
      const int on = *rc::gen::inRange(0, 2);
      const int64_t bytes = *rc::gen::inRange<int64_t>(0, 900);
      const bool fits = limit == 0 || bytes == 0 || sum(on) + bytes <= limit;
      RC_ASSERT(account.reserve(on, bytes) == fits);
      if (!fits) continue;
      peak[on] = std::max(peak[on], sum(on) + bytes);
      account.track(buffer(id), on, bytes);
      alive[id] = {on, bytes};
    }
    for (int on = 0; on < 2; ++on) {
      RC_ASSERT(account.use(on).bytes == sum(on));
      RC_ASSERT(account.use(on).peak_bytes == peak[on]);
    }
    RC_ASSERT(account.buffer_count() == static_cast<int64_t>(alive.size()));
  }
}

}  // namespace
}  // namespace anychip::pjrt
