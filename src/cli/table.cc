#include "cli/table.h"

#include <algorithm>
#include <numeric>

#include "cli/text.h"

namespace anychip::cli {
namespace {

constexpr int kGap = 2;
constexpr int kElasticMin = 6;  // an elastic column is never cut below this

std::string_view code_of(Style style) {
  switch (style) {
    case Style::kPlain: return "";
    case Style::kStrong: return "\x1b[1m";
    case Style::kFaint: return "\x1b[2m";
    case Style::kGood: return "\x1b[32m";
    case Style::kWarn: return "\x1b[33m";
    case Style::kBad: return "\x1b[31m";
  }
  return "";
}

}  // namespace

std::string styled(std::string_view text, Style style, bool has_colour) {
  if (!has_colour || style == Style::kPlain || text.empty()) return std::string(text);
  return std::string(code_of(style)) + std::string(text) + "\x1b[0m";
}

void Table::add(std::vector<Cell> row) {
  row.resize(columns_.size());
  for (Cell& cell : row) cell.text = one_line(cell.text);
  rows_.push_back(std::move(row));
}

std::vector<int> Table::widths_for(int columns_max) const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = width_of(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c].text));
    widths.push_back(width);
  }
  if (columns_max <= 0) return widths;
  const int gaps = kGap * (static_cast<int>(columns_.size()) - 1);
  int excess = std::accumulate(widths.begin(), widths.end(), gaps) - columns_max;
  while (excess > 0) {  // takes from the widest elastic column, one column at a time
    int widest = -1;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const bool can_shrink = columns_[c].is_elastic && widths[c] > kElasticMin;
      if (can_shrink && (widest < 0 || widths[c] > widths[static_cast<size_t>(widest)])) {
        widest = static_cast<int>(c);
      }
    }
    if (widest < 0) break;
    --widths[static_cast<size_t>(widest)];
    --excess;
  }
  return widths;
}

std::string Table::render(Fit wanted) const {
  const std::vector<int> widths = widths_for(wanted.columns);
  std::string out;
  const auto line = [&](const auto& text_of, const auto& style_of) {
    std::string row;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string text = fit(text_of(c), widths[c]);
      const auto blank = static_cast<size_t>(std::max(0, widths[c] - width_of(text)));
      const std::string shown = styled(text, style_of(c), wanted.has_colour);
      const bool is_right = columns_[c].align == Align::kRight;
      if (c > 0) row.append(kGap, ' ');
      if (is_right) row.append(blank, ' ');
      row += shown;
      if (!is_right && c + 1 < columns_.size()) row.append(blank, ' ');
    }
    row.erase(row.find_last_not_of(' ') + 1);
    out += row + "\n";
  };
  line([&](size_t c) { return columns_[c].title; }, [](size_t) { return Style::kFaint; });
  for (const auto& row : rows_) {
    line([&](size_t c) { return row[c].text; }, [&](size_t c) { return row[c].style; });
  }
  return out;
}

}  // namespace anychip::cli
