#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace anychip {

void check_failed(const char* file, int line, const char* expression,
                  std::string_view detail) noexcept {
  std::fprintf(stderr, "CHECK failed at %s:%d: %s %.*s\n", file, line, expression,
               static_cast<int>(detail.size()), detail.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace anychip
