// The loss band of a switch's seventh step, and the three grades of parity.
#include "fleet/curve.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace anychip::fleet {
namespace {

TEST(Curve, BandIsTenPercentOrSixDeviationsOfTheLastTwenty) {
  std::vector<double> flat(30, 2.0);
  flat[0] = 100;  // too old to count
  EXPECT_DOUBLE_EQ(band_of(flat).middle, 2.0);
  EXPECT_DOUBLE_EQ(band_of(flat).half_width, 0.2);
  std::vector<double> wild;
  for (int i = 0; i < 20; ++i) wild.push_back(i % 2 == 0 ? 1.0 : 3.0);
  EXPECT_DOUBLE_EQ(band_of(wild).middle, 2.0);
  EXPECT_DOUBLE_EQ(band_of(wild).half_width, 6.0);
}

TEST(Curve, VerifiesTheFirstSteps) {
  const std::vector<double> old(20, 2.0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(verify_curve(old, {2.0, 2.1}, 3).verdict, Verdict::kPending);
  EXPECT_EQ(verify_curve(old, {2.0, 2.1, 1.9}, 3).verdict, Verdict::kPassed);
  EXPECT_EQ(verify_curve(old, {2.0, 2.1, 1.9, 99.0}, 3).verdict, Verdict::kPassed)
      << "only the first";
  EXPECT_EQ(verify_curve(old, {2.0, 2.3}, 3).verdict, Verdict::kFailed);
  EXPECT_EQ(verify_curve(old, {2.0, nan}, 3).verdict, Verdict::kFailed);
  EXPECT_EQ(verify_curve({}, {7.0}, 1).verdict, Verdict::kPassed) << "no curve, no band";
  EXPECT_EQ(verify_curve({nan}, {7.0}, 1).verdict, Verdict::kPassed);
}

TEST(Curve, Grades) {
  const std::map<int64_t, double> reference = {{1, 4.0}, {2, 3.0}, {3, 2.0}};
  EXPECT_EQ(compare_curves(reference, reference).grade, "bitwise");
  EXPECT_EQ(compare_curves({{2, 3.000009}}, reference).grade, "tolerance");
  EXPECT_EQ(compare_curves({{2, 3.000011}}, reference).grade, "statistical");
  EXPECT_EQ(compare_curves({{2, 3.1}}, reference).verdict, "pass");
  EXPECT_EQ(compare_curves({{2, 3.2}}, reference).verdict, "fail");
  EXPECT_EQ(compare_curves({{9, 1.0}}, reference).verdict, "not_compared");
  EXPECT_EQ(compare_curves({{2, std::nan("")}}, reference).verdict, "fail");
  EXPECT_EQ(compare_curves({{1, 4.0}, {9, 0.0}}, reference).compared_steps, 1);
}

TEST(Curve, Median) {
  EXPECT_DOUBLE_EQ(median_of({}), 0);
  EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace anychip::fleet
