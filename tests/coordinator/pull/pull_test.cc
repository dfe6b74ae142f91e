// What a pull fetches, from where, and what it refuses.
#include <gmock/gmock.h>

#include "common/digest.h"
#include "coordinator/pull/file_selection.h"
#include "coordinator/pull/partial_folder.h"
#include "tests/coordinator/pull/pull_fixture.h"

namespace strata::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(PullTest, FetchesWantedFilesAndAsksForNothingElse) {
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "merges.txt"}) {
    hub_.Add(name, std::string("content of ") + name);
  }
  for (const char* name : {"pytorch_model.bin", "model.pkl", "README.md", ".gitattributes",
                           "onnx/config.json", "consolidated.safetensors", "code.py"}) {
    hub_.Add(name, "never");
  }
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(model->path, directory_ + "/model");
  EXPECT_EQ(model->commit, hub_.commit);
  EXPECT_THAT(Tree(),
              ElementsAre("model", "model/chat_template.jinja", "model/config.json",
                          "model/merges.txt", "model/model.safetensors", "model/tokenizer.json"));
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(300'000));
  EXPECT_EQ(Read("model/merges.txt"), "content of merges.txt");
  for (const PulledFile& file : model->files) {
    EXPECT_EQ(file.sha256, Sha256Hex(Read("model/" + file.name)));
    EXPECT_EQ(file.bytes, Read("model/" + file.name).size());
    EXPECT_TRUE(file.verified);
  }
  EXPECT_EQ(hub_.requests().size(), 6u);
  EXPECT_EQ(observer_.all.back().files_done, 5u);
  EXPECT_EQ(observer_.all.back().files_total, 5u);
  EXPECT_GT(observer_.all.back().done_bytes, 300'000u);
}

TEST_F(PullTest, RevisionIsOnePathSegment) {
  options_.revision = "refs/pr/1";
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(hub_.requests()[0].path, "/api/models/org/model/revision/refs%2Fpr%2F1");
}

TEST_F(PullTest, ServerThatKnowsOnlyNamesOfRevisionsIsAskedByName) {
  hub_.hook = [this](const HubRequest& request) -> std::optional<HubReply> {
    const std::string prefix = "/org/model/resolve/main/";
    if (request.path.rfind(prefix, 0) == 0) {
      return Hub::Serve(hub_.File(request.path.substr(prefix.size())), request);
    }
    return request.path.find("/resolve/") != std::string::npos
               ? std::optional(HubReply::Status(404))
               : std::nullopt;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), Bytes(300'000));
}

TEST_F(PullTest, EmptyFileAndBodyWithoutLengthArrive) {
  hub_.Add("empty.json", "");
  hub_.hook = [this](const HubRequest& request) -> std::optional<HubReply> {
    if (request.path.find("config.json") == std::string::npos) {
      return std::nullopt;
    }
    HubReply reply = Hub::Serve(hub_.File("config.json"), request);
    reply.with_length = false;
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/config.json"), "{}");
  EXPECT_TRUE(Exists("model/empty.json"));
}

TEST_F(PullTest, TokenGoesToTheEndpointOnly) {
  options_.token = "hf_secret";
  const HubFile weights = hub_.File("model.safetensors");
  LoopbackServer cdn([&](const HubRequest& request) { return Hub::Serve(weights, request); });
  hub_.hook = [&](const HubRequest& request) -> std::optional<HubReply> {
    if (request.path.find("model.safetensors") == std::string::npos) {
      return std::nullopt;
    }
    HubReply reply = HubReply::Status(302);
    reply.headers = {{"Location", cdn.url() + "/blob?signature=1"},
                     {"X-Linked-Etag", weights.etag},
                     {"X-Linked-Size", std::to_string(weights.content.size())}};
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/model.safetensors"), weights.content);
  for (const HubRequest& request : hub_.requests()) {
    EXPECT_EQ(request.Header("authorization"), "Bearer hf_secret") << request.path;
  }
  ASSERT_EQ(cdn.requests().size(), 1u);
  EXPECT_EQ(cdn.requests()[0].path, "/blob?signature=1");
  EXPECT_EQ(cdn.requests()[0].Header("authorization"), "");
}

TEST_F(PullTest, RelativeRedirectsAreFollowed) {
  hub_.hook = [this](const HubRequest& request) -> std::optional<HubReply> {
    if (request.path == "/there/config.json") {
      return Hub::Serve(hub_.File("config.json"), request);
    }
    if (request.path.find("config.json") == std::string::npos) {
      return std::nullopt;
    }
    HubReply reply = HubReply::Status(307);
    reply.headers = {{"Location", "/there/config.json"}};
    return reply;
  };
  const auto model = Pull();
  ASSERT_TRUE(model.ok()) << Describe(model.status());
  EXPECT_EQ(Read("model/config.json"), "{}");
}

TEST_F(PullTest, EndlessAndStrangeRedirectsAreRefused) {
  std::string location = "/api/models/org/model/revision/main";
  hub_.hook = [&](const HubRequest&) -> std::optional<HubReply> {
    HubReply reply = HubReply::Status(302);
    reply.headers = {{"Location", location}};
    return reply;
  };
  EXPECT_EQ(ReasonOf(Pull().status()), "TOO_MANY_REDIRECTS");
  EXPECT_EQ(hub_.requests().size(), static_cast<size_t>(options_.max_redirects) + 1);
  for (const char* bad : {"file:///etc/passwd", "ftp://127.0.0.1/x", "http://user:pw@127.0.0.1/"}) {
    location = bad;
    EXPECT_EQ(ReasonOf(Pull().status()), "BAD_URL") << bad;
  }
  EXPECT_TRUE(Tree().empty());
}

TEST_F(PullTest, UnsafeFileNamesEndThePull) {
  for (const std::string name :
       {"../evil.safetensors", "/etc/evil.json", "a/../../evil.json", "a\\evil.json", "..",
        "a//b.json", "./x.json", "evil\n.json", "C:evil.json", ""}) {
    hub_.listed_too = {name};
    const auto model = Pull();
    EXPECT_EQ(ReasonOf(model.status()), "UNSAFE_FILE_NAME") << name;
  }
  EXPECT_TRUE(Tree().empty());
  EXPECT_EQ(hub_.CountOf("model.safetensors"), 0);
}

TEST_F(PullTest, NamesThatAreNoneAreRefusedBeforeAnyRequest) {
  for (const char* bad : {"", "model", "a/b/c", "../x", "a/..", "a/.hidden", "a b/c", "a/b%2f"}) {
    options_.repository = bad;
    EXPECT_EQ(ReasonOf(Pull().status()), "BAD_REPOSITORY") << bad;
  }
  options_.repository = "org/model";
  options_.name = "../elsewhere";
  EXPECT_EQ(ReasonOf(Pull().status()), "BAD_NAME");
  options_.name = "";
  options_.revision = "a\r\nb";
  EXPECT_EQ(ReasonOf(Pull().status()), "BAD_REVISION");
  options_.revision = "main";
  options_.token = "a\r\nX-Evil: 1";
  EXPECT_EQ(ReasonOf(Pull().status()), "BAD_TOKEN");
  options_.token = "";
  options_.endpoint = "file:///tmp";
  EXPECT_EQ(ReasonOf(Pull().status()), "BAD_URL");
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(PullTest, RepositoryWithoutSafetensorsSaysSo) {
  EXPECT_EQ(ReasonOf(SelectFiles({"config.json", "pytorch_model.bin"}).status()), "NO_SAFETENSORS");
  // The only weights there are, whatever they are called.
  EXPECT_THAT(SelectFiles({"consolidated.safetensors", "params.json"}).value(),
              ElementsAre("params.json", "consolidated.safetensors"));
}

TEST_F(PullTest, ListingThatIsNoneSaysSo) {
  for (const char* body : {"<html>", "[]", "{}", R"({"siblings":[{}]})", R"({"siblings":[1]})",
                           R"({"siblings":[],"sha":"../x"})"}) {
    hub_.hook = [body](const HubRequest&) { return std::optional(HubReply::Body(body)); };
    EXPECT_EQ(ReasonOf(Pull().status()), "BAD_LISTING") << body;
  }
  options_.max_listing_bytes = 100;
  hub_.hook = [](const HubRequest&) {
    return std::optional(HubReply::Body(std::string(101, ' ')));
  };
  EXPECT_EQ(ReasonOf(Pull().status()), "LISTING_TOO_LONG");
}

TEST_F(PullTest, AccessErrorsSayWhatToDo) {
  const auto status_for = [this](int status) {
    hub_.hook = [status](const HubRequest&) { return std::optional(HubReply::Status(status)); };
    return Pull().status();
  };
  absl::Status status = status_for(401);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Describe(status), HasSubstr("HF_TOKEN"));
  status = status_for(403);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Describe(status), HasSubstr("terms"));
  status = status_for(404);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Describe(status), HasSubstr("--revision"));
  EXPECT_EQ(status_for(418).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(observer_.waits_ms.empty());
}

TEST_F(PullTest, ModelThatIsThereIsNotTouched) {
  std::filesystem::create_directories(directory_ + "/model");
  const auto model = Pull();
  EXPECT_EQ(model.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(hub_.requests().empty());
  options_.name = "other";
  EXPECT_TRUE(Pull().ok());
  EXPECT_TRUE(Exists("other/model.safetensors"));
}

TEST_F(PullTest, TwoPullsOfOneNameExcludeEachOther) {
  {
    const auto other = PartialFolder::Open(directory_, "model", "org/model", hub_.commit);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(ReasonOf(Pull().status()), "PULL_IN_PROGRESS");
  }
  EXPECT_TRUE(Pull().ok());
}

}  // namespace
}  // namespace strata::testing
