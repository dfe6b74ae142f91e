// A whole HTTP server in the thread of a fuzz target: the real connections with their parser, the
// real routes and answers, over socket pairs whose other ends are the target's. Generations are
// fake; calls run at once.
#ifndef STRATA_TESTS_FUZZ_HTTP_STAND_H_
#define STRATA_TESTS_FUZZ_HTTP_STAND_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/http/http_server.h"
#include "tests/fuzz/fake_http_backend.h"

namespace strata::fuzz {

// A client's end of a connection, which never waits.
class HttpClient {
 public:
  explicit HttpClient(int fd) : fd_(fd) {}
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // What the socket takes; the rest is lost, as at a client that gives up.
  void Send(std::string_view bytes);
  void EndSending();
  void Close();
  // Up to `most` bytes of what is there.
  void Read(size_t most);
  bool open() const { return fd_ >= 0; }
  bool ended() const { return ended_; }  // The server closed the connection.
  const std::string& received() const { return received_; }

 private:
  int fd_;
  bool ended_ = false;
  std::string received_;
};

class HttpStand {
 public:
  // Sockets hold about this much for a client that does not read.
  static constexpr size_t kSocketBytes = 16 * 1024;

  explicit HttpStand(const HttpOptions& options);
  // Every client goes. Checks that nothing is left: no connection, no answer, no generation.
  ~HttpStand();

  // The reference is good for the stand's life.
  HttpClient& Connect();
  // All that can happen without waiting happens. Checks that no answer holds more for a client that
  // does not read than it may.
  void Poll();
  FakeHttpBackend* backend() { return &backend_; }
  // "GET", ...: of the requests that were taken, in order.
  const std::vector<std::string>& methods() const;

 private:
  class Server;

  FakeHttpBackend backend_;
  std::vector<std::unique_ptr<HttpClient>> clients_;
  std::unique_ptr<Server> server_;
};

}  // namespace strata::fuzz

#endif  // STRATA_TESTS_FUZZ_HTTP_STAND_H_
