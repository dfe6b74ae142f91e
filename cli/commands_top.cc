// strata top.
#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "cli/command.h"
#include "cli/top.h"
#include "common/mutex.h"
#include "common/status.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kEvery{1};
constexpr TerminalSize kUsualTerminal{.rows = 24, .columns = 80};

// Ctrl-C, which ends the view well.
class Ending {
 public:
  void End() STRATA_EXCLUDES(mutex_) {
    calls_.Cancel();
    const MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  // Waits until then at most. True: it has ended.
  bool WaitUntil(steady_clock::time_point then) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    while (!ended_ && steady_clock::now() < then) {
      changed_.WaitFor(&mutex_, then - steady_clock::now());
    }
    return ended_;
  }
  bool ended() STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    return ended_;
  }
  const sdk::Cancellation& calls() const { return calls_; }

 private:
  const sdk::Cancellation calls_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
};

// The terminal's other screen, while in scope.
class OtherScreen {
 public:
  explicit OtherScreen(std::ostream* out) : out_(*out) { out_ << "\x1b[?1049h\x1b[?25l"; }
  ~OtherScreen() { out_ << "\x1b[?25h\x1b[?1049l" << std::flush; }
  OtherScreen(const OtherScreen&) = delete;
  OtherScreen& operator=(const OtherScreen&) = delete;

 private:
  std::ostream& out_;
};

void ShowScreen(const Context& context, const v1::GetStatusResponse& status,
                const TokenRates& rates, bool screen) {
  std::ostringstream text;
  if (context.json()) {
    WriteJson(TopDocument(status, rates), &text);
  } else {
    PrintTop(status, rates, context.coordinator(), &text);
  }
  if (screen) {
    const auto& size = context.environment().terminal_size;
    context.out() << Screen(text.str(), size ? size() : kUsualTerminal) << std::flush;
  } else {
    context.out() << text.str() << std::flush;
  }
}

absl::Status Top(const Context& context, bool once) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  Ending ending;
  const OnInterrupt on_interrupt(context, [&ending] { ending.End(); });
  const sdk::CallOptions call{.timeout = {}, .cancellation = ending.calls()};
  ASSIGN_OR_RETURN(v1::GetStatusResponse status, client->GetStatus(call));
  TokenRates rates;
  rates.Update(status, steady_clock::now());
  const bool screen = !once && !context.json() && context.environment().out_is_terminal;
  const std::unique_ptr<OtherScreen> other(screen ? new OtherScreen(&context.out()) : nullptr);
  ShowScreen(context, status, rates, screen);
  while (!once && !context.out().fail()) {
    if (ending.WaitUntil(steady_clock::now() + kEvery)) {
      break;
    }
    absl::StatusOr<v1::GetStatusResponse> next = client->GetStatus(call);
    if (ending.ended()) {
      break;
    }
    if (next.ok()) {
      status = *std::move(next);
      rates.Update(status, steady_clock::now());
      if (!screen && !context.json()) {
        context.out() << "\n";
      }
      ShowScreen(context, status, rates, screen);
    } else if (screen) {
      // Who looks on sees it come back.
      context.out() << "\x1b[H" << Describe(next.status()) << "\x1b[K" << std::flush;
    } else {
      return next.status();
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddTopCommand(CommandTree* tree) {
  auto once = std::make_shared<bool>(false);
  CLI::App* top = tree->AddLeaf(
      tree->root(), "top",
      "A live view of nodes, KV memory and requests, each second until Ctrl-C; with --json one "
      "document each time",
      "  strata top\n  strata top --json --once",
      [once](Context& context) { return Top(context, *once); });
  top->add_flag("--once", *once, "Show it once and end");
}

}  // namespace strata::cli
