#include "cli/report_html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/hash.h"
#include "cli/format.h"
#include "cli/report_table.h"
#include "cli/text.h"

namespace anychip::cli {
namespace html {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : printable(text, true)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string colour_class(const Comparison& comparison, const LegView& leg) {
  std::vector<std::string> chips;
  for (const LegView& other : comparison.legs) {
    if (std::find(chips.begin(), chips.end(), other.chip) == chips.end())
      chips.push_back(other.chip);
  }
  const auto place = std::find(chips.begin(), chips.end(), leg.chip) - chips.begin();
  return fmt::format("k{}", place % 8);
}

std::string chip_label(const Comparison& comparison, const LegView& leg, bool has_badge) {
  std::string out = fmt::format("<span class=\"chip {}\">{}</span>", colour_class(comparison, leg),
                                escape(leg.chip_and_count()));
  if (has_badge && leg.is_simulated) out += " <span class=\"badge\">simulated</span>";
  return out;
}

}  // namespace html

namespace {

using html::escape;

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      const bool is_padding = at + i > bytes.size();
      out += is_padding ? '=' : kAlphabet[group >> (18 - 6 * i) & 63];
    }
  }
  return out;
}

std::string base64_of_sha256(std::string_view text) {
  const std::string hex = sha256_hex(text);
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    bytes += static_cast<char>(digit(hex[at]) * 16 + digit(hex[at + 1]));
  }
  return base64(bytes);
}

std::string head_of(const Comparison& comparison, std::string_view script) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'sha256-{}'; img-src data:; base-uri 'none'; "
      "form-action 'none'\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}: chips compared · "
      "AnyChip</title>\n<style>\n{}</style>\n"
      "</head>\n<body>\n<main>\n",
      base64_of_sha256(script), escape(comparison.name), kReportCss);
}

std::string route_of(const Comparison& comparison) {
  std::string out = "<p class=\"route\">";
  const LegView* before = nullptr;
  for (const LegView& leg : comparison.legs) {
    if (before != nullptr && before->chip_and_count() == leg.chip_and_count()) continue;
    if (before != nullptr) out += "<span class=\"arrow\">→</span>";
    out += html::chip_label(comparison, leg, true);
    before = &leg;
  }
  return out + "</p>\n";
}

std::string verdict_html(const Comparison& comparison) {
  static constexpr std::pair<std::string_view, std::string_view> kClassAndMark[] = {
      {"pass", "✓ "}, {"close", "≈ "}, {"fail", "✗ "}, {"not_compared", ""}};
  const auto& [class_name, mark] = kClassAndMark[static_cast<size_t>(verdict_of(comparison))];
  std::string sentence = parity_sentence(comparison);
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') {
    sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
  }
  return fmt::format("<p><span class=\"verdict {}\">{}{}</span></p>\n", class_name, mark,
                     escape(sentence));
}

std::string figure(std::string_view name, std::string_view value, std::string_view small) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", escape(name),
                     escape(value), escape(small));
}

std::string figures_of(const Comparison& comparison) {
  std::vector<std::string> chips;
  for (const LegView& leg : comparison.legs) {
    if (std::find(chips.begin(), chips.end(), leg.chip) == chips.end()) chips.push_back(leg.chip);
  }
  const ParityView& parity = comparison.parity;
  std::string out = "<dl class=\"figures\">\n";
  out += figure("Steps", format_count(comparison.steps),
                fmt::format("{} legs on {} chips", comparison.legs.size(), chips.size()));
  if (!comparison.curve.empty()) {
    out += figure("Loss", fmt::format("{:.3f}", comparison.curve.back().loss),
                  fmt::format("from {:.3f}", comparison.curve.front().loss));
  }
  const std::optional<int64_t> beyond = first_step_beyond_tolerance(comparison);
  const std::string tolerance = format_small(kTolerance);
  const std::string small =
      !parity.max_difference ? "no reference"
      : beyond ? fmt::format("beyond {} from step {}", tolerance, format_count(*beyond))
               : "allowed: " + tolerance;
  out += figure("Largest difference",
                parity.max_difference ? format_small(*parity.max_difference) : "-", small);
  out += figure("Down between chips", format_span(comparison.down_time_ms * 1000),
                fmt::format("{} switches", comparison.switches.size()));
  out += figure("Cost", yuan_exact(comparison.cost_micros),
                fmt::format("{} metered", format_span(comparison.metered_us)));
  return out + "</dl>\n";
}

std::string simulated_note(const Comparison& comparison) {
  if (!comparison.has_simulated()) return {};
  std::string chips;
  for (const LegView& leg : comparison.legs) {
    if (!leg.is_simulated || chips.find(leg.chip) != std::string::npos) continue;
    chips += (chips.empty() ? "" : ", ") + leg.chip;
  }
  return fmt::format(
      "<p class=\"note\"><strong>Simulated: {}.</strong> Functional simulation; the price is the "
      "list price of "
      "the chip simulated. The computation is real and runs on this machine's own cores, so speed "
      "and memory say "
      "nothing about that chip.</p>\n",
      escape(chips));
}

std::string metrics_table(const Comparison& comparison) {
  std::string out =
      "<h2 id=\"chips\">The chips side by side</h2>\n<p class=\"lead\">Speeds are medians over "
      "each leg's steps "
      "without its first three. Measured here; nothing on this page is predicted.</p>\n"
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-labelledby=\"chips\"><table>\n<thead><tr>"
      "<th scope=\"col\"><span class=\"hidden-text\">Figure</span></th>";
  for (const LegView& leg : comparison.legs) {
    out += fmt::format("<th scope=\"col\">{}</th>", html::chip_label(comparison, leg, true));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const MetricRow& row : metric_rows(comparison)) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", escape(row.label));
    for (size_t i = 0; i < row.values.size(); ++i) {
      out += "<td>" + escape(row.values[i]);
      if (!row.bars.empty()) {
        out += fmt::format("<span class=\"bar {}\" style=\"width:{:.0f}%\"></span>",
                           html::colour_class(comparison, comparison.legs[i]), row.bars[i] * 100);
      }
      out += "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string footer_of(const Comparison& comparison) {
  std::string out = "<footer>\n<h2>How to read this</h2>\n<dl>\n";
  const auto entry = [&](std::string_view term, std::string_view text) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(term), escape(text));
  };
  entry("Difference",
        "The loss of this run less the loss of the uninterrupted run, at equal steps. Grades: "
        "bitwise "
        "(all equal), tolerance (within the band), statistical (neither).");
  entry("Down time", "From the last step on the old chip to the first step on the new one.");
  entry("Cost",
        "Metered time times price per hour, rounded down to the micro-yuan. A leg is metered from "
        "the start "
        "of its command to the request to stop it; starts that fail cost nothing.");
  entry("Per million tokens",
        "The price of a million tokens at the leg's measured speed, without start and switch.");
  if (comparison.has_simulated()) {
    entry("* and \"simulated\"",
          "Functional simulation; price is the list price of the chip simulated.");
  }
  return out +
         fmt::format(
             "</dl>\n<p>Run {} · AnyChip. This file is complete in itself and asks nothing of any "
             "network.</p>\n</footer>\n",
             escape(comparison.run));
}

}  // namespace

std::string comparison_html(const Comparison& comparison) {
  const std::string script = std::string("\n") + kReportScript;
  std::string out = head_of(comparison, script);
  out += "<header>\n<p class=\"eyebrow\">AnyChip · one training on several chips</p>\n";
  out += fmt::format("<h1>{}</h1>\n",
                     escape(comparison.name.empty() ? comparison.run : comparison.name));
  out += route_of(comparison) + verdict_html(comparison) + "</header>\n";
  out += figures_of(comparison) + simulated_note(comparison);
  out += "<section aria-label=\"Curves\">\n" + html::charts(comparison) + "\n</section>\n";
  if (!comparison.legs.empty()) out += metrics_table(comparison);
  out += html::poems(comparison) + html::bill(comparison) + html::switches(comparison);
  out += footer_of(comparison) + "</main>\n";
  out += "<script type=\"application/json\" id=\"points\">" + html::points_json(comparison) +
         "</script>\n";
  out += "<script>" + script + "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace anychip::cli
