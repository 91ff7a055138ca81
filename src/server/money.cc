#include "server/money.h"

#include <fmt/format.h>

#include "fleet/run.h"
#include "server/reconcile.h"

namespace anychip::server {
namespace {

// Reports come once a second: what may be metered before the stop request takes effect.
constexpr Duration kReportLag = seconds(3);

constexpr const char* kLive = "('stopped', 'finished', 'failed')";

}  // namespace

Result<Funds> funds_of(store::Db& db, const AccountId& account) {
  Funds funds;
  TRY(const auto credit, db.query_one("SELECT credit_micros FROM accounts WHERE id = ?", account));
  if (!credit) return fail(Code::kNotFound, "account_not_found", "there is no such account");
  funds.credit = Money{credit->integer(0)};
  TRY(const auto spent,
      db.query_one("SELECT SUM(l.cost_micros) FROM legs l JOIN runs r ON r.id = l.run_id "
                   "JOIN projects p ON p.id = r.project_id WHERE p.account_id = ?",
                   account));
  funds.spent = Money{spent->integer(0)};
  static const std::string rate_text = fmt::format(
      "SELECT SUM(i.price_micros_per_hour) FROM instances i JOIN runs r ON r.id = "
      "i.run_id JOIN projects p ON p.id = r.project_id WHERE p.account_id = ? AND "
      "i.is_closed = 0 AND i.desired IN ('prepare', 'run') AND r.state NOT IN {}",
      kLive);
  TRY(const auto rate, db.query_one(rate_text, account));
  funds.rate = RatePerHour{rate->integer(0)};
  return funds;
}

Result<std::optional<fleet::Refusal>> refuse_unfunded(Call& call, RatePerHour price,
                                                      std::string pointer) {
  TRY(const Funds funds, funds_of(call.db, call.who.account));
  const Duration ahead = call.shared.options.funds_ahead;
  TRY(const Money needed, cost_of({funds.rate.micros + price.micros}, ahead));
  if (funds.balance() >= needed) return std::nullopt;
  return fleet::Refusal{
      Code::kPaymentRequired, "funds_insufficient",
      fmt::format("the balance is {}, but {} seconds of all that would run cost {}",
                  format_yuan(funds.balance()), ahead.us / 1'000'000, format_yuan(needed)),
      "stop another run, choose a cheaper chip, or add funds", std::move(pointer)};
}

Status stop_what_is_not_paid(store::Db& db, const Shared& shared) {
  static const std::string text = fmt::format(
      "SELECT r.id, p.account_id FROM runs r JOIN projects p ON p.id = r.project_id "
      "WHERE r.state NOT IN {} AND r.stop_cause = '' ORDER BY r.id",
      kLive);
  TRY(const auto found, db.query(text));
  for (const store::Row& row : found) {
    TRY(const Funds funds, funds_of(db, AccountId{row.text(1)}));
    TRY(const Money margin, cost_of(funds.rate, kReportLag));
    if (funds.balance() > margin) continue;
    TRY_VOID(change_run(db, shared, RunId{row.text(0)},
                        [](fleet::Facts& facts, const fleet::Context& context) {
                          return fleet::request_stop(facts, context, "funds_exhausted");
                        }));
  }
  return {};
}

}  // namespace anychip::server
