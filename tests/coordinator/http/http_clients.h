// Clients of an HTTP server, and what it answers them with.
#ifndef STRATA_TESTS_COORDINATOR_HTTP_HTTP_CLIENTS_H_
#define STRATA_TESTS_COORDINATOR_HTTP_HTTP_CLIENTS_H_

#include <arpa/inet.h>
#include <curl/curl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "coordinator/http/http_server.h"
#include "tests/eventually.h"

namespace strata {

struct Answer {
  long status = 0;
  std::string body;
};

inline Answer Get(const std::string& url, const std::string& body = "") {
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

inline void Echo(const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
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

// A request that is longer than what the sockets hold: once it was sent, the server has read more
// of it than it keeps.
inline void SendMuchAhead(RawClient* client) {
  const size_t bytes = size_t{32} << 20;
  client->Send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) +
               "\r\n\r\n" + std::string(bytes, 'x'));
}

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

inline constexpr char kGet[] = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
inline const HttpResponse kStream{200, "text/event-stream", "", {}};

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_HTTP_HTTP_CLIENTS_H_
