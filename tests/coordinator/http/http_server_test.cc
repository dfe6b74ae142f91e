#include "coordinator/http/http_server.h"

#include <curl/curl.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

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
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 5000L);
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

HttpResponse Echo(const HttpRequest& request) {
  if (request.path == "/missing") {
    return {404, "text/plain", "no"};
  }
  return {200, "text/plain", request.method + " " + request.path + " " + request.query};
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
  EXPECT_NE(Get(base + "/a", std::string(101, 'x')).status, 200);
}

TEST(HttpServer, ATakenAddressIsNamed) {
  auto first = HttpServer::Start("127.0.0.1:0", {}, Echo);
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)->address();
  const auto second = HttpServer::Start(address, {}, Echo);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(address), std::string::npos);
}

}  // namespace
}  // namespace strata
