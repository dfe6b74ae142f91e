#include "cli/bench/http_posts.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/platform/platform.h"
#include "common/status.h"

namespace strata::cli {
namespace {

using CurlLong = long;  // What libcurl takes as numbers. NOLINT(google-runtime-int)

constexpr CurlLong kConnectTimeoutMs = 10'000;
constexpr CurlLong kKeptConnections = 4096;

absl::Status BadUrl(const std::string& url) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_URL",
               "\"" + url + "\" is no address like http://127.0.0.1:8080");
}

// Of a URL; "" if it has none.
std::string PartOf(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) {
    return "";
  }
  const std::string copy = text;
  curl_free(text);
  return copy;
}

bool IsThisMachine(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

absl::Status BrokenBy(CURLcode code, const std::string& why) {
  switch (code) {
    case CURLE_OK:
      return absl::OkStatus();
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return Error(absl::StatusCode::kUnavailable, "UNREACHABLE", why)
          .Hint("see whether the server runs and the address is right");
    case CURLE_OPERATION_TIMEDOUT:
      return Error(absl::StatusCode::kUnavailable, "CONNECT_TIMEOUT", why);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Error(absl::StatusCode::kFailedPrecondition, "TLS_UNTRUSTED", why)
          .Hint("give --ca FILE, the authority that signed the server's certificate");
    default:
      return Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST", why);
  }
}

}  // namespace

struct HttpPosts::Post {
  HttpPosts* owner = nullptr;
  uint32_t id = 0;
  CURL* easy = nullptr;
  std::string body;
  char error[CURL_ERROR_SIZE] = {};
};

absl::StatusOr<std::unique_ptr<HttpPosts>> HttpPosts::Make(const std::string& url,
                                                           const std::vector<std::string>& headers,
                                                           const std::string& ca_file) {
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  STRATA_CHECK(initialized == CURLE_OK);
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), &curl_url_cleanup);
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return BadUrl(url);
  }
  const std::string scheme = PartOf(parsed.get(), CURLUPART_SCHEME);
  const std::string host = PartOf(parsed.get(), CURLUPART_HOST);
  if ((scheme != "http" && scheme != "https") || host.empty()) {
    return BadUrl(url);
  }
  RaiseOpenFiles();
  // libcurl would ask before it sends a long prompt.
  curl_slist* list = curl_slist_append(nullptr, "Expect:");
  for (const std::string& header : headers) {
    list = curl_slist_append(list, header.c_str());
    STRATA_CHECK(list != nullptr);
  }
  return std::unique_ptr<HttpPosts>(new HttpPosts(url, IsThisMachine(host), list, ca_file));
}

HttpPosts::HttpPosts(std::string url, bool direct, curl_slist* headers, std::string ca_file)
    : url_(std::move(url)),
      direct_(direct),
      headers_(headers),
      ca_file_(std::move(ca_file)),
      multi_(curl_multi_init()) {
  STRATA_CHECK(multi_ != nullptr);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &HttpPosts::OnSocket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &HttpPosts::OnTimer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kKeptConnections);
}

HttpPosts::~HttpPosts() {
  for (const auto& [id, post] : posts_) {
    curl_multi_remove_handle(multi_, post->easy);
    curl_easy_cleanup(post->easy);
  }
  for (CURL* easy : idle_) {
    curl_easy_cleanup(easy);
  }
  curl_multi_cleanup(multi_);
  curl_slist_free_all(headers_);
}

CURL* HttpPosts::NewEasy() {
  CURL* easy = curl_easy_init();
  STRATA_CHECK(easy != nullptr);
  curl_easy_setopt(easy, CURLOPT_URL, url_.c_str());
  curl_easy_setopt(easy, CURLOPT_POST, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "strata-bench");
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &HttpPosts::OnBytes);
  if (!ca_file_.empty()) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file_.c_str());
  }
  if (direct_) {
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
  }
  return easy;
}

void HttpPosts::Start(uint32_t id, std::string body) {
  auto post = std::make_unique<Post>();
  post->owner = this;
  post->id = id;
  post->body = std::move(body);
  if (idle_.empty()) {
    post->easy = NewEasy();
  } else {
    post->easy = idle_.back();
    idle_.pop_back();
  }
  curl_easy_setopt(post->easy, CURLOPT_POSTFIELDS, post->body.c_str());
  curl_easy_setopt(post->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                   static_cast<curl_off_t>(post->body.size()));
  curl_easy_setopt(post->easy, CURLOPT_WRITEDATA, post.get());
  curl_easy_setopt(post->easy, CURLOPT_PRIVATE, post.get());
  curl_easy_setopt(post->easy, CURLOPT_ERRORBUFFER, post->error);
  const CURLMcode added = curl_multi_add_handle(multi_, post->easy);
  STRATA_CHECK(added == CURLM_OK);
  const bool fresh = posts_.try_emplace(id, std::move(post)).second;
  STRATA_CHECK(fresh);
}

void HttpPosts::Poll(TimePoint until, HttpPostObserver* observer) {
  const SystemClock clock;
  observer_ = observer;
  happened_ = false;
  do {
    if (cancelled_ && EndCancelled()) {
      break;
    }
    WaitForSockets(until);
    int running = 0;
    for (const pollfd& polled : polled_) {
      if (polled.revents != 0) {
        const int mask = ((polled.revents & (POLLIN | POLLHUP)) != 0 ? CURL_CSELECT_IN : 0) |
                         ((polled.revents & POLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                         ((polled.revents & (POLLERR | POLLNVAL)) != 0 ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(multi_, polled.fd, mask, &running);
      }
    }
    if (timer_.has_value() && clock.Now() >= *timer_) {
      timer_.reset();
      curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    happened_ |= ReportEnds();
  } while (!happened_ && clock.Now() < until);
  observer_ = nullptr;
}

void HttpPosts::WaitForSockets(TimePoint until) {
  const TimePoint now = SystemClock().Now();
  const TimePoint wake = std::min(until, timer_.value_or(TimePoint::max()));
  const int64_t wait_ms =
      wake <= now ? 0 : std::min<int64_t>((wake - now).count() / 1'000'000 + 1, 60'000);
  polled_.clear();
  for (const auto& [socket, events] : sockets_) {
    polled_.push_back({.fd = socket, .events = events, .revents = 0});
  }
  if (poll(polled_.data(), polled_.size(), static_cast<int>(wait_ms)) <= 0) {
    polled_.clear();
  }
}

int HttpPosts::OnSocket(CURL*, curl_socket_t socket, int what, void* self, void*) {
  auto& sockets = static_cast<HttpPosts*>(self)->sockets_;
  if (what == CURL_POLL_REMOVE) {
    sockets.erase(socket);
  } else {
    sockets[socket] = static_cast<decltype(pollfd::events)>(
        ((what & CURL_POLL_IN) != 0 ? POLLIN : 0) | ((what & CURL_POLL_OUT) != 0 ? POLLOUT : 0));
  }
  return 0;
}

int HttpPosts::OnTimer(CURLM*, CurlLong timeout_ms, void* self) {
  auto& timer = static_cast<HttpPosts*>(self)->timer_;
  timer.reset();
  if (timeout_ms >= 0) {
    timer = SystemClock().Now() + milliseconds(timeout_ms);
  }
  return 0;
}

size_t HttpPosts::OnBytes(char* data, size_t size, size_t count, void* post_pointer) {
  const auto* post = static_cast<Post*>(post_pointer);
  HttpPosts* self = post->owner;
  CurlLong http_status = 0;
  curl_easy_getinfo(post->easy, CURLINFO_RESPONSE_CODE, &http_status);
  self->happened_ = true;
  const bool go_on = self->observer_->OnBody(post->id, static_cast<int>(http_status),
                                             std::string_view(data, size * count));
  return go_on ? size * count : 0;  // Anything else than all of it is an error.
}

bool HttpPosts::ReportEnds() {
  bool any = false;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg == CURLMSG_DONE) {
      Post* post = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &post);
      End(post, message->data.result);
      any = true;
    }
  }
  return any;
}

bool HttpPosts::EndCancelled() {
  const bool any = !posts_.empty();
  while (!posts_.empty()) {
    End(posts_.begin()->second.get(), CURLE_ABORTED_BY_CALLBACK);
  }
  cancelled_ = false;
  return any;
}

void HttpPosts::End(Post* post, CURLcode code) {
  CurlLong http_status = 0;
  curl_easy_getinfo(post->easy, CURLINFO_RESPONSE_CODE, &http_status);
  curl_multi_remove_handle(multi_, post->easy);
  curl_easy_setopt(post->easy, CURLOPT_ERRORBUFFER, nullptr);
  idle_.push_back(post->easy);
  const auto own = posts_.extract(post->id);
  const absl::Status broken =
      code == CURLE_ABORTED_BY_CALLBACK
          ? Error(absl::StatusCode::kCancelled, "CANCELLED", "cancelled")
          : BrokenBy(code, post->error[0] != 0 ? post->error : curl_easy_strerror(code));
  observer_->OnEnd(post->id, static_cast<int>(http_status), broken);
}

}  // namespace strata::cli
