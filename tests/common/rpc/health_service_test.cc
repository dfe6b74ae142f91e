#include "common/rpc/health_service.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using std::chrono::milliseconds;

class HealthTest : public testing::Test {
 protected:
  HealthTest() {
    server_ = *RpcServer::Start(transport_, "127.0.0.1:0", {});
    stub_ = Health::NewStub(transport_.MakeChannel(server_->address()));
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGiveUpAfter);
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, response);
  }

  const Transport transport_ = *Transport::Make({});
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Health::Stub> stub_;
};

TEST_F(HealthTest, EveryListenerSaysWhetherItServes) {
  HealthCheckResponse response;
  ASSERT_TRUE(Check("", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server_->SetServing(false);
  ASSERT_TRUE(Check("", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthTest, AnUnknownServiceIsNotFound) {
  HealthCheckResponse response;
  EXPECT_EQ(Check("nobody", &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthTest, AWatcherHearsOfChangesAndOfTheEnd) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kGiveUpAfter);
  const auto reader = stub_->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server_->SetServing(false);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(true);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server_->Shutdown(std::chrono::hours(24));  // It waits for nobody.
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(HealthTest, WatchersMayGoAtAnyTime) {
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    const auto reader = stub_->Watch(&context, HealthCheckRequest());
    HealthCheckResponse response;
    if (i % 2 == 0) {
      EXPECT_TRUE(reader->Read(&response));
    }
    std::thread changer([this, i] { server_->SetServing(i % 3 == 0); });
    context.TryCancel();
    EXPECT_FALSE(reader->Finish().ok());
    changer.join();
  }
}

}  // namespace
}  // namespace strata
