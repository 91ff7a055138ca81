// The story of one simulation as a hash (and as text when somebody reads along).
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "sim/events.h"

namespace anychip::sim {

class Trace {
 public:
  Trace(const EventQueue& queue, bool is_verbose) : queue_(queue), is_verbose_(is_verbose) {}
  void add(std::string_view who, std::string_view what) {
    mix(std::to_string(queue_.now().us));
    mix(who);
    mix(what);
    if (is_verbose_) {
      const int64_t us = queue_.now().us - 3'600'000'000;
      std::fprintf(stderr, "%10.3f %-10.*s %.*s\n", static_cast<double>(us) / 1e6,
                   static_cast<int>(who.size()), who.data(), static_cast<int>(what.size()),
                   what.data());
    }
  }
  uint64_t hash() const { return hash_; }

 private:
  void mix(std::string_view text) {  // FNV-1a
    for (const char c : text) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    hash_ = (hash_ ^ 0xff) * 0x100000001b3ULL;
  }
  const EventQueue& queue_;
  bool is_verbose_;
  uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace anychip::sim
