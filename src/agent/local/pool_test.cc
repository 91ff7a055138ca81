// Proves on real loop devices and file systems: the size limit of a volume, snapshots under
// writers, sharing of blocks, fencing by generation, no leftovers, and that a kill at every step
// heals at the next open(). Needs root and loop devices.
#include "agent/local/pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "agent/local/pool_record.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/rng.h"
#include "sys/freeze.h"
#include "sys/loop.h"
#include "sys/mounts.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::agent {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr PoolOptions kSmallPool{8192 * kMiB};

template <class AnyId>
AnyId new_id() {
  SecureRandom random;
  return AnyId::make(RealClock{}.wall_now(), random);
}

#define ASSERT_OK(expression)                                                                   \
  do {                                                                                          \
    const auto& ok_status = (expression);                                                       \
    ASSERT_TRUE(ok_status.has_value()) << #expression << ": " << ok_status.error().to_string(); \
  } while (false)

class PoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: mounts file systems";
    if (!sys::exists("/dev/loop-control")) GTEST_SKIP() << "needs loop devices";
    std::string name = ::testing::TempDir() + "anychip-pool-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    data_ = sys::absolute_path(name);
    open_pool();
  }
  void TearDown() override {
    if (pool_) {
      const Status closed = pool_->close();
      EXPECT_TRUE(closed.has_value()) << closed.error().to_string();
    }
    pool_.reset();
    if (!data_.empty()) {
      EXPECT_EQ(loops_below(), 0u);
      const Status removed = sys::remove_tree(data_);
      EXPECT_TRUE(removed.has_value()) << removed.error().to_string();
    }
  }
  void open_pool() {
    auto pool = Pool::open(data_, kSmallPool);
    ASSERT_OK(pool);
    pool_ = std::move(*pool);
  }
  void reopen() {
    pool_.reset();
    open_pool();
  }
  size_t loops_below() const {
    size_t count = 0;
    const auto loops = sys::loop_devices();
    for (const auto& loop : *loops) count += loop.backing_file.starts_with(data_ + "/") ? 1 : 0;
    return count;
  }
  VolumeId make_volume(int64_t size_bytes = 512 * kMiB) {
    const auto id = new_id<VolumeId>();
    const Status made = pool_->ensure_volume(id, size_bytes);
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
    return id;
  }
  std::string attach(const VolumeId& id, const InstanceId& instance, int64_t generation) {
    const auto mounted = pool_->attach(id, instance, generation);
    EXPECT_TRUE(mounted.has_value()) << mounted.error().to_string();
    return mounted ? mounted->path : "";
  }
  // Random bytes in `count` files of 1 MiB; false at the first write that does not fit.
  static bool fill(const std::string& folder, int count, uint64_t seed = 1) {
    SeededRandom random(seed);
    std::string block(kMiB, '\0');
    for (int i = 0; i < count; ++i) {
      random.fill({reinterpret_cast<uint8_t*>(block.data()), block.size()});
      if (!sys::write_file_atomic(fmt::format("{}/file-{}", folder, i), block)) return false;
    }
    return sys::sync_file_system(folder).has_value();
  }

  std::string data_;
  std::unique_ptr<Pool> pool_;
};

TEST_F(PoolTest, OpenTwiceIsOneMountAndASecondAgentIsRefused) {
  const auto second = Pool::open(data_, kSmallPool);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().reason, "pool_in_use");
  reopen();
  reopen();
  EXPECT_EQ(loops_below(), 1u);
  EXPECT_GT(pool_->space().free_bytes, 7000 * kMiB);
}

TEST_F(PoolTest, WritesPastTheSizeGetEnospcAtTheLimit) {
  const auto id = make_volume(320 * kMiB);
  const auto instance = new_id<InstanceId>();
  const std::string path = attach(id, instance, 1);
  auto fd = sys::open_file(path + "/big", O_WRONLY | O_CREAT);
  ASSERT_OK(fd);
  const std::string block(kMiB, 'x');
  int64_t written_bytes = 0;
  ssize_t put = 0;
  while (written_bytes < 400 * kMiB && (put = ::write(fd->get(), block.data(), block.size())) > 0) {
    written_bytes += put;  // the last one before the limit may be short
  }
  EXPECT_LT(put, 0);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_GE(written_bytes, 200 * kMiB);  // xfs itself needs less than 100 MiB
  EXPECT_LT(written_bytes, 320 * kMiB);
  EXPECT_EQ(::fsync(fd->get()), 0) << "what was accepted must reach the disk";
  EXPECT_LE(pool_->volumes()[0].used_bytes, 321 * kMiB);
}

TEST_F(PoolTest, MakingAVolumeTakesMillisecondsAfterTheFirstOfItsSize) {
  make_volume();
  const MonoTime begin = RealClock{}.mono_now();
  make_volume();
  const Duration took = RealClock{}.mono_now() - begin;
  RecordProperty("create_us", std::to_string(took.us));
  EXPECT_LT(took.ms(), 1000);
}

TEST_F(PoolTest, SnapshotTakesLessThanFivePercentInNewBlocks) {
  const auto id = make_volume(1024 * kMiB);
  const auto instance = new_id<InstanceId>();
  const std::string path = attach(id, instance, 1);
  ASSERT_TRUE(fill(path, 220));
  ASSERT_OK(sys::sync_file_system(data_ + "/agent/pool"));
  const int64_t free_before = pool_->space().free_bytes;
  const auto snapshot = new_id<SnapshotId>();
  ASSERT_OK(pool_->take_snapshot(snapshot, id));
  ASSERT_OK(sys::sync_file_system(data_ + "/agent/pool"));
  const int64_t taken = free_before - pool_->space().free_bytes;
  RecordProperty("snapshot_new_bytes", std::to_string(taken));
  RecordProperty("freeze_us", std::to_string(pool_->snapshots()[0].freeze_us));
  EXPECT_LT(taken, 220 * kMiB / 20);
  EXPECT_GT(pool_->snapshots()[0].freeze_us, 0);
  EXPECT_EQ(pool_->snapshots()[0].size_bytes, 1024 * kMiB);
}

// Record i: its number, its length, random bytes, the hash over all of it. A complete record in the
// clone must verify, and the records must be a prefix of what was written.
struct RecordHeader {
  uint64_t number, length;
};
void write_records(const std::string& path, const std::atomic<bool>& stop,
                   std::atomic<int>& written) {
  SeededRandom random(7);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  for (uint64_t number = 0; !stop; ++number) {
    std::string payload(1000 + random.below(60'000), '\0');
    random.fill({reinterpret_cast<uint8_t*>(payload.data()), payload.size()});
    const RecordHeader header{number, payload.size()};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += payload;
    bytes += sha256_hex(bytes);
    if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) break;
    if (number % 16 == 15) ::fdatasync(fd);
    written = static_cast<int>(number) + 1;
  }
  ::close(fd);
}
int verify_records(const std::string& path) {
  const auto text = sys::read_file(path, 1 << 30);
  if (!text) return -1;
  size_t at = 0;
  uint64_t number = 0;
  while (at + sizeof(RecordHeader) <= text->size()) {
    RecordHeader header{};
    std::memcpy(&header, text->data() + at, sizeof header);
    const size_t end = at + sizeof header + header.length;
    if (end + 64 > text->size()) break;  // cut off: not complete
    EXPECT_EQ(header.number, number);
    if (sha256_hex(text->substr(at, end - at)) != text->substr(end, 64)) {
      ADD_FAILURE() << "record " << number << " is damaged";
      return -1;
    }
    at = end + 64;
    ++number;
  }
  return static_cast<int>(number);
}

TEST_F(PoolTest, SnapshotUnderWritesIsConsistentAndBothMountAgain) {
  const auto id = make_volume(1024 * kMiB);
  const auto instance = new_id<InstanceId>();
  std::string path = attach(id, instance, 1);
  std::atomic<bool> stop{false};
  std::atomic<int> written{0};
  std::thread writer([&] { write_records(path + "/records", stop, written); });
  while (written < 200) ::usleep(2000);
  const auto snapshot = new_id<SnapshotId>();
  const int before = written;
  const Status taken = pool_->take_snapshot(snapshot, id);
  const int after_snapshot = written;
  while (written < after_snapshot + 100 && written < 5000) ::usleep(2000);
  stop = true;
  writer.join();
  ASSERT_OK(taken);

  const auto clone = new_id<VolumeId>();
  ASSERT_OK(pool_->ensure_volume(clone, 1024 * kMiB, snapshot));
  const std::string clone_path = attach(clone, instance, 1);
  const int in_clone = verify_records(clone_path + "/records");
  EXPECT_GE(in_clone, before) << "what was written before the snapshot is in it";
  EXPECT_LE(in_clone, written);
  EXPECT_EQ(verify_records(path + "/records"), written);

  for (const VolumeId& volume : {id, clone}) {
    ASSERT_OK(pool_->detach(volume, instance));
    path = attach(volume, instance, 2);
    EXPECT_EQ(verify_records(path + "/records"), volume == id ? written.load() : in_clone);
    ASSERT_OK(sys::write_file_durable(path + "/after", "still writable"));
  }
  ASSERT_OK(pool_->detach_all(instance));
  EXPECT_EQ(loops_below(), 1u);
  for (const VolumeId& volume : {id, clone}) {  // the file systems are sound, not only readable
    ASSERT_OK(sys::run_ok(
        {"xfs_repair", "-n", "-f", data_ + "/agent/pool/volumes/" + volume.text + ".img"}));
  }
}

TEST_F(PoolTest, VolumeFromASnapshotGrowsToItsSize) {
  const auto id = make_volume(320 * kMiB);
  const auto snapshot = new_id<SnapshotId>();
  ASSERT_OK(pool_->take_snapshot(snapshot, id));  // not attached
  const auto larger = new_id<VolumeId>();
  ASSERT_OK(pool_->ensure_volume(larger, 640 * kMiB, snapshot));
  const std::string path = attach(larger, new_id<InstanceId>(), 1);
  EXPECT_GT(sys::space_of(path)->total_bytes, 500 * kMiB);
  ASSERT_OK(pool_->ensure_volume(larger, 640 * kMiB, snapshot));
}

TEST_F(PoolTest, GenerationsFence) {
  const auto id = make_volume();
  const auto first = new_id<InstanceId>(), second = new_id<InstanceId>(),
             third = new_id<InstanceId>();
  const std::string path = attach(id, first, 3);
  EXPECT_EQ(attach(id, first, 3), path);
  EXPECT_EQ(attach(id, second, 3), path) << "one node, one generation: shared";
  EXPECT_EQ(pool_->attach(id, third, 2).error().reason, "generation_stale");
  EXPECT_EQ(pool_->attach(id, third, 4).error().reason, "volume_in_use");
  EXPECT_EQ(pool_->remove_volume(id).error().reason, "volume_in_use");
  ASSERT_OK(pool_->detach(id, first));
  EXPECT_TRUE(sys::mounted_at(path)->has_value()) << "the second still holds it";
  ASSERT_OK(pool_->detach(id, second));
  EXPECT_FALSE(sys::mounted_at(path)->has_value());
  attach(id, third, 4);
  EXPECT_EQ(pool_->volumes()[0].attached_to, third);
  reopen();
  EXPECT_EQ(pool_->volumes()[0].attached_to, third) << "found again";
  EXPECT_EQ(pool_->attach(id, first, 3).error().reason, "generation_stale")
      << "also after a detach";
}

TEST_F(PoolTest, AfterARebootHoldersAreKnownAndAttachMountsAgain) {
  const auto id = make_volume();
  const auto instance = new_id<InstanceId>();
  ASSERT_OK(sys::write_file_durable(attach(id, instance, 1) + "/word", "kept"));
  ASSERT_OK(pool_->close());  // as a reboot: nothing is mounted, the sidecars say what was
  reopen();
  ASSERT_EQ(pool_->volumes().size(), 1u);
  EXPECT_EQ(pool_->volumes()[0].attached_to, instance);
  EXPECT_EQ(*sys::read_file(attach(id, instance, 1) + "/word"), "kept");
  ASSERT_OK(pool_->detach(id, instance));
}

TEST_F(PoolTest, AVolumeStillWrittenToIsNotReleased) {
  const auto id = make_volume();
  const auto instance = new_id<InstanceId>();
  const std::string path = attach(id, instance, 1);
  auto held = sys::open_file(path + "/open", O_WRONLY | O_CREAT);
  ASSERT_OK(held);
  EXPECT_EQ(pool_->detach(id, instance).error().reason, "volume_busy");
  EXPECT_EQ(pool_->volumes()[0].attached_to, instance);
  EXPECT_EQ(pool_->attach(id, instance, 2).error().reason, "volume_busy");
  held->reset();
  ASSERT_OK(pool_->detach(id, instance));
  attach(id, instance, 3);
}

TEST_F(PoolTest, AHundredVolumesLeaveNoLoopDevice) {
  const auto instance = new_id<InstanceId>();
  const auto loops_before = sys::loop_devices()->size();
  for (int i = 0; i < 100; ++i) {
    const auto id = make_volume();
    ASSERT_FALSE(attach(id, instance, 1).empty());
    ASSERT_OK(pool_->detach(id, instance));
    ASSERT_OK(pool_->remove_volume(id));
  }
  EXPECT_EQ(loops_below(), 1u);
  EXPECT_LE(sys::loop_devices()->size(), loops_before + 4) << "others may use loops too";
  EXPECT_TRUE(pool_->volumes().empty());
  EXPECT_EQ(sys::list_folder(data_ + "/agent/pool/volumes")->size(), 0u);
}

TEST_F(PoolTest, BadAsksAreRefused) {
  EXPECT_EQ(pool_->ensure_volume(VolumeId{"../../etc/x"}, 512 * kMiB).error().reason,
            "id_malformed");
  EXPECT_EQ(pool_->ensure_volume(new_id<VolumeId>(), kMiB).error().reason, "volume_too_small");
  EXPECT_EQ(
      pool_->ensure_volume(new_id<VolumeId>(), 512 * kMiB, new_id<SnapshotId>()).error().reason,
      "snapshot_missing");
  EXPECT_EQ(pool_->take_snapshot(new_id<SnapshotId>(), new_id<VolumeId>()).error().reason,
            "volume_missing");
  ASSERT_OK(pool_->remove_volume(new_id<VolumeId>()));
  ASSERT_OK(pool_->remove_snapshot(new_id<SnapshotId>()));
}

TEST_F(PoolTest, AnErrorWhileFrozenThaws) {
  const auto id = make_volume();
  const std::string path = attach(id, new_id<InstanceId>(), 1);
  for (const char* point : {"pool.snapshot.frozen=error", "pool.snapshot.cloned=error"}) {
    ASSERT_OK(failpoint::arm(point));
    EXPECT_FALSE(pool_->take_snapshot(new_id<SnapshotId>(), id).has_value());
    ASSERT_OK(failpoint::arm(""));
    EXPECT_FALSE(*sys::thaw_if_frozen(path));
  }
  EXPECT_TRUE(pool_->snapshots().empty());
}

// --- killed at every step ------------------------------------------------------------------------

struct Story {
  VolumeId volume = new_id<VolumeId>(), clone = new_id<VolumeId>();
  SnapshotId snapshot = new_id<SnapshotId>();
  InstanceId instance = new_id<InstanceId>();

  Status tell(Pool& pool) const {
    TRY_VOID(pool.ensure_volume(volume, 336 * kMiB));
    TRY(const auto mounted, pool.attach(volume, instance, 1));
    TRY_VOID(sys::write_file_durable(mounted.path + "/word", "kept"));
    TRY_VOID(pool.take_snapshot(snapshot, volume));
    TRY_VOID(pool.ensure_volume(clone, 336 * kMiB, snapshot));
    TRY_VOID(pool.detach(volume, instance));
    TRY_VOID(pool.remove_snapshot(snapshot));
    TRY_VOID(pool.remove_volume(volume));
    return {};
  }
};

class PoolKillTest : public PoolTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(PoolKillTest, HealsAtTheNextOpen) {
  pool_.reset();
  const Story story;
  const std::string arming = std::string(GetParam()) + "=kill";
  const pid_t child = ::fork();
  if (child == 0) {
    (void)failpoint::arm(arming);
    auto pool = Pool::open(data_, kSmallPool);
    if (!pool || !story.tell(**pool)) ::_exit(1);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      << "the story never came to " << GetParam();

  open_pool();
  const PoolLayout layout(data_);
  const auto table = sys::mount_table();
  for (const auto& entry : *table) {
    if (!entry.target.starts_with(layout.mounts + "/")) continue;
    EXPECT_FALSE(*sys::thaw_if_frozen(entry.target));
  }
  for (const std::string& folder : {layout.volumes, layout.snapshots}) {
    const auto names = sys::list_folder(folder);
    for (const std::string& name : *names) {
      const std::string stem = name.substr(0, name.rfind('.'));
      EXPECT_TRUE(sys::exists(folder + "/" + stem + ".img")) << name;
      EXPECT_TRUE(sys::exists(folder + "/" + stem + ".json")) << name;
    }
  }
  ASSERT_OK(story.tell(*pool_));
  const std::string path = attach(story.clone, story.instance, 1);
  EXPECT_EQ(*sys::read_file(path + "/word"), "kept");
  ASSERT_OK(pool_->detach(story.clone, story.instance));
  ASSERT_OK(pool_->remove_volume(story.clone));
  EXPECT_EQ(loops_below(), 1u);
}

INSTANTIATE_TEST_SUITE_P(EveryStep, PoolKillTest,
                         ::testing::Values("pool.template.made", "pool.volume.sidecar",
                                           "pool.volume.cloned", "pool.attach.sidecar",
                                           "pool.attach.mounted", "pool.snapshot.sidecar",
                                           "pool.snapshot.frozen", "pool.snapshot.cloned",
                                           "pool.snapshot.synced", "pool.snapshot.removing",
                                           "pool.detach.unmounted", "pool.volume.removing",
                                           "pool.volume.image_removed"));

TEST_F(PoolTest, AKillWhileFrozenThawsAtOnceWithoutAnotherAgent) {
  const auto id = make_volume();
  const auto instance = new_id<InstanceId>();
  const std::string path = attach(id, instance, 1);
  pool_.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    (void)failpoint::arm("pool.snapshot.frozen=kill");
    auto pool = Pool::open(data_, kSmallPool);
    if (pool) (void)(*pool)->take_snapshot(new_id<SnapshotId>(), id);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  sys::RunSpec write;  // in a process with a timeout: were it frozen, this would hang
  write.argv = {"touch", path + "/touched"};
  write.timeout = seconds(10);
  ASSERT_OK(sys::run_ok(write));
  open_pool();
}

TEST_F(PoolTest, AKillWhileThePoolIsMadeIsMadeAnew) {
  ASSERT_OK(pool_->close());
  pool_.reset();
  ASSERT_OK(sys::remove_file(data_ + "/agent/pool.img"));
  const pid_t child = ::fork();
  if (child == 0) {
    (void)failpoint::arm("pool.made=kill");
    (void)Pool::open(data_, kSmallPool);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  open_pool();
  make_volume();
}

TEST_F(PoolTest, LeftoversWithoutASidecarAreSweptAndForeignOnesAreNot) {
  const auto kept = make_volume();
  const PoolLayout layout(data_);
  ASSERT_OK(sys::write_file_durable(layout.volumes + "/vol_orphan.img", "x"));
  ASSERT_OK(sys::write_file_durable(layout.volumes + "/odd.json", "{not json"));
  ASSERT_OK(sys::write_file_durable(layout.volumes + "/odd.img", "never removed on a doubt"));
  reopen();
  EXPECT_FALSE(sys::exists(layout.volumes + "/vol_orphan.img"));
  EXPECT_TRUE(sys::exists(layout.volumes + "/odd.img"));
  ASSERT_EQ(pool_->volumes().size(), 1u);
  EXPECT_EQ(pool_->volumes()[0].volume, kept);
}

}  // namespace
}  // namespace anychip::agent
