// Proves the pure parts of net: headers, queries, percent-encoding, URLs, problem+json both ways.
#include "net/http.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "net/problem.h"
#include "net/url.h"

namespace anychip::net {
namespace {

TEST(Http, HeaderNamesCompareWithoutCase) {
  const Headers headers = {{"Content-Type", "a"}, {"x-B", "b"}};
  EXPECT_EQ(header(headers, "content-type"), "a");
  EXPECT_EQ(header(headers, "X-b"), "b");
  EXPECT_EQ(header(headers, "X"), "");
}

TEST(Http, PathAndQueryAreTakenApart) {
  Request request;
  request.target = "/v1/runs?name=a%20b%2f+c&empty=&flag&bad=%zz&name=second";
  EXPECT_EQ(request.path(), "/v1/runs");
  EXPECT_EQ(request.query("name"), "a b/ c");
  EXPECT_EQ(request.query("empty"), "");
  EXPECT_EQ(request.query("flag"), "");
  EXPECT_EQ(request.query("bad"), "%zz");
  EXPECT_EQ(request.query("nam"), std::nullopt);
  request.target = "/v1/runs";
  EXPECT_EQ(request.query("name"), std::nullopt);
}

TEST(Http, EncodingIsUndoneByTheQuery) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  Request request;
  request.target = "/x?q=" + url_encode(every);
  EXPECT_EQ(request.query("q"), every);
  EXPECT_EQ(url_encode("a/b ~文"), "a%2Fb%20~%E6%96%87");
}

TEST(Url, PartsAndRefusals) {
  const auto plain = parse_url("http://127.0.0.1:8080");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, 8080);
  EXPECT_EQ(plain->prefix, "");
  const auto six = parse_url("http://[::1]:99/base/");
  ASSERT_TRUE(six.has_value());
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->prefix, "/base");
  EXPECT_EQ(six->host_header(), "[::1]:99");
  EXPECT_EQ(parse_url("http://host")->port, 80);
  for (const char* bad : {"", "host:1", "http://", "http://:80", "http://h:0", "http://h:70000",
                          "http://h:8x", "ftp://h", "http://a b"}) {
    const auto refused = parse_url(bad);
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_EQ(refused.error().reason, "url_malformed") << bad;
  }
  EXPECT_EQ(parse_url("https://host").error().reason, "tls_missing");
}

TEST(Problem, AnErrorComesBackAsItWas) {
  for (int number = 1; number <= static_cast<int>(Code::kPaymentRequired); ++number) {
    const Error sent{static_cast<Code>(number),
                     "some_reason",
                     "what is wrong",
                     "the way out",
                     {{"/chip", "is unknown"}}};
    const Response response = problem_response(sent, {}, "req_1");
    EXPECT_EQ(response.status, http_status_of(sent.code));
    const Error back = error_of(response);
    EXPECT_EQ(back.code, sent.code);
    EXPECT_EQ(back.reason, sent.reason);
    EXPECT_EQ(back.message, sent.message);
    EXPECT_EQ(back.hint, sent.hint);
    ASSERT_EQ(back.fields.size(), 1u);
    EXPECT_EQ(back.fields[0].pointer, "/chip");
    EXPECT_EQ(back.fields[0].message, "is unknown");
  }
}

TEST(Problem, HasTheMembersOfTheContract) {
  const Response response = problem_response(
      {Code::kInvalidArgument, "idempotency_key_reused", "m", "h", {}}, 422, "req_9");
  const auto body = json::parse(response.body);
  ASSERT_TRUE(body.has_value());
  const json::object& object = body->as_object();
  for (const char* member :
       {"type", "title", "status", "detail", "code", "hint", "errors", "request_id"}) {
    EXPECT_TRUE(object.contains(member)) << member;
  }
  EXPECT_EQ(json::string_at(object, "type"), "https://anychip.dev/errors/idempotency_key_reused");
  EXPECT_EQ(json::int_at(object, "status"), 422);
  EXPECT_EQ(json::string_at(object, "request_id"), "req_9");
  EXPECT_EQ(header(response.headers, "content-type"), "application/problem+json");
}

TEST(Problem, AForeignAnswerIsStillAnError) {
  const Error html = error_of({502, {{"Content-Type", "text/html"}}, "<html>"});
  EXPECT_EQ(html.reason, "http_502");
  const Error cut = error_of({404, {{"Content-Type", "application/json"}}, "{\"code\":"});
  EXPECT_EQ(cut.code, Code::kNotFound);
  EXPECT_EQ(cut.reason, "http_404");
  const Error odd = error_of({409, {{"Content-Type", "application/json"}}, "[1,{\"errors\":[2]}]"});
  EXPECT_EQ(odd.reason, "http_409");
}

}  // namespace
}  // namespace anychip::net
