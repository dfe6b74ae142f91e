// What bodies, answers and connections may take of memory and time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "tests/coordinator/http/http_clients.h"
#include "tests/eventually.h"

namespace strata {
namespace {

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

// An answer to a client whose socket takes little, and for which 256 KiB may wait.
struct UnreadStream {
  UnreadStream() { client.Send(kGet); }

  static HttpOptions Options() {
    HttpOptions options;
    options.max_unread_bytes = 256 * 1024;
    options.unread_patience = std::chrono::milliseconds(200);
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
    // Who writes on though the client is behind.
    if (responder->Behind()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(ReasonOf(status), "SLOW_READER");
  EXPECT_EQ(DetailOf(status).limit(), "unread_bytes=262144");
  responder->End("cut off");
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  EXPECT_EQ(static_cast<size_t>(std::count(answer.begin(), answer.end(), 'x')),
            written + 1);  // And one in "text".
  EXPECT_NE(answer.find("cut off"), std::string::npos);
}

TEST(HttpServer, WhatComesAtOnceIsTakenBeyondTheLimitOfAClientThatHadNoTimeToRead) {
  HttpOptions options;
  options.max_unread_bytes = 4096;
  options.unread_patience = std::chrono::hours(1);
  Held held;
  const auto server = *HttpServer::Start("127.0.0.1:0", options, held.Handler());
  RawClient client(server->address(), 4096);
  client.Send(kGet);
  const auto responder = held.Take();
  responder->Begin(kStream);
  constexpr size_t kAll = size_t{8} << 20;  // More than sockets hold.
  for (size_t written = 0; written < kAll; written += 1024) {
    ASSERT_TRUE(responder->Write(std::string(1024, 'x')).ok());
  }
  EXPECT_TRUE(responder->Behind());
  responder->End("done");
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  EXPECT_EQ(static_cast<size_t>(std::count(answer.begin(), answer.end(), 'x')), kAll + 1);
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

}  // namespace
}  // namespace strata
