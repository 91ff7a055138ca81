#include "ledger/spend.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace anychip::ledger {
namespace {

int rank_of(Kind kind) {
  if (kind == Kind::kPromotionalCredit) return 0;
  return kind == Kind::kVoucher ? 1 : 2;
}

int64_t expiry_of(const Source& source) {
  return source.expires.us == 0 ? std::numeric_limits<int64_t>::max() : source.expires.us;
}

bool can_pay(const Source& source, std::string_view chip, WallTime now) {
  const bool is_money = source.account.kind == Kind::kWallet ||
                        source.account.kind == Kind::kPromotionalCredit ||
                        source.account.kind == Kind::kVoucher;
  const bool is_alive = source.expires.us == 0 || now < source.expires;
  const bool in_scope = source.scope.empty() || std::find(source.scope.begin(), source.scope.end(),
                                                          chip) != source.scope.end();
  return is_money && is_alive && in_scope && !source.account.is_closed &&
         source.account.available() > 0;
}

}  // namespace

Spend plan_spend(std::span<const Source> sources, int64_t amount, std::string_view chip,
                 WallTime now) {
  CHECK(amount >= 0);
  std::vector<const Source*> order;
  for (const Source& source : sources) {
    if (can_pay(source, chip, now)) order.push_back(&source);
  }
  std::sort(order.begin(), order.end(), [](const Source* a, const Source* b) {
    const int ranks = rank_of(a->account.kind) - rank_of(b->account.kind);
    if (ranks != 0) return ranks < 0;
    if (expiry_of(*a) != expiry_of(*b)) return expiry_of(*a) < expiry_of(*b);
    return a->account.id < b->account.id;  // the same answer every time
  });
  Spend spend{{}, amount};
  for (const Source* source : order) {
    if (spend.missing == 0) break;
    const int64_t part = std::min(spend.missing, source->account.available());
    spend.parts.push_back({source->account.id, part});
    spend.missing -= part;
  }
  return spend;
}

}  // namespace anychip::ledger
