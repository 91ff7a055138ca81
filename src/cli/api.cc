#include "cli/api.h"

#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/rng.h"
#include "net/problem.h"

namespace anychip::cli {
namespace {

constexpr int kPagesMax = 10'000;
constexpr int kTriesMax = 3;

std::string new_key() {
  SecureRandom random;
  std::array<uint8_t, 16> bytes{};
  random.fill(bytes);
  return to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool is_answer_lost(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kDeadlineExceeded;
}

}  // namespace

Result<std::unique_ptr<Api>> Api::connect(const std::string& url, const std::string& token,
                                          const std::string& language, const std::string& data) {
  net::ClientOptions options;
  options.url = url;
  auto api = std::make_unique<Api>();
  TRY(api->client_, net::Client::create(options));
  api->url_ = url;
  api->token_ = token;
  api->language_ = language;
  api->data_ = data;
  return api;
}

Result<json::object> Api::send(net::Request request, Duration timeout) {
  if (!token_.empty()) request.headers.emplace_back("Authorization", "Bearer " + token_);
  request.headers.emplace_back("Accept", "application/json");
  request.headers.emplace_back("Accept-Language", language_);
  Result<net::Response> answer = client_->send(request, timeout);
  if (!answer) {
    Error error = std::move(answer).error();
    if (error.code == Code::kUnavailable) {
      error.hint = fmt::format("is it running? `anychip up` starts it (data folder {})", data_);
    }
    return tl::unexpected(std::move(error));
  }
  if (answer->status >= 400) {
    Error error = net::error_of(*answer);
    if (error.code == Code::kUnauthenticated) {
      error.hint = fmt::format("the token in {}/client.json or ANYCHIP_TOKEN is not accepted by {}",
                               data_, url_);
    }
    return tl::unexpected(std::move(error));
  }
  if (answer->body.empty()) return json::object{};
  TRY(json::value value, json::parse(answer->body));
  if (!value.is_object()) {
    return fail(
        Code::kDataLoss, "answer_malformed",
        fmt::format("{} answered {} with something that is not an object", url_, request.target));
  }
  return std::move(value.get_object());
}

Result<json::object> Api::get(const std::string& target, Duration timeout) {
  return send({"GET", target, {}, {}, {}}, timeout);
}

Result<json::object> Api::list(const std::string& target) {
  json::object all{{"items", json::array{}}, {"next_cursor", nullptr}};
  std::string page = target;
  for (int pages = 0; pages < kPagesMax; ++pages) {
    TRY(json::object next, get(page));
    for (const json::value& item : json::array_at(next, "items"))
      all["items"].get_array().push_back(item);
    const std::string cursor = json::string_at(next, "next_cursor");
    if (cursor.empty()) break;
    const char joint = target.find('?') == std::string::npos ? '?' : '&';
    page = fmt::format("{}{}cursor={}", target, joint, net::url_encode(cursor));
  }
  return all;
}

Result<json::object> Api::post(const std::string& target, const json::object& body) {
  const net::Headers headers{{"Content-Type", "application/json"}, {"Idempotency-Key", new_key()}};
  const std::string text = json::serialize(body);
  for (int tries = 1;; ++tries) {
    Result<json::object> answer = send({"POST", target, headers, text, {}}, seconds(30));
    if (answer || tries == kTriesMax || !is_answer_lost(answer.error())) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(200 * tries));
  }
}

Result<json::object> Api::remove(const std::string& target) {
  return send({"DELETE", target, {}, {}, {}}, seconds(30));
}

Result<json::object> Api::upload(const std::string& target, std::string bytes,
                                 const std::string& digest) {
  const net::Headers headers{{"Content-Type", "application/zstd"}, {"X-Content-Sha256", digest}};
  return send({"POST", target, headers, std::move(bytes), {}}, minutes(10));
}

}  // namespace anychip::cli
