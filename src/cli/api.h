// The server's API as JSON values: one request, one answer or one Error (the problem document the
// server sent, or why it could not be reached). Creating requests carry an idempotency key, so they
// are safely sent again when the answer was lost.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/time.h"
#include "net/http.h"

namespace anychip::cli {

class Api {
 public:
  // `data` is named in hints only.
  static Result<std::unique_ptr<Api>> connect(const std::string& url, const std::string& token,
                                              const std::string& language, const std::string& data);

  Result<json::object> get(const std::string& target, Duration timeout = seconds(30));
  // Every page of a list as one {"items":[...],"next_cursor":null}.
  Result<json::object> list(const std::string& target);
  Result<json::object> post(const std::string& target, const json::object& body);
  Result<json::object> remove(const std::string& target);
  Result<json::object> upload(const std::string& target, std::string bytes,
                              const std::string& digest);

  const std::string& url() const { return url_; }

 private:
  Result<json::object> send(net::Request request, Duration timeout);
  std::string url_, token_, language_, data_;
  std::unique_ptr<net::Client> client_;
};

}  // namespace anychip::cli
