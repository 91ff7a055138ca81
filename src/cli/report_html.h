// The comparison as one self-contained HTML file: no request, no outside script, nothing that the
// data could make run (all text escaped, a content security policy that allows only our script).
// The same document gives the same bytes.
#pragma once

#include <string>

#include "cli/comparison.h"

namespace anychip::cli {

std::string comparison_html(const Comparison& comparison);

namespace html {
std::string escape(std::string_view text);  // for text and for quoted attributes
// Colour class of a leg: one per chip, in the order the chips first appear ("k0", "k1", ...).
std::string colour_class(const Comparison& comparison, const LegView& leg);
std::string chip_label(const Comparison& comparison, const LegView& leg, bool has_badge);
// Both charts with their captions, and the points for the read-out script.
std::string charts(const Comparison& comparison);
std::string points_json(const Comparison& comparison);
std::string poems(const Comparison& comparison);
std::string bill(const Comparison& comparison);
std::string switches(const Comparison& comparison);
}  // namespace html

// Embedded from assets/ by CMake.
extern const char* const kReportCss;
extern const char* const kReportScript;

}  // namespace anychip::cli
