// What the commands about the cluster, its models and sessions ask of the coordinator and print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "strata/v1/admin.pb.h"
#include "tests/cli/command_fixture.h"
#include "tests/eventually.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using strata::testing::CliResult;
using strata::testing::Mishap;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Args = std::vector<std::string>;

class CliCommands : public CommandTest {};

TEST_F(CliCommands, StatusDocumentHasThePublicShape) {
  const json status = Document({"status"});
  EXPECT_EQ(status["nodes"][0], json::parse(R"({"name":"a","state":"serving",
      "address":"127.0.0.1:7071","memory_bytes":8589934592,"backend":"cpu","isa":"avx2",
      "device":null,"read_bytes_per_s":0.0,"flops_per_s":0.0,"host_memory_bytes":null,
      "unfit":null})"));
  EXPECT_EQ(status["nodes"][1]["device"], "2 x NVIDIA H200");
  EXPECT_EQ(status["nodes"][1]["flops_per_s"], 6e13);
  EXPECT_EQ(status["nodes"][1]["host_memory_bytes"], 2147483648u);
  EXPECT_EQ(status["models"][0],
            json::parse(R"({"name":"recall","state":"ready","family":"llama","digest":"abc123"})"));
  EXPECT_EQ(status["sessions"][0]["request_id"], "r-1");
  EXPECT_EQ(status["kv"][0], json::parse(R"({"model":"recall","stage":0,"group":"full",
      "total":2048,"free":2045,"live":3,"cached":0,"fenced":0})"));
  EXPECT_EQ(status["problems"][0], json::parse(R"({"what":"node c is lost",
                            "do":"start strata-worker on c, or `strata node remove c`"})"));
}

TEST_F(CliCommands, DevicesAreShownWithNameMemoryAndSpeed) {
  EXPECT_THAT(Text({"node", "list"}),
              AllOf(HasSubstr("cuda/2 x NVIDIA H200"), HasSubstr("cpu/avx2"),
                    HasSubstr("4.0 TiB/s"), HasSubstr("60000 GFLOP/s")));
  EXPECT_THAT(Text({"top", "--once"}), AllOf(HasSubstr("cuda/2 x NVIDIA H200"),
                                             HasSubstr("4.0 TiB/s"), HasSubstr("GFLOP/s")));
  const json plan = Document({"plan", "recall"});
  EXPECT_EQ(plan["stages"][0]["device"], "cpu");
  EXPECT_EQ(plan["stages"][1]["device"], "cuda");
  EXPECT_THAT(Text({"plan", "recall"}), AllOf(HasSubstr("DEVICE"), HasSubstr("cuda")));
}

TEST_F(CliCommands, EachOfSeveralDevicesOfANodeIsShown) {
  const json devices = Document({"node", "show", "b"})["devices"];
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0], json::parse(R"({"index":0,"device":"NVIDIA H200",
      "memory_bytes":4294967296,"share":0.75,"read_bytes_per_s":2199023255552.0})"));
  EXPECT_EQ(Document({"node", "show", "a"})["devices"], json::array());
  EXPECT_THAT(Text({"node", "show", "b"}),
              AllOf(HasSubstr("of all devices"),
                    HasSubstr("GPU 1      NVIDIA H200, 25 % of each stage, 4.0 GiB, "
                              "reads 2.0 TiB/s")));
}

TEST_F(CliCommands, StatusTellsPeopleWhatIsWrongAndWhatMendsIt) {
  const std::string text = Text({"status"});
  for (const char* part : {"Strata 9.9", "127.0.0.1:8080", "serving", "recall layers 0-1",
                           "a (layers 0-1), b (layers 2-3)", "r-1", "! node c is lost",
                           "do: start strata-worker on c"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  coordinator_.status()->Clear();
  const std::string empty = Text({"status"});
  EXPECT_THAT(empty, HasSubstr("strata-worker --coordinator " + coordinator_.address()));
  EXPECT_THAT(empty, HasSubstr("strata model add"));
  EXPECT_THAT(empty, HasSubstr("Nothing is wrong."));
}

TEST_F(CliCommands, StatusSaysWhatIsWaitedForAndKeepsManyLostNodesShort) {
  v1::Wait* wait = coordinator_.status()->add_waits();
  wait->set_what("node b to load layers 2-3 of model recall");
  wait->set_node("b");
  wait->set_for_s(12);
  wait->set_limit_s(60);
  for (int i = 0; i < 1500; ++i) {
    v1::Node* node = coordinator_.status()->add_nodes();
    node->set_name("gone-" + std::to_string(i));
    node->set_state("lost");
  }
  const std::string text = Text({"status"});
  EXPECT_THAT(text, HasSubstr("node b to load layers 2-3 of model recall, for 12 s of 60 s"));
  EXPECT_THAT(text, HasSubstr("and 1497 more that are lost"));
  EXPECT_THAT(text, HasSubstr("gone-2 "));
  EXPECT_THAT(text, Not(HasSubstr("gone-3 ")));
  const json status = Document({"status"});
  EXPECT_EQ(status["waits"][0]["node"], "b");
  EXPECT_EQ(status["waits"][0]["model"], nullptr);
  EXPECT_EQ(status["nodes"].size(), 1502u);
}

TEST_F(CliCommands, NodeCommands) {
  EXPECT_EQ(Document({"node", "list"})["nodes"].size(), 2u);
  EXPECT_THAT(Text({"node", "list"}), HasSubstr("127.0.0.1:7072"));
  EXPECT_EQ(Document({"node", "show", "b"})["threads"], 4);
  EXPECT_THAT(Text({"node", "show", "b"}), HasSubstr("b is serving"));
  EXPECT_EQ(Document({"node", "drain", "a"})["state"], "draining");
  EXPECT_EQ(Text({"node", "resume", "a"}), "a is ready\n");
  const CliResult refused = Run({"node", "remove", "a"});
  EXPECT_EQ(refused.code, kExitFailed);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_EQ(Document({"node", "remove", "a", "--force"})["removed"], "a");
  EXPECT_EQ(Document({"node", "remove", "--gone"})["removed"], json::parse(R"(["c", "d"])"));
  EXPECT_EQ(Text({"node", "remove", "--gone"}), "removed 2 nodes\n");
  EXPECT_EQ(Run({"node", "remove"}).code, kExitUsage);
  EXPECT_EQ(Run({"node", "remove", "a", "--gone"}).code, kExitUsage);
  EXPECT_THAT(Run({"node", "show", "zz"}).err, HasSubstr("no node \"zz\""));
}

TEST_F(CliCommands, ModelCommands) {
  EXPECT_EQ(Document({"model", "list"}),
            json::parse(R"({"models":[{"name":"recall","state":"ready","family":"llama",
                            "digest":"abc123"}]})"));
  EXPECT_EQ(Document({"model", "show", "recall"})["plan"]["stages"].size(), 2u);
  EXPECT_EQ(Document({"model", "show", "recall"})["scheduling"],
            json::parse(R"({"step_tokens":64,"max_batch_tokens":512,"max_sessions":1024,
                            "micro_batches":2,"prefill_step_ms":1250.0,
                            "inter_token_target_ms":20.0})"));
  EXPECT_THAT(Text({"model", "show", "recall"}), HasSubstr("recall is ready"));
  EXPECT_THAT(
      Text({"model", "show", "recall"}),
      HasSubstr("steps        64 rows at most now, up to 512, 1250 ms on the slowest stage; "
                "beside answers as many as leave a token every 20.0 ms; up to 1024 requests "
                "at a time"));
  EXPECT_EQ(Document({"model", "remove", "recall"})["removed"], "recall");
  EXPECT_EQ(Run({"model", "remove", "missing"}).code, kExitFailed);
  EXPECT_EQ(Document({"model", "unload", "recall"})["unloaded"], "recall");
  EXPECT_EQ(Document({"model", "resize", "recall", "--kv-tokens", "64"})["kv_tokens"], 64);
  EXPECT_EQ(Document({"model", "move", "recall"})["ready"], true);
  EXPECT_THAT(Text({"model", "move", "recall", "--layers", "a:0-3,b:4-7"}),
              HasSubstr("recall is ready on a (layers 0-1), b (layers 2-3)"));
  EXPECT_EQ(coordinator_.last_load().options().layers_size(), 2);
  EXPECT_EQ(Document({"model", "move", "recall", "--plan-only"})["stages"].size(), 2u);
  EXPECT_THAT(Text({"model", "move", "recall", "--nodes", "a,b", "--detach"}),
              HasSubstr("recall is on its way to a (layers 0-1), b"));
  EXPECT_EQ(Run({"model", "move", "missing"}).code, kExitFailed);
}

TEST_F(CliCommands, CheckSaysWhatAgreesAndExitsByIt) {
  EXPECT_EQ(Document({"model", "check", "recall", "--node", "a", "--tokens", "7"}),
            json::parse(R"({"model":"recall","equal":true,"layers":8,"tokens":7,
                            "reference_node":"a","numerics_class":"cpu-2/w=bf16",
                            "plan_epoch":3})"));
  EXPECT_THAT(Text({"model", "check", "recall"}),
              AllOf(HasSubstr("node 'b'"), HasSubstr("8 layers"), HasSubstr("24 tokens")));
  EXPECT_THAT(Run({"model", "check", "recall"}).err, HasSubstr("9 of 9 layers"));

  const CliResult differs = Run({"model", "check", "flipped"});
  EXPECT_EQ(differs.code, kExitFailed);
  EXPECT_EQ(differs.out, "");
  EXPECT_THAT(differs.err,
              AllOf(HasSubstr("layer 6 of flipped, in stage 1 on node 'a'"), HasSubstr("node 'b'"),
                    HasSubstr("position 5"), HasSubstr("drain 'a'")));
  const CliResult told = Run({"model", "check", "flipped", "--json"});
  EXPECT_EQ(told.code, kExitFailed);
  EXPECT_EQ(json::parse(told.out),
            json::parse(R"({"model":"flipped","equal":false,"layers":8,"tokens":24,
                            "reference_node":"b","numerics_class":"cpu-2/w=bf16","plan_epoch":3,
                            "layer":6,"position":5,"stage":1,"node":"a","hint":"drain 'a'"})"));
  EXPECT_THAT(Run({"model", "check", "missing"}).err, HasSubstr("not loaded"));
}

TEST_F(CliCommands, AddRegistersAFolderOfTheCoordinator) {
  const json model = Document({"model", "add", "some/folder", "--name", "mine"});
  EXPECT_EQ(model["name"], "mine");
  EXPECT_EQ(model["path"], (std::filesystem::current_path() / "some/folder").string());
  EXPECT_THAT(Text({"model", "add", "some/folder"}),
              AllOf(HasSubstr("registered recall\n"), HasSubstr("  shape        llama, "),
                    HasSubstr("  KV           "), HasSubstr("  text         ")));
  EXPECT_FALSE(model.contains("facts"));  // That coordinator knows none.
  const CliResult wrong = Run({"model", "add", "/nowhere"});
  EXPECT_EQ(wrong.code, kExitFailed);
  EXPECT_THAT(wrong.err, HasSubstr("--upload"));
}

TEST_F(CliCommands, UploadSendsTheFilesOfACheckpoint) {
  const std::string folder = TempPath("tiny-1.5");
  std::filesystem::create_directories(folder + "/nested.json");
  std::string weights(300 * 1024, 'w');
  weights[299 * 1024] = 'x';
  std::ofstream(folder + "/model.safetensors") << weights;
  std::ofstream(folder + "/config.json") << "{}";
  std::ofstream(folder + "/empty.json");
  std::ofstream(folder + "/notes.md") << "not a part of it";
  std::ofstream(folder + "/.hidden.json") << "{}";
  const json model = Document({"model", "add", folder + "/", "--upload"});
  EXPECT_EQ(model["name"], "tiny-1.5");
  const auto files = coordinator_.uploaded_files();
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0], std::make_pair(std::string("config.json"), std::string("{}")));
  EXPECT_EQ(files[1], std::make_pair(std::string("empty.json"), std::string()));
  EXPECT_EQ(files[2], std::make_pair(std::string("model.safetensors"), weights));

  const CliResult refused = Run({"model", "add", folder, "--upload", "--name", "refused"});
  EXPECT_EQ(refused.code, kExitFailed);
  EXPECT_THAT(refused.err, HasSubstr("choose another --name"));
  EXPECT_THAT(Run({"model", "add", folder + "/none", "--upload"}).err,
              HasSubstr("no folder and no file"));
}

TEST_F(CliCommands, PullPassesRevisionAndName) {
  EXPECT_EQ(Document({"model", "pull", "org/name", "--revision", "v2", "--name", "n"})["name"],
            "pulled");
  EXPECT_EQ(coordinator_.last_pull().repository(), "org/name");
  EXPECT_EQ(coordinator_.last_pull().revision(), "v2");
  EXPECT_EQ(coordinator_.last_pull().name(), "n");
}

TEST_F(CliCommands, LoadPassesThePlacementAndWaits) {
  const CliResult result =
      Run({"model", "load",          "recall",      "--goal",      "throughput", "--context",
           "4096",  "--sessions",    "2",           "--kv-tokens", "9000",       "--quantize",
           "int8",  "--activations", "f32",         "--kv-dtype",  "f32",        "--nodes",
           "a, b",  "--layers",      "a:0-1,b:2-3", "--speculate", "lookup"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("recall is ready on a (layers 0-1), b (layers 2-3)\n"
                                    "steps: 64 rows at most now"));
  EXPECT_THAT(result.err, HasSubstr("fetching"));
  EXPECT_THAT(result.err, HasSubstr("ready"));
  EXPECT_THAT(result.err, Not(HasSubstr("\x1b"))) << "no terminal codes in a log";
  const v1::LoadOptions options = coordinator_.last_load().options();
  EXPECT_EQ(options.goal(), v1::PLAN_GOAL_THROUGHPUT);
  EXPECT_EQ(options.context(), 4096u);
  EXPECT_EQ(options.sessions(), 2u);
  EXPECT_EQ(options.kv_tokens(), 9000u);
  EXPECT_EQ(options.quantize(), v1::QUANTIZE_INT8);
  EXPECT_EQ(options.activations(), v1::ACTIVATIONS_F32);
  EXPECT_EQ(options.kv_dtype(), v1::KV_DTYPE_F32);
  EXPECT_EQ(options.speculate(), "lookup");
  EXPECT_THAT(options.nodes(), ::testing::ElementsAre("a", "b"));
  ASSERT_EQ(options.layers_size(), 2);
  EXPECT_EQ(options.layers(1).node(), "b");
  EXPECT_EQ(options.layers(1).first_layer(), 2u);
  EXPECT_EQ(options.layers(1).last_layer(), 3u);
}

TEST_F(CliCommands, LoadNamesNodesThatComputeLayersTogether) {
  ASSERT_EQ(Run({"model", "load", "recall", "--layers", "a+b:0-1,c=2+d=1:2-3"}).code, kExitDone);
  const v1::LoadOptions options = coordinator_.last_load().options();
  ASSERT_EQ(options.layers_size(), 2);
  EXPECT_EQ(options.layers(0).node(), "");
  ASSERT_EQ(options.layers(0).ranks_size(), 2);
  EXPECT_EQ(options.layers(0).ranks(1).node(), "b");
  EXPECT_EQ(options.layers(0).ranks(1).weight(), 0u) << "by its bandwidth";
  EXPECT_EQ(options.layers(1).ranks(0).node(), "c");
  EXPECT_EQ(options.layers(1).ranks(0).weight(), 2u);
  EXPECT_EQ(options.ranks(), 0u);
  coordinator_.plan()->mutable_pipelines(0)->mutable_stages(0)->add_ranks()->set_node("c");
  ASSERT_EQ(Run({"model", "load", "recall", "--ranks", "2"}).code, kExitDone);
  EXPECT_EQ(coordinator_.last_load().options().ranks(), 2u);
  EXPECT_EQ(Run({"plan", "recall", "--ranks", "2"}).code, kExitDone);
}

TEST_F(CliCommands, RanksAreRefusedWhereTheCoordinatorsPlanHasNone) {
  for (const std::string ranks : {"1", "2"}) {
    const CliResult load = Run({"model", "load", "recall", "--ranks", ranks});
    const CliResult plan = Run({"plan", "recall", "--ranks", ranks});
    EXPECT_EQ(load.code, ranks == "1" ? kExitDone : kExitFailed) << load.err;
    EXPECT_EQ(plan.code, load.code) << plan.err;
    if (ranks == "2") {
      EXPECT_THAT(load.err, HasSubstr("a version that does not know --ranks"));
      EXPECT_THAT(plan.err, HasSubstr("a version that does not know --ranks"));
    }
    EXPECT_EQ(coordinator_.last_load().options().ranks(), 1u) << "no other was asked for";
  }
}

TEST_F(CliCommands, LoadDocumentAndBars) {
  const json document = Document({"model", "load", "recall"});
  EXPECT_EQ(document["ready"], true);
  EXPECT_EQ(document["plan"]["epoch"], 3);
  EXPECT_EQ(document["workers"][1]["node"], "b");
  cli_.terminal = true;
  EXPECT_THAT(Run({"model", "load", "recall"}).err, HasSubstr("[#######"));
}

TEST_F(CliCommands, LoadDetachesWhenAskedTo) {
  const CliResult result = Run({"model", "load", "recall", "--detach"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_THAT(result.out, HasSubstr("is being loaded"));
  EXPECT_TRUE(coordinator_.last_load().detach());
}

TEST_F(CliCommands, CtrlCDetachesAndSaysSo) {
  coordinator_.SetLoadPaceMs(1'000'000);
  for (const Args& args : std::vector<Args>{
           {"model", "load", "recall"}, {"model", "add", "/x"}, {"model", "pull", "a/b"}}) {
    std::thread person([this] {
      EXPECT_TRUE(Eventually([this] { return !cli_.ErrSoFar().empty(); }));
      EXPECT_TRUE(cli_.interrupts.Fire());
    });
    const CliResult result = Run(args);
    person.join();
    EXPECT_EQ(result.code, kExitFailed);
    EXPECT_THAT(result.err, HasSubstr("detached: "));
    EXPECT_THAT(result.err, HasSubstr("goes on"));
  }
}

TEST_F(CliCommands, AddAndPullDetachWhenAskedTo) {
  coordinator_.SetLoadPaceMs(200);
  for (const Args& args : std::vector<Args>{{"model", "add", "/x", "--detach"},
                                            {"model", "pull", "a/b", "--detach"}}) {
    const CliResult result = Run(args);
    EXPECT_EQ(result.code, kExitDone) << result.err;
    EXPECT_THAT(result.out, HasSubstr("strata model list"));
  }
}

TEST_F(CliCommands, PlanDocumentHasThePublicShape) {
  const json plan = Document({"plan", "recall", "--goal", "capacity"});
  EXPECT_EQ(
      plan["stages"][1],
      json::parse(
          R"({"node":"b","device":"cuda","first_layer":2,"last_layer":3,"weight_bytes":104857600,
                            "kv_bytes":67108864,"kv_tokens":32768,"predicted_ms":1.1,
                            "ranks":[{"node":"b","share":1.0,"weight_bytes":104857600,
                                      "kv_bytes":67108864}]})"));
  for (const char* key : {"epoch", "numerics_class", "stages", "kv_tokens", "limiting_node",
                          "predicted_tokens_per_s", "lower_bound_gap", "why"}) {
    EXPECT_TRUE(plan.contains(key)) << key;
  }
  EXPECT_EQ(plan["epoch"], 0);
  EXPECT_EQ(plan["predicted_tokens_per_s"], 45.25);
  const std::string text = Text({"plan", "recall"});
  EXPECT_THAT(text, HasSubstr("Limited by: b"));
  EXPECT_THAT(text, HasSubstr("b reads its weights at 12 GB/s"));
}

TEST_F(CliCommands, APlanSaysWhatDraftsWin) {
  const json plan = Document({"plan", "recall"});
  EXPECT_EQ(plan["drafts"], json::parse(R"([
      {"right":0.5,"tokens_per_s":67.9,"times":1.5,"drafts":1,"steps":1},
      {"right":0.85,"tokens_per_s":135.75,"times":3.0,"drafts":7,"steps":2}])"));
  const std::string text = Text({"plan", "recall"});
  EXPECT_THAT(text,
              HasSubstr("Drafts:     one answer 67.9 tokens/s, 1.50 times as many as without, "
                        "where 50 % of guesses are right (1 draft a step)\n"));
  EXPECT_THAT(text,
              HasSubstr("where 85 % of guesses are right (7 drafts a step, 2 steps at once)\n"));
  // Another version plans without, by the call that it has for that.
  coordinator_.PredictNothingHere();
  EXPECT_FALSE(Document({"plan", "recall"}).contains("drafts"));
  EXPECT_THAT(Text({"plan", "recall"}), ::testing::Not(HasSubstr("Drafts:")));
  EXPECT_EQ(Run({"plan", "missing"}).code, kExitFailed);
}

TEST_F(CliCommands, SessionCommands) {
  const json sessions = Document({"session", "list"});
  EXPECT_EQ(sessions["sessions"][0]["request_id"], "r-1");
  EXPECT_EQ(sessions["sessions"][0]["model"], "recall");
  EXPECT_EQ(sessions["sessions"][0]["state"], "decode");
  EXPECT_EQ(sessions["sessions"][0]["prompt_tokens"], 39);
  EXPECT_EQ(sessions["sessions"][0]["generated_tokens"], 5);
  EXPECT_EQ(Text({"session", "cancel", "r-1"}), "cancelled r-1\n");
  EXPECT_EQ(Run({"session", "cancel", "r-2"}).code, kExitFailed);
}

TEST_F(CliCommands, BenchCountsWhatItSent) {
  coordinator_.SetPaceMs(2);
  const json result = Document({"bench", "recall", "--clients", "3", "--requests", "7",
                                "--prompt-tokens", "11", "--max-tokens", "4"});
  EXPECT_EQ(result["requests"], 7);
  EXPECT_EQ(result["failed"], 0);
  const double wall_s = result["wall_s"];
  EXPECT_GT(wall_s, 0.02);
  EXPECT_NEAR(result["generated_tokens_per_s"].get<double>() * wall_s, 28, 0.01);
  EXPECT_NEAR(result["prompt_tokens_per_s"].get<double>() * wall_s, 77, 0.01);
  for (const char* key : {"p50", "p95", "p99"}) {
    EXPECT_GT(result["ttft_ms"][key], 0);
    EXPECT_GE(result["inter_token_ms"][key], 0);
  }
  const auto requests = coordinator_.generate_requests();
  ASSERT_EQ(requests.size(), 7u);
  for (const v1::GenerateRequest& request : requests) {
    EXPECT_EQ(request.tokens().ids_size(), 11);
    EXPECT_TRUE(request.ignore_eos());
    for (const uint32_t id : request.tokens().ids()) EXPECT_LT(id, strata::testing::kFakeVocab);
  }
}

TEST_F(CliCommands, BenchReportsFailures) {
  coordinator_.Plan({{Mishap::kFail, 0}, {Mishap::kBreak, 2}});
  const CliResult result = Run({"bench", "recall", "--clients", "1", "--requests", "5", "--json"});
  EXPECT_EQ(result.code, kExitFailed);
  const json document = result.Json();
  EXPECT_EQ(document["failed"], 2);
  EXPECT_EQ(document["refused"], 1);
  ASSERT_EQ(document["failures"].size(), 2u);
  EXPECT_EQ(document["failures"][0]["reason"], "CONNECTION_LOST");
  EXPECT_EQ(document["failures"][0]["count"], 1);
  EXPECT_EQ(document["failures"][1]["reason"], "KV_NEVER_FITS");
  EXPECT_THAT(document["failures"][1]["example"], HasSubstr("kv_tokens=8192"));
  EXPECT_THAT(result.err, HasSubstr("kv_tokens=8192"));
}

TEST_F(CliCommands, BenchSendsTheSameLoadForTheSameSeed) {
  const auto sent = [&](const std::string& seed) {
    const size_t before = coordinator_.generate_requests().size();
    Document({"bench", "recall", "--clients", "1", "--requests", "6", "--prompt-tokens", "1-40",
              "--max-tokens", "lognormal:3,1,9", "--shared-prefix", "5", "--prefix-groups", "2",
              "--seed", seed});
    std::vector<std::string> requests;
    const auto all = coordinator_.generate_requests();
    for (size_t i = before; i < all.size(); ++i) {
      v1::GenerateRequest request = all[i];
      request.clear_request_id();
      requests.push_back(request.SerializeAsString());
    }
    EXPECT_EQ(requests.size(), 6u);
    return requests;
  };
  const auto first = sent("3");
  EXPECT_EQ(sent("3"), first);
  EXPECT_NE(sent("4"), first);
}

TEST_F(CliCommands, BenchInAnOpenLoopDoesNotWait) {
  // One after the other they would wait for each other for ever.
  coordinator_.HoldUntil(20);
  coordinator_.SetPaceMs(5);
  const json result =
      Document({"bench", "recall", "--rate", "40", "--requests", "20", "--max-tokens", "8",
                "--prompt-tokens", "2", "--target-ttft", "1h", "--target-itl", "1us"});
  EXPECT_EQ(result["requests"], 20);
  EXPECT_EQ(result["failed"], 0);
  EXPECT_EQ(result["rate"], 40);
  EXPECT_EQ(result["good"], 0);
  EXPECT_EQ(result["target_itl_ms"].get<float>(), 0.001f);
}

TEST_F(CliCommands, BenchTakesLengthsFromAFile) {
  std::ofstream(TempPath("lengths")) << "3,2\n4,1\n";
  const json result = Document({"bench", "recall", "--clients", "1", "--requests", "4", "--lengths",
                                TempPath("lengths"), "--target-ttft", "1h"});
  EXPECT_EQ(result["generated_tokens"], 6);
  EXPECT_EQ(result["good"], 4);
  std::vector<int> prompts;
  for (const auto& request : coordinator_.generate_requests()) {
    prompts.push_back(request.tokens().ids_size());
  }
  EXPECT_EQ(prompts, (std::vector<int>{3, 4, 3, 4}));
}

TEST_F(CliCommands, BenchWritesAnswersOfRequestsThatRepeat) {
  coordinator_.Plan({{Mishap::kFail, 0}});
  const std::string path = TempPath("answers");
  Run({"bench", "recall", "--clients", "1", "--requests", "7", "--distinct", "3", "--prompt-tokens",
       "1-40", "--max-tokens", "3-9", "--answers", path, "--json"});
  const auto requests = coordinator_.generate_requests();
  ASSERT_EQ(requests.size(), 7u);
  for (size_t i = 3; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].tokens().SerializeAsString(),
              requests[i - 3].tokens().SerializeAsString());
    EXPECT_EQ(requests[i].max_tokens(), requests[i - 3].max_tokens());
  }
  std::ifstream file(path);
  std::vector<json> answers;
  for (std::string line; std::getline(file, line);) answers.push_back(json::parse(line));
  ASSERT_EQ(answers.size(), 7u);
  EXPECT_THAT(answers[0]["error"], HasSubstr("kv_tokens=8192"));
  for (size_t i = 1; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]["request"], i);
    EXPECT_FALSE(answers[i].contains("error"));
    EXPECT_EQ(answers[i]["prompt_tokens"], requests[i].tokens().ids_size());
    EXPECT_NE(answers[i]["text"], "");
  }
  EXPECT_EQ(answers[6]["text"], answers[3]["text"]);
  EXPECT_EQ(Run({"bench", "recall", "--answers", path + "/none"}).code, kExitFailed);
}

TEST_F(CliCommands, BenchRefusesWhatContradictsItself) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--lengths", "x", "--prompt-tokens", "3"},
      {"--prefix-groups", "2"},
      {"--rate", "0"},
      {"--duration", "soon"},
      {"--target-ttft", "0s"},
      {"--prompt-tokens", "5-2"},
      {"--max-tokens", "many"},
      {"--text"},
      {"--api-key", "k"},
      {"--openai", "nothing"},
  };
  for (std::vector<std::string> arguments : wrong) {
    const std::string flag = arguments.front();
    arguments.insert(arguments.begin(), {"bench", "recall"});
    const CliResult result = Run(arguments);
    EXPECT_EQ(result.code, kExitUsage) << flag << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(flag));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_TRUE(coordinator_.generate_requests().empty());
}

TEST_F(CliCommands, BenchShowsProgressOnATerminal) {
  cli_.terminal = true;
  const CliResult result = Run({"bench", "recall", "--clients", "2", "--requests", "6"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.err, HasSubstr("6 of 6 requests, 0 in flight, 0 failed"));
}

TEST_F(CliCommands, AuditSaysWhoDidWhatNewestFirst) {
  const json list = Document({"audit", "--limit", "2100"});
  ASSERT_EQ(list["entries"].size(), 2100u) << "asked for in parts";
  EXPECT_EQ(list["entries"][0], json::parse(R"({"number":2500,"time_ms":1700002500000,
      "who":"operator anna","address":"10.0.0.9","call":"DrainNode","object":"a","outcome":"OK",
      "refused":false,"times":1})"));
  EXPECT_EQ(list["entries"][2]["outcome"], nullptr) << "it is under way";
  EXPECT_EQ(list["entries"][2099]["number"], 401);
  const std::string text = Text({"audit", "--limit", "3"});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_THAT(text,
              HasSubstr("2023-11-14 22:55:00 UTC  operator anna from 10.0.0.9  DrainNode  a"));
  EXPECT_THAT(text, HasSubstr("client bob"));
  EXPECT_THAT(text, HasSubstr("refused: ROLE_MAY_NOT, 4 times or more"));
  EXPECT_THAT(text, HasSubstr("under way"));
  EXPECT_EQ(Document({"audit", "--who", "anna"})["entries"].size(), 100u);
  EXPECT_EQ(Text({"audit", "--since", "1h"}), "Nothing is recorded of that.\n");
  EXPECT_EQ(Run({"audit", "--since", "yesterday"}).code, kExitUsage);
}

TEST_F(CliCommands, KeysAreMadeListedAndRevoked) {
  EXPECT_EQ(Text({"key", "list"}), "There is no key, and none is asked for.\n");
  const json made = Document({"key", "create", "--name", "alice", "--requests-in-flight", "3",
                              "--requests-per-minute", "60", "--tokens-per-minute", "5000",
                              "--max-priority", "-2", "--guaranteed"});
  EXPECT_EQ(made, json::parse(R"({"id":"key-1","name":"alice","admin":false,"created":1700000000,
      "last_used":null,"revoked":null,"requests_in_flight":3,"requests_per_minute":60,
      "tokens_per_minute":5000,"max_priority":-2,"guaranteed":true,"secret":"strata-secret"})"));
  const testing::CliResult second = Run({"key", "create", "--admin"});
  EXPECT_EQ(second.out, "strata-secret\n") << "for a script to take";
  EXPECT_THAT(second.err, HasSubstr("made key-2"));
  const json revoked = Document({"key", "revoke", "key-1"});
  EXPECT_EQ(revoked["revoked"], 1'700'000'100);
  EXPECT_EQ(revoked["cancelled"], 0);
  EXPECT_EQ(Text({"key", "revoke", "key-1", "--cancel"}), "revoked key-1; 2 requests cancelled\n");
  const json list = Document({"key", "list"});
  ASSERT_EQ(list["keys"].size(), 2u);
  EXPECT_FALSE(list["keys"][0].contains("secret"));
  EXPECT_EQ(list["keys"][1]["tokens_per_minute"], nullptr);
  EXPECT_EQ(list["keys"][1]["admin"], true);
  EXPECT_EQ(list["keys"][1]["max_priority"], 0);
  const std::string text = Text({"key", "list"});
  EXPECT_THAT(text, HasSubstr("key-1  alice  revoked  2023-11-14 22:13:20 UTC  never"));
  EXPECT_THAT(text, HasSubstr("key-2  -      admin"));
  EXPECT_EQ(Run({"key", "revoke", "key-9"}).code, kExitFailed);
  EXPECT_EQ(Run({"key", "revoke"}).code, kExitUsage);
  EXPECT_EQ(Run({"key", "create", "x"}).code, kExitUsage);
  EXPECT_EQ(Run({"key", "create", "--tokens-per-minute", "0"}).code, kExitUsage);
}

}  // namespace
}  // namespace strata::cli
