#pragma once

namespace anychip::cli {
inline constexpr const char* kVersion = "0.1.0";
}
