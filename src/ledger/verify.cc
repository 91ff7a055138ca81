#include "ledger/verify.h"

#include <fmt/format.h>

namespace anychip::ledger {
namespace {

// What a transfer really moves: a post of 0 means the whole hold.
int64_t moved(const Transfer& transfer, int64_t held) {
  return transfer.amount == 0 ? held : transfer.amount;
}

}  // namespace

void Verifier::transfer(const Transfer& transfer) {
  count_ += 1;
  switch (transfer.action) {
    case Action::kTransfer:
      sums_[transfer.debit].debits_posted += transfer.amount;
      sums_[transfer.credit].credits_posted += transfer.amount;
      break;
    case Action::kHold:
      sums_[transfer.debit].debits_pending += transfer.amount;
      sums_[transfer.credit].credits_pending += transfer.amount;
      holds_.emplace(transfer.id, OpenHold{transfer.debit, transfer.credit, transfer.amount});
      break;
    case Action::kPostHold:
    case Action::kVoidHold:
    case Action::kExpireHold: end_hold(transfer); break;
  }
}

void Verifier::end_hold(const Transfer& transfer) {
  const auto found = holds_.find(transfer.hold);
  if (found == holds_.end()) {
    wrong_.push_back(
        {transfer.id.text, fmt::format("ends hold {}, which is not open", transfer.hold.text)});
    return;
  }
  const OpenHold& hold = found->second;
  Sums& debit = sums_[hold.debit];
  Sums& credit = sums_[hold.credit];
  debit.debits_pending -= hold.amount;
  credit.credits_pending -= hold.amount;
  if (transfer.action == Action::kPostHold) {
    const int64_t amount = moved(transfer, hold.amount);
    if (amount > hold.amount) wrong_.push_back({transfer.id.text, "posts more than was held"});
    debit.debits_posted += amount;
    credit.credits_posted += amount;
  }
  holds_.erase(found);
}

void Verifier::account(const Account& stored) {
  Sums& sums = sums_[stored.id];
  sums.is_compared = true;
  const auto compare = [&](std::string_view what, int64_t is, int64_t should) {
    if (is == should) return;
    wrong_.push_back(
        {stored.id.text, fmt::format("{} is {}, the transfers say {}", what, is, should)});
  };
  compare("debits_posted", stored.debits_posted, sums.debits_posted);
  compare("credits_posted", stored.credits_posted, sums.credits_posted);
  compare("debits_pending", stored.debits_pending, sums.debits_pending);
  compare("credits_pending", stored.credits_pending, sums.credits_pending);
  if (stored.available() < 0) wrong_.push_back({stored.id.text, "is below its floor"});
  total_ += stored.balance();
}

std::vector<Wrong> Verifier::finish() {
  for (const auto& [id, sums] : sums_) {
    if (!sums.is_compared) wrong_.push_back({id.text, "is used by transfers but not stored"});
  }
  if (total_ != 0) {
    wrong_.push_back(
        {"all accounts", fmt::format("the sum over all balances is {}, not 0", total_)});
  }
  return std::move(wrong_);
}

std::map<LedgerAccountId, int64_t> trial_balance(std::span<const Transfer> transfers,
                                                 WallTime until) {
  std::map<LedgerAccountId, int64_t> balance;
  std::map<TransferId, int64_t> held;
  for (const Transfer& transfer : transfers) {
    if (transfer.at > until) continue;
    if (transfer.action == Action::kHold) held[transfer.id] = transfer.amount;
    const bool moves = transfer.action == Action::kTransfer || transfer.action == Action::kPostHold;
    if (!moves) continue;
    const int64_t amount = transfer.action == Action::kPostHold
                               ? moved(transfer, held[transfer.hold])
                               : transfer.amount;
    balance[transfer.debit] -= amount;
    balance[transfer.credit] += amount;
  }
  return balance;
}

}  // namespace anychip::ledger
