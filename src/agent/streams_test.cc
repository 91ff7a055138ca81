#include "agent/streams.h"

#include <gtest/gtest.h>

#include "agent/test_fakes.h"
#include "base/json.h"

namespace anychip::agent {
namespace {

TEST(CleanUtf8, KeepsTheLengthAndWhatIsValid) {
  EXPECT_EQ(clean_utf8("床前明月光\n"), "床前明月光\n");
  EXPECT_EQ(clean_utf8(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(clean_utf8("\xff\xfe"), "??");
  EXPECT_EQ(clean_utf8("\xc0\xaf"), "??");           // overlong
  EXPECT_EQ(clean_utf8("\xed\xa0\x80"), "???");      // surrogate
  EXPECT_EQ(clean_utf8("\xf4\x90\x80\x80"), "????");  // past U+10FFFF
  EXPECT_EQ(clean_utf8("x\xe5\xba"), "x??");         // cut off
}

class ShipperTest : public ::testing::Test {
 protected:
  ShipperTest() {
    for (const char* id : {"ins_a", "ins_b", "ins_c"}) {
      Record record;
      record.leg_id = std::string("leg") + id;
      record.is_started = true;
      records.put(InstanceId{id}, record);
      ContainerSeen seen;
      seen.instance = InstanceId{id};
      seen.generation = 1;
      seen.phase = ContainerPhase::kRunning;
      inventory.containers.push_back(seen);
    }
  }
  json::array chunks() {
    const std::optional<std::string> body = shipper.next_body(records, inventory);
    if (!body) return {};
    return json::array_at(json::parse(*body)->get_object(), "chunks");
  }

  testing::FakeFiles files;
  testing::FakeRuntime runtime;
  testing::FakeClock clock;
  Records records{files};
  Inventory inventory;
  StreamShipper shipper{runtime, clock};
};

TEST_F(ShipperTest, ALoudContainerStarvesNobodyAndRequestsStayBounded) {
  std::string loud;
  while (loud.size() < 1 << 20) loud += "0123456789012345678901234567890\n";
  runtime.streams[{"ins_a", Stream::kLog}] = loud;
  runtime.streams[{"ins_b", Stream::kLog}] = loud;
  runtime.streams[{"ins_c", Stream::kMetrics}] = "{}\n";
  std::set<std::string> legs;
  for (int i = 0; i < 3; ++i) {
    size_t bytes = 0;
    for (const json::value& chunk : chunks()) {
      bytes += json::string_at(chunk.get_object(), "data").size();
      legs.insert(json::string_at(chunk.get_object(), "leg_id"));
    }
    EXPECT_LE(bytes, static_cast<size_t>(kRequestBytesMax));
    shipper.on_failure();
  }
  EXPECT_EQ(legs.size(), 3u);
}

TEST_F(ShipperTest, ALineOverTheLimitIsCutBetweenCharacters) {
  std::string line;
  while (line.size() < 100'000) line += "月";
  runtime.streams[{"ins_a", Stream::kLog}] = line;
  const json::array sent = chunks();
  ASSERT_EQ(sent.size(), 1u);
  const std::string data = json::string_at(sent[0].get_object(), "data");
  EXPECT_EQ(data.size() % 3, 0u);
  EXPECT_GT(data.size(), 65'000u);
  EXPECT_EQ(data.find('?'), std::string::npos);
}

TEST_F(ShipperTest, GivesUpALegTheServerNeverKnewOnlyWhenNobodyWantsIt) {
  runtime.streams[{"ins_a", Stream::kLog}] = "x\n";
  inventory.containers.clear();
  const Desired nothing;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(chunks().size(), 1u) << i;
    EXPECT_FALSE(shipper.is_shipped(InstanceId{"ins_a"}));
    shipper.on_answer(R"({"acked":[]})", records, &nothing);
    EXPECT_TRUE(chunks().empty()) << "no pause";
    clock.now = clock.now + seconds(6);
  }
  EXPECT_TRUE(shipper.is_shipped(InstanceId{"ins_a"}));
}

}  // namespace
}  // namespace anychip::agent
