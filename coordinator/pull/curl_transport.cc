#include "coordinator/pull/curl_transport.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <mutex>

#include "common/check.h"
#include "common/clock.h"
#include "common/status.h"
#include "coordinator/pull/url.h"

namespace strata {
namespace {

constexpr int kPollMs = 100;

struct EasyDeleter {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct MultiDeleter {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) {
    return "";
  }
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

// One transfer; libcurl calls back into it.
class Transfer {
 public:
  Transfer(const HttpTimeouts& timeouts, HttpReceiver& receiver)
      : timeouts_(timeouts),
        receiver_(receiver),
        easy_(curl_easy_init()),
        multi_(curl_multi_init()) {
    STRATA_CHECK(easy_ != nullptr && multi_ != nullptr);
  }
  ~Transfer() { curl_multi_remove_handle(multi_.get(), easy_.get()); }

  absl::Status Run(const std::string& url, const HttpHeaders& headers) {
    SetUp(url, headers);
    last_byte_ = clock_.Now();
    if (curl_multi_add_handle(multi_.get(), easy_.get()) != CURLM_OK) {
      return absl::InternalError("libcurl takes no transfer");
    }
    int running = 1;
    while (running > 0) {
      if (curl_multi_perform(multi_.get(), &running) != CURLM_OK) {
        return absl::InternalError("libcurl failed");
      }
      if (receiver_.Cancelled()) {
        return CancelledTransfer();
      }
      if (ToMs(clock_.Now() - last_byte_) > timeouts_.stall_timeout_ms && connected()) {
        return Error(absl::StatusCode::kUnavailable, "TRANSFER_STALLED",
                     "the server sent nothing for " + std::to_string(timeouts_.stall_timeout_ms) +
                         " ms: " + WithoutQuery(url));
      }
      if (running > 0) {
        curl_multi_poll(multi_.get(), nullptr, 0, kPollMs, nullptr);
      }
    }
    return Finish(url);
  }

 private:
  void SetUp(const std::string& url, const HttpHeaders& headers) {
    CURL* easy = easy_.get();
    for (const auto& [name, value] : headers) {
      curl_slist* longer = curl_slist_append(list_.get(), (name + ": " + value).c_str());
      STRATA_CHECK(longer != nullptr);
      static_cast<void>(list_.release());
      list_.reset(longer);
    }
    curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, list_.get());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(timeouts_.connect_timeout_ms));
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "strata");
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error_);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Transfer::HeaderThunk);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Transfer::BodyThunk);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
    if (IsLoopback(url)) {
      curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    }
  }

  // Connecting has its own timeout.
  bool connected() const {
    curl_off_t us = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_CONNECT_TIME_T, &us);
    return us > 0;
  }

  absl::Status Finish(const std::string& url) {
    CURLcode code = CURLE_RECV_ERROR;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg == CURLMSG_DONE) {
        code = message->data.result;
      }
    }
    if (!status_.ok()) {
      return status_;
    }
    if (code == CURLE_OK) {
      return BeginBody();
    }
    const std::string why = error_[0] != 0 ? error_ : curl_easy_strerror(code);
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_URL", why + ": " + WithoutQuery(url));
    }
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
      return Error(absl::StatusCode::kFailedPrecondition, "TLS_UNTRUSTED",
                   why + ": " + WithoutQuery(url));
    }
    return Error(absl::StatusCode::kUnavailable, "TRANSFER_BROKE", why + ": " + WithoutQuery(url));
  }

  // Hands the headers over, once.
  absl::Status BeginBody() {
    if (!begun_) {
      begun_ = true;
      status_ = receiver_.OnResponse(response_);
    }
    return status_;
  }

  void OnHeader(std::string_view line) {
    last_byte_ = clock_.Now();
    if (line.substr(0, 5) == "HTTP/") {
      // Also after an interim response (1xx), whose headers do not count.
      response_ = HttpResponse();
      const size_t blank = line.find(' ');
      response_.status =
          blank == line.npos ? 0 : std::atoi(std::string(line.substr(blank + 1)).c_str());
      return;
    }
    const size_t colon = line.find(':');
    if (colon != line.npos && !begun_) {
      std::string name(line.substr(0, colon));
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      response_.headers.emplace_back(std::move(name), Trimmed(line.substr(colon + 1)));
    }
  }

  bool OnBody(std::string_view bytes) {
    last_byte_ = clock_.Now();
    if (BeginBody().ok()) {
      // A fast server keeps libcurl here for long.
      status_ = receiver_.Cancelled() ? CancelledTransfer() : receiver_.OnBody(bytes);
    }
    return status_.ok();
  }

  static size_t HeaderThunk(char* data, size_t size, size_t count, void* self) {
    static_cast<Transfer*>(self)->OnHeader({data, size * count});
    return size * count;
  }
  static size_t BodyThunk(char* data, size_t size, size_t count, void* self) {
    return static_cast<Transfer*>(self)->OnBody({data, size * count}) ? size * count : 0;
  }

  const HttpTimeouts timeouts_;
  HttpReceiver& receiver_;
  const SystemClock clock_;
  std::unique_ptr<CURL, EasyDeleter> easy_;
  std::unique_ptr<CURLM, MultiDeleter> multi_;
  std::unique_ptr<curl_slist, ListDeleter> list_;
  char error_[CURL_ERROR_SIZE] = "";
  HttpResponse response_;
  bool begun_ = false;
  absl::Status status_;
  TimePoint last_byte_{};
};

class CurlTransport : public HttpTransport {
 public:
  explicit CurlTransport(const HttpTimeouts& timeouts) : timeouts_(timeouts) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  }

  absl::Status Get(const std::string& url, const HttpHeaders& headers,
                   HttpReceiver& receiver) override {
    return Transfer(timeouts_, receiver).Run(url, headers);
  }

 private:
  const HttpTimeouts timeouts_;
};

}  // namespace

std::string_view HttpResponse::Header(std::string_view name) const {
  for (const auto& [known, value] : headers) {
    if (known == name) {
      return value;
    }
  }
  return {};
}

absl::Status CancelledTransfer() {
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "the pull was cancelled")
      .Hint("pull again to go on: what has arrived is kept");
}

std::unique_ptr<HttpTransport> MakeCurlTransport(const HttpTimeouts& timeouts) {
  return std::make_unique<CurlTransport>(timeouts);
}

}  // namespace strata
