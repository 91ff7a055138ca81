// Which source pays first (rule B10): credit that expires, soonest first; then vouchers in scope,
// soonest expiry first; then cash. Pure: the caller turns the parts into linked transfers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ledger/ledger.h"

namespace anychip::ledger {

struct Source {
  Account account;
  WallTime expires;                // 0 = never
  std::vector<std::string> scope;  // chip ids a voucher pays for; empty = all
};

struct Part {
  LedgerAccountId account;
  int64_t amount = 0;
};

struct Spend {
  std::vector<Part> parts;  // in order of use, each amount > 0
  int64_t missing = 0;      // what no source covers
};

// Splits `amount` (>= 0, CHECK) over the sources that are alive at `now` and in scope for `chip`.
Spend plan_spend(std::span<const Source> sources, int64_t amount, std::string_view chip,
                 WallTime now);

}  // namespace anychip::ledger
