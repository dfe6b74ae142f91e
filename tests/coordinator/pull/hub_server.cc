#include "tests/coordinator/pull/hub_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "common/check.h"
#include "common/digest.h"
#include "nlohmann/json.hpp"

namespace strata::testing {
namespace {

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void SendAll(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool ReadRequest(int connection, HubRequest* request) {
  std::string text;
  char buffer[4096];
  while (text.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = ::recv(connection, buffer, sizeof(buffer), 0);
    if (got <= 0) {
      return false;
    }
    text.append(buffer, static_cast<size_t>(got));
  }
  std::istringstream in(text);
  std::string method;
  in >> method >> request->path;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line) && line != "\r") {
    const size_t colon = line.find(':');
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request->headers[name] = line.substr(colon + 2, line.size() - colon - 3);
  }
  return true;
}

}  // namespace

std::string HubRequest::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

LoopbackServer::LoopbackServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  STRATA_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  STRATA_CHECK(::listen(listener_, 16) == 0);
  STRATA_CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  accepter_ = std::thread([this] { Accept(); });
}

LoopbackServer::~LoopbackServer() {
  ends_ = true;
  accepter_.join();
  ::close(listener_);
}

std::vector<HubRequest> LoopbackServer::requests() const {
  const MutexLock lock(&mutex_);
  return requests_;
}

void LoopbackServer::Accept() {
  std::vector<std::thread> connections;
  while (!ends_) {
    pollfd waits = {listener_, POLLIN, 0};
    if (::poll(&waits, 1, 20) > 0) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection >= 0) {
        connections.emplace_back([this, connection] { Serve(connection); });
      }
    }
  }
  for (std::thread& connection : connections) {
    connection.join();
  }
}

void LoopbackServer::Serve(int connection) {
  HubRequest request;
  if (ReadRequest(connection, &request)) {
    {
      const MutexLock lock(&mutex_);
      requests_.push_back(request);
    }
    const HubReply reply = [&] {
      const MutexLock lock(&handler_mutex_);
      return handler_(request);
    }();
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " X\r\nConnection: close\r\n";
    for (const auto& [name, value] : reply.headers) {
      head += name + ": " + value + "\r\n";
    }
    if (reply.with_length) {
      head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    }
    SendAll(connection, head + "\r\n");
    SendAll(connection, std::string_view(reply.body)
                            .substr(0, reply.stall ? 0 : reply.break_after.value_or(SIZE_MAX)));
    while (reply.stall && !ends_) {
      ::usleep(10'000);
    }
  }
  ::shutdown(connection, SHUT_WR);
  char rest[256];
  pollfd waits = {connection, POLLIN, 0};
  while (::poll(&waits, 1, 1000) > 0 && ::recv(connection, rest, sizeof(rest), 0) > 0) {
  }
  ::close(connection);
}

std::string Sha256Etag(const std::string& content) { return "\"" + Sha256Hex(content) + "\""; }

Hub::Hub() {
  server_ = std::make_unique<LoopbackServer>(
      [this](const HubRequest& request) { return Answer(request); });
}

void Hub::Add(const std::string& name, const std::string& content) {
  files_[name] = {content, Sha256Etag(content)};
}

int Hub::CountOf(const std::string& end) const {
  const std::vector<HubRequest> all = requests();
  return static_cast<int>(std::count_if(
      all.begin(), all.end(), [&](const HubRequest& r) { return EndsWith(r.path, end); }));
}

HubReply Hub::Serve(const HubFile& file, const HubRequest& request) {
  HubReply reply;
  reply.headers = {{"ETag", file.etag}, {"Accept-Ranges", "bytes"}};
  const std::string range = request.Header("range");
  const std::string condition = request.Header("if-range");
  if (range.empty() || (!condition.empty() && condition != file.etag)) {
    reply.body = file.content;
    return reply;
  }
  const size_t first = std::stoull(range.substr(range.find('=') + 1));
  const std::string size = std::to_string(file.content.size());
  if (first >= file.content.size()) {
    reply.status = 416;
    reply.headers.emplace_back("Content-Range", "bytes */" + size);
    return reply;
  }
  reply.status = 206;
  reply.body = file.content.substr(first);
  reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" +
                                                  std::to_string(file.content.size() - 1) + "/" +
                                                  size);
  return reply;
}

HubReply Hub::Answer(const HubRequest& request) {
  if (hook) {
    if (std::optional<HubReply> reply = hook(request)) {
      return *std::move(reply);
    }
  }
  if (request.path.rfind("/api/models/org/model/revision/", 0) == 0) {
    nlohmann::json siblings = nlohmann::json::array();
    for (const auto& [name, file] : files_) {
      siblings.push_back({{"rfilename", name}});
    }
    for (const std::string& name : listed_too) {
      siblings.push_back({{"rfilename", name}});
    }
    HubReply reply;
    reply.body = nlohmann::json{{"sha", commit}, {"siblings", siblings}}.dump();
    return reply;
  }
  const std::string prefix = "/org/model/resolve/" + commit + "/";
  const auto file = request.path.rfind(prefix, 0) == 0
                        ? files_.find(request.path.substr(prefix.size()))
                        : files_.end();
  if (file == files_.end()) {
    HubReply reply;
    reply.status = 404;
    return reply;
  }
  return Serve(file->second, request);
}

}  // namespace strata::testing
