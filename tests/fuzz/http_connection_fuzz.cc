// The way from a socket's bytes to a route and back: a byte of options, one that says in which
// pieces the rest arrives, and the bytes of a connection. Whatever they are, the client gets whole
// answers or the connection's end, and nothing is left behind.
#include "common/check.h"
#include "tests/fuzz/http_answers.h"
#include "tests/fuzz/http_stand.h"
#include "tests/fuzz/input.h"

namespace strata {
namespace {

HttpOptions Limits(uint8_t choice) {
  HttpOptions options;
  // Nothing here waits, so no timeout passes.
  options.timeout = options.body_timeout = options.send_timeout = std::chrono::hours(1);
  options.keepalive = std::chrono::nanoseconds(0);
  if ((choice & 1) != 0) options.max_header_bytes = 200;
  if ((choice & 2) != 0) options.max_body_bytes = 64;
  return options;
}

// A few tokens for everyone who waits for one.
void AnswerAll(fuzz::HttpStand* stand, bool fails) {
  for (const auto& generation : stand->backend()->Live()) {
    generation->Say('a', "a");
    generation->Say(256, "ab");
    fails ? generation->Fail(absl::UnavailableError("lost")) : generation->Finish("stop");
  }
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  const uint8_t choice = input.Byte();
  const size_t at_once = size_t{1} << input.Below(12);
  fuzz::HttpStand stand(Limits(choice));
  fuzz::HttpClient& client = stand.Connect();
  while (!input.empty()) {
    client.Send(input.Bytes(at_once));
    stand.Poll();
    AnswerAll(&stand, (choice & 4) != 0);
    stand.Poll();
    client.Read(1 << 20);
  }
  const bool ends = (choice & 8) != 0;
  if (ends) client.EndSending();
  // One answer after another; a bound on requests in so many bytes.
  for (size_t i = 0; i < 16 + size / 16 && !client.ended(); ++i) {
    stand.Poll();
    AnswerAll(&stand, (choice & 4) != 0);
    const size_t before = client.received().size();
    stand.Poll();
    client.Read(1 << 20);
    if (!ends && client.received().size() == before && stand.backend()->Live().empty()) break;
  }
  STRATA_CHECK(!ends || client.ended());
  // Who has sent all ends its request: the answer at that point may be broken off.
  fuzz::CheckAnswers(client.received(), stand.methods(), ends || client.ended());
  return 0;
}
