#include "common/rpc/blocking_call.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "strata/v1/admin.grpc.pb.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using Upload = CallStream<v1::ModelProgress, v1::UploadModelRequest>;

// A call of each kind, which does what the test says.
class TestService : public IoService {
 public:
  using Async = v1::AdminService::AsyncService;

  explicit TestService(CallThreadsOptions options) : threads_(std::move(options)) {}

  grpc::Service* NewService() override {
    service_ = std::make_unique<Async>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override {
    const BlockingMethods calls(service_.get(), loop, &threads_);
    calls.Serve(&Async::RequestGetNode, [this](auto*... call) { return unary(call...); });
    calls.Serve(&Async::RequestLoadModel, [this](auto*... call) { return stream(call...); });
    calls.Serve(&Async::RequestUploadModel, [this](auto*... call) { return both(call...); });
  }

  std::function<grpc::Status(CallContext*, const v1::GetNodeRequest*, v1::Node*)> unary;
  std::function<grpc::Status(CallContext*, const v1::LoadModelRequest*,
                             CallWriter<v1::LoadModelProgress>*)>
      stream;
  std::function<grpc::Status(CallContext*, Upload*)> both;

  size_t waiting() { return threads_.waiting(); }

 private:
  std::unique_ptr<Async> service_;
  CallThreads threads_;
};

class BlockingCallTest : public testing::Test {
 protected:
  void Serve(CallThreadsOptions options = {}) {
    service_ = std::make_unique<TestService>(std::move(options));
    server_ = *RpcServer::Start(transport_, "127.0.0.1:0", {service_.get()});
    stub_ = v1::AdminService::NewStub(transport_.MakeChannel(server_->address()));
  }

  grpc::Status Unary(const std::string& name, v1::Node* node = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGiveUpAfter);
    v1::GetNodeRequest request;
    request.set_name(name);
    v1::Node ignored;
    return stub_->GetNode(&context, request, node != nullptr ? node : &ignored);
  }

  // A handler that does nothing until its call is cancelled; counts its beginnings and ends.
  grpc::Status UntilCancelled(CallContext* context) {
    ++begun_;
    while (!context->IsCancelled()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    ++ended_;
    return grpc::Status::CANCELLED;
  }

  const Transport transport_ = *Transport::Make({});
  std::atomic<int> begun_ = 0;
  std::atomic<int> ended_ = 0;
  std::unique_ptr<TestService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::AdminService::Stub> stub_;
};

TEST_F(BlockingCallTest, AnAnswerAndATypedErrorComeBack) {
  Serve();
  service_->unary = [](CallContext* context, const v1::GetNodeRequest* request, v1::Node* node) {
    EXPECT_FALSE(context->IsCancelled());
    EXPECT_NE(context->grpc().peer(), "");
    node->set_name(request->name() + "!");
    return request->name() == "bad"
               ? ToGrpc(Error(absl::StatusCode::kNotFound, "NO_NODE", "no").Hint("look"))
               : grpc::Status::OK;
  };
  v1::Node node;
  ASSERT_TRUE(Unary("a", &node).ok());
  EXPECT_EQ(node.name(), "a!");
  const absl::Status bad = FromGrpc(Unary("bad"));
  EXPECT_EQ(bad.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(bad), "NO_NODE");
  EXPECT_EQ(DetailOf(bad).hint(), "look");
}

TEST_F(BlockingCallTest, ACallThatIsEndedFromElsewhereSaysWhyAndItsHandlerIsWoken) {
  Serve();
  std::promise<CallContext*> reads;
  std::promise<void> ended;
  service_->both = [&](CallContext* context, Upload* stream) {
    v1::UploadModelRequest message;
    EXPECT_TRUE(stream->Read(&message));
    reads.set_value(context);
    EXPECT_FALSE(stream->Read(&message)) << "it waits for what never comes";
    ended.get_future().wait();
    return grpc::Status(grpc::StatusCode::INTERNAL, "is told to nobody");
  };
  grpc::ClientContext context;
  const auto stream = stub_->UploadModel(&context);
  ASSERT_TRUE(stream->Write(v1::UploadModelRequest()));
  reads.get_future().get()->EndWith(
      ToGrpc(Error(absl::StatusCode::kAborted, "TOO_SLOW", "too slow").Hint("hurry")));
  v1::ModelProgress progress;
  EXPECT_FALSE(stream->Read(&progress));
  const absl::Status why = FromGrpc(stream->Finish());
  EXPECT_EQ(why.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(why), "TOO_SLOW");
  EXPECT_EQ(DetailOf(why).hint(), "hurry");
  ended.set_value();
  server_->Shutdown(milliseconds(1000));  // Waits for what is left of the call.
}

TEST_F(BlockingCallTest, ManyWaitAtOnceAndTheLoopServesOthersMeanwhile) {
  Serve({.threads = 16});
  std::promise<void> go_on;
  service_->unary = [&, gate = go_on.get_future().share()](auto*, const auto* request, auto*) {
    if (request->name() == "waits") {
      ++begun_;
      gate.wait();
    }
    return grpc::Status::OK;
  };
  std::vector<std::future<grpc::Status>> waiting;
  for (int i = 0; i < 10; ++i) {
    waiting.push_back(std::async(std::launch::async, [this] { return Unary("waits"); }));
  }
  EXPECT_TRUE(Eventually([&] { return begun_ == 10; }));
  EXPECT_TRUE(Unary("quick").ok());
  go_on.set_value();
  for (auto& call : waiting) {
    EXPECT_TRUE(call.get().ok());
  }
}

TEST_F(BlockingCallTest, AStreamOfAnswersArrivesInOrderAndThenItsStatus) {
  Serve();
  service_->stream = [](auto*, const v1::LoadModelRequest* request, auto* writer) {
    v1::LoadModelProgress progress;
    for (int i = 0; i < 500; ++i) {
      progress.mutable_plan()->set_epoch(static_cast<uint64_t>(i));
      EXPECT_TRUE(writer->Write(progress));
    }
    return request->model() == "bad" ? ToGrpc(Error(absl::StatusCode::kAborted, "NO", "no"))
                                     : grpc::Status::OK;
  };
  for (const char* model : {"good", "bad"}) {
    grpc::ClientContext context;
    v1::LoadModelRequest request;
    request.set_model(model);
    const auto reader = stub_->LoadModel(&context, request);
    v1::LoadModelProgress progress;
    for (uint64_t i = 0; i < 500; ++i) {
      ASSERT_TRUE(reader->Read(&progress));
      EXPECT_EQ(progress.plan().epoch(), i);
    }
    EXPECT_FALSE(reader->Read(&progress));
    EXPECT_EQ(ReasonOf(FromGrpc(reader->Finish())), std::string(model) == "bad" ? "NO" : "");
  }
}

TEST_F(BlockingCallTest, AClientThatDoesNotReadHoldsTheHandlerUpUntilItGoes) {
  Serve();
  std::atomic<int> written = 0;
  service_->stream = [&](CallContext* context, auto*, auto* writer) {
    v1::LoadModelProgress progress;
    progress.mutable_plan()->add_why(std::string(1 << 20, 'x'));
    while (writer->Write(progress)) {
      ++written;
    }
    EXPECT_TRUE(Eventually([&] { return context->IsCancelled(); }));
    ++ended_;
    return grpc::Status::OK;
  };
  grpc::ClientContext context;
  const auto reader = stub_->LoadModel(&context, {});
  EXPECT_TRUE(Eventually([&] { return written > 0; }));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(written, 20);
  EXPECT_EQ(ended_, 0);
  context.TryCancel();
  EXPECT_TRUE(Eventually([&] { return ended_ == 1; }));
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(BlockingCallTest, BothEndsReadAndWriteAtTheSameTime) {
  Serve();
  service_->both = [](CallContext*, Upload* stream) {
    std::thread writer([&] {
      v1::ModelProgress progress;
      for (uint64_t i = 0; i < 1000; ++i) {
        progress.set_done_bytes(i);
        EXPECT_TRUE(stream->Write(progress));
      }
    });
    v1::UploadModelRequest message;
    uint64_t count = 0;
    while (stream->Read(&message)) {
      EXPECT_EQ(message.data(), std::to_string(count));
      ++count;
    }
    writer.join();
    EXPECT_EQ(count, 1000u);
    return grpc::Status::OK;
  };
  grpc::ClientContext context;
  const auto stream = stub_->UploadModel(&context);
  std::thread writer([&] {
    v1::UploadModelRequest message;
    for (int i = 0; i < 1000; ++i) {
      message.set_data(std::to_string(i));
      EXPECT_TRUE(stream->Write(message));
    }
    stream->WritesDone();
  });
  v1::ModelProgress progress;
  uint64_t count = 0;
  while (stream->Read(&progress)) {
    EXPECT_EQ(progress.done_bytes(), count);
    ++count;
  }
  writer.join();
  EXPECT_EQ(count, 1000u);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(BlockingCallTest, AHandlerThatReadsIsWokenWhenTheClientGoesAndMayEndTheCallItself) {
  Serve();
  service_->both = [&](CallContext* context, Upload* stream) {
    v1::UploadModelRequest message;
    EXPECT_TRUE(stream->Read(&message));
    ++begun_;
    if (message.data() == "end") {
      context->EndWith({grpc::StatusCode::ABORTED, "ended"});
    }
    EXPECT_FALSE(stream->Read(&message));
    EXPECT_TRUE(Eventually([&] { return context->IsCancelled(); }));
    ++ended_;
    return grpc::Status::OK;
  };
  for (const char* word : {"go", "end"}) {
    begun_ = ended_ = 0;
    grpc::ClientContext context;
    const auto stream = stub_->UploadModel(&context);
    v1::UploadModelRequest message;
    message.set_data(word);
    ASSERT_TRUE(stream->Write(message));
    EXPECT_TRUE(Eventually([&] { return begun_ == 1; }));
    if (message.data() == "go") {
      context.TryCancel();
    }
    EXPECT_EQ(stream->Finish().error_code(),
              message.data() == "go" ? grpc::StatusCode::CANCELLED : grpc::StatusCode::ABORTED);
    EXPECT_TRUE(Eventually([&] { return ended_ == 1; })) << word;
  }
}

TEST_F(BlockingCallTest, ADeadlineIsSeenByAHandlerThatWaits) {
  Serve();
  service_->unary = [this](CallContext* context, auto*, auto*) { return UntilCancelled(context); };
  // A call that is out of time on its way does not begin: then one with more.
  for (milliseconds timeout(100); begun_ == 0; timeout *= 2) {
    ASSERT_LT(timeout, kGiveUpAfter);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    v1::Node node;
    EXPECT_EQ(stub_->GetNode(&context, {}, &node).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Eventually([&] { return ended_ == begun_; }));
}

TEST_F(BlockingCallTest, CallsBeyondTheLimitAreRefusedUntilOthersHaveEnded) {
  Serve({.threads = 2, .waiting = 0, .name = "slow_calls", .hint = "wait"});
  service_->unary = [this](CallContext* context, auto*, auto*) { return UntilCancelled(context); };
  service_->stream = [](auto*...) { return grpc::Status::OK; };
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    calls.push_back(std::async(std::launch::async, [this, context = contexts.back().get()] {
      v1::Node node;
      return stub_->GetNode(context, {}, &node);
    }));
  }
  EXPECT_TRUE(Eventually([&] { return begun_ == 2; }));
  const auto stream = [this] {
    grpc::ClientContext context;
    v1::LoadModelProgress progress;
    const auto reader = stub_->LoadModel(&context, {});
    EXPECT_FALSE(reader->Read(&progress));
    return FromGrpc(reader->Finish());
  };
  // Every kind.
  for (const absl::Status& refused : {FromGrpc(Unary("a")), stream()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
    EXPECT_EQ(DetailOf(refused).limit(), "slow_calls=2");
    EXPECT_EQ(DetailOf(refused).hint(), "wait");
  }
  contexts[0]->TryCancel();
  EXPECT_FALSE(calls[0].get().ok());
  EXPECT_TRUE(Eventually([&] { return stream().ok(); }));
  contexts[1]->TryCancel();
  EXPECT_FALSE(calls[1].get().ok());
}

TEST_F(BlockingCallTest, ACallThatIsCancelledBeforeItsTurnDoesNotBegin) {
  Serve({.threads = 1, .waiting = 1});
  std::promise<void> go_on;
  service_->unary = [&, gate = go_on.get_future().share()](auto*, const auto* request, auto*) {
    ++begun_;
    gate.wait();
    return grpc::Status::OK;
  };
  std::future<grpc::Status> first = std::async(std::launch::async, [this] { return Unary("1"); });
  EXPECT_TRUE(Eventually([&] { return begun_ == 1; }));
  grpc::ClientContext context;
  std::future<grpc::Status> second = std::async(std::launch::async, [&] {
    v1::Node node;
    return stub_->GetNode(&context, {}, &node);
  });
  ASSERT_TRUE(Eventually([&] { return service_->waiting() == 1; }));
  context.TryCancel();
  EXPECT_FALSE(second.get().ok());
  // Before it answers this one, the server has heard that nobody waits for the one before.
  EXPECT_EQ(ReasonOf(FromGrpc(Unary("3"))), "TOO_MANY_CALLS");
  go_on.set_value();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(Eventually([this] { return Unary("4").ok(); }));
  EXPECT_EQ(begun_, 2);
}

TEST_F(BlockingCallTest, ShutdownLetsHandlersEnd) {
  Serve();
  std::promise<void> go_on;
  service_->unary = [&, gate = go_on.get_future().share()](auto*, const auto* request, auto*) {
    if (request->name() == "waits") {
      ++begun_;
      gate.wait();
    }
    return grpc::Status::OK;
  };
  std::future<grpc::Status> call =
      std::async(std::launch::async, [this] { return Unary("waits"); });
  EXPECT_TRUE(Eventually([&] { return begun_ == 1; }));
  std::thread stop([this] { server_->Shutdown(kGiveUpAfter); });
  EXPECT_TRUE(Eventually([this] { return !Unary("new").ok(); }));
  go_on.set_value();
  EXPECT_TRUE(call.get().ok());
  stop.join();
  server_.reset();
  service_.reset();
}

TEST_F(BlockingCallTest, ShutdownCancelsHandlersAfterTheGrace) {
  Serve();
  service_->unary = [this](CallContext* context, auto*, auto*) { return UntilCancelled(context); };
  std::future<grpc::Status> call = std::async(std::launch::async, [this] { return Unary("long"); });
  EXPECT_TRUE(Eventually([&] { return begun_ == 1; }));
  const auto start = std::chrono::steady_clock::now();
  server_->Shutdown(milliseconds(200));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(200));
  EXPECT_EQ(ended_, 1);
  EXPECT_FALSE(call.get().ok());
  server_.reset();
  service_.reset();
}

TEST_F(BlockingCallTest, ShutdownWakesHandlersThatReadAndWrite) {
  Serve();
  service_->both = [&](CallContext*, Upload* stream) {
    ++begun_;
    v1::UploadModelRequest message;
    EXPECT_FALSE(stream->Read(&message));
    ++ended_;
    return grpc::Status::OK;
  };
  service_->stream = [&](auto*, auto*, auto* writer) {
    ++begun_;
    v1::LoadModelProgress progress;
    progress.mutable_plan()->add_why(std::string(1 << 20, 'x'));
    while (writer->Write(progress)) {
    }
    ++ended_;
    return grpc::Status::OK;
  };
  grpc::ClientContext reads;
  const auto reader = stub_->LoadModel(&reads, {});
  grpc::ClientContext sends;
  const auto stream = stub_->UploadModel(&sends);
  EXPECT_TRUE(Eventually([&] { return begun_ == 2; }));
  server_->Shutdown(milliseconds(0));
  EXPECT_EQ(ended_, 2);
  EXPECT_FALSE(stream->Finish().ok());
  v1::LoadModelProgress progress;
  while (reader->Read(&progress)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(BlockingCallTest, CallsMayComeAndGoInAnyState) {
  Serve({.threads = 4, .waiting = 4});
  service_->unary = [](auto*...) { return grpc::Status::OK; };
  service_->both = [](CallContext* context, Upload* stream) {
    v1::UploadModelRequest message;
    v1::ModelProgress progress;
    while (stream->Read(&message) && stream->Write(progress)) {
    }
    return context->IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([this, i] {
      for (int k = 0; k < 100; ++k) {
        grpc::ClientContext context;
        const auto stream = stub_->UploadModel(&context);
        v1::UploadModelRequest message;
        v1::ModelProgress progress;
        for (int n = 0; n < k % 3; ++n) {
          if (stream->Write(message)) stream->Read(&progress);
        }
        if ((i + k) % 2 == 0) {
          context.TryCancel();
        } else {
          stream->WritesDone();
        }
        stream->Finish().ok();
        Unary("a").ok();
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  server_->Shutdown(milliseconds(2000));
}

}  // namespace
}  // namespace strata
