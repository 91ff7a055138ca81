// Files, folders, locks and paths on a real folder.
#include "sys/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/paths.h"

namespace anychip::sys {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "anychip-sys-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = absolute_path(name);
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(folder_)); }
  std::string folder_;
};

TEST_F(FilesTest, DurableWriteReplacesAndLeavesNoTemporary) {
  const std::string path = folder_ + "/a.json";
  ASSERT_TRUE(write_file_durable(path, "one", 0600));
  ASSERT_TRUE(write_file_durable(path, "two", 0600));
  EXPECT_EQ(*read_file(path), "two");
  EXPECT_EQ(list_folder(folder_)->size(), 1u);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_FALSE(write_file_durable(folder_ + "/absent/x", "x"));
}

TEST_F(FilesTest, ReadsHaveALimitAndNameWhatIsMissing) {
  ASSERT_TRUE(write_file_atomic(folder_ + "/big", std::string(1000, 'x')));
  EXPECT_EQ(read_file(folder_ + "/big", 999).error().reason, "file_too_large");
  EXPECT_EQ(read_file(folder_ + "/big", 1000)->size(), 1000u);
  EXPECT_EQ(read_file(folder_ + "/no").error().code, Code::kNotFound);
  EXPECT_NE(read_file(folder_ + "/no").error().message.find("/no"), std::string::npos);
  EXPECT_FALSE(read_file(folder_)) << "a folder is no file";
  const auto fd = open_file(folder_ + "/big", O_RDONLY);
  EXPECT_EQ(read_range(fd->get(), 990, 100)->size(), 10u);
}

TEST_F(FilesTest, BeneathRefusesLinksAndParentSteps) {
  ASSERT_TRUE(make_folders(folder_ + "/tenant/sub"));
  ASSERT_TRUE(write_file_atomic(folder_ + "/secret", "secret"));
  ASSERT_TRUE(write_file_atomic(folder_ + "/tenant/sub/ok", "ok"));
  ASSERT_EQ(::symlink("../secret", (folder_ + "/tenant/link").c_str()), 0);
  ASSERT_EQ(::symlink(folder_.c_str(), (folder_ + "/tenant/up").c_str()), 0);
  const auto tenant = open_file(folder_ + "/tenant", O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(*read_beneath(tenant->get(), "sub/ok"), "ok");
  for (const char* path : {"link", "up/secret", "../secret", "/etc/passwd", "sub/../../secret"}) {
    EXPECT_FALSE(read_beneath(tenant->get(), path)) << path;
  }
  // A pipe must not hang the reader, nor count as a file of endless length.
  ASSERT_EQ(::mkfifo((folder_ + "/tenant/pipe").c_str(), 0644), 0);
  EXPECT_EQ(read_beneath(tenant->get(), "pipe")->size(), 0u);
}

TEST_F(FilesTest, RemoveTreeTakesLinksNotTheirTargets) {
  ASSERT_TRUE(make_folders(folder_ + "/tree/a/b"));
  ASSERT_TRUE(make_folders(folder_ + "/outside"));
  ASSERT_TRUE(write_file_atomic(folder_ + "/outside/kept", "x"));
  ASSERT_EQ(::symlink("../outside", (folder_ + "/tree/link").c_str()), 0);
  ASSERT_TRUE(write_file_atomic(folder_ + "/tree/a/b/file", "x"));
  ASSERT_TRUE(remove_tree(folder_ + "/tree"));
  EXPECT_FALSE(exists(folder_ + "/tree"));
  EXPECT_TRUE(exists(folder_ + "/outside/kept"));
  ASSERT_TRUE(remove_tree(folder_ + "/tree")) << "absent = done";
}

TEST_F(FilesTest, ALockIsHeldByOneAndFreedByDeath) {
  const std::string path = folder_ + "/lock";
  {
    const auto held = FileLock::try_acquire(path);
    ASSERT_TRUE(held);
    EXPECT_EQ(FileLock::try_acquire(path).error().reason, "locked");
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = FileLock::acquire(path);
    ::_exit(held ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(FileLock::try_acquire(path));
}

TEST_F(FilesTest, SpaceAndAllocationAreThoseOfTheFileSystem) {
  const auto space = space_of(folder_);
  ASSERT_TRUE(space);
  EXPECT_GT(space->total_bytes, space->free_bytes);
  ASSERT_TRUE(write_file_durable(folder_ + "/data", std::string(100'000, 'x')));
  EXPECT_GE(allocated_bytes(folder_ + "/data"), 100'000);
  EXPECT_EQ(allocated_bytes(folder_ + "/none"), 0);
}

TEST_F(FilesTest, PathsAreAbsoluteAndTheInstallationIsFound) {
  EXPECT_EQ(absolute_path(folder_ + "/x/../y/"), folder_ + "/y");
  EXPECT_EQ(join("/a", "b"), "/a/b");
  EXPECT_EQ(join("/a/", "b"), "/a/b");
  EXPECT_EQ(parent_of("/a/b"), "/a");
  EXPECT_EQ(parent_of("/a"), "/");
  EXPECT_EQ(name_of("/a/b"), "b");
  ASSERT_TRUE(make_folders(folder_ + "/install/catalog/images"));
  ::setenv("ANYCHIP_ROOT", (folder_ + "/install").c_str(), 1);
  EXPECT_EQ(installation_root().value_or(""), folder_ + "/install");
  ::setenv("ANYCHIP_ROOT", folder_.c_str(), 1);
  EXPECT_EQ(installation_root().error().reason, "installation_not_found");
  ::unsetenv("ANYCHIP_ROOT");
  EXPECT_EQ(installation_root().value_or(""), ANYCHIP_SOURCE_DIR)
      << "found upwards from this test program";
  ::setenv("ANYCHIP_DATA", (folder_ + "/d/").c_str(), 1);
  EXPECT_EQ(data_folder().value_or(""), folder_ + "/d");
  ::unsetenv("ANYCHIP_DATA");
  ::setenv("XDG_DATA_HOME", folder_.c_str(), 1);
  EXPECT_EQ(data_folder().value_or(""), folder_ + "/anychip");
  ::unsetenv("XDG_DATA_HOME");
}

}  // namespace
}  // namespace anychip::sys
