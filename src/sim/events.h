// Virtual time: one queue of events, one thread. An event is never run before its time, and two at
// the same time run in the order they were added, so a seed fixes everything.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "base/time.h"

namespace anychip::sim {

class EventQueue {
 public:
  using Action = std::function<void()>;
  MonoTime now() const { return now_; }
  void at(MonoTime when, Action action) {
    queue_.push({when < now_ ? now_ : when, ++sequence_, std::move(action)});
  }
  void after(Duration delay, Action action) { at(now_ + delay, std::move(action)); }
  bool is_empty() const { return queue_.empty(); }
  // Runs the next event; false when there is none.
  bool run_one() {
    if (queue_.empty()) return false;
    Event next = queue_.top();
    queue_.pop();
    now_ = next.when;
    ++count_;
    next.action();
    return true;
  }
  int64_t count() const { return count_; }

 private:
  struct Event {
    MonoTime when;
    int64_t sequence = 0;
    Action action;
    bool operator<(const Event& other) const {  // the queue's top is its largest
      return when != other.when ? when > other.when : sequence > other.sequence;
    }
  };
  std::priority_queue<Event> queue_;
  MonoTime now_{3'600'000'000};
  int64_t sequence_ = 0, count_ = 0;
};

// A host's clocks: monotonic time since its own boot, wall time that may be wrong and may jump.
class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(const EventQueue& queue) : queue_(queue) {}
  WallTime wall_now() const override { return {kEpochUs + queue_.now().us + wall_offset_.us}; }
  MonoTime mono_now() const override { return queue_.now() + boot_offset_; }
  void step_wall(Duration by) { wall_offset_ = wall_offset_ + by; }
  void set_boot_offset(Duration offset) { boot_offset_ = offset; }

 private:
  static constexpr int64_t kEpochUs = 1'796'000'000'000'000;  // 2026-11-30
  const EventQueue& queue_;
  Duration wall_offset_, boot_offset_;
};

}  // namespace anychip::sim
