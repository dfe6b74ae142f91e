// Which pages of which names may use the HTTP API, with keys and without.
#include "coordinator/http/web_origins.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "coordinator/http/http_api.h"
#include "tests/fuzz/fake_http_backend.h"

namespace strata {
namespace {

class KeyedBackend : public fuzz::FakeHttpBackend {
 public:
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view authorization) override {
    if (!keyed || authorization == "Bearer k") {
      return nullptr;
    }
    return Error(absl::StatusCode::kUnauthenticated, "KEY_MISSING", "a key is wanted");
  }
  bool keyed = false;
};

class WholeAnswer : public HttpResponder {
 public:
  explicit WholeAnswer(HttpResponse* kept) : kept_(kept) {}
  void Answer(HttpResponse response) override { *kept_ = std::move(response); }
  void Begin(HttpResponse head) override { *kept_ = std::move(head); }
  absl::Status Write(std::string_view) override { return absl::OkStatus(); }
  bool Behind() override { return false; }
  void End(std::string_view) override {}
  void OnGone(std::function<void()>) override {}
  void OnIdle(std::function<void()>) override {}
  void OnDrained(std::function<void()>) override {}

 private:
  HttpResponse* const kept_;
};

class WebOriginsTest : public ::testing::Test {
 protected:
  HttpResponse Ask(const WebOriginOptions& web, const std::string& method, const std::string& path,
                   HttpHeaders headers) {
    HttpApi api(&backend_, {.web = web, .run = [](const std::function<void()>& call) {
                              call();
                              return absl::OkStatus();
                            }});
    const HttpRequest request{method, path, "", "", std::move(headers)};
    if (const auto refusal = api.CheckHead(request)) {
      return *refusal;
    }
    HttpResponse response;
    api.Serve(request, std::make_shared<WholeAnswer>(&response));
    return response;
  }
  int Status(const WebOriginOptions& web, HttpHeaders headers,
             const std::string& path = "/v1/models") {
    return Ask(web, "GET", path, std::move(headers)).status;
  }
  static std::string Header(const HttpResponse& response, const std::string& name) {
    std::string value;
    for (const auto& [key, text] : response.headers) {
      if (key == name) value += text;
    }
    return value;
  }

  KeyedBackend backend_;
  const WebOriginOptions loopback_{.loopback = true};
};

TEST_F(WebOriginsTest, OnLoopbackWithoutKeysNoOtherNameIsAnswered) {
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:80",
                           "a.localhost:1", "localhost.", "0.0.0.0:8080", ""}) {
    EXPECT_EQ(Status(loopback_, {{"Host", host}}), 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example",
                           "127.0.0.1.evil.example", "10.0.0.1", "[::2]"}) {
    for (const char* path : {"/v1/models", "/health", "/livez", "/metrics", "/none", "/info"}) {
      EXPECT_EQ(Status(loopback_, {{"Host", host}}, path), 403) << host << path;
    }
  }
  EXPECT_EQ(Status(loopback_, {}), 200) << "HTTP/1.0";
}

TEST_F(WebOriginsTest, WithoutKeysPagesOfOtherOriginsAreRefused) {
  for (const char* origin : {"http://localhost:3000", "https://127.0.0.1", "http://LOCALHOST"}) {
    const HttpResponse answer =
        Ask(loopback_, "GET", "/v1/models", {{"Host", "localhost:8080"}, {"Origin", origin}});
    EXPECT_EQ(answer.status, 200) << origin;
    EXPECT_EQ(Header(answer, "Access-Control-Allow-Origin"), origin);
    EXPECT_EQ(Header(answer, "Vary"), "Origin");
  }
  for (const char* origin : {"http://evil.example", "https://localhost.evil.example", "null",
                             "file://", "chrome-extension://abc", "http://10.0.0.1", ""}) {
    for (const char* path : {"/v1/models", "/health", "/metrics", "/none"}) {
      const HttpResponse answer =
          Ask(loopback_, "GET", path, {{"Host", "localhost:8080"}, {"Origin", origin}});
      EXPECT_EQ(answer.status, 403) << origin << path;
      EXPECT_EQ(Header(answer, "Access-Control-Allow-Origin"), "") << origin;
    }
  }
}

TEST_F(WebOriginsTest, OffLoopbackAPageMayUseWhatItCameFrom) {
  const WebOriginOptions open;
  EXPECT_EQ(Status(open, {{"Host", "llm.lan:8080"}}), 200);
  EXPECT_EQ(Status(open, {{"Host", "llm.lan:8080"}, {"Origin", "http://llm.lan:8080"}}), 200);
  EXPECT_EQ(Status(open, {{"Host", "llm.lan"}, {"Origin", "https://LLM.lan:443"}}), 200);
  EXPECT_EQ(Status(open, {{"Host", "llm.lan:8080"}, {"Origin", "http://llm.lan:3000"}}), 403);
  EXPECT_EQ(Status(open, {{"Host", "llm.lan:8080"}, {"Origin", "http://localhost:3000"}}), 403);
  const WebOriginOptions named{.hosts = {"llm.lan"}};
  EXPECT_EQ(Status(named, {{"Host", "llm.lan:8080"}}), 200);
  EXPECT_EQ(Status(named, {{"Host", "10.0.0.5:8080"}}), 200);
  EXPECT_EQ(Status(named, {{"Host", "evil.example:8080"}}), 403);
}

TEST_F(WebOriginsTest, WhatIsFetchedForAForeignPageIsRefusedAndLinksAreNot) {
  EXPECT_EQ(Status(loopback_, {{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "no-cors"}}),
            403);
  EXPECT_EQ(Status(loopback_, {{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "navigate"}}),
            200);
  EXPECT_EQ(Status(loopback_, {{"Sec-Fetch-Site", "same-origin"}}), 200);
  const WebOriginOptions all{.loopback = true, .origins = {"*"}};
  EXPECT_EQ(Status(all, {{"Sec-Fetch-Site", "cross-site"}}), 200);
}

TEST_F(WebOriginsTest, WhatAFlagAllowsIsServed) {
  const WebOriginOptions some{
      .loopback = true, .origins = {"https://app.example", "null"}, .hosts = {"llm.example"}};
  EXPECT_EQ(Status(some, {{"Host", "llm.example"}, {"Origin", "https://App.example"}}), 200);
  EXPECT_EQ(Status(some, {{"Origin", "null"}}), 200);
  EXPECT_EQ(Status(some, {{"Origin", "http://app.example"}}), 403);
  EXPECT_EQ(Status(some, {{"Host", "other.example"}}), 403);
  const WebOriginOptions all{.loopback = true, .origins = {"*"}, .hosts = {"*"}};
  EXPECT_EQ(Status(all, {{"Host", "any.example"}, {"Origin", "http://any.example"}}), 200);
}

TEST_F(WebOriginsTest, ABrowserIsToldWhatItsPageMaySend) {
  const HttpHeaders own{{"Origin", "http://localhost:3000"},
                        {"Access-Control-Request-Method", "POST"},
                        {"Access-Control-Request-Headers", "authorization,content-type"},
                        {"Access-Control-Request-Private-Network", "true"}};
  for (const bool keyed : {false, true}) {
    backend_.keyed = keyed;
    const HttpResponse answer = Ask(loopback_, "OPTIONS", "/v1/completions", own);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(Header(answer, "Access-Control-Allow-Origin"), "http://localhost:3000");
    EXPECT_EQ(Header(answer, "Access-Control-Allow-Methods"), "POST");
    EXPECT_EQ(Header(answer, "Access-Control-Allow-Headers"), "authorization,content-type");
    EXPECT_EQ(Header(answer, "Access-Control-Allow-Private-Network"), "true");
    EXPECT_EQ(Header(Ask(loopback_, "OPTIONS", "/v1/models", own), "Access-Control-Allow-Methods"),
              "GET, HEAD");
    const HttpResponse foreign =
        Ask(loopback_, "OPTIONS", "/v1/completions",
            {{"Origin", "http://evil.example"}, {"Access-Control-Request-Method", "POST"}});
    EXPECT_EQ(foreign.status, 403);
    EXPECT_EQ(Header(foreign, "Access-Control-Allow-Origin"), "");
    EXPECT_EQ(Header(foreign, "Access-Control-Allow-Methods"), "");
  }
}

TEST_F(WebOriginsTest, WithKeysTheKeyDecidesAndPagesReadWhatTheFlagAllows) {
  backend_.keyed = true;
  const HttpHeaders with_key{
      {"Host", "llm.example"}, {"Origin", "https://app.example"}, {"Authorization", "Bearer k"}};
  const HttpResponse unread = Ask(loopback_, "GET", "/v1/models", with_key);
  EXPECT_EQ(unread.status, 200);
  EXPECT_EQ(Header(unread, "Access-Control-Allow-Origin"), "");
  const WebOriginOptions some{.loopback = true, .origins = {"https://app.example"}};
  EXPECT_EQ(Header(Ask(some, "GET", "/v1/models", with_key), "Access-Control-Allow-Origin"),
            "https://app.example");
  const HttpResponse refused = Ask(some, "GET", "/v1/models", {{"Origin", "https://app.example"}});
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(Header(refused, "Access-Control-Allow-Origin"), "https://app.example");
}

TEST_F(WebOriginsTest, HeadIsServedWhereGetIs) {
  for (const char* path : {"/v1/models", "/metrics", "/health", "/livez", "/info"}) {
    EXPECT_EQ(Ask(loopback_, "HEAD", path, {}).status, Ask(loopback_, "GET", path, {}).status)
        << path;
  }
  const HttpResponse refused = Ask(loopback_, "HEAD", "/v1/completions", {});
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(Header(refused, "Allow"), "POST");
  EXPECT_EQ(Header(Ask(loopback_, "PUT", "/v1/models", {}), "Allow"), "GET, HEAD");
}

TEST(WebOriginLists, AreReadOrRefusedByTheirFlag) {
  EXPECT_EQ(*ParseWebOrigins(" https://App.example, null ,*,"),
            (std::vector<std::string>{"https://app.example", "null", "*"}));
  EXPECT_TRUE(ParseWebOrigins("")->empty());
  for (const char* bad : {"app.example", "https://", "https://a/b", "://a"}) {
    EXPECT_FALSE(ParseWebOrigins(bad).ok()) << bad;
  }
  EXPECT_EQ(*ParseWebHosts("LLM.example,[::2],*"),
            (std::vector<std::string>{"llm.example", "::2", "*"}));
  for (const char* bad : {"a:80", "http://a", "a b", "[::1"}) {
    EXPECT_FALSE(ParseWebHosts(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace strata
