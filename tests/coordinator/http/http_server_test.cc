#include "coordinator/http/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/coordinator/http/http_clients.h"

namespace strata {
namespace {

TEST(HttpRequest, AFieldOfItsQueryIsFoundByItsWholeName) {
  HttpRequest request;
  EXPECT_EQ(request.Query("model"), "");
  request.query = "models=x&model=a.b-1&model=c&empty=";
  EXPECT_EQ(request.Query("model"), "a.b-1");
  EXPECT_EQ(request.Query("empty"), "");
  EXPECT_EQ(request.Query("mod"), "");
  request.query = "model=a%2Eb%2";
  EXPECT_EQ(request.Query("model"), "a.b%2") << "what is no escape stays";
}

TEST(HttpServer, AnswersManyRequestsAtOnce) {
  auto server = HttpServer::Start("127.0.0.1:0", {}, Echo);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string base = "http://" + (*server)->address();
  EXPECT_EQ(Get(base + "/a?b=c").body, "GET /a b=c");
  EXPECT_EQ(Get(base + "/missing").status, 404);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] { good += Get(base + "/x").status == 200; });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 16);
}

TEST(HttpServer, ATakenAddressIsNamed) {
  auto first = HttpServer::Start("127.0.0.1:0", {}, Echo);
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)->address();
  const auto second = HttpServer::Start(address, {}, Echo);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(address), std::string::npos);
}

TEST(HttpServer, AHeaderOverTheLimitAndWhatIsNoHttpAreAnsweredSo) {
  HttpOptions options;
  options.max_header_bytes = 1000;
  auto server = HttpServer::Start("127.0.0.1:0", options, Echo);
  ASSERT_TRUE(server.ok());
  RawClient large((*server)->address());
  large.Send("GET /a HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n");
  EXPECT_EQ(large.ReadUntil("}}").substr(0, 12), "HTTP/1.1 431");
  RawClient other((*server)->address());
  other.Send("what is this\r\n\r\n");
  EXPECT_EQ(other.ReadUntil("}}").substr(0, 12), "HTTP/1.1 400");
}

// Each on a connection of its own, which ends with the answer.
std::string AnswerTo(const HttpServer& server, const std::string& request) {
  RawClient client(server.address());
  client.Send(request);
  return client.ReadAll();
}

TEST(HttpServer, RequestsThatTwoReadersCouldTakeForDifferentOnesAreRefused) {
  auto server = HttpServer::Start("127.0.0.1:0", {}, &Echo);
  ASSERT_TRUE(server.ok());
  const std::string post = "POST /a HTTP/1.1\r\nHost: x\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::pair<std::string, const char*> cases[] = {
      {"GET /a HTTP/1.1\r\n\r\n", "400"},
      {"GET /a HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", "400"},
      {"GET /a HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", "400"},
      {"GET /a HTTP/1.1\r\nHost: x, y\r\n\r\n", "400"},
      {"GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n", "400"},
      {"GET /a HTTP/1.1\r\nHost: x:y\r\n\r\n", "400"},
      {"GET a HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET http://u@x/a HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET ftp://x/a HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
      {post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "400"},
      {post + "Content-Length: 1, 1\r\n\r\na", "400"},
      {post + "Content-Length: +1\r\n\r\na", "400"},
      {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", "400"},
      {post + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", "400"},
      {post + "Transfer-Encoding: identity\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
      {"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
      {chunked + "x\r\nab\r\n0\r\n\r\n", "400"},
      {chunked + "-1\r\n", "400"},
      {chunked + "2\r\nabc\r\n0\r\n\r\n", "400"},
      {chunked + "2 a\r\nab\r\n0\r\n\r\n", "400"},
      {chunked + "fffffffffffffffff\r\n", "400"},
      {chunked + "0\r\nno field\r\n\r\n", "400"},
      // Without a line's end: it is not kept for ever.
      {chunked + "2;" + std::string(200'000, 'x'), "400"},
      {chunked + "0\r\nX: " + std::string(200'000, 'x'), "400"},
      {post + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na", "415"},
      {post + "Content-Encoding: identity, br\r\nContent-Length: 1\r\n\r\na", "415"},
      {post + "Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n", "415"},
      {post + "Expect: the-best\r\nContent-Length: 1\r\n\r\na", "417"},
  };
  for (const auto& [request, status] : cases) {
    const std::string answer = AnswerTo(**server, request);
    EXPECT_EQ(answer.substr(0, 12), std::string("HTTP/1.1 ") + status) << request.substr(0, 200);
    EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos) << request.substr(0, 200);
    EXPECT_EQ(answer.find("/b"), std::string::npos) << "the body is no request";
  }
}

TEST(HttpServer, WhatHttpAllowsIsServed) {
  auto server = HttpServer::Start(
      "127.0.0.1:0", {}, [](const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
        const std::string* host = request.Header("HOST");
        const std::string* trailer = request.Header("X-Trailer");
        responder->Answer({200,
                           "text/plain",
                           request.path + "|" + request.query + "|" + request.body + "|" +
                               (host == nullptr ? "" : *host) + (trailer == nullptr ? "" : "!"),
                           {}});
      });
  ASSERT_TRUE(server.ok());
  const std::string end = "Host: x\r\nConnection: close\r\n\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {"GET http://Example:80/a?b HTTP/1.1\r\n" + end, "/a|b||Example:80"},
      {"GET HTTPS://[::1]:8 HTTP/1.1\r\n" + end, "/|||[::1]:8"},
      {"GET http://y?q HTTP/1.1\r\n" + end, "/|q||y"},
      {"GET /a%2db%2Fc?%41 HTTP/1.1\r\n" + end, "/a-b%2Fc|%41||x"},
      {"GET /%e2%82%ac HTTP/1.1\r\n" + end, "/\xE2\x82\xAC|||x"},
      {"GET /a HTTP/1.0\r\n\r\n", "/a|||"},
      {"GET /a HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n", "/a|||"},
      {"GET /a HTTP/1.1\r\nContent-Encoding: gzip\r\n" + end, "/a|||x"},
      {"GET /a HTTP/1.1\r\nFolded: a\r\n b\r\n" + end, "/a|||x"},
      {"POST /a HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\n" + end +
           "1;x=\"y\"\r\na\r\n2\r\nbc\r\n0\r\nX-Trailer: 1\r\nHost: z\r\n\r\n",
       "/a||abc|x"},
      {"POST /a HTTP/1.1\r\nContent-Encoding: Identity\r\nContent-Length: 1\r\n" + end + "a",
       "/a||a|x"},
  };
  for (const auto& [request, said] : cases) {
    const std::string answer = AnswerTo(**server, request);
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 200") << request;
    EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), said) << request;
  }
}

TEST(HttpServer, ARefusedHeadHasNoBodyEither) {
  HttpOptions options;
  options.check_head = [](const HttpRequest&) { return HttpResponse{403, "text/plain", "no", {}}; };
  auto server = HttpServer::Start("127.0.0.1:0", options, &Echo);
  ASSERT_TRUE(server.ok());
  for (const char* host : {"Host: x\r\n", ""}) {
    const std::string answer =
        AnswerTo(**server, "HEAD /a HTTP/1.1\r\n" + std::string(host) + "\r\n");
    EXPECT_EQ(answer.substr(0, 10), "HTTP/1.1 4") << answer;
    EXPECT_EQ(answer.substr(answer.size() - 4), "\r\n\r\n") << answer;
  }
}

TEST(HttpServer, HeadersArriveAndLeaveWithoutControlCharacters) {
  auto server = HttpServer::Start(
      "127.0.0.1:0", {}, [](const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
        const std::string* value = request.Header("x-given");
        const std::string echoed = value == nullptr ? "none" : *value + "\r\nX-Bad: 1";
        responder->Answer({200, "text/plain", "", {{"X-Echoed", echoed}}});
      });
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\nX-GIVEN: abc\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.ReadAll().find("\r\nX-Echoed: abcX-Bad: 1\r\n"), std::string::npos);
}

TEST(HttpServer, RequestsThatAreSentAheadAreAnsweredInOrder) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send(kGet + std::string(kGet));
  for (const std::string body : {"first", "second"}) {
    held.Take()->Answer({200, "text/plain", body, {}});
    EXPECT_NE(client.ReadUntil(body).find(body), std::string::npos);
  }
}

TEST(HttpServer, AConnectionEndsWithTheAnswerDuringWhichTooMuchWasSentAhead) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send(kGet);
  const auto responder = held.Take();
  SendMuchAhead(&client);
  responder->Answer({200, "text/plain", "first", {}});
  const std::string answer = client.ReadAll();
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), "first");
}

}  // namespace
}  // namespace strata
