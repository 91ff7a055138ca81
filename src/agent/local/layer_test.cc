// Proves the pure parts of building layers: requirements, wheel names, apt's mirror configuration.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "agent/local/layer_build.h"
#include "agent/local/requirements.h"
#include "sys/files.h"

namespace anychip::agent {
namespace {

const std::string kHash(64, 'a'), kOther(64, 'b');

TEST(Requirements, ReadsPinsWithSeveralHashesMarkersAndComments) {
  const auto pins = parse_requirements(
      "# all of it\n\ntorch==2.13.0 \\\n    --hash=sha256:" + kHash +
      " \\\n  --hash=sha256:" + kOther + "\n" +
      "Foo.Bar[x]==1.0 ; python_version < \"3.12\" --hash=sha256:" + kHash + "  # why\n");
  ASSERT_TRUE(pins.has_value()) << pins.error().to_string();
  ASSERT_EQ(pins->size(), 2u);
  EXPECT_EQ((*pins)[0].name, "torch");
  EXPECT_EQ((*pins)[0].version, "2.13.0");
  EXPECT_EQ((*pins)[0].sha256, (std::vector<std::string>{kHash, kOther}));
  EXPECT_EQ((*pins)[1].name, "Foo.Bar");
  EXPECT_NE((*pins)[1].line.find("python_version"), std::string::npos);
}

TEST(Requirements, RefusesWhatIsNotPinnedOrNotHashed) {
  for (const std::string& bad :
       {std::string("torch>=2 --hash=sha256:") + kHash, std::string("torch==2.13.0"),
        std::string("-r other.txt"), std::string("--index-url http://x/"),
        std::string("torch @ file:///x.whl --hash=sha256:") + kHash,
        std::string("torch==2.13.0 --hash=md5:00"),
        std::string("torch==2.13.0 --config-settings=x --hash=sha256:") + kHash,
        std::string("../x==1 --hash=sha256:") + kHash,
        std::string("a==$(id) --hash=sha256:") + kHash}) {
    const auto pins = parse_requirements(bad);
    ASSERT_FALSE(pins.has_value()) << bad;
    EXPECT_EQ(pins.error().reason, "requirements_malformed");
  }
}

TEST(Requirements, KnowsAWheelByItsName) {
  const Pin pin{"Foo.Bar", "1.0", {}, {}};
  EXPECT_TRUE(is_wheel_of("foo_bar-1.0-py3-none-any.whl", pin));
  EXPECT_TRUE(is_wheel_of("Foo_Bar-1.0+cpu-cp311-cp311-linux_x86_64.whl", pin));
  EXPECT_FALSE(is_wheel_of("foo_bar-1.0.1-py3-none-any.whl", pin));
  EXPECT_FALSE(is_wheel_of("foo-1.0-py3-none-any.whl", pin));
  EXPECT_FALSE(is_wheel_of("foo_bar-1.0.tar.gz", pin));
}

class MirrorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "anychip-apt-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ASSERT_TRUE(sys::make_folders(folder_ + "/sources.list.d"));
  }
  void TearDown() override { EXPECT_TRUE(sys::remove_tree(folder_)); }
  std::string folder_;
};

TEST_F(MirrorTest, ReadsBothFormsOfSources) {
  EXPECT_EQ(find_debian_mirror(folder_, "bookworm").error().reason, "mirror_unknown");
  ASSERT_TRUE(sys::write_file_atomic(
      folder_ + "/sources.list.d/d.sources",
      "Types: deb\nURIs: http://off/debian\nSuites: bookworm\nEnabled: no\n\n"
      "Types: deb\nURIs: http://upd/debian\nSuites: bookworm-updates\n\n"
      "Types: deb deb-src\n# why\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\n"
      "Components: main\nSigned-By: /k.gpg\n"));
  auto mirror = find_debian_mirror(folder_, "bookworm");
  ASSERT_TRUE(mirror.has_value());
  EXPECT_EQ(mirror->url, "http://m/debian");
  EXPECT_EQ(mirror->keyring, "/k.gpg");
  ASSERT_TRUE(sys::write_file_atomic(
      folder_ + "/sources.list",
      "# deb http://no bookworm main\ndeb-src http://no/debian bookworm main\n"
      "deb [arch=amd64 signed-by=/l.gpg] http://l/debian bookworm main\n"));
  mirror = find_debian_mirror(folder_, "bookworm");
  EXPECT_EQ(mirror->url, "http://l/debian");
  EXPECT_EQ(mirror->keyring, "/l.gpg");
}

}  // namespace
}  // namespace anychip::agent
