// Pulls over networks and servers that fail.
#include <gmock/gmock.h>

#include "common/digest.h"
#include "tests/coordinator/pull/pull_fixture.h"

namespace strata::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kWeights[] = "model.safetensors";

bool IsFor(const HubRequest& request, const std::string& file) {
  return request.path.find("/" + file) != std::string::npos;
}

TEST_F(PullTest, BrokenTransfersGoOnWhereTheyStopped) {
  size_t sent = 0;
  hub_.hook = [&](const HubRequest& request) -> std::optional<HubReply> {
    if (!IsFor(request, kWeights)) {
      return std::nullopt;
    }
    HubReply reply = Hub::Serve(hub_.File(kWeights), request);
    if (reply.body.size() > 40'000) {
      reply.break_after = 40'000;
    }
    sent += reply.break_after.value_or(reply.body.size());
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(300'000));
  EXPECT_EQ(hub_.CountOf(kWeights), 8);
  EXPECT_EQ(sent, 300'000u);  // No byte twice.
  const HubRequest last = hub_.requests().back();
  EXPECT_EQ(last.Header("range"), "bytes=280000-");
  EXPECT_EQ(last.Header("if-range"), hub_.File(kWeights).etag);
  // Each broke after new bytes, so the waits did not grow.
  EXPECT_THAT(observer_.waits_ms, ::testing::Each(options_.first_backoff_ms));
}

TEST_F(PullTest, ServerWithoutRangesSendsTheFileAgain) {
  int requests = 0;
  hub_.hook = [&](const HubRequest& request) -> std::optional<HubReply> {
    if (!IsFor(request, kWeights)) {
      return std::nullopt;
    }
    HubReply reply;
    reply.body = hub_.File(kWeights).content;
    reply.headers = {{"ETag", hub_.File(kWeights).etag}};
    if (++requests < 3) {
      reply.break_after = 1000;
    }
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(300'000));
}

TEST_F(PullTest, FileThatChangesMeanwhileIsFetchedAfresh) {
  for (const bool honours_if_range : {true, false}) {
    hub_.Add(kWeights, Bytes(300'000, 1));
    int requests = 0;
    hub_.hook = [&](const HubRequest& given) -> std::optional<HubReply> {
      HubRequest request = given;
      if (!IsFor(request, kWeights)) {
        return std::nullopt;
      }
      if (!honours_if_range) {
        request.headers.erase("if-range");
      }
      HubReply reply = Hub::Serve(hub_.File(kWeights), request);
      if (++requests == 1) {
        reply.break_after = 100'000;
        hub_.Add(kWeights, Bytes(300'000, 2));
      }
      return reply;
    };
    options_.name = honours_if_range ? "one" : "two";
    const auto model = Pull();
    ASSERT_TRUE(model.ok()) << Describe(model.status());
    EXPECT_EQ(Read(options_.name + "/model.safetensors"), Bytes(300'000, 2));
  }
}

TEST_F(PullTest, ChangeBehindARedirectIsSeenByItsLinkedEtag) {
  // The storage behind the redirect names no ETag at all.
  int requests = 0;
  hub_.hook = [&](const HubRequest& request) -> std::optional<HubReply> {
    if (IsFor(request, "blob")) {
      HubReply reply = Hub::Serve(hub_.File(kWeights), request);
      reply.headers.erase(reply.headers.begin());
      if (++requests == 1) {
        reply.break_after = 100'000;
        hub_.Add(kWeights, Bytes(300'000, 2));
      }
      return reply;
    }
    if (!IsFor(request, kWeights)) {
      return std::nullopt;
    }
    HubReply reply = HubReply::Status(302);
    reply.headers = {{"Location", "/blob"}, {"X-Linked-Etag", hub_.File(kWeights).etag}};
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(300'000, 2));
}

TEST_F(PullTest, WrongDigestIsTriedTwiceThenRefused) {
  hub_.File(kWeights).etag = Sha256Etag("something else");
  const auto model = Pull();
  EXPECT_EQ(model.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(model.status()), "DIGEST_MISMATCH");
  EXPECT_EQ(hub_.CountOf(kWeights), 2);
  EXPECT_FALSE(Exists("model"));
  EXPECT_FALSE(Exists("model.partial/model.safetensors"));
  EXPECT_EQ(Read("model.partial/model.safetensors.part"), "");
}

TEST_F(PullTest, EtagThatIsNoDigestIsNotTakenForOne) {
  hub_.File(kWeights).etag = "\"0123456789abcdef0123456789abcdef01234567\"";
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_FALSE(model->files[1].verified);
  EXPECT_EQ(model->files[1].sha256, Sha256Hex(Bytes(300'000)));
}

TEST_F(PullTest, SizesThatDisagreeAreRefused) {
  hub_.hook = [this](const HubRequest& request) -> std::optional<HubReply> {
    if (IsFor(request, "blob")) {
      return Hub::Serve(hub_.File(kWeights), request);
    }
    if (!IsFor(request, kWeights)) {
      return std::nullopt;
    }
    HubReply reply = HubReply::Status(302);
    reply.headers = {{"Location", "/blob"},
                     {"X-Linked-Etag", hub_.File(kWeights).etag},
                     {"X-Linked-Size", "299999"}};
    return reply;
  };
  const auto model = Pull();
  EXPECT_EQ(ReasonOf(model.status()), "SIZE_MISMATCH");
  EXPECT_FALSE(Exists("model"));
}

TEST_F(PullTest, RangeThatWasNotAskedForIsNotJoined) {
  int requests = 0;
  hub_.hook = [&](const HubRequest& given) -> std::optional<HubReply> {
    if (!IsFor(given, kWeights)) {
      return std::nullopt;
    }
    HubRequest request = given;
    if (!request.Header("range").empty()) {
      request.headers["range"] = "bytes=5-";
    }
    HubReply reply = Hub::Serve(hub_.File(kWeights), request);
    if (++requests == 1) {
      reply.break_after = 1000;
    }
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(300'000));
}

TEST_F(PullTest, BusyServerIsAskedAgainAfterTheWaitsItNames) {
  int requests = 0;
  hub_.hook = [&](const HubRequest& request) -> std::optional<HubReply> {
    if (!IsFor(request, kWeights) || ++requests > 3) {
      return std::nullopt;
    }
    HubReply reply = HubReply::Status(requests == 2 ? 429 : 503);
    if (requests == 2) {
      reply.headers = {{"Retry-After", "7"}};
    }
    return reply;
  };
  ASSERT_TRUE(Pull().ok());
  EXPECT_THAT(observer_.waits_ms, ElementsAre(500, 7000, 2000));
}

TEST_F(PullTest, ServerThatStaysBrokenIsGivenUp) {
  options_.max_attempts = 4;
  hub_.hook = [](const HubRequest& request) {
    return IsFor(request, kWeights) ? std::optional(HubReply::Status(500)) : std::nullopt;
  };
  const auto model = Pull();
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(hub_.CountOf(kWeights), 4);
  EXPECT_THAT(observer_.waits_ms, ElementsAre(500, 1000, 2000));
  EXPECT_TRUE(Exists("model.partial/config.json"));
}

TEST_F(PullTest, ExpiredSignatureBehindARedirectIsFetchedAnew) {
  int requests = 0;
  LoopbackServer cdn([&](const HubRequest& request) {
    return ++requests == 1 ? HubReply::Status(403) : Hub::Serve(hub_.File(kWeights), request);
  });
  hub_.hook = [&](const HubRequest& request) -> std::optional<HubReply> {
    if (!IsFor(request, kWeights)) {
      return std::nullopt;
    }
    HubReply reply = HubReply::Status(302);
    reply.headers = {{"Location", cdn.url() + "/blob"}};
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(hub_.CountOf(kWeights), 2);
}

TEST_F(PullTest, StalledServerIsGivenUp) {
  transport_ = MakeCurlTransport({.connect_timeout_ms = 10'000, .stall_timeout_ms = 1000});
  options_.max_attempts = 2;
  hub_.hook = [this](const HubRequest& request) -> std::optional<HubReply> {
    HubReply reply = Hub::Serve(hub_.File(kWeights), request);
    reply.stall = true;
    return IsFor(request, kWeights) ? std::optional(reply) : std::nullopt;
  };
  const auto model = Pull();
  EXPECT_EQ(ReasonOf(model.status()), "TRANSFER_STALLED");
  EXPECT_EQ(hub_.CountOf(kWeights), 2);
}

TEST_F(PullTest, NobodyAtTheEndpointIsUnavailable) {
  options_.endpoint = "http://127.0.0.1:1";
  options_.max_attempts = 2;
  const auto model = Pull();
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Describe(model.status()), HasSubstr("127.0.0.1"));
}

TEST_F(PullTest, CancelledPullGoesOnLaterWithoutFetchingAgain) {
  hub_.Add(kWeights, Bytes(8 << 20));
  observer_.cancel_at_bytes = 3 << 20;
  EXPECT_EQ(Pull().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(Exists("model"));
  const std::string part = Read("model.partial/model.safetensors.part");
  ASSERT_GE(part.size(), 3u << 20);
  ASSERT_LT(part.size(), 8u << 20);

  observer_ = RecordingObserver();
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(8 << 20));
  EXPECT_EQ(hub_.CountOf("config.json"), 1);
  EXPECT_EQ(hub_.requests().back().Header("range"), "bytes=" + std::to_string(part.size()) + "-");
  EXPECT_THAT(Tree(), ElementsAre("model", "model/config.json", "model/model.safetensors"));
}

TEST_F(PullTest, PartsOfAnotherCommitAreDropped) {
  hub_.Add(kWeights, Bytes(8 << 20, 1));
  observer_.cancel_at_bytes = 3 << 20;
  EXPECT_EQ(Pull().status().code(), absl::StatusCode::kCancelled);
  hub_.Add(kWeights, Bytes(8 << 20, 2));
  hub_.Add("config.json", R"({"new":1})");
  hub_.commit = "fedcba9876543210";
  observer_ = RecordingObserver();
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(8 << 20, 2));
  EXPECT_EQ(Read("model/config.json"), R"({"new":1})");
  EXPECT_EQ(hub_.requests().back().Header("range"), "");
}

TEST_F(PullTest, DamagedPartOnDiskIsFetchedAgain) {
  hub_.Add(kWeights, Bytes(8 << 20));
  observer_.cancel_at_bytes = 3 << 20;
  EXPECT_EQ(Pull().status().code(), absl::StatusCode::kCancelled);
  {
    std::fstream part(directory_ + "/model.partial/model.safetensors.part",
                      std::ios::in | std::ios::out | std::ios::binary);
    part.seekp(12345);
    part << "damage";
  }
  observer_ = RecordingObserver();
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(8 << 20));
}

TEST_F(PullTest, RecordThatCannotBeReadIsAFreshStart) {
  std::filesystem::create_directories(directory_ + "/model.partial");
  std::ofstream(directory_ + "/model.partial/.pull.json") << "{\"commit\":";
  std::ofstream(directory_ + "/model.partial/config.json") << "stale";
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(Read("model/config.json"), "{}");
}

TEST_F(PullTest, FileThatCannotFitIsRefusedBeforeItsBytes) {
  hub_.hook = [](const HubRequest& request) -> std::optional<HubReply> {
    if (!IsFor(request, kWeights)) {
      return std::nullopt;
    }
    HubReply reply;
    reply.with_length = false;
    reply.headers = {{"Content-Length", "1000000000000000000"}, {"ETag", "\"x\""}};
    reply.body = "some bytes";
    return reply;
  };
  const auto model = Pull();
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(model.status()), "DISK_FULL");
}

TEST_F(PullTest, FileThatNobodyWouldReadIsRefusedByItsAnnouncedLength) {
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors.index.json",
                           "chat_template.jinja", "tokenizer.model", "o200k.tiktoken"}) {
    SCOPED_TRACE(name);
    hub_.Add(name, "{}");
    hub_.hook = [name](const HubRequest& request) -> std::optional<HubReply> {
      if (!IsFor(request, name)) {
        return std::nullopt;
      }
      HubReply reply;
      reply.with_length = false;
      reply.headers = {{"Content-Length", std::to_string(uint64_t{2900} << 20)}};
      reply.body = "some bytes";
      return reply;
    };
    const auto model = Pull();
    EXPECT_EQ(ReasonOf(model.status()), "FILE_TOO_LARGE");
    EXPECT_THAT(Describe(model.status()), HasSubstr(name));
    EXPECT_THAT(Describe(model.status()), HasSubstr("2.8 GiB"));
    // Weights come behind all others: none of them was asked for.
    EXPECT_EQ(hub_.CountOf(kWeights), 0);
    hub_.Add(name, "{}");
  }
}

TEST_F(PullTest, FileThatGrowsBeyondItsLimitIsRefusedByTheBytesThatCame) {
  uint64_t sent = 0;
  hub_.hook = [&sent](const HubRequest& request) -> std::optional<HubReply> {
    if (!IsFor(request, "config.json")) {
      return std::nullopt;
    }
    HubReply reply;
    reply.with_length = false;  // Until the connection ends.
    reply.body = std::string(17 << 20, ' ');
    sent += reply.body.size();
    return reply;
  };
  const auto model = Pull();
  EXPECT_EQ(ReasonOf(model.status()), "FILE_TOO_LARGE");
  EXPECT_EQ(sent, uint64_t{17} << 20);  // No second try.
  EXPECT_LE(std::filesystem::file_size(directory_ + "/model.partial/config.json.part"),
            uint64_t{16} << 20);
}

TEST_F(PullTest, FolderThatCannotBeWrittenSaysWhich) {
  std::ofstream(directory_ + "/file") << "x";
  options_.models_dir = directory_ + "/file";
  const auto model = Pull();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(Describe(model.status()), HasSubstr("file/model.partial"));
}

}  // namespace
}  // namespace strata::testing
