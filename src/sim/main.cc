// anychip-sim [--seed N] [--seeds M] [--verbose] [--faultless]: runs seeds, prints what broke.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/time.h"
#include "sim/setting.h"
#include "sys/paths.h"

namespace anychip::sim {
namespace {

struct Arguments {
  uint64_t seed = 1, seeds = 1;
  bool is_verbose = false, is_faultless = false, has_logs = false;
  bool is_wrong = false;
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = values[i];
    const bool takes_number = word == "--seed" || word == "--seeds";
    if (takes_number && i + 1 < count) {
      const uint64_t number = std::strtoull(values[++i], nullptr, 10);
      (word == "--seed" ? arguments.seed : arguments.seeds) = number;
    } else if (word == "--verbose") {
      arguments.is_verbose = true;
    } else if (word == "--logs") {
      arguments.has_logs = true;
    } else if (word == "--faultless") {
      arguments.is_faultless = true;
    } else {
      arguments.is_wrong = true;
    }
  }
  return arguments;
}

std::string words_of(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [word, count] : counts) text += " " + word + "=" + std::to_string(count);
  return text;
}

int run(const Arguments& arguments) {
  const Result<std::string> root = sys::installation_root();
  if (!root) return std::fprintf(stderr, "%s\n", root.error().to_string().c_str()), 1;
  const auto setting = Setting::create(*root);
  if (!setting) return std::fprintf(stderr, "%s\n", setting.error().to_string().c_str()), 1;
  int failed = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.seeds; ++seed) {
    Options options = (*setting)->options(seed);
    options.is_verbose = arguments.is_verbose;
    options.is_faultless = arguments.is_faultless;
    const MonoTime begin = RealClock{}.mono_now();
    const Outcome outcome = simulate(options);
    const Duration took = RealClock{}.mono_now() - begin;
    std::printf("seed %llu: %s, hash %016llx, %lld events, %.0f s in %.2f s; runs%s, switches%s;%s\n",
                static_cast<unsigned long long>(seed),
                outcome.violations.empty() ? "holds" : "BROKEN",
                static_cast<unsigned long long>(outcome.hash),
                static_cast<long long>(outcome.events), outcome.virtual_time.seconds(),
                took.seconds(), words_of(outcome.run_states).c_str(),
                words_of(outcome.switch_states).c_str(), outcome.faults.c_str());
    for (const std::string& what : outcome.violations) std::printf("  %s\n", what.c_str());
    std::fflush(stdout);
    failed += outcome.violations.empty() ? 0 : 1;
  }
  if (arguments.seeds > 1) {
    std::printf("%llu seeds, %d broken\n", static_cast<unsigned long long>(arguments.seeds), failed);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace anychip::sim

int main(int count, char** values) {
  const auto arguments = anychip::sim::parse(count, values);
  if (arguments.is_wrong) {
    std::fprintf(stderr, "usage: anychip-sim [--seed N] [--seeds M] [--verbose] [--logs] [--faultless]\n");
    return 3;
  }
  if (!arguments.has_logs) anychip::log::set_level(static_cast<anychip::log::Level>(4));  // none
  return anychip::sim::run(arguments);
}
