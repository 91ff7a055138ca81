// What goes wrong in one seed: a random subset of all faults, each with its own strength.
#pragma once

#include <string>

#include "base/rng.h"
#include "base/time.h"

namespace anychip::sim {

// A wrong world on purpose, to prove that the checkers notice (never part of a drawn seed).
enum class Planted { kNone, kLogSkipsAByte, kLateEnd, kNoCheckpointOnTerm, kNoIdempotencyKey };

struct Faults {
  Planted planted = Planted::kNone;
  uint32_t drop_percent = 0, duplicate_percent = 0, delay_percent = 0;
  // Mean time between two of a kind; 0 = never.
  Duration partition_every, server_kill_every, server_crash_in_write_every, agent_kill_every;
  Duration process_crash_every, device_vanish_every, wall_step_every, supervisor_lost_every;
  bool is_image_slow = false;
  uint32_t image_fail_percent = 0, snapshot_fail_percent = 0, start_fail_percent = 0;
  uint32_t volume_fail_percent = 0, client_retry_percent = 0;

  static Faults draw(Random& random);
  void heal();  // everything off
  std::string words() const;
};

}  // namespace anychip::sim
