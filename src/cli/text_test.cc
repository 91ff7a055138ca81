#include "cli/text.h"

#include <gtest/gtest.h>

#include "cli/format.h"
#include "cli/table.h"

namespace anychip::cli {
namespace {

TEST(Width, CountsColumnsNotBytes) {
  EXPECT_EQ(width_of("abc"), 3);
  EXPECT_EQ(width_of("春眠不覺曉"), 10);
  EXPECT_EQ(width_of("é"), 1);
  EXPECT_EQ(width_of("e\u0301"), 1) << "a combining accent takes no column";
  EXPECT_EQ(width_of("🚀"), 2);
  EXPECT_EQ(width_of("Ａ，"), 4);
  EXPECT_EQ(width_of("×→…"), 3);
  EXPECT_EQ(width_of("\xff\xfe"), 2) << "each invalid byte is shown as one";
}

TEST(Fit, NeverExceedsAndNeverCutsACharacter) {
  EXPECT_EQ(fit("training", 8), "training");
  EXPECT_EQ(fit("training", 5), "trai…");
  EXPECT_EQ(fit("春眠不覺曉", 6), "春眠…") << "the third character would need column 6 and 7";
  EXPECT_EQ(fit("春眠", 1), "…");
  EXPECT_EQ(fit("x", 0), "");
  for (int columns = 1; columns < 12; ++columns)
    EXPECT_LE(width_of(fit("a春b眠c不d", columns)), columns);
}

TEST(Printable, TakesThePowerOverTheTerminalAway) {
  EXPECT_EQ(printable("a\x1b[31mb\x07"), "a\uFFFD[31mb\uFFFD");
  EXPECT_EQ(printable("a\nb"), "a\uFFFDb");
  EXPECT_EQ(printable("a\nb\tc", true), "a\nb\tc");
  EXPECT_EQ(printable("abc\u202Ecba"), "abc\uFFFDcba") << "right-to-left override";
  EXPECT_EQ(printable("\xc3\x28"), "\uFFFD(");
  EXPECT_EQ(printable("春"), "春");
  EXPECT_EQ(one_line("two\nlines"), "two lines");
}

TEST(Table, AlignsByDisplayWidth) {
  Table table({{"NAME"}, {"COST", Align::kRight}, {"NOTE"}});
  table.add({"唐詩", "¥1.00", "x"});
  table.add({"demo-run", "¥12.50", ""});
  EXPECT_EQ(table.render({}),
            "NAME        COST  NOTE\n"
            "唐詩       ¥1.00  x\n"
            "demo-run  ¥12.50\n");
}

TEST(Table, FitsTheTerminalByCuttingElasticColumns) {
  Table table({{"RUN", Align::kLeft, true}, {"STATE"}, {"NOTE", Align::kLeft, true}});
  table.add({"a-rather-long-name-of-a-run", "running", "switch to npu-sim: 3/8 prepare"});
  const std::string text = table.render({40, false});
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(width_of(text.substr(begin, end - begin)), 40);
    begin = end + 1;
  }
  EXPECT_NE(text.find("running"), std::string::npos) << "what is not elastic stays whole";
  EXPECT_NE(text.find("…"), std::string::npos);
}

TEST(Table, ColoursOnlyWhenAsked) {
  Table table({{"STATE"}});
  table.add({Cell("failed", Style::kBad)});
  EXPECT_EQ(table.render({}).find('\x1b'), std::string::npos);
  EXPECT_NE(table.render({0, true}).find("\x1b[31mfailed\x1b[0m"), std::string::npos);
}

TEST(Format, NumbersForPeople) {
  EXPECT_EQ(format_bytes(0), "-");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{64} << 30), "64 GiB");
  EXPECT_EQ(format_span(850'000), "850 ms");
  EXPECT_EQ(format_span(3'250'000), "3.2 s");
  EXPECT_EQ(format_span(725'000'000), "12 min 05 s");
  EXPECT_EQ(format_exact_time(3'661'000'001), "1:01:01.000001");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1234), "-1,234");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_significant(0.01234, 3), "0.0123");
  EXPECT_EQ(format_significant(12345.6, 3), "12,346");
  EXPECT_EQ(format_small(9.5e-7), "9.5e-7");
  EXPECT_EQ(format_small(1e-5), "1e-5");
  EXPECT_EQ(format_small(-1e-5), "-1e-5");
  EXPECT_EQ(format_small(0), "0");
  EXPECT_EQ(format_small(1.25e12), "1.2e12");
  EXPECT_EQ(yuan_exact(12'345), "¥0.012345");
  EXPECT_EQ(yuan_exact(-2'500'000), "-¥2.500000");
  EXPECT_EQ(format_time("2026-11-30T20:06:43.123456Z"), "2026-11-30 20:06:43");
  EXPECT_EQ(format_time("soon"), "soon");
}

TEST(Format, ReadsSizesAndTimes) {
  EXPECT_EQ(parse_bytes("8GiB").value(), int64_t{8} << 30);
  EXPECT_EQ(parse_bytes("64GB").value(), 64'000'000'000);
  EXPECT_EQ(parse_span("5m").value(), 300'000'000);
  EXPECT_EQ(parse_span("90").value(), 90'000'000);
  for (const char* wrong : {"", "GiB", "-1GiB", "8 GiB", "99999999999TiB", "1e9"})
    EXPECT_FALSE(parse_bytes(wrong)) << wrong;
  for (const char* wrong : {"", "m", "-5m", "5 minutes", "99999999999999h"})
    EXPECT_FALSE(parse_span(wrong)) << wrong;
}

}  // namespace
}  // namespace anychip::cli
