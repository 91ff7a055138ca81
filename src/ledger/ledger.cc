#include "ledger/ledger.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/check.h"

namespace anychip::ledger {
namespace {

constexpr size_t kLinkedMax = 1024;

struct KindRow {
  Kind kind;
  std::string_view name;
  Limit limit;
};
constexpr std::array<KindRow, 9> kKinds{{
    {Kind::kWallet, "wallet", Limit::kDebitsWithinCredits},
    {Kind::kPromotionalCredit, "promotional_credit", Limit::kDebitsWithinCredits},
    {Kind::kVoucher, "voucher", Limit::kDebitsWithinCredits},
    {Kind::kReceivable, "receivable", Limit::kCreditsWithinDebits},
    {Kind::kRevenue, "revenue", Limit::kNone},
    {Kind::kPromotionCost, "promotion_cost", Limit::kNone},
    {Kind::kCashAtProvider, "cash_at_provider", Limit::kNone},
    {Kind::kTaxPayable, "tax_payable", Limit::kNone},
    {Kind::kPublisherPayable, "publisher_payable", Limit::kDebitsWithinCredits},
}};

Status add_to(int64_t& sum, int64_t amount) {
  if (__builtin_add_overflow(sum, amount, &sum)) {
    return fail(Code::kOutOfRange, "money_overflow", "an account's sum does not fit in 64 bits");
  }
  return {};
}

bool is_end(Action action) {
  return action == Action::kPostHold || action == Action::kVoidHold ||
         action == Action::kExpireHold;
}

// The first field in which two bodies differ; "" when they are the same request.
std::string_view difference(const Transfer& a, const Transfer& b) {
  if (a.action != b.action) return "action";
  if (a.amount != b.amount) return "amount";
  if (a.hold != b.hold) return "hold";
  if (!is_end(a.action) && a.debit != b.debit) return "debit";
  if (!is_end(a.action) && a.credit != b.credit) return "credit";
  if (a.timeout != b.timeout) return "timeout";
  if (a.code != b.code) return "code";
  if (a.subject != b.subject) return "subject";
  if (a.corrects != b.corrects) return "corrects";
  return {};
}

// The books plus what this group has done so far.
class Working {
 public:
  explicit Working(const View& books) : books_(books) {}

  Result<Account*> account(const LedgerAccountId& id) {
    if (const auto found = accounts_.find(id); found != accounts_.end()) return &found->second;
    const auto stored = books_.account(id);
    if (!stored) {
      return fail(Code::kNotFound, "account_unknown", fmt::format("no ledger account {}", id.text));
    }
    DCHECK(stored->debits_posted >= 0 && stored->credits_posted >= 0);
    DCHECK(stored->debits_pending >= 0 && stored->credits_pending >= 0);
    return &accounts_.emplace(id, *stored).first->second;
  }

  std::optional<Transfer> transfer(const TransferId& id) const {
    for (const Transfer& done : transfers) {
      if (done.id == id) return done;
    }
    return books_.transfer(id);
  }

  bool is_ended(const TransferId& hold) const {
    return ended_.contains(hold) || books_.end_of_hold(hold).has_value();
  }
  void end(const TransferId& hold) { ended_.insert(hold); }

  std::vector<Account> accounts() const {
    std::vector<Account> values;
    for (const auto& [id, account] : accounts_) values.push_back(account);
    return values;
  }

  std::vector<Transfer> transfers;

 private:
  const View& books_;
  std::map<LedgerAccountId, Account> accounts_;
  std::set<TransferId> ended_;
};

// After a debit: the floor must hold. Says how much is missing.
Status check_limit(const Account& account) {
  const Limit limit = limit_of(account.kind);
  if (limit == Limit::kNone) return {};
  const bool on_debits = limit == Limit::kDebitsWithinCredits;
  __extension__ using Wide = __int128;
  const Wide used = on_debits ? Wide{account.debits_posted} + account.debits_pending
                              : Wide{account.credits_posted} + account.credits_pending;
  const Wide allowed = on_debits ? account.credits_posted : account.debits_posted;
  if (used <= allowed) return {};
  return fail(Code::kPaymentRequired, "balance_insufficient",
              fmt::format("{} of {} lacks {} micro-units", name_of(account.kind), account.owner,
                          static_cast<int64_t>(used - allowed)));
}

Status check_pair(const Account& debit, const Account& credit) {
  if (debit.id == credit.id) {
    return fail(Code::kInvalidArgument, "accounts_equal", "debit and credit are the same account");
  }
  if (debit.currency != credit.currency) {
    return fail(Code::kInvalidArgument, "currency_mismatch",
                fmt::format("debit is in {}, credit in {}", debit.currency, credit.currency));
  }
  for (const Account* side : {&debit, &credit}) {
    if (side->is_closed) {
      return fail(Code::kFailedPrecondition, "account_closed",
                  fmt::format("ledger account {} is closed", side->id.text));
    }
  }
  return {};
}

// kTransfer and kHold.
Status begin(Working& books, const Transfer& request) {
  if (request.amount <= 0) {
    return fail(Code::kInvalidArgument, "amount_invalid",
                "the amount must be at least 1 micro-unit");
  }
  const bool is_hold = request.action == Action::kHold;
  if (is_hold != (request.timeout.us > 0)) {
    return fail(Code::kInvalidArgument, "timeout_invalid",
                "a hold, and only a hold, has a timeout > 0");
  }
  TRY(Account * debit, books.account(request.debit));
  TRY(Account * credit, books.account(request.credit));
  TRY_VOID(check_pair(*debit, *credit));
  TRY_VOID(add_to(is_hold ? debit->debits_pending : debit->debits_posted, request.amount));
  TRY_VOID(add_to(is_hold ? credit->credits_pending : credit->credits_posted, request.amount));
  TRY_VOID(check_limit(*debit));
  return check_limit(*credit);
}

Status check_end_time(const Transfer& request, const Transfer& hold, WallTime now) {
  const bool has_expired = now >= hold.at + hold.timeout;
  if (request.action == Action::kPostHold && has_expired) {
    return fail(
        Code::kFailedPrecondition, "hold_expired",
        fmt::format("hold {} ran out at {}", hold.id.text, (hold.at + hold.timeout).rfc3339()));
  }
  if (request.action == Action::kExpireHold && !has_expired) {
    return fail(
        Code::kFailedPrecondition, "hold_not_expired",
        fmt::format("hold {} runs until {}", hold.id.text, (hold.at + hold.timeout).rfc3339()));
  }
  return {};
}

// kPostHold, kVoidHold, kExpireHold. `request` gets the accounts of its hold.
Status end(Working& books, Transfer& request, WallTime now) {
  const auto hold = books.transfer(request.hold);
  if (!hold || hold->action != Action::kHold) {
    return fail(Code::kNotFound, "hold_unknown", fmt::format("no hold {}", request.hold.text));
  }
  if (books.is_ended(request.hold)) {
    return fail(Code::kFailedPrecondition, "hold_ended",
                fmt::format("hold {} was posted, voided or expired before", request.hold.text));
  }
  TRY_VOID(check_end_time(request, *hold, now));
  const bool is_post = request.action == Action::kPostHold;
  if (request.amount < 0 || (!is_post && request.amount != 0)) {
    return fail(Code::kInvalidArgument, "amount_invalid",
                "only a post has an amount, and not below 0");
  }
  const int64_t posted = !is_post ? 0 : request.amount == 0 ? hold->amount : request.amount;
  if (posted > hold->amount) {
    return fail(Code::kInvalidArgument, "hold_exceeded",
                fmt::format("{} is more than the {} held", posted, hold->amount));
  }
  request.debit = hold->debit;
  request.credit = hold->credit;
  TRY(Account * debit, books.account(hold->debit));
  TRY(Account * credit, books.account(hold->credit));
  CHECK(debit->debits_pending >= hold->amount);
  CHECK(credit->credits_pending >= hold->amount);
  debit->debits_pending -= hold->amount;
  credit->credits_pending -= hold->amount;
  TRY_VOID(add_to(debit->debits_posted, posted));
  TRY_VOID(add_to(credit->credits_posted, posted));
  books.end(request.hold);
  return {};
}

enum class Seen { kNew, kSame };

Result<Seen> seen_before(const View& books, const Transfer& request) {
  if (!is_id_text(TransferId::kPrefix, request.id.text)) {
    return fail(Code::kInvalidArgument, "id_malformed", "a transfer needs an id of kind trf");
  }
  const auto stored = books.transfer(request.id);
  if (!stored) return Seen::kNew;
  const std::string_view field = difference(*stored, request);
  if (field.empty()) return Seen::kSame;
  return fail(Code::kAlreadyExists, "transfer_id_reused",
              fmt::format("transfer {} exists with another {}", request.id.text, field));
}

}  // namespace

std::string_view name_of(Kind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row.name;
  }
  CHECK_MSG(false, "kind without a row");
}

std::optional<Kind> kind_of_name(std::string_view name) {
  for (const KindRow& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

Limit limit_of(Kind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row.limit;
  }
  CHECK_MSG(false, "kind without a row");
}

int64_t Account::available() const {
  if (limit_of(kind) != Limit::kDebitsWithinCredits) return std::numeric_limits<int64_t>::max();
  return credits_posted - debits_posted - debits_pending;
}

Result<Change> apply(const View& books, std::span<const Transfer> linked, WallTime now) {
  if (linked.empty() || linked.size() > kLinkedMax) {
    return fail(Code::kInvalidArgument, "group_invalid",
                fmt::format("a group links 1 to {} transfers", kLinkedMax));
  }
  std::set<TransferId> ids;
  size_t same = 0;
  for (const Transfer& request : linked) {
    TRY(const Seen seen, seen_before(books, request));
    same += seen == Seen::kSame ? 1 : 0;
    if (!ids.insert(request.id).second) {
      return fail(Code::kInvalidArgument, "group_invalid", "an id stands twice in the group");
    }
  }
  if (same == linked.size()) return Change{{}, {}, true};
  if (same != 0) {
    return fail(Code::kAlreadyExists, "linked_partly_applied",
                "some transfers of the group exist already, others do not");
  }
  Working working(books);
  for (const Transfer& request : linked) {
    Transfer done = request;
    done.at = now;
    TRY_VOID(is_end(request.action) ? end(working, done, now) : begin(working, done));
    working.transfers.push_back(std::move(done));
  }
  return Change{working.accounts(), std::move(working.transfers), false};
}

}  // namespace anychip::ledger
