// B10: expiring credit first, then vouchers in scope, then cash; never more than a source has.
#include "ledger/spend.h"

#include <gtest/gtest.h>

namespace anychip::ledger {
namespace {

Source source(std::string id, Kind kind, int64_t amount, int64_t expires_us = 0,
              std::vector<std::string> scope = {}) {
  Source s;
  s.account.id.text = std::move(id);
  s.account.kind = kind;
  s.account.credits_posted = amount;
  s.expires = WallTime{expires_us};
  s.scope = std::move(scope);
  return s;
}

std::string text_of(const Spend& spend) {
  std::string text;
  for (const Part& part : spend.parts)
    text += part.account.text + ":" + std::to_string(part.amount) + " ";
  return text + "missing:" + std::to_string(spend.missing);
}

const WallTime kNow{100};

TEST(Spend, B10_GrantTenCashFiveUseTwelve) {
  const std::vector<Source> sources = {source("cash", Kind::kWallet, 5),
                                       source("grant", Kind::kPromotionalCredit, 10, 200)};
  EXPECT_EQ(text_of(plan_spend(sources, 12, "cpu", kNow)), "grant:10 cash:2 missing:0");
}

TEST(Spend, SoonestExpiryFirstExpiredNever) {
  const std::vector<Source> sources = {source("late", Kind::kPromotionalCredit, 5, 300),
                                       source("soon", Kind::kPromotionalCredit, 5, 200),
                                       source("dead", Kind::kPromotionalCredit, 5, 100),
                                       source("ever", Kind::kPromotionalCredit, 5)};
  EXPECT_EQ(text_of(plan_spend(sources, 30, "cpu", kNow)), "soon:5 late:5 ever:5 missing:15");
}

TEST(Spend, AVoucherPaysOnlyInItsScope) {
  const std::vector<Source> sources = {source("cash", Kind::kWallet, 9),
                                       source("npu", Kind::kVoucher, 9, 0, {"ascend-910b"})};
  EXPECT_EQ(text_of(plan_spend(sources, 10, "ascend-910b", kNow)), "npu:9 cash:1 missing:0");
  EXPECT_EQ(text_of(plan_spend(sources, 10, "cpu", kNow)), "cash:9 missing:1");
}

TEST(Spend, HeldMoneyIsNotThere) {
  Source cash = source("cash", Kind::kWallet, 9);
  cash.account.debits_pending = 4;
  EXPECT_EQ(text_of(plan_spend(std::vector{cash}, 9, "cpu", kNow)), "cash:5 missing:4");
}

}  // namespace
}  // namespace anychip::ledger
