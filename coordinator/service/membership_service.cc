#include "coordinator/service/membership_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "common/limits.h"
#include "common/rpc/address.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/registry/blob_store.h"
#include "coordinator/service/errors.h"

namespace strata {
namespace {

absl::Status BadInfo(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_NODE_INFO", what);
}

absl::Status CheckInfo(const v1::NodeInfo& info) {
  const std::string& name = info.name();
  const bool good_name = !name.empty() && name.size() <= 64 &&
                         std::all_of(name.begin(), name.end(), [](unsigned char c) {
                           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
                         });
  if (!good_name) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_NAME",
                 "'" + name + "' is no node name: 1 to 64 letters, digits, '-', '_' or '.'")
        .Hint("choose one with --name");
  }
  if (info.incarnation() == 0) return BadInfo("a node without incarnation");
  if (info.memory_bytes() == 0) return BadInfo("a node without memory");
  return ParseHostPort(info.address()).status();
}

}  // namespace

MembershipServiceImpl::MembershipServiceImpl(MembershipOptions options, MembershipHandler* handler,
                                             const BlobStore* blobs, const Transport* transport)
    : options_(options), handler_(handler), blobs_(blobs), transport_(transport), reaper_([this] {
        ReapLoop();
      }) {}

MembershipServiceImpl::~MembershipServiceImpl() {
  Shutdown();
  reaper_.join();
}

absl::StatusOr<LinkSpeed> MembershipServiceImpl::DialBack(const v1::NodeInfo& info,
                                                          const std::string& peer) {
  auto speed = MeasureLink(*transport_, info.address(), info.name(), info.incarnation(),
                           options_.dial_back_timeout);
  if (speed.ok()) {
    return speed;
  }
  return Error(absl::StatusCode::kFailedPrecondition, "ADVERTISED_ADDRESS",
               "the coordinator cannot reach node '" + info.name() + "' at " + info.address() +
                   " (it called from " + peer + "): " + std::string(speed.status().message()))
      .Node(info.name())
      .Hint("open that port in the firewall of '" + info.name() +
            "', or start its worker with --advertise HOST:PORT that the coordinator can dial");
}

absl::Status MembershipServiceImpl::Begin(grpc::ServerContext* context) {
  MutexLock lock(&mutex_);
  if (stopping_) {
    return Stopping();
  }
  if (joining_ >= options_.max_joining) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_JOINING",
                 std::to_string(joining_) + " workers are joining already")
        .Limit("joining=" + std::to_string(options_.max_joining))
        .Hint("it is tried again in a moment; --max-joining of strata-coordinator is the limit");
  }
  ++joining_;
  streams_[context] = {std::chrono::steady_clock::now()};
  changed_.NotifyAll();
  return absl::OkStatus();
}

void MembershipServiceImpl::End(grpc::ServerContext* context) {
  MutexLock lock(&mutex_);
  const auto it = streams_.find(context);
  if (!it->second.member) --joining_;
  streams_.erase(it);
}

void MembershipServiceImpl::Shutdown() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  for (const auto& [context, state] : streams_) {
    context->TryCancel();
  }
  changed_.NotifyAll();
}

// Cancels what never says Register.
void MembershipServiceImpl::ReapLoop() {
  const auto look_every = std::max(options_.register_timeout / 4, std::chrono::milliseconds(20));
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (joining_ == 0) {
      changed_.Wait(&mutex_);
      continue;
    }
    changed_.WaitFor(&mutex_, look_every);
    const auto now = std::chrono::steady_clock::now();
    for (auto& [context, state] : streams_) {
      if (!state.registered && !state.late && now - state.since > options_.register_timeout) {
        state.late = true;
        context->TryCancel();
      }
    }
  }
}

absl::StatusOr<v1::NodeInfo> MembershipServiceImpl::ReadRegister(grpc::ServerContext* context,
                                                                 ControlStream* stream) {
  v1::WorkerMessage message;
  const std::string peer = context->peer();  // Not known once the stream is cancelled.
  const bool read = stream->Read(&message);
  {
    MutexLock lock(&mutex_);
    StreamState& state = streams_.at(context);
    state.registered = true;
    if (state.late) {
      spdlog::warn("a control stream from {} did not register in time", peer);
      return Error(absl::StatusCode::kDeadlineExceeded, "REGISTER_TIMEOUT",
                   "the control stream did not register in time")
          .Limit("register_timeout_ms=" + std::to_string(options_.register_timeout.count()));
    }
  }
  if (!read || !message.has_register_()) {
    return BadInfo("a control stream begins with Register");
  }
  return message.register_();
}

absl::StatusOr<v1::Registered> MembershipServiceImpl::Admit(grpc::ServerContext* context,
                                                            const v1::NodeInfo& info,
                                                            std::shared_ptr<NodeChannel> channel) {
  RETURN_IF_ERROR(CheckInfo(info));
  RETURN_IF_ERROR(handler_->MayJoin(info));
  ASSIGN_OR_RETURN(const LinkSpeed speed, DialBack(info, context->peer()));
  ASSIGN_OR_RETURN(v1::Registered registered, handler_->Join(info, speed, std::move(channel)));
  MutexLock lock(&mutex_);
  streams_.at(context).member = true;
  --joining_;
  return registered;
}

grpc::Status MembershipServiceImpl::Control(grpc::ServerContext* context, ControlStream* stream) {
  if (absl::Status status = Begin(context); !status.ok()) {
    return ToGrpc(status);
  }
  struct Ending {
    MembershipServiceImpl* service;
    grpc::ServerContext* context;
    ~Ending() { service->End(context); }
  } ending{this, context};

  const auto info = ReadRegister(context, stream);
  if (!info.ok()) {
    return ToGrpc(info.status());
  }
  auto channel = std::make_shared<NodeChannel>();
  const auto registered = Admit(context, *info, channel);
  if (!registered.ok()) {
    spdlog::warn("node {} refused: {}", info->name(), Describe(registered.status()));
    return ToGrpc(registered.status());
  }
  v1::CoordinatorMessage hello;
  *hello.mutable_registered() = *registered;
  if (stream->Write(hello)) {
    std::thread writer([&] {
      while (auto next = channel->Next()) {
        if (!stream->Write(*next)) {
          break;
        }
      }
      channel->Close();
      context->TryCancel();
    });
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
      handler_->OnMessage(info->name(), info->incarnation(), std::move(message));
    }
    channel->Close();
    writer.join();
  }
  handler_->OnLeave(info->name(), info->incarnation(), channel);
  return grpc::Status::OK;
}

grpc::Status MembershipServiceImpl::FetchBlob(grpc::ServerContext* context,
                                              const v1::FetchBlobRequest* request,
                                              grpc::ServerWriter<v1::FetchBlobChunk>* writer) {
  const auto blob = blobs_->Find(request->sha256());
  if (!blob.ok()) {
    return ToGrpc(blob.status());
  }
  if (request->offset() > blob->bytes) {
    return ToGrpc(Error(absl::StatusCode::kOutOfRange, "BAD_OFFSET",
                        "offset " + std::to_string(request->offset()) + " in a blob of " +
                            std::to_string(blob->bytes) + " bytes"));
  }
  v1::FetchBlobChunk chunk;
  for (uint64_t offset = request->offset(); offset < blob->bytes;) {
    const uint64_t n = std::min<uint64_t>(kBlobChunkBytes, blob->bytes - offset);
    const absl::Status read = blobs_->Read(*blob, offset, n, chunk.mutable_data());
    if (!read.ok()) {
      return ToGrpc(read);
    }
    if (!writer->Write(chunk)) {
      return grpc::Status::OK;  // The worker went away.
    }
    offset += n;
  }
  return grpc::Status::OK;
}

}  // namespace strata
