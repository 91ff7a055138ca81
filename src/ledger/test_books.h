// Books in memory for the tests: a View that takes the changes which apply() returns.
#pragma once

#include <map>

#include "base/check.h"
#include "ledger/ledger.h"

namespace anychip::ledger {

class TestBooks final : public View {
 public:
  LedgerAccountId open(Kind kind, std::string owner, std::string currency = "CNY") {
    Account account;
    account.id = LedgerAccountId::make(WallTime{1}, random_);
    account.kind = kind;
    account.owner = std::move(owner);
    account.currency = std::move(currency);
    accounts_[account.id] = account;
    return account.id;
  }
  void close(const LedgerAccountId& id) { accounts_.at(id).is_closed = true; }
  TransferId new_id() { return TransferId::make(WallTime{1}, random_); }

  Result<Change> run(std::vector<Transfer> group, WallTime now) {
    TRY(Change change, apply(*this, group, now));
    for (const Account& account : change.accounts) accounts_.at(account.id) = account;
    for (const Transfer& transfer : change.transfers) {
      CHECK(transfers_.emplace(transfer.id, transfer).second);
      log.push_back(transfer);
      if (!transfer.hold.empty()) CHECK(ends_.emplace(transfer.hold, transfer.id).second);
    }
    return change;
  }

  std::optional<Account> account(const LedgerAccountId& id) const override {
    const auto found = accounts_.find(id);
    return found == accounts_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<Transfer> transfer(const TransferId& id) const override {
    const auto found = transfers_.find(id);
    return found == transfers_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<TransferId> end_of_hold(const TransferId& hold) const override {
    const auto found = ends_.find(hold);
    return found == ends_.end() ? std::nullopt : std::optional(found->second);
  }

  std::map<LedgerAccountId, int64_t> balances() const {
    std::map<LedgerAccountId, int64_t> all;
    for (const auto& [id, account] : accounts_) all[id] = account.balance();
    return all;
  }
  const std::map<LedgerAccountId, Account>& accounts() const { return accounts_; }
  std::vector<Transfer> log;  // in the order applied

 private:
  SeededRandom random_{7};
  std::map<LedgerAccountId, Account> accounts_;
  std::map<TransferId, Transfer> transfers_;
  std::map<TransferId, TransferId> ends_;
};

}  // namespace anychip::ledger
