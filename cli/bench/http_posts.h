// Many POSTs at once on one thread, their answers as they arrive: libcurl's multi interface over
// poll().
#ifndef STRATA_CLI_BENCH_HTTP_POSTS_H_
#define STRATA_CLI_BENCH_HTTP_POSTS_H_

#include <curl/curl.h>
#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"

struct pollfd;

namespace strata::cli {

class HttpPostObserver {
 public:
  virtual ~HttpPostObserver() = default;
  // `http_status` is that of the answer whose body this is. False ends the request, as broken.
  virtual bool OnBody(uint32_t id, int http_status, std::string_view bytes) = 0;
  // Once for each. `http_status` 0: no answer. `broken`: what became of the connection; ok when
  // the answer is complete, whatever it says.
  virtual void OnEnd(uint32_t id, int http_status, const absl::Status& broken) = 0;
};

class HttpPosts {
 public:
  // All go to `url` (http or https), with `headers` ("Name: value"). Proxies are those of the
  // usual environment variables, but none for this machine. `ca_file`: authorities beside those of
  // the system, PEM; "": none. BAD_URL. Raises the process' limit of open files as far as it may.
  static absl::StatusOr<std::unique_ptr<HttpPosts>> Make(const std::string& url,
                                                         const std::vector<std::string>& headers,
                                                         const std::string& ca_file = "");
  ~HttpPosts();
  HttpPosts(const HttpPosts&) = delete;
  HttpPosts& operator=(const HttpPosts&) = delete;

  void Start(uint32_t id, std::string body);
  // Waits until something happened or `until` has come, and reports it on this thread.
  void Poll(TimePoint until, HttpPostObserver* observer);
  // Those in flight end as cancelled, at the next Poll.
  void CancelAll() { cancelled_ = true; }

 private:
  struct Post;
  HttpPosts(std::string url, bool direct, curl_slist* headers, std::string ca_file);

  static int OnSocket(CURL* easy, curl_socket_t socket, int what, void* self, void* unused);
  static int OnTimer(CURLM* multi, long timeout_ms, void* self);  // NOLINT(google-runtime-int)
  static size_t OnBytes(char* data, size_t size, size_t count, void* post);
  CURL* NewEasy();
  void WaitForSockets(TimePoint until);
  bool ReportEnds();
  bool EndCancelled();
  void End(Post* post, CURLcode code);

  const std::string url_;
  const bool direct_;  // No proxy.
  curl_slist* const headers_;
  const std::string ca_file_;
  CURLM* const multi_;
  std::map<curl_socket_t, decltype(pollfd::events)> sockets_;
  std::vector<pollfd> polled_;
  std::optional<TimePoint> timer_;  // When libcurl wants to be called.
  std::map<uint32_t, std::unique_ptr<Post>> posts_;
  std::vector<CURL*> idle_;
  HttpPostObserver* observer_ = nullptr;  // During Poll.
  bool happened_ = false;                 // Since Poll began.
  bool cancelled_ = false;
};

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_HTTP_POSTS_H_
