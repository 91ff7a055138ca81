// Which devices a request gets, and each "no" in its own words.
#include "fleet/place.h"

#include <gtest/gtest.h>

namespace anychip::fleet {
namespace {

struct Pool {
  std::vector<Node> nodes;
  std::vector<Device> devices;
  void node(const std::string& id, bool is_ready = true) {
    nodes.push_back({NodeId{id}, is_ready, {}});
  }
  void device(const std::string& node, const std::string& id, const std::string& chip,
              bool is_healthy = true, const std::string& lessee = "") {
    devices.push_back({NodeId{node}, id, chip, is_healthy, InstanceId{lessee}});
  }
};

TEST(Place, FillsTheFullestNodeThatFitsAndPrefersReadyOnes) {
  Pool pool;
  pool.node("a"), pool.node("b"), pool.node("c", false);
  for (const char* id : {"a0", "a1", "a2"}) pool.device("a", id, "cpu");
  for (const char* id : {"b0", "b1"}) pool.device("b", id, "cpu");
  pool.device("c", "c0", "cpu");
  EXPECT_EQ(place({"cpu", 1, {}, {}}, pool.devices, pool.nodes)->node.text, "b");
  EXPECT_EQ(place({"cpu", 3, {}, {}}, pool.devices, pool.nodes)->node.text, "a");
  for (Device& device : pool.devices) {
    if (device.node.text != "c") device.lessee = InstanceId{"other"};
  }
  EXPECT_EQ(place({"cpu", 1, {}, {}}, pool.devices, pool.nodes)->node.text, "c") << "waits there";
}

TEST(Place, StaysPutWhenItsDevicesAreFree) {
  Pool pool;
  pool.node("a");
  for (const char* id : {"a0", "a1", "a2"}) pool.device("a", id, "cpu");
  EXPECT_EQ(place({"cpu", 2, {}, {"a2", "a9"}}, pool.devices, pool.nodes)->device_ids,
            (std::vector<std::string>{"a2", "a0"}));
}

TEST(Place, ExplainsEveryNo) {
  Pool pool;
  pool.node("a"), pool.node("b");
  pool.device("a", "a0", "cpu"), pool.device("a", "a1", "cpu", false);
  pool.device("b", "b0", "cpu", true, "other"), pool.device("b", "b1", "cpu", true, "other");
  const auto reason = [&](Want want) {
    return place(want, pool.devices, pool.nodes).error().reason;
  };
  EXPECT_EQ(reason({"gpu", 1, {}, {}}), "no_capacity");
  EXPECT_EQ(reason({"cpu", 3, {}, {}}), "count_exceeds_total");
  EXPECT_EQ(reason({"cpu", 2, {}, {}}), "no_capacity");
  EXPECT_EQ(reason({"cpu", 2, NodeId{"a"}, {}}), "count_exceeds_total");
  EXPECT_EQ(place({"cpu", 2, {}, {}}, pool.devices, pool.nodes).error().message,
            "1 of 3 cpu are free, 2 are needed");
}

}  // namespace
}  // namespace anychip::fleet
