// Streams under clients that read slowly, stop, go, or send what nobody asked for, while tokens
// come, requests fail, are cancelled and time passes: a list of what happens next. Every answer
// holds at most what it may for its client, every generation is ended or cancelled, none waits for
// a client that has read all there is, and nothing is left behind.
#include <chrono>
#include <thread>

#include "common/check.h"
#include "common/status.h"
#include "tests/fuzz/http_answers.h"
#include "tests/fuzz/http_stand.h"
#include "tests/fuzz/input.h"

namespace strata {
namespace {

constexpr size_t kMaxClients = 4;
constexpr int kMaxPauses = 6;
constexpr size_t kMaxSpoken = 8 << 20;  // Of all answers.
// Longer than a pause or never within a run, as the input says.
constexpr std::chrono::milliseconds kSoon{2};
constexpr std::chrono::milliseconds kPause{3};

class Run {
 public:
  explicit Run(fuzz::Input* input) : input_(*input), stand_(Options(input)) {}

  void Go() {
    while (!input_.empty()) {
      Step();
      stand_.Poll();
    }
    End();
  }

 private:
  struct Peer {
    fuzz::HttpClient* client;
  };

  static HttpOptions Options(fuzz::Input* input) {
    const uint8_t choice = input->Byte();
    HttpOptions options;
    const std::chrono::nanoseconds never = std::chrono::hours(1);
    options.timeout = options.body_timeout = (choice & 1) != 0 ? kSoon : never;
    options.send_timeout = (choice & 2) != 0 ? kSoon : never;
    options.keepalive =
        (choice & 4) != 0 ? std::chrono::nanoseconds(kSoon) : std::chrono::nanoseconds(0);
    options.max_unread_bytes = (choice & 8) != 0 ? 4096 : 256 * 1024;
    options.unread_patience = std::chrono::nanoseconds(0);
    return options;
  }

  // What asks for a stream, or (rarely) a whole answer.
  std::string Request() {
    static constexpr const char* kPaths[] = {"/v1/completions", "/v1/chat/completions",
                                             "/generate_stream", "/"};
    const uint32_t route = input_.Below(4);
    const bool stream = input_.Below(8) != 0;
    std::string body = R"({"model":"m","max_tokens":)" + std::to_string(1 + input_.Byte());
    body += R"(,"stream":)" + std::string(stream ? "true" : "false");
    if (const uint32_t n = 1 + input_.Below(3); n > 1) body += R"(,"n":)" + std::to_string(n);
    if (input_.Bool()) body += R"(,"logprobs":)" + std::string(route == 1 ? "true" : "2");
    if (input_.Bool()) body += R"(,"stop":["ab"])";
    if (route == 1) {
      body += R"(,"messages":[{"role":"user","content":"a"}])";
    } else {
      body += R"(,"prompt":"abc","inputs":"abc")";
    }
    body += "}";
    const char* version = input_.Below(8) == 0 ? "1.0" : "1.1";
    return "POST " + std::string(kPaths[route]) + " HTTP/" + version +
           "\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  Peer* Pick() { return peers_.empty() ? nullptr : &peers_[input_.Below(256) % peers_.size()]; }

  std::shared_ptr<fuzz::FakeGeneration> PickGeneration() {
    const auto live = stand_.backend()->Live();
    return live.empty() ? nullptr : live[input_.Byte() % live.size()];
  }

  void Ask() {
    if (peers_.size() < kMaxClients) {
      peers_.push_back({&stand_.Connect()});
      peers_.back().client->Send(Request());
    } else {
      Pick()->client->Send(Request());  // Sent ahead, perhaps.
    }
  }

  void Speak() {
    const auto generation = PickGeneration();
    if (generation == nullptr) {
      return;
    }
    const std::string text(size_t{1} << input_.Below(17), 'x');
    // One that is paused may have some tokens under way.
    const uint32_t most = generation->paused() ? 2 : 16;
    for (uint32_t i = input_.Below(most); i > 0 && spoken_ < kMaxSpoken; --i) {
      generation->Say(input_.Byte(), text);
      spoken_ += text.size();
    }
  }

  void Stop() {
    const auto generation = PickGeneration();
    if (generation == nullptr) {
      return;
    }
    static constexpr const char* kReasons[] = {"stop", "length", "cancelled"};
    if (input_.Bool()) {
      generation->Finish(kReasons[input_.Below(3)]);
    } else {
      generation->Fail(Error(static_cast<absl::StatusCode>(1 + input_.Below(16)), "R", "why"));
    }
  }

  void Disturb(Peer* peer) {
    switch (input_.Below(4)) {
      case 0:
        return peer->client->Close();
      case 1:
        return peer->client->EndSending();
      case 2:
        return peer->client->Send(std::string(input_.Byte() * 100u, 'z'));
      default:
        return peer->client->Send(input_.Text());
    }
  }

  void Step() {
    switch (input_.Below(8)) {
      case 0:
        return Ask();
      case 1:
        if (const auto generation = PickGeneration()) generation->Start();
        return;
      case 2:
      case 3:
        return Speak();
      case 4:
        return Stop();
      case 5:
        if (Peer* peer = Pick()) Disturb(peer);
        return;
      case 6:
        if (pauses_++ < kMaxPauses) std::this_thread::sleep_for(kPause);
        return;
      default:
        if (Peer* peer = Pick()) peer->client->Read(size_t{1} << input_.Below(20));
    }
  }

  // Those that are left read all that there is, until it ends or nothing more comes: first of what
  // was said already, then to the end.
  void End() {
    ReadAll(false);
    for (const auto& generation : stand_.backend()->Live()) {
      STRATA_CHECK(!generation->paused() || generation->cancelled());
    }
    ReadAll(true);
    // Of one client it is known which requests were its.
    if (peers_.size() == 1) {
      fuzz::CheckAnswers(peers_[0].client->received(), stand_.methods(), true);
    }
  }

  void ReadAll(bool finish) {
    int rounds = 0;  // Signs of life may go on for ever.
    for (int quiet = 0; quiet < 3 && rounds < 10'000; ++quiet, ++rounds) {
      for (const auto& generation : stand_.backend()->Live()) {
        if (finish) generation->Finish("stop");
      }
      stand_.Poll();
      for (const Peer& peer : peers_) {
        const size_t before = peer.client->received().size();
        peer.client->Read(1 << 20);
        if (peer.client->received().size() > before) quiet = 0;
      }
      stand_.Poll();
    }
  }

  fuzz::Input& input_;
  fuzz::HttpStand stand_;
  std::vector<Peer> peers_;
  int pauses_ = 0;
  size_t spoken_ = 0;
};

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  Run(&input).Go();
  return 0;
}
