#include "fleet/types.h"

#include <array>
#include <span>

#include "base/check.h"

namespace anychip::fleet {
namespace {

constexpr std::array<std::string_view, 9> kRunStates = {"queued",    "preparing", "running",
                                                        "switching", "stopping",  "stopped",
                                                        "finished",  "failed",    "lost"};
constexpr std::array<std::string_view, 3> kLegStates = {"preparing", "running", "ended"};
constexpr std::array<std::string_view, 4> kDesired = {"prepare", "run", "stop", "gone"};
constexpr std::array<std::string_view, 8> kPhases = {"none",    "preparing", "prepared", "starting",
                                                     "running", "exited",    "failed",   "gone"};
constexpr std::array<std::string_view, 4> kVolumeStates = {"wanted", "present", "failed", "gone"};
constexpr std::array<std::string_view, 4> kSnapshotStates = {"wanted", "ready", "failed", "gone"};
constexpr std::array<std::string_view, 6> kSwitchStates = {"active",  "done",      "fell_back",
                                                           "refused", "cancelled", "failed"};
constexpr std::array<std::string_view, 9> kSwitchSteps = {
    "", "check", "reserve", "prepare", "checkpoint", "inherit", "resume", "verify", "settle"};

template <class E>
std::string_view word_of(std::span<const std::string_view> words, E value) {
  const auto at = static_cast<size_t>(value);
  CHECK(at < words.size());
  return words[at];
}

template <class E>
bool find_word(std::span<const std::string_view> words, std::string_view word, E& value) {
  for (size_t at = 0; at < words.size(); ++at) {
    if (words[at] == word && !word.empty()) {
      value = static_cast<E>(at);
      return true;
    }
  }
  return false;
}

}  // namespace

std::string_view name_of(RunState value) { return word_of(kRunStates, value); }
std::string_view name_of(LegState value) { return word_of(kLegStates, value); }
std::string_view name_of(Desired value) { return word_of(kDesired, value); }
std::string_view name_of(Phase value) { return word_of(kPhases, value); }
std::string_view name_of(VolumeState value) { return word_of(kVolumeStates, value); }
std::string_view name_of(SnapshotState value) { return word_of(kSnapshotStates, value); }
std::string_view name_of(SwitchState value) { return word_of(kSwitchStates, value); }
std::string_view name_of(SwitchStep value) { return word_of(kSwitchSteps, value); }
bool parse(std::string_view word, RunState& value) { return find_word(kRunStates, word, value); }
bool parse(std::string_view word, LegState& value) { return find_word(kLegStates, word, value); }
bool parse(std::string_view word, Desired& value) { return find_word(kDesired, word, value); }
bool parse(std::string_view word, Phase& value) { return find_word(kPhases, word, value); }
bool parse(std::string_view word, VolumeState& value) {
  return find_word(kVolumeStates, word, value);
}
bool parse(std::string_view word, SnapshotState& value) {
  return find_word(kSnapshotStates, word, value);
}
bool parse(std::string_view word, SwitchState& value) {
  return find_word(kSwitchStates, word, value);
}
bool parse(std::string_view word, SwitchStep& value) {
  return find_word(kSwitchSteps, word, value);
}

bool is_ended(RunState state) {
  return state == RunState::kStopped || state == RunState::kFinished || state == RunState::kFailed;
}

}  // namespace anychip::fleet
