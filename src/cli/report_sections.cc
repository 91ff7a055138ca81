// Sections of the HTML report: samples, bill, switches.
#include <fmt/format.h>

#include "cli/format.h"
#include "cli/report_html.h"

namespace anychip::cli::html {
namespace {

std::string verse(const LegSample& sample) {
  // A model's text usually begins with its prompt: shown once, marked.
  std::string_view rest = sample.text;
  if (rest.starts_with(sample.prompt)) rest.remove_prefix(sample.prompt.size());
  return fmt::format("<blockquote lang=\"zh\"><mark>{}</mark>{}</blockquote>",
                     escape(sample.prompt), escape(rest));
}

std::string poem_card(const Comparison& comparison, const LegView& leg,
                      const std::vector<const LegSample*>& samples) {
  std::string out = fmt::format(
      "<article class=\"poem {}\"><header><h3>{}</h3><span class=\"faint\">step "
      "{}</span></header>{}",
      colour_class(comparison, leg), chip_label(comparison, leg, true),
      format_count(samples.back()->step), verse(*samples.back()));
  if (samples.size() > 1) {
    out += fmt::format("<details><summary>{} earlier on this chip</summary>", samples.size() - 1);
    for (size_t i = samples.size() - 1; i-- > 0;) {
      out += fmt::format("<p>step {}</p>{}", format_count(samples[i]->step), verse(*samples[i]));
    }
    out += "</details>";
  }
  return out + "</article>\n";
}

std::string bill_row(const Comparison& comparison, const LegView& leg) {
  const std::string note = leg.is_voided ? " <span class=\"badge\">voided</span>" : "";
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}{}</td><td class=\"exact\">{}</td><td "
      "class=\"exact\">{}{}</td>"
      "<td class=\"exact\">{}</td></tr>\n",
      leg.index + 1, chip_label(comparison, leg, true), note, format_exact_time(leg.metered_us),
      yuan(leg.price_micros_per_hour), leg.is_simulated ? " *" : "", yuan_exact(leg.cost_micros));
}

std::string switch_card(const Comparison& comparison, size_t index) {
  const SwitchView& move = comparison.switches[index];
  std::string colour = "k7";
  for (const LegView& leg : comparison.legs) {
    if (leg.chip_and_count() == move.to) colour = colour_class(comparison, leg);
  }
  std::string out = fmt::format(
      "<article class=\"move {}\"><header><h3>{} → {}</h3><span class=\"badge\">{}</span>", colour,
      escape(move.from), escape(move.to), escape(move.state));
  if (move.stopped_at_step > 0) {
    out += fmt::format("<span class=\"faint\">after step {}{}</span>",
                       format_count(move.stopped_at_step),
                       move.lost_steps > 0 ? fmt::format(", {} steps repeated", move.lost_steps)
                                           : ", no step repeated");
  }
  if (move.down_time_ms) {
    out += fmt::format("<span class=\"faint\">down time {}</span>",
                       format_span(*move.down_time_ms * 1000));
  }
  out += "</header>";
  if (!move.reason.empty()) out += fmt::format("<p class=\"faint\">{}</p>", escape(move.reason));
  const std::vector<DownTimePart> parts = down_time_parts(comparison, index);
  if (!parts.empty()) {
    out += "<div class=\"parts\" aria-hidden=\"true\">";
    for (const DownTimePart& part : parts) {
      out += fmt::format("<span style=\"flex:{} 0 0\" title=\"{}: {}\"></span>", part.us,
                         escape(part.name), format_span(part.us));
    }
    out += "</div><p class=\"faint\">Where the down time went:</p><ul class=\"steps\">";
    for (const DownTimePart& part : parts) {
      out += fmt::format("<li>{} <b>{}</b></li>", escape(part.name), format_span(part.us));
    }
    out += "</ul>";
  }
  out += fmt::format(
      "<details class=\"more\"><summary>All {} steps with their times</summary><ol "
      "class=\"steps\">",
      move.timeline.size());
  for (const TimelineEntry& entry : move.timeline) {
    out += fmt::format("<li>{}. {} <b>{}</b></li>", entry.step, escape(entry.name),
                       escape(format_time(entry.at)));
  }
  return out + "</ol></details></article>\n";
}

}  // namespace

std::string poems(const Comparison& comparison) {
  std::string cards;
  for (const LegView& leg : comparison.legs) {
    std::vector<const LegSample*> samples;
    for (const LegSample& sample : comparison.samples) {
      if (sample.leg_index == leg.index) samples.push_back(&sample);
    }
    if (!samples.empty()) cards += poem_card(comparison, leg, samples);
  }
  if (cards.empty()) return {};
  return "<section>\n<h2>The same prompt, written on each chip</h2>\n<p class=\"lead\">Sampled by "
         "each leg on its own "
         "chip, from the weights of that moment.</p>\n<div class=\"poems\">\n" +
         cards + "</div>\n</section>\n";
}

std::string bill(const Comparison& comparison) {
  if (comparison.legs.empty()) return {};
  std::string out =
      "<section>\n<h2 id=\"bill\">The bill</h2>\n<p class=\"lead\">Metered time × price per hour, "
      "to the "
      "micro-yuan.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-labelledby=\"bill\"><table>\n"
      "<thead><tr><th scope=\"col\">Leg</th><th scope=\"col\">Chip</th><th scope=\"col\">Metered "
      "(h:m:s)</th>"
      "<th scope=\"col\">Price per hour</th><th scope=\"col\">Cost</th></tr></thead>\n<tbody>\n";
  for (const LegView& leg : comparison.legs) out += bill_row(comparison, leg);
  out += fmt::format(
      "</tbody>\n<tfoot><tr><th scope=\"row\">Total</th><td></td><td "
      "class=\"exact\">{}</td><td></td>"
      "<td class=\"exact\">{}</td></tr></tfoot></table></div>\n",
      format_exact_time(comparison.metered_us), yuan_exact(comparison.cost_micros));
  if (comparison.has_simulated())
    out += "<p class=\"faint\">* list price of the chip simulated</p>\n";
  return out + "</section>\n";
}

std::string switches(const Comparison& comparison) {
  if (comparison.switches.empty()) return {};
  std::string out =
      "<section>\n<h2>The switches</h2>\n<p class=\"lead\">Each moves the run to another chip in "
      "eight steps; the old "
      "leg trains on until the checkpoint.</p>\n";
  for (size_t i = 0; i < comparison.switches.size(); ++i) out += switch_card(comparison, i);
  return out + "</section>\n";
}

}  // namespace anychip::cli::html
