// Ids: prefix + '_' + UUIDv7 in Crockford base32 (26 lower-case characters), e.g.
// "run_01jdz4m6q5v0k8r1w2x3y4z5a6". Time-ordered, never reused, unguessable (74 random bits).
// Each kind is its own type: a RunId cannot be passed where a LegId is wanted.
#pragma once

#include <compare>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/rng.h"
#include "base/time.h"

namespace anychip {

std::string make_id_text(std::string_view prefix, WallTime now, Random& random);
// True when text is prefix + '_' + 26 base32 characters.
bool is_id_text(std::string_view prefix, std::string_view text);

template <class Tag>
struct Id {
  std::string text;  // empty = no id
  static constexpr std::string_view kPrefix = Tag::kPrefix;

  static Id make(WallTime now, Random& random) { return Id{make_id_text(kPrefix, now, random)}; }
  static Result<Id> parse(std::string_view text) {
    if (!is_id_text(kPrefix, text)) {
      return fail(Code::kInvalidArgument, "id_malformed",
                  "'" + std::string(text) + "' is not an id of kind " + std::string(kPrefix));
    }
    return Id{std::string(text)};
  }
  bool empty() const { return text.empty(); }
  friend auto operator<=>(const Id&, const Id&) = default;
};

#define ANYCHIP_ID(Name, prefix)                        \
  struct Name##Tag {                                    \
    static constexpr std::string_view kPrefix = prefix; \
  };                                                    \
  using Name = Id<Name##Tag>
ANYCHIP_ID(AccountId, "acc");
ANYCHIP_ID(ProjectId, "prj");
ANYCHIP_ID(NodeId, "nod");
ANYCHIP_ID(InstanceId, "ins");
ANYCHIP_ID(RunId, "run");
ANYCHIP_ID(LegId, "leg");
ANYCHIP_ID(SwitchId, "swi");
ANYCHIP_ID(VolumeId, "vol");
ANYCHIP_ID(SnapshotId, "snp");
ANYCHIP_ID(TransferId, "trf");
ANYCHIP_ID(HoldId, "hld");
#undef ANYCHIP_ID

}  // namespace anychip

template <class Tag>
struct std::hash<anychip::Id<Tag>> {
  size_t operator()(const anychip::Id<Tag>& id) const noexcept {
    return std::hash<std::string>{}(id.text);
  }
};
