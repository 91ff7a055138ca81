// Messages between hosts: lost, doubled, late (to 5 s, so out of order too), or cut off one way.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/rng.h"
#include "sim/events.h"
#include "sim/faults.h"

namespace anychip::sim {

class Network {
 public:
  Network(EventQueue& queue, Random& random, const Faults& faults)
      : queue_(queue), random_(random), faults_(faults) {}

  // Calls `deliver` zero, one or two times, later.
  void send(const std::string& from, const std::string& to, std::function<void()> deliver) {
    if (random_.chance(faults_.drop_percent)) return;
    const int copies = random_.chance(faults_.duplicate_percent) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      queue_.after(delay(), [this, from, to, deliver] {
        if (!is_cut(from, to)) deliver();
      });
    }
  }
  void cut(const std::string& from, const std::string& to, Duration time) {
    cut_until_[{from, to}] = queue_.now() + time;
  }
  void heal() { cut_until_.clear(); }

 private:
  Duration delay() {
    const auto usual_us = static_cast<int64_t>(200 + random_.below(3000));
    if (!random_.chance(faults_.delay_percent)) return {usual_us};
    return {usual_us + static_cast<int64_t>(random_.below(5'000'000))};
  }
  bool is_cut(const std::string& from, const std::string& to) const {
    const auto found = cut_until_.find({from, to});
    return found != cut_until_.end() && queue_.now() < found->second;
  }

  EventQueue& queue_;
  Random& random_;
  const Faults& faults_;
  std::map<std::pair<std::string, std::string>, MonoTime> cut_until_;
};

}  // namespace anychip::sim
