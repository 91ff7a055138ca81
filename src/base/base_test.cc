// Proves the base values: the error table, money's floor rule (properties), ids, times, JSON
// readers, failpoints, hashes, randomness, CHECK and the log.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/check.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"
#include "base/money.h"
#include "base/rng.h"
#include "base/time.h"

namespace anychip {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

// --- errors
// ----------------------------------------------------------------------------------------

TEST(ErrorTable, EveryCodeHasItsOwnNameAStatusAndAnExitCode) {
  std::set<std::string_view> names;
  for (int number = 1; number <= static_cast<int>(Code::kPaymentRequired); ++number) {
    const Code code = static_cast<Code>(number);
    EXPECT_TRUE(names.insert(name_of(code)).second) << name_of(code);
    EXPECT_GE(http_status_of(code), 400);
    EXPECT_LT(http_status_of(code), 600);
    EXPECT_GE(exit_code_of(code), 1);
    EXPECT_LE(exit_code_of(code), 9);
    const auto back = code_of_http_status(http_status_of(code));
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(http_status_of(*back), http_status_of(code));
  }
  EXPECT_EQ(code_of_http_status(200), std::nullopt);
}

TEST(ErrorTable, TheExitCodesOfTheCommandLineAreFixed) {
  EXPECT_EQ(exit_code_of(Code::kCancelled), 2);
  EXPECT_EQ(exit_code_of(Code::kInvalidArgument), 3);
  EXPECT_EQ(exit_code_of(Code::kUnauthenticated), 4);
  EXPECT_EQ(exit_code_of(Code::kNotFound), 5);
  EXPECT_EQ(exit_code_of(Code::kAlreadyExists), 6);
  EXPECT_EQ(exit_code_of(Code::kPaymentRequired), 7);
  EXPECT_EQ(exit_code_of(Code::kResourceExhausted), 8);
  EXPECT_EQ(exit_code_of(Code::kDeadlineExceeded), 9);
  EXPECT_EQ(exit_code_of(Code::kInternal), 1);
}

Result<int> half_of(int number) {
  if (number % 2 != 0)
    return fail(Code::kInvalidArgument, "odd", "the number is odd", "try another");
  return number / 2;
}
Result<int> quarter_of(int number) {
  TRY(const int half, half_of(number));
  TRY_VOID(Status{});
  return half_of(half);
}

TEST(Error, TryPassesTheFirstErrorOn) {
  EXPECT_EQ(quarter_of(8).value(), 2);
  EXPECT_EQ(quarter_of(6).error().reason, "odd");
  EXPECT_EQ(quarter_of(3).error().hint, "try another");
}

TEST(Error, ContextIsPutBeforeTheMessageOnly) {
  Error error = half_of(1).error();
  error.fields.push_back({"/x", "is odd"});
  const Error outer = std::move(error).within("first").within("second");
  EXPECT_EQ(outer.message, "second: first: the number is odd");
  EXPECT_EQ(outer.code, Code::kInvalidArgument);
  EXPECT_EQ(outer.reason, "odd");
  const std::string text = outer.to_string();
  for (const char* part :
       {"odd", "invalid_argument", "second: first", "/x: is odd", "try another"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Error, ErrnoBecomesACode) {
  EXPECT_EQ(fail_errno("open x", ENOENT).value().code, Code::kNotFound);
  EXPECT_EQ(fail_errno("write x", ENOSPC).value().code, Code::kResourceExhausted);
  EXPECT_EQ(fail_errno("x", EACCES).value().code, Code::kPermissionDenied);
  EXPECT_EQ(fail_errno("x", ECONNREFUSED).value().code, Code::kUnavailable);
  EXPECT_EQ(fail_errno("x", EIO).value().code, Code::kInternal);
  EXPECT_EQ(fail_errno("open x", ENOENT).value().reason, "os_error");
  EXPECT_EQ(fail_errno("open x", ENOENT).value().message, "open x: No such file or directory");
}

// --- money
// -----------------------------------------------------------------------------------------

TEST(Money, TheFloorRuleInNumbers) {
  EXPECT_EQ(cost_of({3'600'000'000}, microseconds(1))->micros, 1);
  EXPECT_EQ(cost_of({3'599'999'999}, microseconds(1))->micros, 0);
  EXPECT_EQ(cost_of({12'500'000}, hours(1))->micros, 12'500'000);
  EXPECT_EQ(cost_of({12'500'000}, seconds(1))->micros, 3472);
  EXPECT_EQ(cost_of({0}, hours(1000))->micros, 0);
  EXPECT_EQ(cost_of({12'500'000}, {0})->micros, 0);
  EXPECT_EQ(cost_of({kMax}, hours(1))->micros, kMax);
  EXPECT_EQ(cost_of({kMax}, hours(1) + microseconds(1)).error().reason, "money_overflow");
}

RC_GTEST_PROP(MoneyProperty, PostedDifferencesSumToTheWholeHoweverItIsCut, ()) {
  const auto rate = *rc::gen::inRange<int64_t>(0, 1'000'000'000'000);
  auto moments = *rc::gen::container<std::vector<int64_t>>(
      rc::gen::inRange<int64_t>(0, 400LL * 86'400 * 1'000'000));
  std::sort(moments.begin(), moments.end());
  int64_t posted = 0;
  for (const int64_t moment : moments) {
    const int64_t so_far = cost_of({rate}, {moment})->micros;
    RC_ASSERT(so_far >= posted);  // no posting is ever negative
    posted += so_far - posted;
  }
  const int64_t end = moments.empty() ? 0 : moments.back();
  RC_ASSERT(posted == cost_of({rate}, {end})->micros);
}

RC_GTEST_PROP(MoneyProperty, TheFloorIsExact, ()) {
  const auto rate = *rc::gen::inRange<int64_t>(0, 1'000'000'000'000);
  const auto elapsed_us = *rc::gen::inRange<int64_t>(0, 400LL * 86'400 * 1'000'000);
  __extension__ using Wide = __int128;
  constexpr Wide kHour = 3'600'000'000;
  const Wide exact = static_cast<Wide>(rate) * elapsed_us;
  const Wide cost = cost_of({rate}, {elapsed_us})->micros;
  RC_ASSERT(cost * kHour <= exact);
  RC_ASSERT((cost + 1) * kHour > exact);
}

RC_GTEST_PROP(MoneyProperty, TwoPartsCostAtMostOneMicroLessThanTheWhole, ()) {
  const auto rate = *rc::gen::inRange<int64_t>(0, 1'000'000'000'000);
  const auto first = *rc::gen::inRange<int64_t>(0, 1LL << 45);
  const auto second = *rc::gen::inRange<int64_t>(0, 1LL << 45);
  const int64_t apart = cost_of({rate}, {first})->micros + cost_of({rate}, {second})->micros;
  const int64_t whole = cost_of({rate}, {first + second})->micros;
  RC_ASSERT(apart == whole || apart == whole - 1);
}

RC_GTEST_PROP(MoneyProperty, SumsAreRightOrRefused, (int64_t a, int64_t b)) {
  __extension__ using Wide = __int128;
  const auto check = [](const Result<Money>& result, Wide exact) {
    const bool fits = exact >= kMin && exact <= kMax;
    RC_ASSERT(result.has_value() == fits);
    if (fits) RC_ASSERT(result->micros == static_cast<int64_t>(exact));
  };
  check(add({a}, {b}), static_cast<Wide>(a) + b);
  check(subtract({a}, {b}), static_cast<Wide>(a) - b);
}

TEST(Money, OverflowsAreRefusedAtTheEdges) {
  EXPECT_FALSE(add({kMax}, {1}).has_value());
  EXPECT_FALSE(subtract({kMin}, {1}).has_value());
  EXPECT_FALSE(subtract({0}, {kMin}).has_value());
  EXPECT_EQ(add({kMax}, {kMin})->micros, -1);
}

TEST(Money, IsWrittenWithTwoToSixDecimals) {
  EXPECT_EQ(format_yuan({0}), "¥0.00");
  EXPECT_EQ(format_yuan({12'345}), "¥0.012345");
  EXPECT_EQ(format_yuan({-3'000'000}), "-¥3.00");
  EXPECT_EQ(format_yuan({1'500'000}), "¥1.50");
  EXPECT_EQ(format_yuan({1'234'500}), "¥1.2345");
  EXPECT_EQ(format_yuan({-1}), "-¥0.000001");
  EXPECT_EQ(format_yuan({kMin}), "-¥9223372036854.775808");
}

TEST(MoneyDeathTest, NegativeTimeIsABugOfOurs) {
  EXPECT_DEATH((void)cost_of({1}, {-1}), "CHECK failed");
  EXPECT_DEATH((void)cost_of({-1}, {1}), "CHECK failed");
}

// --- ids
// -------------------------------------------------------------------------------------------

TEST(Ids, OrderIsTheOrderOfTime) {
  SeededRandom random(1);
  std::vector<RunId> ids;
  for (int64_t ms = 0; ms < 2000; ++ms) {
    ids.push_back(RunId::make({1'764'000'000'000'000 + ms * 1000}, random));
  }
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(std::set<RunId>(ids.begin(), ids.end()).size(), ids.size());
}

TEST(Ids, AreUniqueInTheSameMicrosecond) {
  SecureRandom random;
  std::set<std::string> texts;
  for (int i = 0; i < 1000; ++i) texts.insert(LegId::make({42}, random).text);
  EXPECT_EQ(texts.size(), 1000u);
}

TEST(Ids, ParseTakesItsOwnKindOnly) {
  SeededRandom random(2);
  const RunId id = RunId::make({1'764'000'000'000'000}, random);
  ASSERT_EQ(id.text.size(), 30u);
  EXPECT_EQ(RunId::parse(id.text).value(), id);
  EXPECT_EQ(LegId::parse(id.text).error().reason, "id_malformed");
  for (std::string bad :
       {std::string(), std::string("run_"), id.text + "0", id.text.substr(1), id.text.substr(0, 29),
        "run_" + std::string(26, 'u'), "run_" + std::string(26, 'A'), "run-" + id.text.substr(4)}) {
    EXPECT_FALSE(RunId::parse(bad).has_value()) << bad;
  }
  EXPECT_TRUE(RunId{}.empty());
}

TEST(Ids, HoldAUuidOfVersionSeven) {
  SeededRandom random(3);
  const std::string text = make_id_text("x", {0x0123456789abLL * 1000}, random).substr(2);
  constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";
  std::string bits;
  for (char c : text) {
    for (int bit = 4; bit >= 0; --bit) bits += kAlphabet.find(c) >> bit & 1 ? '1' : '0';
  }
  ASSERT_EQ(bits.size(), 130u);
  EXPECT_EQ(bits.substr(0, 2), "00");
  EXPECT_EQ(std::stoull(bits.substr(2, 48), nullptr, 2), 0x0123456789abULL);
  EXPECT_EQ(bits.substr(2 + 48, 4), "0111");
  EXPECT_EQ(bits.substr(2 + 64, 2), "10");
}

// --- time
// ------------------------------------------------------------------------------------------

TEST(Time, IsWrittenInUtcWithMicroseconds) {
  EXPECT_EQ(WallTime{0}.rfc3339(), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(WallTime{1'796'069'203'123'456}.rfc3339(), "2026-11-30T20:06:43.123456Z");
  EXPECT_EQ(WallTime{-1}.rfc3339(), "1969-12-31T23:59:59.999999Z");
  EXPECT_EQ(WallTime{951'782'400'000'000}.rfc3339(), "2000-02-29T00:00:00.000000Z");
}

RC_GTEST_PROP(TimeProperty, WhatIsWrittenIsReadBack, ()) {
  const auto us = *rc::gen::inRange<int64_t>(-62'135'596'800'000'000, 253'402'300'800'000'000);
  RC_ASSERT(parse_rfc3339(WallTime{us}.rfc3339()).value() == WallTime{us});
}

TEST(Time, FractionsMayBeShortLongOrAbsent) {
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:01Z")->us, 1'000'000);
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:01.5Z")->us, 1'500'000);
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:01.123456789Z")->us, 1'123'456);
}

TEST(Time, WhatIsNoTimeIsRefused) {
  for (const char* bad : {"", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00+08:00",
                          "1970-13-01T00:00:00Z", "1970-00-01T00:00:00Z", "1970-01-32T00:00:00Z",
                          "1970-01-01T24:00:00Z", "1970-01-01T00:60:00Z", "1970-01-01T00:00:00Zx",
                          "197a-01-01T00:00:00Z", "1970-01-01T00:00:00.Z", "2026-02-29T00:00:00Z",
                          "2026-04-31T00:00:00Z", "1900-02-29T00:00:00Z"}) {
    const auto parsed = parse_rfc3339(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_EQ(parsed.error().reason, "time_malformed") << bad;
  }
  EXPECT_TRUE(parse_rfc3339("2000-02-29T00:00:00Z").has_value());
}

TEST(Time, TheClocksGoForward) {
  RealClock clock;
  const MonoTime first = clock.mono_now();
  EXPECT_LE(first, clock.mono_now());
  EXPECT_GT(clock.wall_now(), parse_rfc3339("2020-01-01T00:00:00Z").value());
}

// --- JSON
// ------------------------------------------------------------------------------------------

json::object object_of(std::string_view text) { return json::parse(text).value().as_object(); }

TEST(Json, OnlyOneWholeValueIsTaken) {
  EXPECT_TRUE(json::parse(" {\"a\":[1,2,{}]} ").has_value());
  for (std::string bad : {std::string(), std::string("{"), std::string("{} {}"), std::string("{,}"),
                          std::string("nul"), std::string("\"\xff\""), std::string(40, '['),
                          std::string(33, '[') + std::string(33, ']')}) {
    const auto parsed = json::parse(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_EQ(parsed.error().reason, "json_malformed");
  }
  EXPECT_TRUE(json::parse(std::string(32, '[') + std::string(32, ']')).has_value());
  EXPECT_NE(json::parse("{\"a\": ?}").error().message.find("near byte 6"), std::string::npos);
}

TEST(Json, StrictReadersNameThePlace) {
  const json::object from =
      object_of(R"({"s":"x","i":7,"big":9223372036854775808,"b":true,"n":null,"d":1.5})");
  EXPECT_EQ(json::get_string(from, "s").value(), "x");
  EXPECT_EQ(json::get_int(from, "i").value(), 7);
  EXPECT_TRUE(json::get_bool(from, "b").value());
  const auto expect_field = [](const auto& result, std::string_view pointer,
                               std::string_view message) {
    ASSERT_FALSE(result.has_value());
    ASSERT_EQ(result.error().fields.size(), 1u);
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    EXPECT_EQ(result.error().fields[0].pointer, pointer);
    EXPECT_EQ(result.error().fields[0].message, message);
  };
  expect_field(json::get_string(from, "i", "/legs/0"), "/legs/0/i", "must be a string");
  expect_field(json::get_string(from, "missing"), "/missing", "is required");
  expect_field(json::get_string(from, "n"), "/n", "is required");
  expect_field(json::get_int(from, "big"), "/big", "must be an integer");
  expect_field(json::get_int(from, "d"), "/d", "must be an integer");
  expect_field(json::get_bool(from, "i"), "/i", "must be true or false");
}

TEST(Json, DefaultsAreForWhatIsAbsentOnly) {
  const json::object from = object_of(R"({"n":null,"s":1,"i":"1","b":0})");
  EXPECT_EQ(json::get_string_or(from, "n", "f").value(), "f");
  EXPECT_EQ(json::get_string_or(from, "x", "f").value(), "f");
  EXPECT_FALSE(json::get_string_or(from, "s", "f").has_value());
  EXPECT_EQ(json::get_int_or(from, "x", 5).value(), 5);
  EXPECT_FALSE(json::get_int_or(from, "i", 5).has_value());
  EXPECT_EQ(json::get_bool_or(from, "x", true).value(), true);
  EXPECT_FALSE(json::get_bool_or(from, "b", true).has_value());
}

TEST(Json, LenientReadersNeverFail) {
  const json::object from = object_of(R"({"s":"x","i":7,"d":1.5,"b":true,"o":{"k":1},"a":[1]})");
  EXPECT_EQ(json::string_at(from, "s"), "x");
  EXPECT_EQ(json::string_at(from, "i"), "");
  EXPECT_EQ(json::int_at(from, "i"), 7);
  EXPECT_EQ(json::int_at(from, "s"), 0);
  EXPECT_EQ(json::number_at(from, "d"), 1.5);
  EXPECT_EQ(json::number_at(from, "i"), 7.0);
  EXPECT_EQ(json::number_at(from, "x"), 0.0);
  EXPECT_TRUE(json::bool_at(from, "b"));
  EXPECT_FALSE(json::bool_at(from, "i"));
  EXPECT_EQ(json::object_at(from, "o").size(), 1u);
  EXPECT_TRUE(json::object_at(from, "a").empty());
  EXPECT_EQ(json::array_at(from, "a").size(), 1u);
  EXPECT_TRUE(json::array_at(from, "x").empty());
}

// --- failpoints
// ------------------------------------------------------------------------------------

Status pass_point() {
  FAILPOINT("base.test.point");
  return {};
}
bool pass_void_point() {
  FAILPOINT_VOID("base.test.point");
  return true;
}

class FailpointTest : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(failpoint::arm("").has_value()); }
};

TEST_F(FailpointTest, NothingHappensUnlessArmed) {
  EXPECT_TRUE(pass_point().has_value());
  ASSERT_TRUE(failpoint::arm("base.test.other=error").has_value());
  EXPECT_TRUE(pass_point().has_value());
}

TEST_F(FailpointTest, AnErrorComesAtEveryHitOrAtTheOneNamed) {
  ASSERT_TRUE(failpoint::arm("base.test.point=error").has_value());
  EXPECT_EQ(pass_point().error().reason, "failpoint");
  EXPECT_FALSE(pass_point().has_value());
  EXPECT_TRUE(pass_void_point());
  ASSERT_TRUE(failpoint::arm("base.test.other=kill,base.test.point=error@2").has_value());
  EXPECT_TRUE(pass_point().has_value());
  EXPECT_FALSE(pass_point().has_value());
  EXPECT_TRUE(pass_point().has_value());
}

TEST_F(FailpointTest, SleepTakesItsTime) {
  ASSERT_TRUE(failpoint::arm("base.test.point=sleep:30").has_value());
  RealClock clock;
  const MonoTime begin = clock.mono_now();
  EXPECT_TRUE(pass_point().has_value());
  EXPECT_GE((clock.mono_now() - begin).ms(), 29);
}

TEST_F(FailpointTest, NonsenseIsRefusedAndChangesNothing) {
  ASSERT_TRUE(failpoint::arm("base.test.point=error").has_value());
  for (const char* bad : {"x", "=kill", "x=", "x=explode", "x=sleep:", "x=sleep:1s", "x=kill@",
                          "x=kill@-1", "ok=kill,bad"}) {
    const Status armed = failpoint::arm(bad);
    ASSERT_FALSE(armed.has_value()) << bad;
    EXPECT_EQ(armed.error().reason, "failpoint_malformed") << bad;
  }
  EXPECT_FALSE(pass_point().has_value());
}

TEST_F(FailpointTest, KillIsSigkill) {
  EXPECT_EXIT(
      {
        (void)failpoint::arm("base.test.point=kill@2");
        (void)pass_point();
        (void)pass_point();
      },
      ::testing::KilledBySignal(SIGKILL), "");
}

TEST_F(FailpointTest, PassedPointsAreRecorded) {
  failpoint::start_recording();
  (void)pass_point();
  const auto names = failpoint::recorded();
  EXPECT_EQ(std::count(names.begin(), names.end(), "base.test.point"), 1);
}

// --- hashes, randomness, CHECK, log
// -----------------------------------------------------------------

TEST(Hash, Sha256OfTheVectorsOfFips180) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

RC_GTEST_PROP(HashProperty, PiecesHashLikeTheWhole, (const std::string& text)) {
  const auto cut = *rc::gen::inRange<size_t>(0, text.size() + 1);
  Sha256 hash;
  hash.update(std::string_view(text).substr(0, cut));
  hash.update(std::string_view(text).substr(cut));
  RC_ASSERT(hash.finish_hex() == sha256_hex(text));
}

TEST(Hash, HexAndEquality) {
  EXPECT_EQ(to_hex(std::string_view("\x00\x7f\xff", 3)), "007fff");
  EXPECT_TRUE(equal_in_constant_time("secret", "secret"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secreT"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secret "));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

TEST(Random, TheSameSeedGivesTheSameNumbers) {
  SeededRandom a(7), b(7), c(8);
  for (int i = 0; i < 100; ++i) {
    const uint64_t number = a.next_u64();
    EXPECT_EQ(number, b.next_u64());
    EXPECT_NE(number, c.next_u64());
  }
}

TEST(Random, BelowIsInRangeAndEven) {
  SeededRandom random(9);
  std::array<int, 10> counts{};
  for (int i = 0; i < 10'000; ++i) ++counts.at(random.below(10));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0u);
  SecureRandom secure;
  EXPECT_LT(secure.below(3), 3u);
}

TEST(CheckDeathTest, SaysWhereAndWhat) {
  EXPECT_DEATH(CHECK_MSG(1 + 1 == 3, "sums are broken"),
               "base_test.cc.*1 \\+ 1 == 3 sums are broken");
  CHECK(true);
}

class FixedClock final : public Clock {
 public:
  WallTime wall_now() const override { return {1'796'069'203'123'456}; }
  MonoTime mono_now() const override { return {}; }
};

TEST(Log, IsOneJsonLineAndRespectsTheLevel) {
  const FixedClock clock;
  log::set_clock(&clock);
  ::testing::internal::CaptureStderr();
  log::debug("base.unseen");
  log::warn("base.tested", {{"text", "two\nlines \"quoted\""}, {"number", 7}});
  log::set_level(log::Level::kError);
  log::warn("base.unseen");
  log::set_level(log::Level::kInfo);
  const std::string text = ::testing::internal::GetCapturedStderr();
  log::set_clock(nullptr);
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  const json::object line = object_of(std::string_view(text).substr(0, text.size() - 1));
  EXPECT_EQ(json::string_at(line, "t"), "2026-11-30T20:06:43.123456Z");
  EXPECT_EQ(json::string_at(line, "level"), "warn");
  EXPECT_EQ(json::string_at(line, "event"), "base.tested");
  EXPECT_EQ(json::string_at(line, "text"), "two\nlines \"quoted\"");
  EXPECT_EQ(json::int_at(line, "number"), 7);
}

}  // namespace
}  // namespace anychip
