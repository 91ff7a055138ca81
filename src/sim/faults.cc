#include "sim/faults.h"

#include <fmt/format.h>

namespace anychip::sim {
namespace {

uint32_t percent(Random& random, uint32_t chance, uint32_t most) {
  const bool is_on = random.chance(chance);
  const auto value = static_cast<uint32_t>(1 + random.below(most));
  return is_on ? value : 0;
}

Duration every(Random& random, uint32_t chance, int64_t least_s, int64_t most_s) {
  const bool is_on = random.chance(chance);
  const auto value = static_cast<int64_t>(random.below(static_cast<uint64_t>(most_s - least_s)));
  return is_on ? seconds(least_s + value) : Duration{};
}

}  // namespace

Faults Faults::draw(Random& random) {
  Faults faults;
  faults.drop_percent = percent(random, 50, 20);
  faults.duplicate_percent = percent(random, 50, 15);
  faults.delay_percent = percent(random, 50, 20);
  faults.partition_every = every(random, 40, 20, 90);
  faults.server_kill_every = every(random, 40, 15, 90);
  faults.server_crash_in_write_every = every(random, 40, 10, 60);
  faults.agent_kill_every = every(random, 50, 10, 60);
  faults.process_crash_every = every(random, 35, 30, 120);
  faults.device_vanish_every = every(random, 30, 40, 160);
  faults.wall_step_every = every(random, 25, 30, 120);
  faults.supervisor_lost_every = every(random, 15, 60, 200);
  faults.is_image_slow = random.chance(30);
  faults.image_fail_percent = percent(random, 30, 60);
  faults.snapshot_fail_percent = percent(random, 30, 60);
  faults.start_fail_percent = percent(random, 30, 50);
  faults.volume_fail_percent = percent(random, 25, 40);
  faults.client_retry_percent = percent(random, 60, 40);
  return faults;
}

void Faults::heal() {
  const Planted kept = planted;
  *this = Faults{};
  planted = kept;
}

std::string Faults::words() const {
  std::string text;
  const auto rate = [&](std::string_view name, uint32_t value) {
    if (value > 0) text += fmt::format(" {}={}%", name, value);
  };
  const auto pace = [&](std::string_view name, Duration value) {
    if (value.us > 0) text += fmt::format(" {}/{}s", name, value.us / 1'000'000);
  };
  rate("drop", drop_percent), rate("duplicate", duplicate_percent), rate("delay", delay_percent);
  pace("partition", partition_every), pace("server_kill", server_kill_every);
  pace("server_crash_in_write", server_crash_in_write_every), pace("agent_kill", agent_kill_every);
  pace("process_crash", process_crash_every), pace("device_vanish", device_vanish_every);
  pace("wall_step", wall_step_every), pace("supervisor_lost", supervisor_lost_every);
  rate("image_slow", is_image_slow ? 100 : 0), rate("image_fail", image_fail_percent);
  rate("snapshot_fail", snapshot_fail_percent), rate("start_fail", start_fail_percent);
  rate("volume_fail", volume_fail_percent), rate("client_retry", client_retry_percent);
  return text.empty() ? " none" : text;
}

}  // namespace anychip::sim
