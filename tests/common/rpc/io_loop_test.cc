#include "common/rpc/io_loop.h"

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_stream.h"
#include "common/rpc/transport.h"
#include "strata/v1/shard.grpc.pb.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A call that waits for a clock.
class AlarmCall : public IoCall {
 public:
  AlarmCall(IoLoop* loop, milliseconds delay) : IoCall(loop, Side::kClient) {
    alarm_.Set(loop->queue(), std::chrono::system_clock::now() + delay, rang_.tag());
  }
  void Cancel() { alarm_.Cancel(); }
  std::future<bool> ended() { return ended_.get_future(); }
  bool on_thread = false;

 private:
  void OnEnd() override {
    on_thread = loop()->OnThread();
    std::promise<bool> ended = std::move(ended_);
    const bool ok = ok_;
    delete this;
    ended.set_value(ok);
  }

  grpc::Alarm alarm_;
  bool ok_ = false;
  std::promise<bool> ended_;
  Op rang_{this, [this](bool ok) { ok_ = ok; }};
};

TEST(IoLoop, AnOperationEndsOnTheLoopsThread) {
  IoLoop loop;
  EXPECT_FALSE(loop.OnThread());
  std::promise<std::pair<bool, bool>> done;
  struct Tag : IoTag {
    void OnDone(bool ok) override { done->set_value({ok, loop->OnThread()}); }
    IoLoop* loop;
    std::promise<std::pair<bool, bool>>* done;
  } tag;
  tag.loop = &loop;
  tag.done = &done;
  grpc::Alarm alarm;
  alarm.Set(loop.queue(), std::chrono::system_clock::now(), static_cast<IoTag*>(&tag));
  EXPECT_EQ(done.get_future().get(), std::make_pair(true, true));
}

TEST(IoLoop, StoppingWaitsForWhatIsUnderWay) {
  IoLoop loop;
  auto* call = new AlarmCall(&loop, milliseconds(200));
  std::future<bool> ended = call->ended();
  loop.Stop();
  ASSERT_EQ(ended.wait_for(seconds(0)), std::future_status::ready);
  EXPECT_TRUE(ended.get());
  loop.Stop();  // Does nothing.
}

TEST(IoLoop, ACancelledOperationComesBackNotOk) {
  IoLoop loop;
  auto* call = new AlarmCall(&loop, std::chrono::hours(1));
  std::future<bool> ended = call->ended();
  call->Cancel();
  EXPECT_FALSE(ended.get());
}

class Stream : public IoClientStream<v1::LinkPart, v1::LinkReply> {
 public:
  Stream(IoLoop* loop, const Transport& transport, const std::string& address)
      : IoClientStream(loop),
        channel_(transport.MakeChannel(address)),
        stub_(v1::ShardService::NewStub(channel_)) {}

  std::future<grpc::Status> Open() {
    std::future<grpc::Status> ended = ended_.get_future();
    Start(stub_->PrepareAsyncLink(context(), loop()->queue()));
    return ended;
  }
  void Cancel() { context()->TryCancel(); }
  using IoClientStream::Write;

  std::atomic<int> written = 0;
  std::atomic<bool> started = false;

 private:
  void OnStarted() override {
    started = true;
    Read(&reply_);
  }
  void OnRead(bool ok) override {
    if (ok) {
      Read(&reply_);
    }
  }
  void OnWritten(bool) override { ++written; }
  void OnDone(const grpc::Status& status) override { ended_.set_value(status); }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ShardService::Stub> stub_;
  v1::LinkReply reply_;
  std::promise<grpc::Status> ended_;
};

// Takes streams and never reads.
class Silent : public IoService {
 public:
  grpc::Service* NewService() override {
    service_ = std::make_unique<v1::ShardService::AsyncService>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override {
    BlockingMethods(service_.get(), loop, &threads_)
        .Serve(&v1::ShardService::AsyncService::RequestLink, [](CallContext* context, auto*) {
          while (!context->IsCancelled()) {
            std::this_thread::sleep_for(milliseconds(5));
          }
          return grpc::Status::CANCELLED;
        });
  }

 private:
  std::unique_ptr<v1::ShardService::AsyncService> service_;
  CallThreads threads_{{.threads = 100}};
};

class IoStreamTest : public testing::Test {
 protected:
  IoStreamTest() { server_ = *RpcServer::Start(transport_, "127.0.0.1:0", {&silent_}); }

  const Transport transport_ = *Transport::Make({});
  Silent silent_;
  std::unique_ptr<RpcServer> server_;
  IoLoop loop_;
};

TEST_F(IoStreamTest, EndsOnlyAfterAWriteThatCannotGoOut) {
  Stream stream(&loop_, transport_, server_->address());
  std::future<grpc::Status> ended = stream.Open();
  ASSERT_TRUE(Eventually([&] { return stream.started.load(); }));
  v1::LinkPart part;
  part.mutable_frame()->mutable_data()->assign(3 << 20, 'x');
  int writes = 0;
  do {
    stream.Write(part);  // Until windows are full.
    ++writes;
    for (int i = 0; i < 40 && stream.written < writes; ++i) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  } while (stream.written == writes && writes < 50);
  EXPECT_LT(writes, 50);
  stream.Cancel();
  EXPECT_EQ(ended.get().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(stream.written, writes);
  stream.Write(part);  // Does nothing any more.
  EXPECT_EQ(stream.written, writes);
}

TEST_F(IoStreamTest, OneThatCannotStartEndsToo) {
  Stream stream(&loop_, transport_, "127.0.0.1:1");
  EXPECT_EQ(stream.Open().get().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(IoStreamTest, ManyEndInAnyStateAndLeaveTheLoopEmpty) {
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::future<grpc::Status>> ended;
  for (int i = 0; i < 60; ++i) {
    streams.push_back(std::make_unique<Stream>(&loop_, transport_, server_->address()));
    ended.push_back(streams.back()->Open());
    if (i % 3 == 0) {
      streams.back()->Cancel();
    }
  }
  for (int i = 0; i < 60; ++i) {
    if (i % 3 == 1) {
      streams[i]->Cancel();
    }
  }
  server_->Shutdown(milliseconds(0));
  for (auto& future : ended) {
    EXPECT_FALSE(future.get().ok());
  }
  streams.clear();
  loop_.Stop();
}

}  // namespace
}  // namespace strata
