#include "server/core_test.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/hash.h"

namespace anychip::server {
namespace fs = std::filesystem;
namespace {

constexpr const char* kChips =
    "back_ends: {}\n"
    "chips:\n"
    "  - {id: cpu, name: CPU, vendor: any, back_end: cpu}\n"
    "  - {id: sim-a, name: Simulated A, vendor: us, back_end: tpu, default_count_per_node: 2}\n"
    "  - {id: sim-b, name: Simulated B, vendor: us, back_end: ascend, default_count_per_node: 2}\n"
    "  - {id: lonely, name: Nobody serves it, vendor: us, back_end: cuda}\n";
constexpr const char* kPrices =
    "currency: CNY\nprices:\n"
    "  - {chip: cpu, kind: operator, micros_per_hour: 120000, date: d, note: n}\n"
    "  - {chip: sim-a, kind: operator, micros_per_hour: 8640000, date: d, note: n}\n"
    "  - {chip: sim-b, kind: operator, micros_per_hour: 5000001, date: d, note: n}\n"
    "  - {chip: lonely, kind: operator, micros_per_hour: 5000000, date: d, note: n}\n";
constexpr const char* kBackEnds =
    "back_ends:\n"
    "  - {id: cpu, torch_device: cpu}\n"
    "  - {id: tpu, torch_device: tpu, environment: {FROM_BACK_END: tpu}}\n"
    "  - {id: ascend, torch_device: npu}\n"
    "  - {id: cuda, torch_device: cuda}\n";
constexpr const char* kImage =
    "id: torch\ndescription: d\nlayers:\n"
    "  - {id: base, kind: debian, suite: bookworm, packages: [python3]}\n"
    "variants:\n"
    "  - {id: cpu, back_end: cpu, chips: [cpu], kind: layers, layers: [base]}\n"
    "  - {id: sim-a, back_end: tpu, chips: [sim-a], kind: layers, layers: [base],"
    " environment: {FROM_VARIANT: a}}\n"
    "  - {id: sim-b, back_end: ascend, chips: [sim-b], kind: layers, layers: [base]}\n";
constexpr const char* kTemplate =
    "id: poem\nname: Poem\ndescription: d\nimage: torch\n"
    "command: [python3, train.py, --backend, cpu]\nchip: cpu\nworkdir: catalog/templates/poem\n"
    "memory: 2GiB\n";
constexpr const char* kCsv =
    "id,vendor,name,year,kind,mem_gb,mem_bw_gbs,fp32_tflops,tf32_tflops,bf16_tflops,fp16_tflops,"
    "fp8_tflops,int8_tops,tdp_w,link_bw_gbs,scale_up_domain,host_link,pjrt_platform,torch_device,"
    "source,confidence,notes\n";

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::FILE* out = std::fopen(path.c_str(), "wb");
  ASSERT_NE(out, nullptr);
  ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), out), text.size());
  std::fclose(out);
}

}  // namespace

Result<std::vector<std::string>> NameWorkdirs::list(const std::string& bytes) {
  if (bytes.starts_with("garbage")) {
    return fail(Code::kInvalidArgument, "archive_malformed", "no archive");
  }
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin <= bytes.size()) {
    const size_t comma = std::min(bytes.find(',', begin), bytes.size());
    names.push_back(bytes.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return names;
}

Result<std::string> NameWorkdirs::digest_of(const catalog::Template&) {
  return fail(Code::kFailedPrecondition, "template_data_missing", "not here");
}

std::set<std::string> Answer::codes() const {
  std::set<std::string> all;
  for (const json::value& item : json::array_at(body, "errors")) {
    all.insert(json::string_at(item.as_object(), "code"));
  }
  return all;
}

void CoreTest::make_root() {
  std::string pattern = (fs::temp_directory_path() / "anychip-core-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  root_ = pattern;
  write(root_ / "catalog/chips.csv", kCsv);
  write(root_ / "catalog/chips.yaml", kChips);
  write(root_ / "catalog/prices.yaml", kPrices);
  write(root_ / "catalog/back_ends.yaml", kBackEnds);
  write(root_ / "catalog/images/torch.yaml", kImage);
  write(root_ / "catalog/templates/poem.yaml", kTemplate);
  write(root_ / "catalog/templates/poem/train.py", "pass\n");
}

void CoreTest::SetUp() {
  make_root();
  auto loaded = catalog::Catalog::load(root_.string(), (root_ / "share").string());
  ASSERT_TRUE(loaded.has_value()) << loaded.error().to_string();
  catalog_ = std::move(*loaded);
  auto store = store::open_inline({":memory:", false, 1}, migrations());
  ASSERT_TRUE(store.has_value()) << store.error().to_string();
  store_ = std::move(*store);
  options_.admin_token = "admin";
  options_.join_token = "join";
  core_ = Core::create({*store_, *catalog_, clock_, random_, blobs_, &workdirs_}, options_);
  token_ = new_account("me");
  enrol_node();
  report();
}

void CoreTest::TearDown() {
  core_.reset();
  store_.reset();
  fs::remove_all(root_);
}

net::Outcome CoreTest::deliver(net::Request request, bool is_last_try) {
  std::optional<net::Outcome> outcome;
  const std::string target = request.target;
  core_->handle(std::move(request), is_last_try,
                [&](net::Outcome given) { outcome = std::move(given); });
  EXPECT_TRUE(outcome.has_value()) << target << " was not answered";
  return outcome ? std::move(*outcome) : net::Outcome(net::Response{});
}

Answer CoreTest::call(const std::string& method, const std::string& target,
                      const json::object& body, const std::string& token, net::Headers headers,
                      bool is_last_try) {
  net::Request request;
  request.method = method;
  request.target = target;
  request.headers = std::move(headers);
  if (!token.empty()) request.headers.emplace_back("Authorization", "Bearer " + token);
  if (body.contains("@raw"))
    request.body = json::string_at(body, "@raw");
  else if (method == "POST")
    request.body = json::serialize(body);
  const net::Outcome outcome = deliver(std::move(request), is_last_try);
  Answer answer;
  if (const auto* waiting = std::get_if<net::Waiting>(&outcome)) {
    answer.is_waiting = true;
    answer.status = waiting->otherwise.status;
    return answer;
  }
  const net::Response& response = std::get<net::Response>(outcome);
  answer.status = response.status;
  answer.text = response.body;
  if (const auto parsed = json::parse(response.body); parsed && parsed->is_object()) {
    answer.body = parsed->get_object();
  }
  return answer;
}

std::string CoreTest::new_account(const std::string& name) {
  const Answer made = call("POST", "/v1/accounts", {{"name", name}}, "admin");
  EXPECT_EQ(made.status, 201) << made.text;
  return json::string_at(made.body, "token");
}

Answer CoreTest::start_run(const std::string& name, const std::string& chip, json::object more) {
  json::object body = {{"name", name},
                       {"image", "torch"},
                       {"chip", chip},
                       {"command", json::array{"python", "train.py", "--backend", "x"}}};
  for (auto& [key, field] : more) body[key] = std::move(field);
  return post("/v1/runs", body);
}

void CoreTest::enrol_node() {
  const Answer enrolled = call("POST", "/agent/v1/enrol",
                               {{"join_token", "join"}, {"name", "node-1"}, {"protocol", 1}});
  ASSERT_EQ(enrolled.status, 201) << enrolled.text;
  node_id_ = json::string_at(enrolled.body, "node_id");
  node_key_ = json::string_at(enrolled.body, "node_key");
}

json::object CoreTest::desired() {
  return call("GET", "/agent/v1/desired?after=0&wait_s=0", {}, node_key_).body;
}

json::object CoreTest::make_report() {
  json::array devices, images, volumes, snapshots, instances;
  for (const auto& [id, chip] : {std::pair<std::string, std::string>{"cpu-0", "cpu"},
                                 {"cpu-1", "cpu"},
                                 {"sim-a-0", "sim-a"},
                                 {"sim-a-1", "sim-a"},
                                 {"sim-b-0", "sim-b"},
                                 {"lonely-0", "lonely"}}) {
    devices.push_back(json::object{
        {"id", id}, {"chip", chip}, {"healthy", !lost_devices_.contains(id)}, {"note", ""}});
  }
  for (const auto& [id, seen] : volumes_) {
    volumes.push_back(json::object{{"volume_id", id}, {"state", seen}, {"used_bytes", 65536}});
  }
  for (const auto& [id, seen] : snapshots_) {
    snapshots.push_back(json::object{{"snapshot_id", id},
                                     {"state", seen},
                                     {"size_bytes", 65536},
                                     {"freeze_us", 1200},
                                     {"error", seen == "failed" ? "EIO" : ""}});
  }
  for (const auto& [id, seen] : containers_) {
    json::object one{
        {"instance_id", id},         {"generation", json::int_at(seen.spec, "generation")},
        {"phase", seen.phase},       {"exit_code", seen.exit_code.value_or(0)},
        {"oom", seen.is_oom},        {"supervisor_lost", seen.is_supervisor_lost},
        {"ran_us", seen.ran_us},     {"streams_complete", seen.are_streams_sent},
        {"memory_peak_bytes", 1000}, {"error", nullptr}};
    if (seen.stop_seen_ran_us) one["stop_seen_ran_us"] = *seen.stop_seen_ran_us;
    if (!seen.error.empty()) {
      one["error"] = json::object{{"reason", "broken"}, {"message", seen.error}};
    }
    instances.push_back(std::move(one));
  }
  return {{"node_id", node_id_},
          {"boot_id", boot_},
          {"sequence", ++sequence_},
          {"protocol", 1},
          {"applied_version", 1},
          {"devices", std::move(devices)},
          {"pool_bytes", 1000},
          {"pool_free_bytes", 500},
          {"instant_snapshot", true},
          {"images", images},
          {"volumes", volumes},
          {"snapshots", snapshots},
          {"instances", std::move(instances)}};
}

Answer CoreTest::report() {
  const Answer answer = send_report(make_report());
  EXPECT_EQ(answer.status, 200) << answer.text;
  return answer;
}

void CoreTest::round(Duration pass) {
  if (is_answering_) {
    const json::object wanted = desired();
    for (const json::value& item : json::array_at(wanted, "volumes")) {
      const json::object& volume = item.as_object();
      const bool is_gone = json::string_at(volume, "desired") == "gone";
      volumes_[json::string_at(volume, "volume_id")] = is_gone ? "gone" : "present";
    }
    for (const json::value& item : json::array_at(wanted, "snapshots")) {
      const json::object& snapshot = item.as_object();
      const bool is_gone = json::string_at(snapshot, "desired") == "gone";
      snapshots_[json::string_at(snapshot, "snapshot_id")] = is_gone ? "gone"
                                                             : snapshots_failing_.empty()
                                                                 ? "ready"
                                                                 : "failed";
    }
    std::set<std::string> named;
    for (const json::value& item : json::array_at(wanted, "instances")) {
      const json::object& spec = item.as_object();
      const std::string id = json::string_at(spec, "instance_id"),
                        word = json::string_at(spec, "desired");
      named.insert(id);
      Container& seen = containers_[id];
      seen.spec = spec;
      if (images_failing_.contains(json::string_at(spec, "variant")) && !seen.has_run &&
          word != "gone") {
        seen.phase = "failed";
        seen.error = "the image cannot be built";
      } else if (word == "prepare") {
        seen.phase = "prepared";
      } else if (word == "run" && !seen.has_run) {
        seen.phase = "running";
        seen.has_run = true;
      } else if ((word == "stop" || word == "gone") && seen.phase == "running" &&
                 !seen.stop_seen_ran_us) {
        seen.stop_seen_ran_us = seen.ran_us;
        if (word == "stop" && obeys_stop_) exit(seen, 75);
      } else if (word == "gone") {
        if (seen.phase == "running") exit(seen, 137);
        seen.phase = "gone";
        seen.are_streams_sent = true;
      }
    }
    std::erase_if(containers_, [&](const auto& entry) { return !named.contains(entry.first); });
  }
  clock_.move(pass);
  for (auto& [id, seen] : containers_) {
    if (seen.phase == "running") seen.ran_us += pass.us;
  }
  if (is_answering_) report();
  tick();
}

bool CoreTest::until(const std::function<bool()>& holds) {
  for (int i = 0; i < 60; ++i) {
    if (holds()) return true;
    round();
  }
  return holds();
}

CoreTest::Container& CoreTest::current(const std::string& run_name) {
  const json::array all = legs(run_name);
  return containers_.at(json::string_at(all.back().as_object(), "instance_id"));
}

Answer CoreTest::send(Container& of, const std::string& stream, const std::string& data) {
  const json::object chunk{{"leg_id", json::string_at(of.spec, "leg_id")},
                           {"stream", stream},
                           {"offset", of.sent[stream]},
                           {"data", data}};
  of.sent[stream] += static_cast<int64_t>(data.size());
  return call("POST", "/agent/v1/streams", {{"chunks", json::array{chunk}}}, node_key_);
}

void CoreTest::train(Container& of, int64_t first, int64_t last, double shift) {
  std::string lines;
  for (int64_t step = first; step <= last; ++step) {
    lines += fmt::format(
        "{{\"t\":{}.5,\"step\":{},\"loss\":{},\"step_s\":0.25,\"tokens_s\":400.0,"
        "\"rss_bytes\":1000,\"peak_rss_bytes\":2000}}\n",
        1'800'000'000 + step, step, 5.0 - 0.01 * static_cast<double>(step) + shift);
  }
  const Answer sent = send(of, "metrics", lines);
  EXPECT_EQ(sent.status, 200) << sent.text;
}

void CoreTest::exit(Container& of, int64_t code) {
  of.phase = "exited";
  of.exit_code = code;
  of.are_streams_sent = true;
}

}  // namespace anychip::server
