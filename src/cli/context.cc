#include "cli/context.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "cli/text.h"
#include "sys/files.h"
#include "sys/paths.h"

namespace anychip::cli {
namespace {

constexpr Duration kLineEvery = seconds(10);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

int columns_of(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace

Terminal Terminal::of_process() {
  Terminal terminal;
  const auto writer = [](std::FILE* file) {
    return [file](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), file);
      std::fflush(file);
    };
  };
  terminal.out = writer(stdout);
  terminal.err = writer(stderr);
  terminal.out_is_tty = isatty(STDOUT_FILENO) == 1;
  terminal.err_is_tty = isatty(STDERR_FILENO) == 1 && variable("TERM") != "dumb";
  terminal.columns = columns_of(terminal.out_is_tty ? STDOUT_FILENO : STDERR_FILENO);
  terminal.has_colour =
      terminal.out_is_tty && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  return terminal;
}

Result<ClientFile> load_client_file(const std::string& data) {
  TRY(const std::string text, sys::read_file(sys::join(data, "client.json")));
  TRY(const json::value root, json::parse(text));
  if (!root.is_object()) {
    return fail(Code::kDataLoss, "client_file_malformed",
                sys::join(data, "client.json") + " is not an object",
                "remove it; `anychip up` writes a new one");
  }
  const json::object& fields = root.get_object();
  return ClientFile{json::string_at(fields, "url"), json::string_at(fields, "token"),
                    json::string_at(fields, "account"), json::object_at(fields, "accounts")};
}

Status save_client_file(const std::string& data, const ClientFile& file) {
  const json::object fields{{"url", file.url},
                            {"token", file.token},
                            {"account", file.account},
                            {"accounts", file.accounts}};
  return sys::write_file_durable(sys::join(data, "client.json"), json::serialize(fields) + "\n",
                                 0600);
}

Result<Api*> Context::api() {
  if (api_ != nullptr) return api_.get();
  std::string url = variable("ANYCHIP_URL"), token = variable("ANYCHIP_TOKEN");
  if (url.empty() || token.empty()) {
    const Result<ClientFile> file = load_client_file(data);
    if (!file && file.error().code != Code::kNotFound) return tl::unexpected(file.error());
    if (!file && url.empty()) {
      return fail(Code::kUnavailable, "server_unknown",
                  fmt::format("no server is set up in {}", data),
                  "start one with `anychip up`, or point ANYCHIP_DATA at its data folder");
    }
    if (file && url.empty()) url = file->url;
    if (file && token.empty()) token = file->token;
  }
  TRY(api_, Api::connect(url, token, language, data));
  return api_.get();
}

void Context::print(const json::value& value) const { terminal.out(json::serialize(value) + "\n"); }

void Context::print(const Table& table) const { terminal.out(table.render(fit())); }

void Context::say(std::string_view line) const { terminal.err(std::string(line) + "\n"); }

void Context::pause(Duration how_long) const {
  std::this_thread::sleep_for(std::chrono::microseconds(how_long.us));
}

void Progress::show(std::string_view text, std::string_view key) {
  const std::string line = one_line(text);
  if (line == shown_) return;
  if (!context_.terminal.err_is_tty) {
    const MonoTime now = context_.clock->mono_now();
    const bool is_same = !shown_.empty() && key == key_;
    if (is_same && now - said_ < kLineEvery) return;
    shown_ = line;
    key_ = key;
    said_ = now;
    context_.say(line);
    return;
  }
  shown_ = line;
  const int columns = context_.terminal.columns > 0 ? context_.terminal.columns : 80;
  context_.terminal.err("\r\x1b[2K" + fit(line, columns - 1));
}

void Progress::end() {
  if (!shown_.empty() && context_.terminal.err_is_tty) context_.terminal.err("\n");
  shown_.clear();
}

std::string error_text(const Error& error) {
  std::string out = printable(error.message, true);
  for (const FieldError& field : error.fields) {
    if (error.message.find(field.message) != std::string::npos) continue;
    out += "\n  " + (field.pointer.empty() ? std::string() : one_line(field.pointer) + ": ") +
           one_line(field.message);
  }
  if (!error.hint.empty()) out += "\n  " + printable(error.hint, true);
  return out;
}

}  // namespace anychip::cli
