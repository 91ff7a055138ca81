// What every command gets: where to read and write, which server, how to show. One per process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/time.h"
#include "cli/api.h"
#include "cli/table.h"

namespace anychip::cli {

enum class Output { kTable, kJson, kHtml };

// Data goes to `out`, talk to `err`. Tests collect both.
struct Terminal {
  std::function<void(std::string_view)> out, err;
  bool out_is_tty = false, err_is_tty = false;
  int columns = 0;  // 0 = not a terminal: tables as wide as needed
  bool has_colour = false;
  static Terminal of_process();  // stdout, stderr, their size, NO_COLOR
};

// client.json of the data folder. `accounts` keeps the tokens of earlier accounts by name.
struct ClientFile {
  std::string url, token, account;
  json::object accounts;
};
Result<ClientFile> load_client_file(const std::string& data);              // absent: kNotFound
Status save_client_file(const std::string& data, const ClientFile& file);  // 0600, durable

struct Context {
  Terminal terminal;
  Output output = Output::kTable;
  std::string data;  // absolute; resolved before a command runs
  std::string language = "en";
  const Clock* clock = nullptr;

  // The server named by ANYCHIP_URL and ANYCHIP_TOKEN, else by client.json. Connects lazily.
  Result<Api*> api();
  bool is_json() const { return output == Output::kJson; }

  void print(const json::value& value) const;  // one JSON document on stdout
  void print(const Table& table) const;        // fitted to the terminal
  void say(std::string_view line) const;       // one line of talk on stderr
  void pause(Duration how_long) const;
  Fit fit() const { return {terminal.out_is_tty ? terminal.columns : 0, terminal.has_colour}; }

 private:
  std::unique_ptr<Api> api_;
};

// A line on stderr that shows how far something is: redrawn in place on a terminal; elsewhere a
// line when `key` (a state, a step of eight) changes and at most every ten seconds within one, so
// that a log shows life without drowning. The destructor ends the line.
class Progress {
 public:
  explicit Progress(const Context& context) : context_(context) {}
  ~Progress() { end(); }
  void show(std::string_view text, std::string_view key = {});
  void end();

 private:
  const Context& context_;
  std::string shown_, key_;
  MonoTime said_;
};

// `message` of an error as it is shown to a person, with its hint and all fields.
std::string error_text(const Error& error);

}  // namespace anychip::cli
