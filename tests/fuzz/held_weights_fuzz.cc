// What others say and give of weights: a worker that gives any bytes for a blob, in any pieces, and
// breaks as it likes; what a cache's record of a layer may hold; messages of any content about
// caches and kept layers. What is wrong is never taken for the blob, and what is remembered is
// bounded.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "coordinator/cluster/weight_holders.h"
#include "coordinator/service/nodes/worker_claims.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "worker/weights/kept_layers.h"
#include "worker/weights/sourced_blobs.h"

namespace strata {
namespace {

constexpr int kMaxRounds = 64;

// Workers that do what the input says; the coordinator always gives the right bytes.
class Givers : public WeightSources {
 public:
  Givers(fuzz::Input* input, std::string right) : input_(*input), right_(std::move(right)) {}

  absl::Status FromCoordinator(const std::string&, uint64_t offset,
                               const std::vector<std::string>& not_from,
                               std::vector<WeightSource>* sources, const ChunkFn& sink,
                               Cancellation*) override {
    for (uint32_t i = input_.Below(4); sources != nullptr && i > 0; --i) {
      const std::string node(1, static_cast<char>('a' + input_.Below(4)));
      if (std::find(not_from.begin(), not_from.end(), node) == not_from.end()) {
        sources->push_back({node, 1 + input_.Below(2), node});
      }
    }
    if (sources != nullptr && !sources->empty()) {
      return absl::OkStatus();
    }
    STRATA_CHECK(offset <= right_.size());
    return sink(std::string_view(right_).substr(offset));
  }

  absl::Status FromWorker(const WeightSource&, const std::string&, uint64_t,
                          std::chrono::milliseconds, const ChunkFn& sink, Cancellation*) override {
    for (uint32_t pieces = input_.Below(4); pieces > 0; --pieces) {
      RETURN_IF_ERROR(sink(input_.Bytes(input_.Below(16))));
    }
    switch (input_.Below(5)) {
      case 0:
        return Error(absl::StatusCode::kNotFound, "BLOB_NOT_CACHED", "it is not here");
      case 1:
        return Error(absl::StatusCode::kUnavailable, "BLOB_ON_ITS_WAY", "it is on its way")
            .Fact("bytes", input_.Text());
      case 2:
        return Error(absl::StatusCode::kDeadlineExceeded, "SLOW", "it takes long");
      case 3:
        return absl::InternalError(input_.Text());
      default:
        return absl::OkStatus();
    }
  }

 private:
  fuzz::Input& input_;
  const std::string right_;
};

// What the fetcher does with what comes: counts, checks the digest, and asks again.
void FetchFromGivers(fuzz::Input* input) {
  const std::string right = input->Text();
  const std::string digest = Sha256Hex(right);
  Givers givers(input, right);
  SourcedBlobs blobs(
      &givers,
      {.patience = std::chrono::milliseconds(0), .look_again = std::chrono::milliseconds(0)},
      [](const std::string&) {});
  Cancellation cancel;
  std::string got;
  int bad_tries = 0;
  for (int round = 0; round < kMaxRounds; ++round) {
    bool too_long = false;
    const absl::Status status = blobs.Fetch(
        digest, got.size(),
        [&](std::string_view chunk) {
          if (chunk.size() > right.size() - got.size()) {
            too_long = true;
            return absl::DataLossError("more bytes than the blob has");
          }
          got += chunk;
          return absl::OkStatus();
        },
        &cancel);
    if (got.size() == right.size() && got == right) {
      return;
    }
    if (too_long || got.size() == right.size()) {
      got.clear();
      // What a worker that was left before gave may lie in front of what the coordinator sent.
      STRATA_CHECK(blobs.OnBad(digest) || ++bad_tries <= 1);
    } else if (status.ok()) {
      STRATA_CHECK(blobs.OnBad(digest));
    }
  }
  STRATA_CHECK(false);  // The coordinator has it, and is asked in the end.
}

void ReadRecord(const std::string& text) {
  const auto layer = ParseKeptLayer(text, "cpu avx2");
  if (!layer.ok()) {
    STRATA_CHECK(ReasonOf(layer.status()) == "CACHE_CORRUPT");
  } else if (layer->has_value()) {
    const auto again = ParseKeptLayer(KeptLayerText(**layer, "cpu avx2"), "cpu avx2").value();
    STRATA_CHECK(again->packed.size() == (*layer)->packed.size() &&
                 again->blobs.size() == (*layer)->blobs.size());
  }
}

void HearOfCaches(fuzz::Input* input) {
  WeightHolders holders;
  holders.OnJoined("a", 1, "a:1");
  while (!input->empty()) {
    v1::WorkerMessage message;
    if (!message.ParseFromString(input->Text())) {
      continue;
    }
    CleanMessage(&message).IgnoreError();
    if (message.has_cache_contents()) {
      holders.OnContents("a", message.cache_contents());
    }
    const auto [blobs, layers] = holders.CountsOf("a");
    STRATA_CHECK(blobs <= WeightHolders::kMostOfNode && layers <= WeightHolders::kMostOfNode);
    const WeightHolders::Sending asked(
        &holders, {.node = "b", .incarnation = 1, .blob = input->Uint64(), .not_from = {}});
    STRATA_CHECK(asked.sources().size() <= WeightHolders::kMostNamed);
  }
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  switch (input.Below(3)) {
    case 0:
      FetchFromGivers(&input);
      break;
    case 1:
      ReadRecord(input.Bytes(size));
      break;
    default:
      HearOfCaches(&input);
  }
  return 0;
}
