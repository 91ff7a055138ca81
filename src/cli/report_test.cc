#include <gtest/gtest.h>

#include <cstdlib>

#include "base/hash.h"
#include "cli/report_html.h"
#include "cli/report_table.h"
#include "sys/files.h"

namespace anychip::cli {
namespace {

const std::string kData = std::string(ANYCHIP_SOURCE_DIR) + "/tests/data/";

json::value fixture() {
  return json::parse(sys::read_file(kData + "compare.json").value()).value();
}
Comparison read(const json::value& document) { return read_comparison(document).value(); }

// The text must equal the file; ANYCHIP_UPDATE_GOLDEN=1 writes the file anew (look at the diff).
void expect_golden(const std::string& text, const std::string& name) {
  const std::string path = kData + name;
  if (std::getenv("ANYCHIP_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(sys::write_file_atomic(path, text));
  }
  const Result<std::string> golden = sys::read_file(path);
  ASSERT_TRUE(golden) << golden.error().to_string();
  EXPECT_EQ(text, *golden) << "differs from tests/data/" << name;
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(Report, TableIsTheGoldenOne) {
  expect_golden(comparison_table(read(fixture()), {}), "compare.txt");
}

TEST(Report, HtmlIsTheGoldenOneAndTheSameTwice) {
  const Comparison comparison = read(fixture());
  const std::string html = comparison_html(comparison);
  EXPECT_EQ(html, comparison_html(comparison));
  expect_golden(html, "compare.html");
}

TEST(Report, AsksNothingOfAnyNetwork) {
  const std::string html = comparison_html(read(fixture()));
  for (const char* word :
       {"http://", "https://", "src=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    EXPECT_EQ(html.find(word), std::string::npos) << word;
  }
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
}

TEST(Report, OneCurveRunsOnAcrossTheChips) {
  const std::string html = comparison_html(read(fixture()));
  EXPECT_EQ(count_of(html, "class=\"curve k0\""), 2u) << "loss and difference of the first chip";
  EXPECT_EQ(count_of(html, "class=\"curve k2\""), 2u);
  EXPECT_EQ(count_of(html, "class=\"reference\""), 1u);
  // The second part begins where the first ends: at step 24 of 72.
  const size_t second = html.find("class=\"curve k1\" d=\"M");
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(html.substr(second + 21, 6), "323.9 ");
}

TEST(Report, TextOfTheRunNeverRuns) {
  json::value document = fixture();
  json::object& root = document.as_object();
  const std::string evil = "</title><script>alert(1)</script><img src=x onerror=alert(2)>";
  root["name"] = evil;
  root["run"] = evil;
  root["samples"].as_array()[0].as_object()["text"] = evil;
  root["samples"].as_array()[0].as_object()["prompt"] = "\"'><svg onload=alert(3)>";
  root["switches"].as_array()[0].as_object()["reason"] = evil;
  for (json::value& leg : root["legs"].as_array()) {
    leg.as_object()["chip"] = evil;
    leg.as_object()["device"] = evil;
  }
  const std::string html = comparison_html(read(document));
  EXPECT_EQ(count_of(html, "<script"), 2u) << "the points and our own script";
  EXPECT_EQ(count_of(html, "</script>"), 2u);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("<svg onload"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)"), std::string::npos);
}

TEST(Report, PolicyAllowsExactlyOurScript) {
  const std::string html = comparison_html(read(fixture()));
  const size_t begin = html.rfind("<script>") + 8;
  const std::string script = html.substr(begin, html.rfind("</script>") - begin);
  const size_t policy = html.find("script-src 'sha256-") + 19;
  const std::string base64 = html.substr(policy, html.find('\'', policy) - policy);
  ASSERT_EQ(base64.size(), 44u);
  std::string hex;  // decoded by hand: six bits a character
  uint32_t bits = 0;
  int held = 0;
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (const char c : base64.substr(0, 43)) {
    bits = bits << 6 | static_cast<uint32_t>(alphabet.find(c));
    held += 6;
    if (held >= 8) bytes += static_cast<char>(bits >> (held -= 8) & 255);
  }
  EXPECT_EQ(to_hex(bytes), sha256_hex(script));
}

TEST(Report, SaysWhatIsSimulatedAndWhosePriceItShows) {
  const Comparison comparison = read(fixture());
  for (const std::string& text : {comparison_html(comparison), comparison_table(comparison, {})}) {
    EXPECT_NE(text.find("simulated"), std::string::npos);
    EXPECT_NE(text.find("unctional simulation"), std::string::npos);
    EXPECT_NE(text.find("list price of the chip simulated"), std::string::npos);
  }
  json::value real = fixture();
  for (json::value& leg : real.as_object()["legs"].as_array()) leg.as_object()["simulated"] = false;
  EXPECT_EQ(comparison_html(read(real)).find("unctional simulation"), std::string::npos);
}

TEST(Report, BillShowsEveryMicroYuan) {
  const Comparison comparison = read(fixture());
  const std::string bill = html::bill(comparison);
  int64_t total = 0;
  for (const LegView& leg : comparison.legs) {
    total += leg.cost_micros;
    EXPECT_EQ(leg.cost_micros, leg.price_micros_per_hour * leg.metered_us / 3'600'000'000);
  }
  EXPECT_EQ(total, comparison.cost_micros);
  EXPECT_NE(bill.find("0:00:04.580614"), std::string::npos) << bill;
}

TEST(Report, DownTimeIsSplitOverTheSteps) {
  const Comparison comparison = read(fixture());
  const auto parts = down_time_parts(comparison, 0);
  ASSERT_FALSE(parts.empty());
  int64_t sum = 0;
  for (const DownTimePart& part : parts) sum += part.us;
  double gap_s = 0;
  for (size_t i = 1; i < comparison.curve.size(); ++i) {
    if (comparison.curve[i].leg_index == 1 && comparison.curve[i - 1].leg_index == 0) {
      gap_s = comparison.curve[i].t - comparison.curve[i - 1].t;
    }
  }
  EXPECT_NEAR(static_cast<double>(sum) / 1e6, gap_s, 1e-3) << "the parts are the whole";
}

TEST(Report, SaysWhenTheTrainingIsNotTheSame) {
  json::value document = fixture();
  json::object& parity = document.as_object()["parity"].as_object();
  parity["verdict"] = "fail";
  parity["max_abs_loss_difference"] = 0.5;
  EXPECT_NE(comparison_table(read(document), {}).find("NOT the same training"), std::string::npos);
  EXPECT_NE(comparison_html(read(document)).find("verdict fail"), std::string::npos);
}

TEST(Report, PassingTheStatisticalGradeOnlyIsNotCalledTheSame) {
  json::value document = fixture();
  json::object& parity = document.as_object()["parity"].as_object();
  parity["grade"] = "statistical";
  parity["max_abs_loss_difference"] = 0.016;
  parity["band"] = 0.3;
  json::array& last = document.as_object()["curve"].as_array().back().as_array();
  last[2] = last[2].as_double() + 0.016;
  const Comparison comparison = read(document);
  EXPECT_EQ(first_step_beyond_tolerance(comparison), 72);
  const std::string table = comparison_table(comparison, {}), html = comparison_html(comparison);
  for (const std::string& text : {table, html}) {
    EXPECT_EQ(text.find("ame training"), std::string::npos);
    EXPECT_NE(text.find("tatistically close"), std::string::npos);
    EXPECT_NE(text.find("beyond 1e-5 from step 72"), std::string::npos);
  }
  EXPECT_NE(html.find("verdict close"), std::string::npos);
  EXPECT_NE(html.find("logarithmic beyond it"), std::string::npos)
      << "0.016 and 1e-7 in one picture";
  EXPECT_NE(html.find("tolerance: ±1e-5"), std::string::npos)
      << "the band drawn stays the tolerance";
}

TEST(Report, MemoryOfDifferentKindsIsNotSetAgainstEachOther) {
  const std::string table = comparison_table(read(fixture()), {});
  EXPECT_NE(table.find("393 MiB (100 %)"), std::string::npos);
  EXPECT_EQ(table.find("625 MiB ("), std::string::npos) << "device memory against a process's";
  EXPECT_NE(table.find("411 MiB (105 %)"), std::string::npos);
}

TEST(Report, ShowsWhatThereIsOfAYoungRun) {
  const json::value document =
      json::parse(R"({"run":"run_1","name":"young","currency":"CNY","legs":[],"totals":{},
      "reference":null,"parity":{},"curve":[],"reference_curve":null,"switches":[],"samples":[]})")
          .value();
  const Comparison comparison = read(document);
  EXPECT_NE(comparison_html(comparison).find("No step has been recorded yet"), std::string::npos);
  EXPECT_NE(comparison_table(comparison, {}).find("not compared"), std::string::npos);
}

TEST(Report, RefusesWhatIsNoComparison) {
  for (const char* text : {"[]", "{}", "3"})
    EXPECT_FALSE(read_comparison(json::parse(text).value())) << text;
  // Wrong types inside are skipped, never a crash.
  const json::value odd =
      json::parse(R"({"legs":[3,{"index":"x","chip":7}],"curve":[[1],["a",0,1],7,[1,0,2.5,"t"]],
      "reference_curve":[null],"switches":[1],"samples":[2],"totals":[],"parity":3})")
          .value();
  EXPECT_FALSE(comparison_html(read(odd)).empty());
}

TEST(Report, ALongRunIsThinnedNotCut) {
  json::value document = fixture();
  json::array curve;
  for (int step = 1; step <= 50'000; ++step)
    curve.push_back(json::array{step, 0, step == 33'333 ? 99.0 : 1.0, 1.0});
  document.as_object()["curve"] = std::move(curve);
  const std::string html = comparison_html(read(document));
  EXPECT_LT(html.size(), 3'000'000u);
  const size_t path = html.find("class=\"curve k0\" d=\"") + 20;
  const std::string drawn = html.substr(path, html.find('"', path) - path);
  EXPECT_NE(drawn.find(" 13.6"), std::string::npos) << "the peak is still drawn, near the top";
}

}  // namespace
}  // namespace anychip::cli
