// Mounts, loop devices, freezing and id mapping on a small xfs in a file. Needs root.
#include "sys/mounts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/files.h"
#include "sys/freeze.h"
#include "sys/loop.h"
#include "sys/paths.h"
#include "sys/process.h"

namespace anychip::sys {
namespace {

class MountsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: mounts file systems";
    if (!exists("/dev/loop-control")) GTEST_SKIP() << "needs loop devices";
    std::string name =
        ::testing::TempDir() + "anychip mounts-XXXXXX";  // a space: mountinfo escapes it
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = absolute_path(name);
    image_ = folder_ + "/disk.img";
    target_ = folder_ + "/disk";
    ASSERT_TRUE(make_folders(target_));
    const auto fd = open_file(image_, O_RDWR | O_CREAT);
    ASSERT_EQ(::ftruncate(fd->get(), 320 << 20), 0);
    const auto made = run_ok({"mkfs.xfs", "-q", "-s", "size=4096", image_});
    ASSERT_TRUE(made) << made.error().to_string();
    const auto loop = attach_loop(image_);
    ASSERT_TRUE(loop) << loop.error().to_string();
    device_ = loop->path;
    ASSERT_TRUE(mount_file_system(device_, target_, "xfs"));
  }
  void TearDown() override {
    if (folder_.empty()) return;
    EXPECT_TRUE(unmount(target_));
    EXPECT_TRUE(*wait_loop_free(image_, seconds(5)));
    EXPECT_TRUE(remove_tree(folder_));
  }
  std::string folder_, image_, target_, device_;
};

TEST_F(MountsTest, TheDeviceIsDirectFoundAndFreesItself) {
  const auto loops = loops_of(image_);
  ASSERT_EQ(loops->size(), 1u);
  EXPECT_EQ((*loops)[0].path, device_);
  EXPECT_TRUE((*loops)[0].is_direct_io);
  const auto entry = mounted_at(target_);
  ASSERT_TRUE(entry->has_value());
  EXPECT_EQ((*entry)->source, device_);
  EXPECT_EQ((*entry)->type, "xfs");
  EXPECT_FALSE(*unmount(target_)) << "not busy: no lazy detach";
  EXPECT_TRUE(*wait_loop_free(image_, seconds(5)));
  EXPECT_FALSE(mounted_at(target_)->has_value());
  EXPECT_FALSE(*unmount(target_)) << "again = done";
  // Attached and never mounted, as after a kill: gone with its descriptor.
  EXPECT_TRUE(attach_loop(image_));
  EXPECT_TRUE(*wait_loop_free(image_, seconds(5)));
}

TEST_F(MountsTest, ABusyMountIsDetachedAndItsDeviceSeenAsHeld) {
  auto held = open_file(target_ + "/held", O_WRONLY | O_CREAT);
  ASSERT_TRUE(held);
  EXPECT_TRUE(*unmount(target_, milliseconds(50))) << "lazily";
  EXPECT_FALSE(*wait_loop_free(image_, milliseconds(100)));
  held->reset();
  EXPECT_TRUE(*wait_loop_free(image_, seconds(5)));
}

TEST_F(MountsTest, RemoveTreeStopsAtAMountPoint) {
  ASSERT_TRUE(write_file_durable(target_ + "/precious", "x"));
  EXPECT_EQ(remove_tree(folder_).error().reason, "is_mount_point");
  EXPECT_TRUE(exists(target_ + "/precious"));
}

TEST_F(MountsTest, AFrozenFileSystemIsThawedByUsOurDestructorOrOurDeath) {
  {
    auto frozen = FrozenFileSystem::freeze(target_);
    ASSERT_TRUE(frozen) << frozen.error().to_string();
    EXPECT_TRUE(frozen->thaw());
    EXPECT_FALSE(*thaw_if_frozen(target_));
  }
  {
    auto frozen = FrozenFileSystem::freeze(target_);
    ASSERT_TRUE(frozen);
  }
  EXPECT_FALSE(*thaw_if_frozen(target_)) << "the destructor did";
  {
    auto frozen = FrozenFileSystem::freeze(target_);
    EXPECT_TRUE(*thaw_if_frozen(target_)) << "somebody else";
    EXPECT_EQ(frozen->thaw().error().reason, "freeze_lost");
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const auto frozen = FrozenFileSystem::freeze(target_);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  RunSpec touch;
  touch.argv = {"touch", target_ + "/touched"};
  touch.timeout = seconds(10);
  EXPECT_TRUE(run_ok(touch)) << "the guard thawed it";
}

TEST_F(MountsTest, AnIdmappedTreeShowsIdsOfAProject) {
  ASSERT_TRUE(write_file_durable(target_ + "/file", "x"));
  const std::string mapped = folder_ + "/mapped";
  ASSERT_TRUE(make_folders(mapped));
  const auto user_namespace = make_user_namespace(200'000);
  ASSERT_TRUE(user_namespace) << user_namespace.error().to_string();
  const auto tree = clone_tree(target_);
  ASSERT_TRUE(tree);
  ASSERT_TRUE(idmap_tree(*tree, *user_namespace));
  ASSERT_TRUE(set_tree_read_only(*tree));
  ASSERT_TRUE(attach_tree(*tree, mapped));
  struct stat info {};
  EXPECT_EQ(::stat((mapped + "/file").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 200'000u);
  EXPECT_EQ(
      write_file_atomic(mapped + "/no", "x").error().message.find("Read-only") != std::string::npos,
      true);
  EXPECT_TRUE(unmount(mapped));
}

}  // namespace
}  // namespace anychip::sys
