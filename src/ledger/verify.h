// Recomputes every account from the transfers and names the wrong row, if any
// (`anychip ledger verify`). Also statements and the trial balance at any instant.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ledger/ledger.h"

namespace anychip::ledger {

struct Wrong {
  std::string row;   // account or transfer id
  std::string what;  // one sentence
};

// Feed transfers in the order they were applied, then compare with the stored accounts.
class Verifier {
 public:
  void transfer(const Transfer& transfer);
  // Each stored account; then finish(). An account that transfers use but nobody stored is wrong
  // too.
  void account(const Account& stored);
  std::vector<Wrong> finish();
  int64_t transfer_count() const { return count_; }

 private:
  struct Sums {
    int64_t debits_posted = 0, credits_posted = 0, debits_pending = 0, credits_pending = 0;
    bool is_compared = false;
  };
  struct OpenHold {
    LedgerAccountId debit, credit;
    int64_t amount = 0;
  };
  void end_hold(const Transfer& transfer);

  std::map<LedgerAccountId, Sums> sums_;
  std::map<TransferId, OpenHold> holds_;
  std::vector<Wrong> wrong_;
  int64_t total_ = 0;  // Σ stored (credits - debits)
  int64_t count_ = 0;
};

// Balances at an instant: transfers with at <= `until` count. Credit minus debit per account.
std::map<LedgerAccountId, int64_t> trial_balance(std::span<const Transfer> transfers,
                                                 WallTime until);

}  // namespace anychip::ledger
