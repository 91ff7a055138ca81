// Accounts, transfers and holds (design §5). Semantics follow TigerBeetle's data model: immutable
// transfers with ids made by the caller, two-phase holds, linked groups, balance limits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/money.h"
#include "base/time.h"

namespace anychip::ledger {

struct LedgerAccountTag {
  static constexpr std::string_view kPrefix = "lac";
};
using LedgerAccountId = Id<LedgerAccountTag>;

// The chart of accounts. `receivable` is what a customer owes: arrears never push a wallet below 0.
enum class Kind : uint8_t {
  kWallet,             // cash of a customer (we owe it)
  kPromotionalCredit,  // given, expiring
  kVoucher,            // given, with a scope
  kReceivable,         // owed to us
  kRevenue,
  kPromotionCost,   // what gifts cost us
  kCashAtProvider,  // money at the payment provider
  kTaxPayable,
  kPublisherPayable,  // owed to publishers of the market
};
std::string_view name_of(Kind kind);
std::optional<Kind> kind_of_name(std::string_view name);

// Which side may not outgrow the other; pending amounts of the limited side count.
enum class Limit : uint8_t { kNone, kDebitsWithinCredits, kCreditsWithinDebits };
Limit limit_of(Kind kind);

struct Account {
  LedgerAccountId id;
  Kind kind = Kind::kWallet;
  std::string owner;                                // account id, publisher id, "" = the house
  std::string currency;                             // "CNY"; both sides of a transfer must agree
  int64_t debits_posted = 0, credits_posted = 0;    // micro-units, each >= 0
  int64_t debits_pending = 0, credits_pending = 0;  // sums of open holds
  bool is_closed = false;  // takes no new transfer; open holds may still end

  int64_t balance() const { return credits_posted - debits_posted; }
  // What a new debit may take at most; INT64_MAX where nothing limits it.
  int64_t available() const;
};

enum class Action : uint8_t {
  kTransfer,    // moves the amount at once
  kHold,        // reserves it until posted, voided or `timeout` has passed
  kPostHold,    // moves `amount` <= the held one (0 = all of it), frees the rest
  kVoidHold,    // frees all
  kExpireHold,  // the same, allowed only once the timeout has passed
};

struct Transfer {
  TransferId id;  // made by the caller; happens at most once
  Action action = Action::kTransfer;
  LedgerAccountId debit, credit;  // empty for post, void, expire: taken from the hold
  int64_t amount = 0;             // micro-units, > 0; see kPostHold
  TransferId hold;                // post, void, expire
  Duration timeout;               // hold: > 0
  std::string code;               // "usage", "topup", "grant", "refund" ...
  std::string subject;            // the leg, invoice, payment it is about
  TransferId corrects;            // a correction names what it corrects
  WallTime at;                    // set by apply(); ignored on input and in comparisons
};

// Read access to the books as they are before the change.
class View {
 public:
  virtual ~View() = default;
  virtual std::optional<Account> account(const LedgerAccountId& id) const = 0;
  virtual std::optional<Transfer> transfer(const TransferId& id) const = 0;
  // The post, void or expire that ended a hold; nullopt while it is open.
  virtual std::optional<TransferId> end_of_hold(const TransferId& hold) const = 0;
};

struct Change {
  std::vector<Account> accounts;    // new values, each account once
  std::vector<Transfer> transfers;  // to be inserted
  bool is_replay = false;           // every id was there already with the same body: nothing to do
};

// All of `linked` or none. Refusals (reason): transfer_id_reused, linked_partly_applied,
// account_unknown, account_closed, amount_invalid, accounts_equal, currency_mismatch,
// balance_insufficient (kPaymentRequired, says how much is missing), hold_unknown, hold_ended,
// hold_expired, hold_not_expired, hold_exceeded, timeout_invalid, money_overflow, group_invalid.
// `now` is the ledger's time; it decides whether a hold has expired.
Result<Change> apply(const View& books, std::span<const Transfer> linked, WallTime now);

}  // namespace anychip::ledger
