#include "cli/prerequisites.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "cli/cleanup.h"
#include "cli/cli_fixture.h"
#include "cli/commands.h"
#include "cli/processes.h"

namespace anychip::cli {
namespace {

using testing::HasSubstr;

MachineFacts good_machine() {
  return {true,
          {"overlay", "xfs"},
          true,
          1000,
          true,
          true,
          {"runc", "conmon", "mkfs.xfs", "debootstrap", "python3"},
          "/data",
          int64_t{100} << 30};
}

TEST(Prerequisites, AGoodMachinePasses) { EXPECT_TRUE(all_present(judge(good_machine()))); }

TEST(Prerequisites, EachMissingThingIsNamedWithItsWayOut) {
  struct Case {
    std::function<void(MachineFacts&)> breaks;
    std::string name, way_out;
  };
  const Case kCases[] = {
      {[](MachineFacts& m) { m.is_root = false; }, "root", "sudo"},
      {[](MachineFacts& m) { m.file_systems.erase("overlay"); }, "overlay", "CONFIG_OVERLAY_FS"},
      {[](MachineFacts& m) { m.file_systems.erase("xfs"); }, "xfs", "CONFIG_XFS_FS"},
      {[](MachineFacts& m) { m.has_loop_control = false; }, "loop", "modprobe loop"},
      {[](MachineFacts& m) { m.user_namespaces_max = 0; }, "user namespaces", "sysctl"},
      {[](MachineFacts& m) { m.has_memory_cgroup = false; }, "memory cgroup", "cgroup_enable"},
      {[](MachineFacts& m) { m.programs.erase("conmon"); }, "conmon", "apt-get install conmon"},
      {[](MachineFacts& m) { m.programs.erase("mkfs.xfs"); }, "mkfs.xfs",
       "apt-get install xfsprogs"},
      {[](MachineFacts& m) { m.free_bytes = int64_t{1} << 30; }, "disk space", "ANYCHIP_DATA"},
  };
  for (const Case& each : kCases) {
    MachineFacts facts = good_machine();
    each.breaks(facts);
    const Status status = all_present(judge(facts));
    ASSERT_FALSE(status) << each.name;
    EXPECT_EQ(status.error().reason, "prerequisite_missing");
    EXPECT_EQ(exit_code_of(status.error().code), 6);
    EXPECT_EQ(status.error().fields.size(), 1u);
    EXPECT_THAT(status.error().message, HasSubstr(each.name));
    EXPECT_THAT(status.error().message, HasSubstr(each.way_out));
    EXPECT_THAT(status.error().hint, HasSubstr("nothing was changed"));
  }
}

TEST(Prerequisites, AllThatIsMissingIsSaidAtOnce) {
  MachineFacts facts = good_machine();
  facts.is_root = false;
  facts.programs.clear();
  EXPECT_EQ(all_present(judge(facts)).error().fields.size(), 6u);
}

TEST(Prerequisites, LittleSpaceIsAWarningOnly) {
  MachineFacts facts = good_machine();
  facts.free_bytes = kFreeBytesGood - 1;
  EXPECT_TRUE(all_present(judge(facts)));
  EXPECT_EQ(judge(facts).back().state, Check::State::kWarn);
}

class UpCommand : public CliTest {};

TEST_F(UpCommand, APortInUseIsRefusedBeforeAnythingIsChanged) {
  const std::string fresh = folder_ + "/fresh";
  const Outcome refused = call({"up", "--data", fresh, "--port", std::to_string(server_->port())});
  EXPECT_EQ(refused.status, 6);
  EXPECT_THAT(refused.err, HasSubstr("in use"));
  EXPECT_THAT(refused.err, HasSubstr(std::to_string(server_->port())));
  EXPECT_FALSE(sys::exists(fresh));
}

TEST_F(UpCommand, DoctorPrintsOneLineForEachCheck) {
  const Outcome shown = call({"doctor", "-o", "json"});
  const json::object root = json::parse(shown.out).value().as_object();
  EXPECT_GE(json::array_at(root, "items").size(), 14u);
  EXPECT_THAT(call({"doctor"}).out, HasSubstr("kernel: user namespaces"));
}

TEST_F(UpCommand, APidOfAnotherProgramIsNotOurs) {
  ASSERT_TRUE(sys::make_folders(folder_ + "/server"));
  const std::string other = "{\"pid\":" + std::to_string(getpid()) + ",\"port\":4321}";
  ASSERT_TRUE(sys::write_file_atomic(folder_ + "/server/server.json", other));
  const ProcessSeen seen = find_process(folder_, Role::kServer);
  EXPECT_EQ(seen.pid, 0) << "this test is no server: `down` must never end it";
  EXPECT_EQ(seen.port, 4321);
  EXPECT_TRUE(end_process(folder_, Role::kServer, seconds(1)));
  ASSERT_TRUE(sys::write_file_atomic(folder_ + "/server/server.json", "\x01garbage"));
  EXPECT_EQ(find_process(folder_, Role::kServer).pid, 0);
}

TEST(Up, TheLastReportOfTheAgentBeforeIsNotTheFirstOfTheNewOne) {
  const json::value nodes =
      json::parse(R"({"items":[{"state":"ready","last_seen_at":"2026-11-30T22:12:40.250000Z"}]})")
          .value();
  const WallTime seen = parse_rfc3339("2026-11-30T22:12:40.250000Z").value();
  EXPECT_TRUE(has_node_ready_since(nodes.as_object(), seen));
  EXPECT_FALSE(has_node_ready_since(nodes.as_object(), seen + milliseconds(1))) << "same second";
  json::value lost = nodes;
  lost.as_object()["items"].as_array()[0].as_object()["state"] = "lost";
  EXPECT_FALSE(has_node_ready_since(lost.as_object(), seen));
}

TEST_F(UpCommand, AFolderWithoutAnAgentHasNothingLeft) {
  const Result<Leftovers> left = find_leftovers(folder_);
  ASSERT_TRUE(left) << left.error().to_string();
  EXPECT_TRUE(left->is_empty());
  EXPECT_EQ(label_of(folder_).size(), 20u);
}

}  // namespace
}  // namespace anychip::cli
