// CHECK: an invariant of ours that must hold, on in release (a crash is better than a wrong bill).
// What a user or another process sent never reaches a CHECK; that is an Error.
#pragma once

#include <string_view>

namespace anychip {
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               std::string_view detail) noexcept;
}

#define CHECK(expression)                                           \
  do {                                                              \
    if (!(expression)) [[unlikely]]                                 \
      ::anychip::check_failed(__FILE__, __LINE__, #expression, {}); \
  } while (false)
#define CHECK_MSG(expression, detail)                                   \
  do {                                                                  \
    if (!(expression)) [[unlikely]]                                     \
      ::anychip::check_failed(__FILE__, __LINE__, #expression, detail); \
  } while (false)
#ifdef NDEBUG
#define DCHECK(expression) ((void)sizeof(!(expression)))
#else
#define DCHECK(expression) CHECK(expression)
#endif
