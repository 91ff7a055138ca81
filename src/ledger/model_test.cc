// An independent model, written for clarity alone: it keeps every accepted request in a list and
// recomputes each balance from scratch. Random groups run through both; they must agree on what is
// accepted and on every balance, the sum must be 0 after each, and verify() must find nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "ledger/test_books.h"
#include "ledger/verify.h"

namespace anychip::ledger {
namespace {

class Model {
 public:
  explicit Model(const TestBooks& books) : books_(books) {}

  bool try_group(const std::vector<Transfer>& group, WallTime now) {
    const auto saved = lines_;
    for (const Transfer& request : group) {
      if (!try_one(request, now)) return lines_ = saved, false;
    }
    return true;
  }

  int64_t balance(const LedgerAccountId& id) const {
    int64_t sum = 0;
    for (const Line& line : lines_) {
      if (line.state == 'P' && line.credit == id) sum += line.amount;
      if (line.state == 'P' && line.debit == id) sum -= line.amount;
    }
    return sum;
  }
  int64_t held(const LedgerAccountId& id) const {
    int64_t sum = 0;
    for (const Line& line : lines_) sum += line.state == 'H' && line.debit == id ? line.amount : 0;
    return sum;
  }

 private:
  struct Line {
    TransferId id;
    char state;  // P posted, H held, V void
    LedgerAccountId debit, credit;
    int64_t amount;
    int64_t expires_us;
  };

  bool try_one(const Transfer& request, WallTime now) {
    if (request.action == Action::kTransfer || request.action == Action::kHold) {
      const bool is_hold = request.action == Action::kHold;
      if (request.amount <= 0 || request.debit == request.credit) return false;
      lines_.push_back({request.id, is_hold ? 'H' : 'P', request.debit, request.credit,
                        request.amount, is_hold ? now.us + request.timeout.us : 0});
      return within_limits(request.debit) && within_limits(request.credit);
    }
    for (Line& line : lines_) {
      if (line.id != request.hold) continue;
      if (line.state != 'H') return false;
      const bool expired = now.us >= line.expires_us;
      if (request.action == Action::kPostHold) {
        if (expired || request.amount < 0 || request.amount > line.amount) return false;
        if (request.amount > 0) line.amount = request.amount;
        line.state = 'P';
        return true;
      }
      if (request.action == Action::kExpireHold && !expired) return false;
      line.state = 'V';
      return true;
    }
    return false;
  }

  bool within_limits(const LedgerAccountId& id) const {
    const Kind kind = books_.account(id)->kind;
    if (kind == Kind::kWallet || kind == Kind::kPromotionalCredit) return balance(id) >= held(id);
    if (kind != Kind::kReceivable) return true;
    int64_t open_credit = 0;
    for (const Line& line : lines_)
      open_credit += line.state == 'H' && line.credit == id ? line.amount : 0;
    return -balance(id) >= open_credit;
  }

  const TestBooks& books_;
  std::vector<Line> lines_;
};

class Walk {
 public:
  explicit Walk(uint64_t seed) : random_(seed) {
    for (const Kind kind : {Kind::kWallet, Kind::kWallet, Kind::kPromotionalCredit,
                            Kind::kReceivable, Kind::kRevenue, Kind::kCashAtProvider}) {
      accounts_.push_back(books_.open(kind, "owner"));
    }
  }

  void step() {
    now_ = now_ + seconds(static_cast<int64_t>(random_.below(400)));
    std::vector<Transfer> group;
    const uint64_t size = 1 + random_.below(3);
    for (uint64_t i = 0; i < size; ++i) group.push_back(request());
    const bool expected = model_.try_group(group, now_);
    const auto done = books_.run(group, now_);
    ASSERT_EQ(done.has_value(), expected) << (done ? "accepted" : done.error().to_string());
    accepted_ += expected ? 1 : 0;
    int64_t sum = 0;
    for (const LedgerAccountId& id : accounts_) {
      ASSERT_EQ(books_.account(id)->balance(), model_.balance(id));
      ASSERT_EQ(books_.account(id)->debits_pending, model_.held(id));
      sum += books_.account(id)->balance();
    }
    ASSERT_EQ(sum, 0);
  }

  void verify() {
    Verifier verifier;
    for (const Transfer& transfer : books_.log) verifier.transfer(transfer);
    for (const auto& [id, account] : books_.accounts()) verifier.account(account);
    for (const Wrong& wrong : verifier.finish()) ADD_FAILURE() << wrong.row << " " << wrong.what;
    const auto balances = trial_balance(books_.log, now_);
    for (const auto& [id, balance] : balances) EXPECT_EQ(balance, books_.account(id)->balance());
  }

  TestBooks& books() { return books_; }
  int accepted() const { return accepted_; }

 private:
  Transfer request() {
    Transfer t;
    t.id = books_.new_id();
    const uint64_t dice = random_.below(10);
    if (dice < 7) {
      t.action = dice < 4 ? Action::kTransfer : Action::kHold;
      t.timeout =
          seconds(t.action == Action::kHold ? 1 + static_cast<int64_t>(random_.below(3600)) : 0);
      t.debit = accounts_[random_.below(accounts_.size())];
      t.credit = accounts_[random_.below(accounts_.size())];
      t.amount = static_cast<int64_t>(random_.below(1000));
      if (t.action == Action::kHold) holds_.push_back(t.id);
      return t;
    }
    t.action = dice == 7 ? Action::kPostHold : dice == 8 ? Action::kVoidHold : Action::kExpireHold;
    if (!holds_.empty()) t.hold = holds_[random_.below(holds_.size())];
    if (t.action == Action::kPostHold) t.amount = static_cast<int64_t>(random_.below(1000));
    return t;
  }

  SeededRandom random_;
  TestBooks books_;
  Model model_{books_};
  std::vector<LedgerAccountId> accounts_;
  std::vector<TransferId> holds_;
  WallTime now_{1'000'000};
  int accepted_ = 0;
};

// 100,000 operations in `make test`: many short walks, since the model is quadratic on purpose.
TEST(LedgerModel, RandomGroupsAgreeWithTheModel) {
  const char* wanted = std::getenv("ANYCHIP_LEDGER_WALKS");
  const int walks = wanted != nullptr ? std::atoi(wanted) : 250;
  int accepted = 0;
  for (int seed = 1; seed <= walks; ++seed) {
    Walk walk(static_cast<uint64_t>(seed));
    for (int i = 0; i < 200; ++i) {
      walk.step();
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << i;
    }
    walk.verify();
    accepted += walk.accepted();
  }
  EXPECT_GT(accepted, walks * 40) << "the walk is too often refused to mean anything";
}

TEST(LedgerVerify, NamesTheWrongRow) {
  Walk walk(3);
  for (int i = 0; i < 200; ++i) walk.step();
  Account changed = walk.books().accounts().begin()->second;
  changed.credits_posted += 1;
  Verifier verifier;
  for (const Transfer& transfer : walk.books().log) verifier.transfer(transfer);
  for (const auto& [id, account] : walk.books().accounts())
    verifier.account(id == changed.id ? changed : account);
  const auto wrong = verifier.finish();
  ASSERT_EQ(wrong.size(), 2u);  // the row, and the sum that is no longer 0
  EXPECT_EQ(wrong[0].row, changed.id.text);
  EXPECT_NE(wrong[0].what.find("credits_posted"), std::string::npos);
  EXPECT_EQ(wrong[1].row, "all accounts");
}

}  // namespace
}  // namespace anychip::ledger
