// What every command is made of: where it hangs in the tree, what it may use while it runs.
#ifndef STRATA_CLI_COMMAND_H_
#define STRATA_CLI_COMMAND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/cli.h"
#include "sdk/cpp/strata.h"

namespace CLI {
class App;
}

namespace strata::cli {

// One run of the program: its process, the global options, and the command chosen.
class Context {
 public:
  explicit Context(const Environment& environment) : environment_(environment) {}

  const Environment& environment() const { return environment_; }
  std::ostream& out() const { return *environment_.out; }
  std::ostream& err() const { return *environment_.err; }
  bool json() const { return json_; }
  std::string coordinator() const;

  // Where `strata login` keeps what it gets; "" where the user has no home.
  std::string ConfigDir() const;
  // What the user is called here; "me" where nobody says.
  std::string UserName() const;

  // Of a command whose success or failure has codes of its own (cli.h has the usual ones).
  void set_done_code(int code) { done_code_ = code; }
  int done_code() const { return done_code_; }
  void set_failed_code(int code) { failed_code_ = code; }
  int failed_code() const { return failed_code_; }

  // The coordinator that flags and environment name, else that of `strata login`. Connects at the
  // first call.
  absl::StatusOr<std::unique_ptr<sdk::Client>> Connect() const;
  // Once the authority has changed: the caller's own certificate follows at once.
  void FollowAuthority() const;

 private:
  friend class CommandTree;
  std::string Setting(const std::string& flag_value, const char* variable) const;
  // The address that `strata login` got; "" where flags or environment name one, or nobody logged
  // in.
  std::string LoggedInAt() const;
  // The folder with the certificate to show; "": none.
  std::string TlsDir() const;

  const Environment& environment_;
  std::string coordinator_flag_;
  std::string tls_dir_flag_;
  bool json_ = false;
  int done_code_ = kExitDone;
  int failed_code_ = kExitFailed;
  mutable bool renewed_ = false;  // Connect has looked at the certificate.
};

// What a command does once its arguments are known. UsageError() makes the exit code 2, any other
// error 1.
using Action = std::function<absl::Status(Context&)>;

// Builds the tree of commands; the parse picks the action.
class CommandTree {
 public:
  CommandTree(CLI::App* root, Context* context);

  // A command that only holds others.
  CLI::App* AddGroup(const std::string& name, const std::string& description);
  // A command that does something. `examples` are lines for the end of its help.
  CLI::App* AddLeaf(CLI::App* parent, const std::string& name, const std::string& description,
                    const std::string& examples, Action action);

  // Gives every command the global options, after its own. Last of all.
  void AddGlobalOptions();

  CLI::App* root() const { return root_; }
  const Action& chosen() const { return chosen_; }

 private:
  CLI::App* const root_;
  Context* const context_;
  std::vector<CLI::App*> apps_;
  Action chosen_;
};

// Wrong use that shows only when all arguments are known.
absl::Status UsageError(const std::string& message);
bool IsUsageError(const absl::Status& status);

// Runs `handler` at Ctrl-C while in scope.
class OnInterrupt {
 public:
  OnInterrupt(const Context& context, std::function<void()> handler);
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

 private:
  Interrupts* const interrupts_;
};

// `strata model load MODEL --goal GOAL`.
absl::Status LoadForGoal(const Context& context, const std::string& model, const std::string& goal);

// Each adds its commands to the tree.
void AddStatusCommand(CommandTree* tree);
void AddTopCommand(CommandTree* tree);
void AddNodeCommands(CommandTree* tree);
void AddModelCommands(CommandTree* tree);
void AddLoadCommands(CommandTree* tree, CLI::App* model);  // load, move, unload, resize; and plan.
void AddCheckCommand(CommandTree* tree, CLI::App* model);
void AddGenerateCommand(CommandTree* tree);
void AddChatCommand(CommandTree* tree);
void AddSessionCommands(CommandTree* tree);
void AddKeyCommands(CommandTree* tree);
void AddAuditCommand(CommandTree* tree);
void AddClusterCommands(CommandTree* tree);
void AddDeployCommands(CommandTree* tree, CLI::App* cluster);
void AddNodeTokenCommand(CommandTree* tree, CLI::App* node);
void AddAuthorityCommands(CommandTree* tree, CLI::App* cluster);
void AddPersonTokenCommand(CommandTree* tree, CLI::App* cluster);
void AddLoginCommand(CommandTree* tree);
void AddBenchCommand(CommandTree* tree);
void AddDoctorCommand(CommandTree* tree);
void AddSupportBundleCommand(CommandTree* tree);

}  // namespace strata::cli

#endif  // STRATA_CLI_COMMAND_H_
