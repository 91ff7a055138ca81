// What an account has left. The ledger comes with "money"; until then it is credit less metered
// cost.
#pragma once

#include "base/money.h"
#include "server/shared.h"

namespace anychip::server {

struct Funds {
  Money credit, spent;
  RatePerHour rate;  // of everything that runs or is about to
  Money balance() const {
    return {credit.micros > spent.micros ? credit.micros - spent.micros : 0};
  }
};
Result<Funds> funds_of(store::Db& db, const AccountId& account);

// Nothing, or why `price` more per hour cannot be started now.
Result<std::optional<fleet::Refusal>> refuse_unfunded(Call& call, RatePerHour price,
                                                      std::string pointer);

// Asks the runs of accounts whose balance is used up to write a checkpoint and stop.
Status stop_what_is_not_paid(store::Db& db, const Shared& shared);

}  // namespace anychip::server
