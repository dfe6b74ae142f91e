// A small HTTP server on loopback with Hugging Face's layout, and with every fault that a test
// asks for.
#ifndef STRATA_TESTS_COORDINATOR_PULL_HUB_SERVER_H_
#define STRATA_TESTS_COORDINATOR_PULL_HUB_SERVER_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace strata::testing {

struct HubRequest {
  std::string path;
  std::map<std::string, std::string> headers;  // Names in lower case.
  std::string Header(const std::string& name) const;
};

struct HubReply {
  static HubReply Status(int status) {
    HubReply reply;
    reply.status = status;
    return reply;
  }
  static HubReply Body(std::string body) {
    HubReply reply;
    reply.body = std::move(body);
    return reply;
  }

  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::optional<size_t> break_after;  // Closes the connection after so many bytes of the body.
  bool stall = false;                 // Sends no more after the headers, until the server ends.
  bool with_length = true;            // Content-Length, of the whole body.
};

// Answers each request with what `handler` says. Connections are not reused.
class LoopbackServer {
 public:
  using Handler = std::function<HubReply(const HubRequest&)>;
  explicit LoopbackServer(Handler handler);
  ~LoopbackServer();

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<HubRequest> requests() const;
  // What this thread wrote is seen by the handler, and the other way around.
  void Synchronize() { const MutexLock lock(&handler_mutex_); }

 private:
  void Accept();
  void Serve(int connection);

  const Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> ends_{false};
  Mutex handler_mutex_;  // One request is answered at a time.
  mutable Mutex mutex_;
  std::vector<HubRequest> requests_ STRATA_GUARDED_BY(mutex_);
  std::thread accepter_;
};

struct HubFile {
  std::string content;
  std::string etag;  // With quotes.
};

// A repository "org/model" with these files: the listing, and files with ranges and If-Range.
// `hook` may answer in its place.
class Hub {
 public:
  using Hook = std::function<std::optional<HubReply>(const HubRequest&)>;

  Hub();

  HubReply Answer(const HubRequest& request);
  // The reply for a file with the request's ranges.
  static HubReply Serve(const HubFile& file, const HubRequest& request);
  HubFile& File(const std::string& name) { return files_[name]; }
  void Add(const std::string& name, const std::string& content);
  std::string url() const { return server_->url(); }
  std::vector<HubRequest> requests() const { return server_->requests(); }
  void Synchronize() { server_->Synchronize(); }
  // Requests whose path ends so.
  int CountOf(const std::string& end) const;

  std::string commit = "0123456789abcdef0123456789abcdef01234567";
  Hook hook;  // Set before the first request.
  std::vector<std::string> listed_too;

 private:
  std::map<std::string, HubFile> files_;
  std::unique_ptr<LoopbackServer> server_;
};

std::string Sha256Etag(const std::string& content);

}  // namespace strata::testing

#endif  // STRATA_TESTS_COORDINATOR_PULL_HUB_SERVER_H_
