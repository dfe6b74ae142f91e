#include "common/rpc/io_answers.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "strata/v1/admin.grpc.pb.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using std::chrono::milliseconds;

// Calls that a test answers.
class TestService : public IoService {
 public:
  class Call : public IoAnswers<v1::LoadModelRequest, v1::LoadModelProgress> {
   public:
    Call(TestService* service, IoLoop* loop)
        : IoAnswers(loop, {.most_unread_bytes = 4 << 20,
                           .behind_bytes = 1 << 20,
                           .timeout = service->timeout,
                           .hint = "read"}),
          service_(service) {
      Await([&](auto* context, auto* request, auto* writer, void* tag) {
        service_->service_->RequestLoadModel(context, request, writer, loop->queue(),
                                             loop->server_queue(), tag);
      });
    }
    ~Call() override { ++service_->gone; }
    std::string model() const { return request().model(); }
    using IoAnswers::Behind;

   private:
    void OnReader() override { ++service_->readers; }
    void OnAccepted() override {
      new Call(service_, loop());
      MutexLock lock(&service_->mutex_);
      service_->calls_.push_back(this);
    }
    void OnCancelled() override { ++service_->cancelled; }

    TestService* const service_;
  };

  grpc::Service* NewService() override {
    service_ = std::make_unique<v1::AdminService::AsyncService>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override { new Call(this, loop); }

  Call* Accepted() {
    EXPECT_TRUE(Eventually([this] {
      MutexLock lock(&mutex_);
      return !calls_.empty();
    }));
    MutexLock lock(&mutex_);
    Call* const call = calls_.back();
    calls_.pop_back();
    return call;
  }

  // Of calls that are accepted after the next one.
  std::atomic<std::chrono::nanoseconds> timeout = std::chrono::nanoseconds(0);
  std::atomic<int> cancelled = 0;
  std::atomic<int> gone = 0;
  std::atomic<int> readers = 0;  // How often one's Behind changed.

 private:
  std::unique_ptr<v1::AdminService::AsyncService> service_;
  Mutex mutex_;
  std::vector<Call*> calls_ STRATA_GUARDED_BY(mutex_);
};

class IoAnswersTest : public testing::Test {
 protected:
  IoAnswersTest() {
    server_ = *RpcServer::Start(transport_, "127.0.0.1:0", {&service_});
    // One that takes 64 KiB ahead of its reader, and not more if the connection is fast.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 * 1024);
    stub_ = v1::AdminService::NewStub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
  }

  // A client's end of a call.
  struct Client {
    Client(v1::AdminService::Stub* stub, const std::string& model) {
      v1::LoadModelRequest request;
      request.set_model(model);
      reader = stub->LoadModel(&context, request);
    }
    // The epoch of the next answer, or -1 at the end.
    int64_t Next() {
      v1::LoadModelProgress progress;
      return reader->Read(&progress) ? static_cast<int64_t>(progress.plan().epoch()) : -1;
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::LoadModelProgress>> reader;
  };
  std::unique_ptr<Client> Start(const std::string& model = "m") {
    return std::make_unique<Client>(stub_.get(), model);
  }

  // The next call's client may take nothing for so long.
  void LetNextCallWait(milliseconds timeout) {
    service_.timeout = timeout;
    const auto client = Start();
    service_.Accepted()->Close(grpc::Status::OK);
    EXPECT_EQ(client->Next(), -1);
    EXPECT_TRUE(client->reader->Finish().ok());
    EXPECT_TRUE(Eventually([&] { return service_.gone == 1; }));
  }

  static v1::LoadModelProgress Answer(uint64_t epoch, size_t bytes = 0) {
    v1::LoadModelProgress progress;
    progress.mutable_plan()->set_epoch(epoch);
    if (bytes > 0) progress.mutable_plan()->add_why(std::string(bytes, 'x'));
    return progress;
  }

  // Fills what is on the way to a client that does not read, and a little more.
  void FillUp(TestService::Call* call) {
    for (int i = 0; i < 64 && service_.cancelled == 0; ++i) {
      call->Push(Answer(0, 32 * 1024));
    }
  }

  const Transport transport_ = *Transport::Make({});
  TestService service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::AdminService::Stub> stub_;
};

TEST_F(IoAnswersTest, AnswersArriveInTheirOrderWhicheverThreadBringsThem) {
  const auto client = Start("which");
  TestService::Call* const call = service_.Accepted();
  EXPECT_EQ(call->model(), "which");
  std::thread bringer([call] {
    for (uint64_t i = 0; i < 500; ++i) {
      call->Push(Answer(i));
    }
    std::thread([call] {
      for (uint64_t i = 500; i < 1000; ++i) {
        call->Push(Answer(i));
      }
      call->Close(grpc::Status::OK);
    }).join();
  });
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(client->Next(), i);
  }
  EXPECT_EQ(client->Next(), -1);
  EXPECT_TRUE(client->reader->Finish().ok());
  bringer.join();
  EXPECT_TRUE(Eventually([&] { return service_.gone == 1; }));
  EXPECT_EQ(service_.cancelled, 0);
}

TEST_F(IoAnswersTest, ACallMayEndWithoutAnAnswer) {
  const auto client = Start();
  service_.Accepted()->Close({grpc::StatusCode::NOT_FOUND, "nothing"});
  EXPECT_EQ(client->Next(), -1);
  EXPECT_EQ(client->reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Eventually([&] { return service_.gone == 1; }));
}

TEST_F(IoAnswersTest, WhatWaitsIsSentBeforeTheEnd) {
  const auto client = Start();
  TestService::Call* const call = service_.Accepted();
  for (uint64_t i = 0; i < 3; ++i) {
    call->Push(Answer(i, 1 << 20));
  }
  call->Close({grpc::StatusCode::ABORTED, "that is all"});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(client->Next(), i);
  }
  EXPECT_EQ(client->Next(), -1);
  EXPECT_EQ(client->reader->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(IoAnswersTest, AClientThatDoesNotReadIsCutOffAndTheOthersAreNot) {
  const auto sleeper = Start("sleeper");
  TestService::Call* const slept_on = service_.Accepted();
  const auto reader = Start("reader");
  TestService::Call* const read = service_.Accepted();
  uint64_t pushed = 0;
  // Far more than what may wait, and what is on the way.
  while (service_.cancelled == 0 && pushed < 256) {
    slept_on->Push(Answer(pushed++, 1 << 20));
  }
  EXPECT_GE(pushed, 4u);
  EXPECT_EQ(service_.cancelled, 1);
  slept_on->Push(Answer(0));  // Does nothing.
  slept_on->Close(grpc::Status::OK);
  // It reads on, and is told why there is no more.
  int64_t read_on = 0;
  while (sleeper->Next() == read_on) {
    ++read_on;
  }
  EXPECT_LT(read_on, static_cast<int64_t>(pushed)) << "what waited is gone";
  const absl::Status why = FromGrpc(sleeper->reader->Finish());
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(why), "SLOW_READER");
  EXPECT_EQ(DetailOf(why).hint(), "read");
  EXPECT_TRUE(Eventually([&] { return service_.gone == 1; }));

  read->Push(Answer(7));
  EXPECT_EQ(reader->Next(), 7);
  read->Close(grpc::Status::OK);
  EXPECT_EQ(reader->Next(), -1);
  EXPECT_TRUE(reader->reader->Finish().ok());
  EXPECT_EQ(service_.cancelled, 1);
}

TEST_F(IoAnswersTest, AClientThatTakesNothingForTooLongIsToldSoIfItReadsOn) {
  LetNextCallWait(milliseconds(500));
  const auto client = Start();
  TestService::Call* const call = service_.Accepted();
  // Few bytes, fewer than may wait.
  FillUp(call);
  // Once when it is cut off, and once more if this thread is so late that the call was ended.
  EXPECT_TRUE(Eventually([&] { return service_.cancelled >= 1; }));
  call->Push(Answer(1));  // Does nothing.
  call->Close({grpc::StatusCode::CANCELLED, "as its generation ends"});
  while (client->Next() >= 0) {
  }
  // Unless it was so late that the call was ended at all.
  const absl::Status why = FromGrpc(client->reader->Finish());
  if (why.code() != absl::StatusCode::kCancelled) {
    EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(why), "SLOW_READER");
  }
  EXPECT_TRUE(Eventually([&] { return service_.gone == 2; }));
}

TEST_F(IoAnswersTest, TheCallOfAClientThatNeverReadsOnEnds) {
  LetNextCallWait(milliseconds(20));
  const auto client = Start();
  TestService::Call* const call = service_.Accepted();
  FillUp(call);
  // Also where all was said before.
  call->Close(grpc::Status::OK);
  EXPECT_TRUE(Eventually([&] { return service_.gone == 2; }));
  while (client->Next() >= 0) {
  }
  EXPECT_FALSE(client->reader->Finish().ok());
}

TEST_F(IoAnswersTest, NobodyIsCutOffWhileNothingWaits) {
  LetNextCallWait(milliseconds(5));
  const auto client = Start();
  TestService::Call* const call = service_.Accepted();
  for (int64_t i = 0; i < 20; ++i) {
    call->Push(Answer(static_cast<uint64_t>(i)));
    EXPECT_EQ(client->Next(), i);
    std::this_thread::sleep_for(milliseconds(10));
  }
  call->Close(grpc::Status::OK);
  EXPECT_EQ(client->Next(), -1);
  EXPECT_TRUE(client->reader->Finish().ok());
  EXPECT_EQ(service_.cancelled, 0);
}

TEST_F(IoAnswersTest, AReaderIsBehindUntilItReadsOn) {
  const auto client = Start();
  TestService::Call* const call = service_.Accepted();
  call->Push(Answer(0));
  EXPECT_FALSE(call->Behind());
  int64_t pushed = 1;
  // What is on the way, and then more than may wait for one that is not behind.
  for (; !call->Behind() && pushed < 2048; ++pushed) {
    call->Push(Answer(static_cast<uint64_t>(pushed), 128 * 1024));
  }
  EXPECT_GE(pushed, 8);
  EXPECT_TRUE(call->Behind());
  EXPECT_EQ(service_.readers, 1);
  for (int64_t i = 0; i < pushed; ++i) {
    ASSERT_EQ(client->Next(), i);
  }
  EXPECT_TRUE(Eventually([&] { return service_.readers == 2; }));
  EXPECT_FALSE(call->Behind());
  EXPECT_EQ(service_.cancelled, 0);
  call->Close(grpc::Status::OK);
  EXPECT_EQ(client->Next(), -1);
}

TEST_F(IoAnswersTest, AClientThatGoesIsSaidOnceAndTheCallLivesUntilItIsClosed) {
  const auto client = Start();
  TestService::Call* const call = service_.Accepted();
  call->Push(Answer(1));
  EXPECT_EQ(client->Next(), 1);
  client->context.TryCancel();
  EXPECT_TRUE(Eventually([&] { return service_.cancelled == 1; }));
  for (uint64_t i = 0; i < 100; ++i) {
    call->Push(Answer(i));
  }
  EXPECT_EQ(service_.gone, 0);
  call->Close(grpc::Status::OK);
  EXPECT_TRUE(Eventually([&] { return service_.gone == 1; }));
  EXPECT_EQ(service_.cancelled, 1);
  EXPECT_EQ(client->reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(IoAnswersTest, TheServersEndIsSaidAsTheClientsIs) {
  const auto client = Start();
  TestService::Call* const call = service_.Accepted();
  std::thread closer([&] {
    EXPECT_TRUE(Eventually([&] { return service_.cancelled == 1; }));
    call->Close(grpc::Status::CANCELLED);
  });
  server_->Shutdown(milliseconds(50));
  EXPECT_FALSE(client->reader->Finish().ok());
  closer.join();
}

TEST_F(IoAnswersTest, CallsMayEndInAnyStateAtBothEndsAtOnce) {
  constexpr int kCalls = 300;
  for (int i = 0; i < kCalls; ++i) {
    const auto client = Start();
    TestService::Call* const call = service_.Accepted();
    std::thread answerer([call, i] {
      for (int k = 0; k < i % 4; ++k) {
        call->Push(Answer(1, i % 3 == 0 ? 100'000 : 0));
      }
      call->Close(grpc::Status::OK);
    });
    if (i % 2 == 0) {
      client->context.TryCancel();
    }
    while (client->Next() >= 0) {
    }
    (void)client->reader->Finish();
    answerer.join();
  }
  EXPECT_TRUE(Eventually([&] { return service_.gone == kCalls; }));
}

}  // namespace
}  // namespace strata
