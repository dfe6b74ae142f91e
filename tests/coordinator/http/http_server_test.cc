#include "coordinator/http/http_server.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "tests/eventually.h"

namespace strata {
namespace {

struct Answer {
  long status = 0;
  std::string body;
};

Answer Get(const std::string& url, const std::string& body = "") {
  Answer answer;
  CURL* curl = curl_easy_init();
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(kGiveUpAfter.count()));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  if (!body.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  }
  auto write = +[](char* data, size_t size, size_t n, void* out) -> size_t {
    static_cast<std::string*>(out)->append(data, size * n);
    return size * n;
  };
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, write);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  if (curl_easy_perform(curl) == CURLE_OK) {
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
  }
  curl_easy_cleanup(curl);
  return answer;
}

void Echo(const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
  if (request.path == "/missing") {
    responder->Answer({404, "text/plain", "no", {}});
    return;
  }
  responder->Answer(
      {200, "text/plain", request.method + " " + request.path + " " + request.query, {}});
}

// A client's raw end of a connection.
class RawClient {
 public:
  // `receive_bytes`: of the socket's buffer, 0: the system's.
  explicit RawClient(const std::string& address, int receive_bytes = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    const timeval timeout{kGiveUpAfter.count(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Send(const std::string& bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // All up to and including `end`, or up to the connection's end.
  std::string ReadUntil(const std::string& end) {
    std::string read;
    std::vector<char> piece(64 * 1024);
    size_t seen = 0;  // `end` does not begin before.
    while (read.find(end, seen) == std::string::npos) {
      seen = read.size() < end.size() ? 0 : read.size() - end.size();
      const ssize_t n = recv(fd_, piece.data(), piece.size(), 0);
      if (n <= 0) break;
      read.append(piece.data(), static_cast<size_t>(n));
    }
    return read;
  }
  size_t ReadSome() {
    char piece[4096];
    return static_cast<size_t>(std::max<ssize_t>(0, recv(fd_, piece, sizeof(piece), 0)));
  }
  std::string ReadAll() { return ReadUntil(std::string("\0never", 6)); }
  // Whether the server closes the connection.
  bool Ends() {
    char byte[4096];
    ssize_t n = 0;
    while ((n = recv(fd_, byte, sizeof(byte), 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

// Keeps the newest request's responder, for the test to answer.
class Held {
 public:
  HttpServer::Handler Handler() {
    return [this](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
      MutexLock lock(&mutex_);
      responder_ = std::move(responder);
      changed_.NotifyAll();
    };
  }
  std::shared_ptr<HttpResponder> Take() {
    MutexLock lock(&mutex_);
    while (responder_ == nullptr) changed_.Wait(&mutex_);
    return std::exchange(responder_, nullptr);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<HttpResponder> responder_ STRATA_GUARDED_BY(mutex_);
};

constexpr char kGet[] = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
const HttpResponse kStream{200, "text/event-stream", "", {}};

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

TEST(HttpServer, ABodyOverTheLimitIsNotTaken) {
  HttpOptions options;
  options.max_body_bytes = 100;
  auto server = HttpServer::Start("127.0.0.1:0", options, Echo);
  ASSERT_TRUE(server.ok());
  const std::string base = "http://" + (*server)->address();
  EXPECT_EQ(Get(base + "/a", std::string(100, 'x')).status, 200);
  const Answer refused = Get(base + "/a", std::string(101, 'x'));
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find("more than 100 bytes"), std::string::npos) << refused.body;
  // Also where no length says so beforehand.
  RawClient chunked((*server)->address());
  chunked.Send("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
               std::string(101, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.ReadUntil("}}").substr(0, 12), "HTTP/1.1 413");
}

TEST(HttpServer, WhatItsHeaderIsRefusedForIsSaidWithoutItsBody) {
  HttpOptions options;
  options.check_head = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.Header("Key") != nullptr) return std::nullopt;
    return HttpResponse{401, "text/plain", "no key for " + head.path, {}};
  };
  auto server = HttpServer::Start("127.0.0.1:0", options, Echo);
  ASSERT_TRUE(server.ok());
  RawClient stranger((*server)->address());
  stranger.Send("POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  const std::string refused = stranger.ReadUntil("/a");
  EXPECT_EQ(refused.substr(0, 12), "HTTP/1.1 401");
  EXPECT_NE(refused.find("no key for /a"), std::string::npos) << refused;
  stranger.Send(std::string(1000, 'x'));
  stranger.Close();
  RawClient known((*server)->address());
  known.Send("POST /a?b HTTP/1.1\r\nHost: x\r\nKey: k\r\nContent-Length: 3\r\n\r\nxyz");
  EXPECT_NE(known.ReadUntil("POST /a b").find("HTTP/1.1 200"), std::string::npos);
}

TEST(HttpServer, BodiesOfOneKeyDoNotFillWhatAllShare) {
  HttpOptions options;
  options.max_body_bytes = 600;
  options.memory = std::make_shared<HttpMemory>(1000);
  options.owner_of = [](const HttpRequest& head) {
    const std::string* key = head.Header("Key");
    return key == nullptr ? "" : *key;
  };
  Mutex mutex;
  std::vector<std::pair<HttpRequest, std::shared_ptr<HttpResponder>>> taken;
  const auto requests = [&] {
    MutexLock lock(&mutex);
    return taken.size();
  };
  auto server = HttpServer::Start("127.0.0.1:0", options, [&](HttpRequest request, auto responder) {
    MutexLock lock(&mutex);
    taken.emplace_back(std::move(request), std::move(responder));
  });
  ASSERT_TRUE(server.ok());
  const auto post = [](const std::string& key, size_t bytes) {
    return "POST /a HTTP/1.1\r\nHost: x\r\nKey: " + key +
           "\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" + std::string(bytes, 'x');
  };
  std::vector<std::unique_ptr<RawClient>> clients;
  const auto send = [&](const std::string& key, size_t bytes) {
    clients.push_back(std::make_unique<RawClient>((*server)->address()));
    clients.back()->Send(post(key, bytes));
  };
  send("greedy", 300);
  ASSERT_TRUE(Eventually([&] { return requests() == 1; }));
  send("greedy", 200);
  ASSERT_TRUE(Eventually([&] { return requests() == 2; }));
  send("greedy", 100);
  const std::string refused = clients.back()->ReadUntil("}}");
  EXPECT_EQ(refused.substr(0, 12), "HTTP/1.1 429");
  EXPECT_NE(refused.find("500 of them those of this API key"), std::string::npos) << refused;
  // There is room for another.
  send("other", 400);
  ASSERT_TRUE(Eventually([&] { return requests() == 3; }));
  MutexLock lock(&mutex);
  taken.clear();
}

TEST(HttpServer, BodiesAndAnswersThatAreHeldShareOneLimit) {
  HttpOptions options;
  options.max_body_bytes = 600;
  options.memory = std::make_shared<HttpMemory>(1000);
  Mutex mutex;
  std::vector<std::pair<HttpRequest, std::shared_ptr<HttpResponder>>> taken;
  const auto requests = [&] {
    MutexLock lock(&mutex);
    return taken.size();
  };
  auto server = HttpServer::Start("127.0.0.1:0", options, [&](HttpRequest request, auto responder) {
    MutexLock lock(&mutex);
    taken.emplace_back(std::move(request), std::move(responder));
  });
  ASSERT_TRUE(server.ok());
  const auto post = [](size_t bytes) {
    return "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" +
           std::string(bytes, 'x');
  };
  RawClient first((*server)->address());
  first.Send(post(500));
  ASSERT_TRUE(Eventually([&] { return requests() == 1; }));
  EXPECT_EQ(options.memory->held(), 500u);
  // One that says no length may have the longest.
  const std::string chunked = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& one_more : {post(501), chunked}) {
    RawClient second((*server)->address());
    second.Send(one_more);
    const std::string refused = second.ReadUntil("}}");
    EXPECT_EQ(refused.substr(0, 12), "HTTP/1.1 429");
    EXPECT_NE(refused.find("\r\nRetry-After: 1\r\n"), std::string::npos) << refused;
    EXPECT_NE(refused.find("--max-http-memory"), std::string::npos) << refused;
  }
  // What holds nothing is served, and an answer holds its part until it is sent.
  RawClient none((*server)->address());
  none.Send(kGet);
  ASSERT_TRUE(Eventually([&] { return requests() == 2; }));
  auto part = std::make_shared<HttpMemory::Part>(options.memory);
  EXPECT_EQ(ReasonOf(part->Resize(501)), "HTTP_MEMORY_FULL");
  ASSERT_TRUE(part->Resize(400).ok());
  {
    MutexLock lock(&mutex);
    taken[1].second->Answer({200, "text/plain", "done", {}, std::move(part)});
    taken.clear();
  }
  EXPECT_NE(none.ReadUntil("done").find("done"), std::string::npos);
  EXPECT_TRUE(Eventually([&] { return options.memory->held() == 0; }));
  RawClient third((*server)->address());
  third.Send(chunked + "3\r\nabc\r\n0\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return requests() == 1; }));
  EXPECT_EQ(options.memory->held(), 3u);
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

TEST(HttpServer, AStreamIsSentAsItIsWrittenAndTheConnectionGoesOn) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  for (int round = 0; round < 2; ++round) {
    client.Send(kGet);
    const auto responder = held.Take();
    responder->Begin(kStream);
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_NE(head.find("HTTP/1.1 200 OK\r\n"), std::string::npos) << head;
    EXPECT_NE(head.find("Transfer-Encoding: chunked"), std::string::npos) << head;
    EXPECT_TRUE(responder->Write("data: one\n\n").ok());
    EXPECT_EQ(client.ReadUntil("one\n\n\r\n"), "b\r\ndata: one\n\n\r\n");
    responder->End("last");
    EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "4\r\nlast\r\n0\r\n\r\n");
  }
}

TEST(HttpServer, WhoWritesAStreamIsAskedForASignOfLifeWhenNothingWasSaidForAWhile) {
  HttpOptions options;
  options.keepalive = std::chrono::milliseconds(20);
  Held held;
  const auto server = *HttpServer::Start("127.0.0.1:0", options, held.Handler());
  RawClient client(server->address());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto responder = held.Take();
  std::atomic<int> asked = 0;
  responder->OnIdle([&, responder = responder.get()] {
    if (asked++ == 0) responder->Begin({});
    EXPECT_TRUE(responder->Write(":" + std::to_string(asked)).ok());
  });
  EXPECT_NE(client.ReadUntil(":3\r\n").find(":1\r\n"), std::string::npos);
  responder->End("end");
  EXPECT_NE(client.ReadUntil("0\r\n\r\n").find("end"), std::string::npos);
  const int before = asked;
  // The connection is used again; nothing of the first request is asked any more.
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto next = held.Take();
  std::atomic<int> next_asked = 0;
  next->OnIdle([&] { ++next_asked; });
  EXPECT_TRUE(Eventually([&] { return next_asked >= 3; })) << "also one that then says nothing";
  EXPECT_EQ(asked, before);
  next->Answer({});
}

TEST(HttpServer, NobodyIsAskedWhileAClientReadsSlowlyOrWithoutKeepalive) {
  HttpOptions options;
  options.keepalive = std::chrono::milliseconds(5);
  Held held;
  std::atomic<int> asked = 0;
  {
    const auto server = *HttpServer::Start("127.0.0.1:0", options, held.Handler());
    RawClient client(server->address(), 4096);
    client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto responder = held.Take();
    responder->Begin({});
    // More than the sockets' buffers: it is never sent to the end.
    const std::string piece(1 << 16, 'x');
    while (responder->Write(piece).ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    responder->OnIdle([&] { ++asked; });
    RawClient other(server->address());
    other.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto idle = held.Take();
    std::atomic<int> other_asked = 0;
    idle->OnIdle([&] { ++other_asked; });
    EXPECT_TRUE(Eventually([&] { return other_asked >= 5; })) << "who reads is asked meanwhile";
    EXPECT_EQ(asked, 0);
    idle->Answer({});
  }
  options.keepalive = std::chrono::nanoseconds(0);
  const auto server = *HttpServer::Start("127.0.0.1:0", options, held.Handler());
  RawClient client(server->address());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto responder = held.Take();
  responder->OnIdle([&] { ++asked; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(asked, 0);
}

TEST(HttpServer, AClientWithoutChunksGetsTheStreamUpToTheConnectionsEnd) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto responder = held.Take();
  responder->Begin(kStream);
  responder->End("all of it");
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), "all of it");
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

TEST(HttpServer, AClientThatGoesIsNoticedWhileItWaitsAndWhileItReads) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  for (const bool streaming : {false, true}) {
    RawClient client((*server)->address());
    client.Send(kGet);
    const auto responder = held.Take();
    std::atomic<int> gone = 0;
    responder->OnGone([&] { ++gone; });
    if (streaming) {
      responder->Begin(kStream);
      ASSERT_TRUE(responder->Write("x").ok());
      client.ReadUntil("x\r\n");
    }
    EXPECT_EQ(gone, 0);
    client.Close();
    EXPECT_TRUE(Eventually([&] { return gone == 1; })) << streaming;
    EXPECT_EQ(ReasonOf(responder->Write("y")), "CLIENT_GONE");
    responder->End("");  // Harmless.
  }
}

// A request that is longer than what the sockets hold: once it was sent, the server has read more
// of it than it keeps.
void SendMuchAhead(RawClient* client) {
  const size_t bytes = size_t{32} << 20;
  client->Send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) +
               "\r\n\r\n" + std::string(bytes, 'x'));
}

TEST(HttpServer, AClientThatGoesAfterItSentMuchAheadIsNoticed) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send(kGet);
  const auto responder = held.Take();
  std::atomic<int> gone = 0;
  responder->OnGone([&] { ++gone; });
  SendMuchAhead(&client);
  EXPECT_EQ(gone, 0);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return gone == 1; }));
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

// An answer to a client whose socket takes little, and for which 256 KiB may wait.
struct UnreadStream {
  UnreadStream() { client.Send(kGet); }

  static HttpOptions Options() {
    HttpOptions options;
    options.max_unread_bytes = 256 * 1024;
    return options;
  }

  Held held;
  const std::unique_ptr<HttpServer> server =
      *HttpServer::Start("127.0.0.1:0", Options(), held.Handler());
  RawClient client{server->address(), 4096};
};

TEST(HttpServer, ASlowReaderIsCutOffAtTheLimitAndStillGetsWhatWasWritten) {
  UnreadStream stream;
  RawClient& client = stream.client;
  const auto responder = stream.held.Take();
  responder->Begin(kStream);
  size_t written = 0;
  absl::Status status;
  while (status.ok() && written < size_t{256} << 20) {
    status = responder->Write(std::string(1024, 'x'));
    written += status.ok() ? 1024 : 0;
  }
  EXPECT_EQ(ReasonOf(status), "SLOW_READER");
  EXPECT_EQ(DetailOf(status).limit(), "unread_bytes=262144");
  responder->End("cut off");
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  EXPECT_EQ(static_cast<size_t>(std::count(answer.begin(), answer.end(), 'x')),
            written + 1);  // And one in "text".
  EXPECT_NE(answer.find("cut off"), std::string::npos);
}

TEST(HttpServer, AReaderIsBehindUntilItHasTakenWhatWaitsAndThenGetsTheRest) {
  UnreadStream stream;
  RawClient& client = stream.client;
  const auto responder = stream.held.Take();
  std::atomic<int> drained = 0;
  responder->OnDrained([&] { ++drained; });
  responder->Begin(kStream);
  size_t written = 0;
  const auto write = [&] {
    ASSERT_TRUE(responder->Write(std::string(1024, 'x')).ok());
    written += 1024;
  };
  // What sockets hold comes first: then nothing drains that is not read.
  for (int looks = 0; looks < 20; ++looks) {
    while (!responder->Behind()) {
      write();
      looks = 0;
      ASSERT_LT(written, size_t{64} << 20) << "nothing was read";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int before = drained;
  std::thread reader_waits([&] {
    for (int turn = 0; turn < 4; ++turn) {
      EXPECT_TRUE(Eventually([&] { return !responder->Behind() && drained > before; }));
      before = drained;
      while (!responder->Behind()) write();
    }
    responder->End("");
  });
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  reader_waits.join();
  EXPECT_EQ(static_cast<size_t>(std::count(answer.begin(), answer.end(), 'x')),
            written + 1);  // And one in "text".
}

// The logprobs of a long prompt are one piece.
TEST(HttpServer, APieceBeyondTheLimitIsSentToAClientThatReads) {
  HttpOptions options;
  options.max_unread_bytes = 1000;
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", options, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send(kGet);
  const auto responder = held.Take();
  responder->Begin(kStream);
  client.ReadUntil("\r\n\r\n");
  const std::string piece(300'000, 'x');
  EXPECT_TRUE(responder->Write(piece).ok());
  EXPECT_NE(client.ReadUntil(piece + "\r\n").find(piece), std::string::npos);
  responder->End("end");
  EXPECT_NE(client.ReadUntil("0\r\n\r\n").find("end"), std::string::npos);
}

TEST(HttpServer, AReaderThatPausesWithinTheLimitGetsAll) {
  UnreadStream stream;
  RawClient& client = stream.client;
  const auto responder = stream.held.Take();
  responder->Begin(kStream);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(responder->Write(std::string(1024, 'z')).ok());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  responder->End("");
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  EXPECT_EQ(std::count(answer.begin(), answer.end(), 'z'), 200 * 1024);
}

// More than sockets hold, and whether the server has let go of it: it was sent, or its client cut
// off.
class LongAnswer {
 public:
  static constexpr size_t kBytes = size_t{32} << 20;

  void Give(HttpResponder* responder) {
    auto held =
        std::make_shared<const HttpMemory::Part>(std::make_shared<HttpMemory>(uint64_t{1} << 30));
    held_ = held;
    responder->Answer({200, "text/plain", std::string(kBytes, 'x'), {}, std::move(held)});
  }
  bool let_go() const { return held_.expired(); }

 private:
  std::weak_ptr<const HttpMemory::Part> held_;
};

TEST(HttpServer, AClientThatTakesNothingIsCutOffInTime) {
  Held held;
  HttpOptions options;
  options.send_timeout = std::chrono::milliseconds(300);
  auto server = HttpServer::Start("127.0.0.1:0", options, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address(), 4096);
  client.Send(kGet);
  LongAnswer answer;
  answer.Give(held.Take().get());
  EXPECT_TRUE(Eventually([&] { return answer.let_go(); }));
  EXPECT_LT(client.ReadAll().size(), answer.kBytes);
}

TEST(HttpServer, AClientThatTakesALittleAtATimeIsCutOffInTime) {
  Held held;
  HttpOptions options;
  options.send_timeout = std::chrono::milliseconds(300);
  options.send_rate = uint64_t{64} << 20;
  auto server = HttpServer::Start("127.0.0.1:0", options, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address(), 4096);
  client.Send(kGet);
  LongAnswer answer;
  answer.Give(held.Take().get());
  size_t read = 0;
  while (!answer.let_go() && read < answer.kBytes) {
    read += client.ReadSome();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LT(read + client.ReadAll().size(), answer.kBytes);
}

TEST(HttpServer, IdleConnectionsAndHalfRequestsEndInTime) {
  HttpOptions options;
  options.timeout = std::chrono::milliseconds(200);
  options.body_timeout = std::chrono::milliseconds(200);
  auto server = HttpServer::Start("127.0.0.1:0", options, Echo);
  ASSERT_TRUE(server.ok());
  RawClient idle((*server)->address());
  RawClient header((*server)->address());
  header.Send("GET /a HT");
  RawClient body((*server)->address());
  body.Send("POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(idle.Ends());
  EXPECT_TRUE(header.Ends());
  EXPECT_TRUE(body.Ends());
}

TEST(HttpServer, OneConnectionTooManyIsToldSo) {
  Held held;
  HttpOptions options;
  options.max_connections = 1;
  auto server = HttpServer::Start("127.0.0.1:0", options, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient first((*server)->address());
  first.Send(kGet);
  const auto responder = held.Take();
  RawClient second((*server)->address());
  const std::string refused = second.ReadAll();
  EXPECT_EQ(refused.substr(0, 12), "HTTP/1.1 503");
  EXPECT_EQ(refused.substr(refused.size() - 2), "}}");
  responder->Answer({200, "text/plain", "served", {}});
  EXPECT_NE(first.ReadUntil("served").find("served"), std::string::npos);
  first.Close();
  EXPECT_TRUE(Eventually([&] {
    RawClient third((*server)->address());
    third.Send("garbage\r\n\r\n");
    return third.ReadAll().substr(0, 12) == "HTTP/1.1 400";
  }));
}

TEST(HttpServer, WhatIsGivenUpIsAnsweredOrBrokenOff) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send(kGet);
  held.Take().reset();
  EXPECT_EQ(client.ReadUntil("}}").substr(0, 12), "HTTP/1.1 500");
  client.Send(kGet);
  auto responder = held.Take();
  responder->Begin(kStream);
  responder.reset();
  const std::string broken = client.ReadAll();
  EXPECT_NE(broken.find("200 OK"), std::string::npos);
  EXPECT_EQ(broken.find("0\r\n\r\n"), std::string::npos);
}

TEST(HttpServer, ShutdownSendsWhatIsBeingAnsweredAndClosesTheRest) {
  Held held;
  auto server = HttpServer::Start("127.0.0.1:0", {}, held.Handler());
  ASSERT_TRUE(server.ok());
  RawClient idle((*server)->address());
  RawClient busy((*server)->address());
  busy.Send(kGet);
  auto responder = held.Take();
  std::thread stopping([&] { (*server)->Shutdown(kGiveUpAfter); });
  EXPECT_TRUE(idle.Ends());
  responder->Answer({200, "text/plain", "done", {}});
  EXPECT_NE(busy.ReadUntil("done").find("done"), std::string::npos);
  busy.Close();
  stopping.join();
  // A responder may outlive the server.
  server->reset();
  responder.reset();
}

}  // namespace
}  // namespace strata
