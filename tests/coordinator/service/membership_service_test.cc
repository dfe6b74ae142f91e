#include "coordinator/service/calls/membership_service.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "coordinator/cluster/weight_holders.h"
#include "coordinator/registry/blob_store.h"
#include "strata/v1/membership.grpc.pb.h"
#include "tests/coordinator/service/coordinator_testing.h"

namespace strata {
namespace {

using std::chrono::milliseconds;

// Takes everybody; keeps what they say and lets go of the next message when asked to.
class OpenHandler : public MembershipHandler {
 public:
  // Messages that came, and the newest member's channel.
  std::vector<uint64_t> terms() {
    MutexLock lock(&mutex_);
    return terms_;
  }
  std::shared_ptr<NodeChannel> channel() {
    MutexLock lock(&mutex_);
    return channel_;
  }
  bool left() {
    MutexLock lock(&mutex_);
    return left_;
  }
  void LetGo() {
    std::function<void()> done;
    {
      MutexLock lock(&mutex_);
      done = std::exchange(done_, nullptr);
    }
    done();
  }

  void OnServing(IoLoop*) override {}
  absl::Status MayJoin(const v1::NodeInfo&) override { return absl::OkStatus(); }
  absl::StatusOr<v1::Registered> Join(const v1::NodeInfo&, const LinkSpeed&,
                                      std::shared_ptr<NodeChannel> channel) override {
    MutexLock lock(&mutex_);
    channel_ = std::move(channel);
    return v1::Registered();
  }
  void OnMessage(const std::string&, uint64_t, v1::WorkerMessage message,
                 std::function<void()> done) override {
    MutexLock lock(&mutex_);
    terms_.push_back(message.heartbeat().term());
    done_ = std::move(done);
  }
  void OnLeave(const std::string&, uint64_t, std::shared_ptr<NodeChannel> channel) override {
    channel->Close();
    MutexLock lock(&mutex_);
    left_ = true;
  }

 private:
  Mutex mutex_;
  std::shared_ptr<NodeChannel> channel_ STRATA_GUARDED_BY(mutex_);
  std::vector<uint64_t> terms_ STRATA_GUARDED_BY(mutex_);
  std::function<void()> done_ STRATA_GUARDED_BY(mutex_);
  bool left_ STRATA_GUARDED_BY(mutex_) = false;
};

// Where a worker is dialled back.
class Answering : public LinkHandler {
 public:
  Identity identity() const override { return {"a", 1}; }
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen&, const std::string&,
                                                   std::shared_ptr<InboundLink>) override {
    return absl::UnimplementedError("no links");
  }
};

class MembershipServiceTest : public ::testing::Test {
 protected:
  ~MembershipServiceTest() override {
    service_->Shutdown();
    server_->Shutdown(milliseconds(2000));
  }

  static MembershipOptions Patient() {
    MembershipOptions options;
    options.register_timeout = kGiveUpAfter;
    options.dial_back_timeout = kGiveUpAfter;
    return options;
  }

  void Serve(MembershipOptions options) {
    service_ =
        std::make_unique<MembershipService>(options, &handler_, &blobs_, &holders_, &transport_);
    links_ = std::make_unique<LinkService>(&answering_, LinkServiceOptions());
    auto server = RpcServer::Start(transport_, "127.0.0.1:0", {service_.get(), links_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::MembershipService::NewStub(
        transport_.MakeChannel(server_->address(), kMaxControlBytes));
  }

  // A worker's end of a control stream.
  class Client {
   public:
    explicit Client(v1::MembershipService::Stub* stub)
        : stream_(stub->Control(&context_)), reader_([this] {
            v1::CoordinatorMessage message;
            while (stream_->Read(&message)) {
              joined = true;
              if (message.has_fence()) {
                MutexLock lock(&mutex_);
                fences_.push_back(message.fence().epoch());
              }
              if (message.has_load()) {
                tensors = message.load().tensors_size();
              }
            }
            status = FromGrpc(stream_->Finish());
            ended = true;
          }) {}
    ~Client() {
      context_.TryCancel();
      reader_.join();
    }
    void Register(const std::string& address) {
      v1::WorkerMessage message;
      *message.mutable_register_() = testing::NodeNamed("a", 1, address);
      stream_->Write(message);
    }

    void SayTerm(uint64_t term) {
      v1::WorkerMessage message;
      message.mutable_heartbeat()->set_term(term);
      stream_->Write(message);
    }
    std::vector<uint64_t> fences() {
      MutexLock lock(&mutex_);
      return fences_;
    }

    std::atomic<bool> joined = false;
    std::atomic<bool> ended = false;
    std::atomic<int> tensors = 0;  // Of the last Load.
    absl::Status status;           // Once it ended.

   private:
    Mutex mutex_;
    std::vector<uint64_t> fences_ STRATA_GUARDED_BY(mutex_);
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
    std::thread reader_;
  };
  std::unique_ptr<Client> Connect() { return std::make_unique<Client>(stub_.get()); }

  OpenHandler handler_;
  BlobStore blobs_;
  WeightHolders holders_;
  Answering answering_;
  const Transport transport_ = Transport::Make({}).value();
  std::unique_ptr<MembershipService> service_;
  std::unique_ptr<LinkService> links_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::MembershipService::Stub> stub_;
};

TEST_F(MembershipServiceTest, AStreamThatNeverRegistersIsToldTheLimitAndMakesRoom) {
  MembershipOptions options = Patient();
  options.register_timeout = milliseconds(50);
  options.max_joining = 1;
  Serve(options);
  const auto refusal = [&] {
    const auto client = Connect();
    EXPECT_TRUE(testing::Eventually([&] { return client->ended.load(); }));
    EXPECT_FALSE(client->joined);
    return client->status;
  };
  const absl::Status first = refusal();
  EXPECT_EQ(first.code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(ReasonOf(first), "NOT_REGISTERED") << first;
  EXPECT_EQ(DetailOf(first).limit(), "register_timeout_ms=50");
  // The coordinator may still be at its end when the client knows of it.
  EXPECT_TRUE(testing::Eventually([&] { return ReasonOf(refusal()) == "NOT_REGISTERED"; }));
}

TEST_F(MembershipServiceTest, StreamsBeyondTheLimitAreRefusedAndMembersDoNotCount) {
  MembershipOptions options = Patient();
  options.register_timeout = std::chrono::hours(1);
  options.max_joining = 2;
  Serve(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(Connect());
  const auto ended = [](const std::unique_ptr<Client>& client) { return client->ended.load(); };
  // Which of them comes last is gRPC's affair.
  ASSERT_TRUE(
      testing::Eventually([&] { return std::any_of(clients.begin(), clients.end(), ended); }));
  ASSERT_EQ(std::count_if(clients.begin(), clients.end(), ended), 1);
  const auto refused = std::find_if(clients.begin(), clients.end(), ended);
  EXPECT_EQ((*refused)->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf((*refused)->status), "TOO_MANY_JOINING");
  EXPECT_EQ(DetailOf((*refused)->status).limit(), "joining=2");
  clients.erase(refused);

  clients[0]->Register(server_->address());
  ASSERT_TRUE(testing::Eventually([&] { return clients[0]->joined.load(); }));
  clients.push_back(Connect());
  clients.back()->Register(server_->address());
  EXPECT_TRUE(testing::Eventually([&] { return clients.back()->joined.load(); }));
  EXPECT_FALSE(clients[0]->ended);
  EXPECT_FALSE(clients[1]->ended);
}

TEST_F(MembershipServiceTest, AWorkersNextMessageIsReadWhenTheOneBeforeWasTaken) {
  Serve(Patient());
  const auto client = Connect();
  client->Register(server_->address());
  ASSERT_TRUE(testing::Eventually([&] { return client->joined.load(); }));
  for (uint64_t term = 1; term <= 3; ++term) client->SayTerm(term);
  for (size_t taken = 1; taken <= 3; ++taken) {
    ASSERT_TRUE(testing::Eventually([&] { return handler_.terms().size() == taken; }));
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(handler_.terms().size(), taken);
    handler_.LetGo();
  }
  EXPECT_EQ(handler_.terms(), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(MembershipServiceTest, MessagesToAWorkerArriveInOrderAndAClosedChannelEndsItsStream) {
  Serve(Patient());
  const auto client = Connect();
  client->Register(server_->address());
  ASSERT_TRUE(testing::Eventually([&] { return client->joined.load(); }));
  std::vector<uint64_t> sent;
  for (uint64_t epoch = 1; epoch <= 200; ++epoch) {
    v1::CoordinatorMessage message;
    message.mutable_fence()->set_epoch(epoch);
    ASSERT_TRUE(handler_.channel()->Send(message));
    sent.push_back(epoch);
  }
  ASSERT_TRUE(testing::Eventually([&] { return client->fences().size() == sent.size(); }));
  EXPECT_EQ(client->fences(), sent);
  EXPECT_FALSE(handler_.left());
  handler_.channel()->Close();
  EXPECT_FALSE(handler_.channel()->Send({}));
  EXPECT_TRUE(testing::Eventually([&] { return client->ended && handler_.left(); }));
}

// All layers of 48 with 128 experts, stored as GPTQ stores them.
TEST_F(MembershipServiceTest, AStageOfManyTensorsReachesItsWorker) {
  constexpr int kTensors = 48 * 128 * 3 * 4;
  Serve(Patient());
  const auto client = Connect();
  client->Register(server_->address());
  ASSERT_TRUE(testing::Eventually([&] { return client->joined.load(); }));
  v1::CoordinatorMessage message;
  for (int i = 0; i < kTensors; ++i) {
    v1::TensorBlob* tensor = message.mutable_load()->add_tensors();
    tensor->set_name("model.layers.47.mlp.experts.127.gate_proj.qweight");
    tensor->set_dtype("I32");
    tensor->set_sha256(std::string(64, 'a'));
  }
  EXPECT_GT(message.ByteSizeLong(), size_t{2} * kMaxMessageBytes);
  ASSERT_TRUE(handler_.channel()->Send(message));
  EXPECT_TRUE(testing::Eventually([&] { return client->tensors == kTensors; }));
  EXPECT_FALSE(client->ended);
}

TEST_F(MembershipServiceTest, AWorkerThatGoesWhileItsMessageIsTakenLeavesOnce) {
  Serve(Patient());
  auto client = Connect();
  client->Register(server_->address());
  ASSERT_TRUE(testing::Eventually([&] { return client->joined.load(); }));
  client->SayTerm(1);
  ASSERT_TRUE(testing::Eventually([&] { return handler_.terms().size() == 1; }));
  client.reset();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(handler_.left()) << "its message is still being taken";
  handler_.LetGo();
  EXPECT_TRUE(testing::Eventually([&] { return handler_.left(); }));
}

// A transfer of `blob` from `offset`.
struct Transfer {
  Transfer(v1::MembershipService::Stub* stub, const MemoryBlob& blob, uint64_t offset = 0) {
    v1::FetchBlobRequest request;
    request.set_sha256(blob.sha256);
    request.set_offset(offset);
    reader = stub->FetchBlob(&context, request);
  }
  // What is left of it.
  std::string Rest() {
    v1::FetchBlobChunk chunk;
    std::string bytes;
    while (reader->Read(&chunk)) bytes += chunk.data();
    status = FromGrpc(reader->Finish());
    return bytes;
  }
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::FetchBlobChunk>> reader;
  absl::Status status;
};

TEST_F(MembershipServiceTest, ABlobArrivesFromTheOffsetThatIsAskedFor) {
  Serve(Patient());
  std::string bytes(1'000'000, ' ');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  const MemoryBlob blob = blobs_.AddMemory(bytes);
  for (const size_t offset : {size_t{0}, size_t{300'001}, bytes.size()}) {
    Transfer transfer(stub_.get(), blob, offset);
    EXPECT_TRUE(transfer.Rest() == bytes.substr(offset)) << "from " << offset;
    EXPECT_TRUE(transfer.status.ok()) << transfer.status;
  }
  Transfer beyond(stub_.get(), blob, bytes.size() + 1);
  EXPECT_EQ(beyond.Rest(), "");
  EXPECT_EQ(ReasonOf(beyond.status), "BAD_OFFSET");
}

TEST_F(MembershipServiceTest, TransfersBeyondTheLimitWaitForTheirTurnAndWorkersJoinMeanwhile) {
  MembershipOptions options = Patient();
  options.max_transfers = 1;
  options.max_waiting_transfers = 1;
  Serve(options);
  const MemoryBlob blob = blobs_.AddMemory(std::string(16 << 20, 'x'));
  Transfer first(stub_.get(), blob);
  v1::FetchBlobChunk chunk;
  ASSERT_TRUE(first.reader->Read(&chunk));  // And no more for now.
  // Of two more one waits. Which of them comes last is gRPC's affair.
  std::vector<std::unique_ptr<Transfer>> more;
  std::vector<std::future<std::string>> rest;
  for (int i = 0; i < 2; ++i) {
    more.push_back(std::make_unique<Transfer>(stub_.get(), blob));
    rest.push_back(std::async(std::launch::async, [t = more.back().get()] { return t->Rest(); }));
  }
  const auto ended = [](std::future<std::string>& one) {
    return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  ASSERT_TRUE(testing::Eventually([&] { return std::any_of(rest.begin(), rest.end(), ended); }));
  const size_t refused = ended(rest[0]) ? 0 : 1;
  EXPECT_EQ(rest[refused].get(), "");
  EXPECT_EQ(ReasonOf(more[refused]->status), "TOO_MANY_CALLS");
  EXPECT_EQ(DetailOf(more[refused]->status).limit(), "transfers=2");

  const auto client = Connect();
  client->Register(server_->address());
  EXPECT_TRUE(testing::Eventually([&] { return client->joined.load(); }));

  EXPECT_EQ(first.Rest().size() + chunk.data().size(), blob.data->size());
  EXPECT_EQ(rest[1 - refused].get().size(), blob.data->size());
  EXPECT_TRUE(more[1 - refused]->status.ok()) << more[1 - refused]->status;
}

}  // namespace
}  // namespace strata
