// The rules people write, with what git says to each.
#include "sys/gitignore.h"

#include <gtest/gtest.h>

namespace anychip::sys {
namespace {

TEST(Glob, MatchesLikeGit) {
  EXPECT_TRUE(glob_matches("*.pyc", "a.pyc"));
  EXPECT_FALSE(glob_matches("*.pyc", "d/a.pyc"));
  EXPECT_TRUE(glob_matches("**/a", "a"));
  EXPECT_TRUE(glob_matches("**/a", "x/y/a"));
  EXPECT_TRUE(glob_matches("a/**", "a/b/c"));
  EXPECT_FALSE(glob_matches("a/**", "a"));
  EXPECT_TRUE(glob_matches("a/**/b", "a/b"));
  EXPECT_TRUE(glob_matches("a/**/b", "a/x/y/b"));
  EXPECT_TRUE(glob_matches("a?c", "abc"));
  EXPECT_FALSE(glob_matches("a?c", "a/c"));
  EXPECT_TRUE(glob_matches("[a-c]x", "bx"));
  EXPECT_FALSE(glob_matches("[!a-c]x", "bx"));
  EXPECT_TRUE(glob_matches("[]]", "]"));
  EXPECT_TRUE(glob_matches("a[", "a["));
  EXPECT_TRUE(glob_matches("\\*", "*"));
  EXPECT_FALSE(glob_matches("\\*", "x"));
  EXPECT_TRUE(glob_matches("a*b*c", "aXbYc"));
  EXPECT_FALSE(glob_matches(std::string(60, '*') + "x", std::string(2000, 'a'))) << "and soon";
}

TEST(IgnoreRules, LastMatchWinsAndPlacesCount) {
  IgnoreRules rules;
  rules.add("", "# comment\n\n*.log\n!keep.log\nbuild/\n/only_top\ndocs/*.txt\nspace\\ \n\r\n");
  EXPECT_TRUE(rules.is_ignored("a.log", false));
  EXPECT_TRUE(rules.is_ignored("deep/a.log", false));
  EXPECT_FALSE(rules.is_ignored("keep.log", false));
  EXPECT_TRUE(rules.is_ignored("x/build", true));
  EXPECT_FALSE(rules.is_ignored("build", false)) << "a file of that name";
  EXPECT_TRUE(rules.is_ignored("only_top", false));
  EXPECT_FALSE(rules.is_ignored("x/only_top", false));
  EXPECT_TRUE(rules.is_ignored("docs/a.txt", false));
  EXPECT_FALSE(rules.is_ignored("docs/x/a.txt", false));
  EXPECT_FALSE(rules.is_ignored("x/docs/a.txt", false));
  EXPECT_FALSE(rules.is_ignored("# comment", false));
  rules.add("sub", "*.bin\n!a.log\n");
  EXPECT_TRUE(rules.is_ignored("sub/x.bin", false));
  EXPECT_FALSE(rules.is_ignored("x.bin", false));
  EXPECT_FALSE(rules.is_ignored("sub/a.log", false)) << "the nearer file wins";
}

}  // namespace
}  // namespace anychip::sys
