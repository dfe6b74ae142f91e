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

namespace strata {
namespace {

constexpr std::chrono::milliseconds kDialBackTimeout{3000};

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

absl::StatusOr<LinkSpeed> MembershipServiceImpl::DialBack(const v1::NodeInfo& info,
                                                          const std::string& peer) {
  auto speed =
      MeasureLink(*transport_, info.address(), info.name(), info.incarnation(), kDialBackTimeout);
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

bool MembershipServiceImpl::Track(grpc::ServerContext* context, bool begins) {
  MutexLock lock(&mutex_);
  if (begins && !stopping_) {
    streams_.insert(context);
  } else if (!begins) {
    streams_.erase(context);
  }
  return !stopping_;
}

void MembershipServiceImpl::Shutdown() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  for (grpc::ServerContext* context : streams_) {
    context->TryCancel();
  }
}

grpc::Status MembershipServiceImpl::Control(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) {
  v1::WorkerMessage message;
  if (!Track(context, true)) {
    return ToGrpc(Error(absl::StatusCode::kUnavailable, "STOPPING", "the coordinator is stopping"));
  }
  struct Untrack {
    MembershipServiceImpl* service;
    grpc::ServerContext* context;
    ~Untrack() { service->Track(context, false); }
  } untrack{this, context};

  if (!stream->Read(&message)) {
    return grpc::Status::OK;
  }
  if (!message.has_register_()) {
    return ToGrpc(BadInfo("a control stream begins with Register"));
  }
  const v1::NodeInfo info = message.register_();
  absl::Status status = CheckInfo(info);
  if (status.ok()) status = handler_->MayJoin(info);
  if (!status.ok()) {
    spdlog::warn("node {} refused: {}", info.name(), Describe(status));
    return ToGrpc(status);
  }
  const auto speed = DialBack(info, context->peer());
  if (!speed.ok()) {
    spdlog::warn("node {} refused: {}", info.name(), Describe(speed.status()));
    return ToGrpc(speed.status());
  }
  auto channel = std::make_shared<NodeChannel>();
  const auto registered = handler_->Join(info, *speed, channel);
  if (!registered.ok()) {
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
    while (stream->Read(&message)) {
      handler_->OnMessage(info.name(), info.incarnation(), std::move(message));
    }
    channel->Close();
    writer.join();
  }
  handler_->OnLeave(info.name(), info.incarnation(), channel);
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
