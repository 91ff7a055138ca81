// Packing is deterministic, complete and bounded; unpacking refuses every known way out of the
// folder, and any bytes at all without leaving it.
#include "sys/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <functional>

#include "base/hash.h"
#include "base/rng.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::sys {
namespace {

class ArchiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "anychip-archive-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = absolute_path(name);
    ASSERT_TRUE(make_folders(folder_ + "/in"));
    ASSERT_TRUE(make_folders(folder_ + "/out"));
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(folder_)); }

  void write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(make_folders(parent_of(folder_ + "/" + path)));
    ASSERT_TRUE(write_file_atomic(folder_ + "/" + path, text));
  }
  Result<Packed> pack(const PackOptions& options = {}, const std::string& from = "in") {
    return pack_folder(folder_ + "/" + from, folder_ + "/a.tar.zst", options);
  }
  Status unpack(const UnpackOptions& options = {}) {
    const auto out = open_file(folder_ + "/out", O_RDONLY | O_DIRECTORY);
    return unpack_archive(folder_ + "/a.tar.zst", out->get(), options);
  }
  // An archive by hand: each entry is set up by its function.
  void craft(const std::vector<std::function<void(archive_entry*)>>& entries,
             const std::string& content = "evil") {
    struct archive* a = ::archive_write_new();
    ::archive_write_set_format_gnutar(a);
    ::archive_write_add_filter_zstd(a);
    ASSERT_EQ(::archive_write_open_filename(a, (folder_ + "/a.tar.zst").c_str()), ARCHIVE_OK);
    for (const auto& set_up : entries) {
      archive_entry* entry = ::archive_entry_new();
      ::archive_entry_set_filetype(entry, AE_IFREG);
      ::archive_entry_set_perm(entry, 0644);
      ::archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
      set_up(entry);
      if (::archive_entry_filetype(entry) != AE_IFREG || ::archive_entry_hardlink(entry) != nullptr)
        ::archive_entry_set_size(entry, 0);
      ::archive_write_header(a, entry);
      if (::archive_entry_size(entry) > 0) ::archive_write_data(a, content.data(), content.size());
      ::archive_entry_free(entry);
    }
    ::archive_write_free(a);
  }
  static std::function<void(archive_entry*)> file(const std::string& path) {
    return [path](archive_entry* entry) { ::archive_entry_set_pathname(entry, path.c_str()); };
  }
  static std::function<void(archive_entry*)> link(const std::string& path,
                                                  const std::string& target) {
    return [=](archive_entry* entry) {
      ::archive_entry_set_pathname(entry, path.c_str());
      ::archive_entry_set_filetype(entry, AE_IFLNK);
      ::archive_entry_set_symlink(entry, target.c_str());
    };
  }
  std::string folder_;
};

TEST_F(ArchiveTest, ThereAndBackKeepsContentLinksAndTheExecutableBit) {
  write("in/train.py", "print(1)\n");
  write("in/诗/静夜思.txt", "床前明月光");
  write("in/" + std::string(120, 'd') + "/" + std::string(120, 'f'), "long names");
  ASSERT_EQ(::chmod((folder_ + "/in/train.py").c_str(), 0750), 0);
  ASSERT_EQ(::symlink("train.py", (folder_ + "/in/link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ + "/in/pipe").c_str(), 0644), 0);
  ASSERT_TRUE(make_folders(folder_ + "/in/empty"));
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().to_string();
  EXPECT_EQ(packed->digest, sha256_hex(*read_file(folder_ + "/a.tar.zst")));
  const auto unpacked = unpack();
  ASSERT_TRUE(unpacked) << unpacked.error().to_string();
  EXPECT_EQ(*read_file(folder_ + "/out/train.py"), "print(1)\n");
  EXPECT_EQ(*read_file(folder_ + "/out/诗/静夜思.txt"), "床前明月光");
  EXPECT_EQ(*read_file(folder_ + "/out/" + std::string(120, 'd') + "/" + std::string(120, 'f')),
            "long names");
  EXPECT_TRUE(is_folder(folder_ + "/out/empty"));
  EXPECT_FALSE(exists(folder_ + "/out/pipe"));
  struct stat info {};
  ASSERT_EQ(::stat((folder_ + "/out/train.py").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
  char target[64] = {};
  EXPECT_EQ(::readlink((folder_ + "/out/link").c_str(), target, sizeof target), 8);
  ASSERT_TRUE(unpack()) << "once more over itself";
}

TEST_F(ArchiveTest, SameContentSameBytesWhereverAndWhenever) {
  for (const char* folder : {"in", "other"}) {
    write(std::string(folder) + "/b", "b");
    write(std::string(folder) + "/a/x", "x");
    write(std::string(folder) + "/a.txt", "y");
  }
  const auto first = pack();
  ASSERT_EQ(::chmod((folder_ + "/other/b").c_str(), 0600), 0);
  const auto second = pack({}, "other");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->digest, second->digest);
  write("other/b", "c");
  EXPECT_NE(pack({}, "other")->digest, first->digest);
}

TEST_F(ArchiveTest, GitignoreAndExtraFiles) {
  write("in/.gitignore", "*.bin\n/data/\n!keep.bin\n");
  write("in/x.bin", "1");
  write("in/keep.bin", "2");
  write("in/data/huge", "3");
  write("in/.git/config", "4");
  write("in/sub/.gitignore", "local\n");
  write("in/sub/local", "5");
  write("in/local", "6");
  write("poems", "poems");
  PackOptions options;
  options.extra_files = {{folder_ + "/poems", "data/poems.txt"}};
  ASSERT_TRUE(pack(options));
  ASSERT_TRUE(unpack());
  const auto present = [&](const std::string& path) { return exists(folder_ + "/out/" + path); };
  EXPECT_FALSE(present("x.bin"));
  EXPECT_TRUE(present("keep.bin"));
  EXPECT_FALSE(present("data/huge"));
  EXPECT_TRUE(present("data/poems.txt"));
  EXPECT_FALSE(present(".git"));
  EXPECT_FALSE(present("sub/local"));
  EXPECT_TRUE(present("local"));
}

TEST_F(ArchiveTest, TooLargeIsRefusedAndNamesTheLargestPart) {
  write("in/small", "s");
  write("in/models/weights", std::string(3 << 20, 'w'));
  PackOptions options;
  options.bytes_max = 2 << 20;
  const auto packed = pack(options);
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().reason, "workdir_too_large");
  EXPECT_NE(packed.error().hint.find("'models'"), std::string::npos);
  EXPECT_FALSE(exists(folder_ + "/a.tar.zst"));
  EXPECT_EQ(pack({}, "absent").error().reason, "workdir_missing");
}

TEST_F(ArchiveTest, NoWayOutOfTheFolder) {
  const auto refused = [&] {
    const Status status = unpack();
    const bool is_unsafe = !status && status.error().reason == "archive_unsafe";
    EXPECT_TRUE(is_unsafe) << (status ? "unpacked" : status.error().to_string());
    EXPECT_FALSE(exists(folder_ + "/escaped"));
    EXPECT_TRUE(remove_tree(folder_ + "/out"));
    EXPECT_TRUE(make_folders(folder_ + "/out"));
  };
  craft({file("../escaped")});
  refused();
  craft({file("a/../../escaped")});
  refused();
  craft({file(folder_ + "/escaped")});
  refused();
  craft({link("d", folder_), file("d/escaped")});
  refused();
  craft({link("d", ".."), file("d/escaped")});
  refused();
  craft({link("a", "b"), link("b", ".."), file("a/escaped")});
  refused();
  craft({[](archive_entry* entry) {
    ::archive_entry_set_pathname(entry, "node");
    ::archive_entry_set_filetype(entry, AE_IFCHR);
    ::archive_entry_set_rdev(entry, makedev(1, 1));
  }});
  refused();
  craft({[](archive_entry* entry) {
    ::archive_entry_set_pathname(entry, "pipe");
    ::archive_entry_set_filetype(entry, AE_IFIFO);
  }});
  refused();
  write("secret", "secret");
  craft({[&](archive_entry* entry) {
    ::archive_entry_set_pathname(entry, "stolen");
    ::archive_entry_set_hardlink(entry, "../secret");
  }});
  refused();
  craft({link("l", folder_ + "/secret"), [](archive_entry* entry) {
           ::archive_entry_set_pathname(entry, "stolen");
           ::archive_entry_set_hardlink(entry, "l");
         }});
  refused();
  // Over a link that is there already: the link is replaced, its target is not written to.
  ASSERT_EQ(::symlink((folder_ + "/secret").c_str(), (folder_ + "/out/f").c_str()), 0);
  craft({file("f")});
  ASSERT_TRUE(unpack());
  EXPECT_EQ(*read_file(folder_ + "/secret"), "secret");
  EXPECT_EQ(*read_file(folder_ + "/out/f"), "evil");
}

TEST_F(ArchiveTest, SetuidIsDroppedAndOwnersAreOurs) {
  craft({[](archive_entry* entry) {
    ::archive_entry_set_pathname(entry, "tool");
    ::archive_entry_set_perm(entry, 06755);
    ::archive_entry_set_uid(entry, 12345);
  }});
  UnpackOptions options;
  options.owner_id = ::geteuid() == 0 ? 7 : 0;
  ASSERT_TRUE(unpack(options));
  struct stat info {};
  ASSERT_EQ(::stat((folder_ + "/out/tool").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  EXPECT_EQ(info.st_uid, ::geteuid() == 0 ? 7u : ::geteuid());
}

TEST_F(ArchiveTest, ABombIsStoppedAtTheLimit) {
  craft({file("zeros")}, std::string(8 << 20, '\0'));
  EXPECT_LT(allocated_bytes(folder_ + "/a.tar.zst"), 1 << 16);
  UnpackOptions options;
  options.bytes_max = 1 << 20;
  EXPECT_EQ(unpack(options).error().reason, "archive_too_large");
  craft({file("a"), file("b"), file("c")});
  options.entries_max = 2;
  EXPECT_EQ(unpack(options).error().reason, "archive_too_large");
}

TEST_F(ArchiveTest, GarbageAndCutOffArchivesAreErrors) {
  write("a.tar.zst", "this is no archive at all");
  EXPECT_EQ(unpack().error().reason, "archive_malformed");
  write("in/file", std::string(200'000, 'x'));
  ASSERT_TRUE(pack());
  const std::string whole = *read_file(folder_ + "/a.tar.zst");
  SeededRandom random(3);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = whole.substr(0, random.below(whole.size()) + 1);
    for (uint64_t flips = random.below(4); flips > 0; --flips) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    write("a.tar.zst", bytes);
    (void)unpack();  // an error or a folder; never a crash, never outside
  }
  const auto names = list_folder(folder_);
  EXPECT_EQ(*names, (std::vector<std::string>{"a.tar.zst", "in", "out"}));
}

}  // namespace
}  // namespace anychip::sys
