// Operations under way: one per object at a time, failures remembered and tried again with growing
// pauses. Keys name objects ("volume vol_..."), verbs what is done to them ("ensure").
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/runtime.h"
#include "base/rng.h"
#include "base/time.h"

namespace anychip::agent {

constexpr int kTriesMax = 3;

// Trying again cannot help: what is asked for is wrong, not the moment.
bool is_permanent(const Error& error);

class Operations {
 public:
  Operations(Runtime& runtime, const Clock& clock, Random& random)
      : runtime_(runtime), clock_(clock), random_(random) {}

  void take_done();
  bool is_busy(const std::string& key) const;
  bool is_busy_with(const std::string& key, std::string_view verb) const;
  // Begins unless one is under way for this key or the pause after a failure has not passed. Another
  // verb than last time begins with a clean slate.
  void begin(const std::string& key, std::string_view verb, Operation operation);
  // True once after the verb has ended well.
  bool take_success(const std::string& key, std::string_view verb);
  // The last failure of this verb since its last success; nullptr = none.
  const Error* failure(const std::string& key, std::string_view verb) const;
  bool is_given_up(const std::string& key, std::string_view verb) const;
  // Counts a failure that came from elsewhere (a workdir that could not be fetched).
  void note_failure(const std::string& key, std::string_view verb, Error error);
  bool may_try(const std::string& key, std::string_view verb) const;
  // Drops what is remembered of idle objects not named here.
  void retain(const std::set<std::string>& keys);

 private:
  struct Entry {
    std::string verb;
    OperationId id = 0;  // 0 = none under way
    int failures = 0;
    MonoTime not_before;
    Error error;
    bool has_succeeded = false;
  };
  const Entry* find(const std::string& key, std::string_view verb) const;
  Entry& entry(const std::string& key, std::string_view verb);
  void fail_entry(Entry& entry, Error error);

  Runtime& runtime_;
  const Clock& clock_;
  Random& random_;
  std::map<std::string, Entry> entries_;
  std::map<OperationId, std::string> keys_;
};

}  // namespace anychip::agent
