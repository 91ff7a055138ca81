// Each refusal of ledger::apply with its reason, and what a group does when one of it is refused.
#include "ledger/ledger.h"

#include <gtest/gtest.h>

#include "ledger/test_books.h"

namespace anychip::ledger {
namespace {

class LedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    wallet_ = books_.open(Kind::kWallet, "acc_1");
    cash_ = books_.open(Kind::kCashAtProvider, "");
    revenue_ = books_.open(Kind::kRevenue, "");
    ASSERT_TRUE(books_.run({transfer(cash_, wallet_, 10'000'000)}, now_));
  }

  Transfer transfer(LedgerAccountId debit, LedgerAccountId credit, int64_t amount) {
    Transfer t;
    t.id = books_.new_id();
    t.debit = debit;
    t.credit = credit;
    t.amount = amount;
    t.code = "test";
    return t;
  }
  Transfer hold(int64_t amount, Duration timeout) {
    Transfer t = transfer(wallet_, revenue_, amount);
    t.action = Action::kHold;
    t.timeout = timeout;
    return t;
  }
  Transfer end_of(const Transfer& held, Action action, int64_t amount = 0) {
    Transfer t;
    t.id = books_.new_id();
    t.action = action;
    t.hold = held.id;
    t.amount = amount;
    return t;
  }
  std::string refusal(std::vector<Transfer> group, WallTime now) {
    const auto before = books_.balances();
    const auto done = books_.run(group, now);
    EXPECT_FALSE(done.has_value());
    EXPECT_EQ(before, books_.balances()) << "a refused group moved money";
    return done ? "" : done.error().reason;
  }

  TestBooks books_;
  LedgerAccountId wallet_, cash_, revenue_;
  WallTime now_{1'000'000'000};
};

TEST_F(LedgerTest, WalletNeverGoesBelowZero) {
  EXPECT_EQ(refusal({transfer(wallet_, revenue_, 10'000'001)}, now_), "balance_insufficient");
  EXPECT_TRUE(books_.run({transfer(wallet_, revenue_, 10'000'000)}, now_));
  EXPECT_EQ(refusal({transfer(wallet_, revenue_, 1)}, now_), "balance_insufficient");
}

TEST_F(LedgerTest, HeldMoneyCannotBeSpentTwice) {
  ASSERT_TRUE(books_.run({hold(6'000'000, hours(1))}, now_));
  EXPECT_EQ(books_.account(wallet_)->available(), 4'000'000);
  EXPECT_EQ(refusal({transfer(wallet_, revenue_, 4'000'001)}, now_), "balance_insufficient");
  EXPECT_EQ(refusal({hold(4'000'001, hours(1))}, now_), "balance_insufficient");
}

TEST_F(LedgerTest, PostTakesAPartAndFreesTheRest) {
  const Transfer held = hold(6'000'000, hours(1));
  ASSERT_TRUE(books_.run({held}, now_));
  EXPECT_EQ(refusal({end_of(held, Action::kPostHold, 6'000'001)}, now_), "hold_exceeded");
  ASSERT_TRUE(books_.run({end_of(held, Action::kPostHold, 2'000'000)}, now_));
  EXPECT_EQ(books_.account(wallet_)->available(), 8'000'000);
  EXPECT_EQ(books_.account(revenue_)->balance(), 2'000'000);
  EXPECT_EQ(refusal({end_of(held, Action::kPostHold, 1)}, now_), "hold_ended");
  EXPECT_EQ(refusal({end_of(held, Action::kVoidHold)}, now_), "hold_ended");
}

TEST_F(LedgerTest, TimeDecidesWhetherAHoldHasExpired) {
  const Transfer held = hold(1'000'000, minutes(10));
  ASSERT_TRUE(books_.run({held}, now_));
  EXPECT_EQ(refusal({end_of(held, Action::kExpireHold)}, now_ + minutes(10) - microseconds(1)),
            "hold_not_expired");
  EXPECT_EQ(refusal({end_of(held, Action::kPostHold, 5)}, now_ + minutes(10)), "hold_expired");
  EXPECT_TRUE(books_.run({end_of(held, Action::kExpireHold)}, now_ + minutes(10)));
  EXPECT_EQ(books_.account(wallet_)->available(), 10'000'000);
}

TEST_F(LedgerTest, SameIdSameBodyIsTheSameAnswerOtherBodyIsRefused) {
  const Transfer once = transfer(wallet_, revenue_, 5);
  ASSERT_TRUE(books_.run({once}, now_));
  const auto again = books_.run({once}, now_ + hours(30));
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->is_replay);
  EXPECT_EQ(books_.account(revenue_)->balance(), 5);
  Transfer other = once;
  other.amount = 6;
  const auto refused = books_.run({other}, now_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, "transfer_id_reused");
  EXPECT_NE(refused.error().message.find("amount"), std::string::npos);
}

TEST_F(LedgerTest, AGroupHappensWholeOrNotAtAll) {
  EXPECT_EQ(
      refusal({transfer(wallet_, revenue_, 5), transfer(wallet_, revenue_, 10'000'000)}, now_),
      "balance_insufficient");
  const Transfer first = transfer(wallet_, revenue_, 5);
  ASSERT_TRUE(books_.run({first}, now_));
  EXPECT_EQ(refusal({first, transfer(wallet_, revenue_, 5)}, now_), "linked_partly_applied");
  Transfer twice = transfer(wallet_, revenue_, 5);
  EXPECT_EQ(refusal({twice, twice}, now_), "group_invalid");
  EXPECT_EQ(refusal({}, now_), "group_invalid");
}

TEST_F(LedgerTest, AHoldMayBePostedInTheGroupThatMadeIt) {
  const Transfer held = hold(7, hours(1));
  ASSERT_TRUE(books_.run({held, end_of(held, Action::kPostHold)}, now_));
  EXPECT_EQ(books_.account(revenue_)->balance(), 7);
}

TEST_F(LedgerTest, BadInputEachWithItsReason) {
  EXPECT_EQ(refusal({transfer(wallet_, revenue_, 0)}, now_), "amount_invalid");
  EXPECT_EQ(refusal({transfer(wallet_, revenue_, -5)}, now_), "amount_invalid");
  EXPECT_EQ(refusal({transfer(wallet_, wallet_, 5)}, now_), "accounts_equal");
  EXPECT_EQ(refusal({transfer(wallet_, LedgerAccountId{"lac_none"}, 5)}, now_), "account_unknown");
  const auto dollars = books_.open(Kind::kRevenue, "", "USD");
  EXPECT_EQ(refusal({transfer(wallet_, dollars, 5)}, now_), "currency_mismatch");
  EXPECT_EQ(refusal({hold(5, Duration{0})}, now_), "timeout_invalid");
  Transfer timed = transfer(wallet_, revenue_, 5);
  timed.timeout = hours(1);
  EXPECT_EQ(refusal({timed}, now_), "timeout_invalid");
  EXPECT_EQ(refusal({end_of(timed, Action::kVoidHold)}, now_), "hold_unknown");
  Transfer nameless = transfer(wallet_, revenue_, 5);
  nameless.id = TransferId{"x"};
  EXPECT_EQ(refusal({nameless}, now_), "id_malformed");
  books_.close(revenue_);
  EXPECT_EQ(refusal({transfer(wallet_, revenue_, 5)}, now_), "account_closed");
}

TEST_F(LedgerTest, SumsThatDoNotFitAreRefused) {
  ASSERT_TRUE(books_.run({transfer(cash_, wallet_, INT64_MAX - 10'000'000)}, now_));
  EXPECT_EQ(refusal({transfer(cash_, wallet_, 1)}, now_), "money_overflow");
}

TEST_F(LedgerTest, ReceivableIsPaidNoFurtherThanItIsOwed) {
  const auto owed = books_.open(Kind::kReceivable, "acc_1");
  ASSERT_TRUE(books_.run({transfer(owed, revenue_, 3)}, now_));
  EXPECT_EQ(refusal({transfer(wallet_, owed, 4)}, now_), "balance_insufficient");
  EXPECT_TRUE(books_.run({transfer(wallet_, owed, 3)}, now_));
  EXPECT_EQ(books_.account(owed)->balance(), 0);
}

TEST(LedgerKinds, NamesGoBothWays) {
  for (const Kind kind :
       {Kind::kWallet, Kind::kPromotionalCredit, Kind::kVoucher, Kind::kReceivable, Kind::kRevenue,
        Kind::kPromotionCost, Kind::kCashAtProvider, Kind::kTaxPayable, Kind::kPublisherPayable}) {
    EXPECT_EQ(kind_of_name(name_of(kind)), kind);
  }
  EXPECT_EQ(kind_of_name("purse"), std::nullopt);
}

}  // namespace
}  // namespace anychip::ledger
