// compare: what each chip did and cost, as a table, as JSON, as one HTML file.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/report_html.h"
#include "cli/report_table.h"
#include "cli/version.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::cli {
namespace {

Result<json::value> document_of(Context& context, const CompareOptions& options) {
  if (!options.input.empty()) {
    TRY(const std::string text, sys::read_file(options.input));
    return json::parse(text);
  }
  if (options.run.empty()) {
    return fail(Code::kInvalidArgument, "run_missing", "no run is named",
                "anychip compare RUN; `anychip ps` lists them");
  }
  TRY(Api* const api, context.api());
  std::string target = run_path(options.run, "compare");
  if (!options.against.empty()) target += "?against=" + net::url_encode(options.against);
  TRY(json::object document, api->get(target, seconds(60)));
  return json::value(std::move(document));
}

}  // namespace

Status cmd_compare(Context& context, const CompareOptions& options) {
  TRY(const json::value document, document_of(context, options));
  TRY(const Comparison comparison, read_comparison(document));
  if (!options.html_path.empty()) {
    TRY_VOID(sys::write_file_atomic(options.html_path, comparison_html(comparison)));
  }
  switch (context.output) {
    case Output::kJson: context.print(document); break;
    case Output::kHtml: context.terminal.out(comparison_html(comparison)); break;
    case Output::kTable: context.terminal.out(comparison_table(comparison, context.fit())); break;
  }
  if (!options.html_path.empty()) context.say("report   " + sys::absolute_path(options.html_path));
  if (options.is_checking && comparison.parity.verdict != "pass") {
    return fail(Code::kUnknown, "parity_" + comparison.parity.verdict, parity_sentence(comparison));
  }
  return {};
}

Status cmd_version(Context& context) {
  if (context.is_json()) {
    context.print(json::object{{"version", kVersion}});
  } else {
    context.terminal.out(fmt::format("anychip {}\n", kVersion));
  }
  return {};
}

}  // namespace anychip::cli
