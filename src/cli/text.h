// Text for a terminal: how many columns it takes, cut and padded to columns, made harmless.
#pragma once

#include <string>
#include <string_view>

namespace anychip::cli {

// Columns that a terminal uses: 2 for CJK and emoji, 0 for combining marks, 1 for an invalid byte.
int width_of(std::string_view utf8);

// At most `columns` wide; what was cut is shown by an ellipsis. columns <= 0 gives "".
std::string fit(std::string_view utf8, int columns);

// Control characters (ESC, CR, BEL, ...) and broken UTF-8 replaced, so that the name of a run can
// never drive the terminal. With `keeps_lines`, newline and tab stay.
std::string printable(std::string_view text, bool keeps_lines = false);

// The same on one line: line ends and tabs become spaces.
std::string one_line(std::string_view text);

}  // namespace anychip::cli
