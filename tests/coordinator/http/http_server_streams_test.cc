// Streams, clients that go, and the server's end.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "common/status.h"
#include "tests/coordinator/http/http_clients.h"
#include "tests/eventually.h"

namespace strata {
namespace {

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
