#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "cli/command.h"
#include "common/status.h"

namespace strata::cli {
namespace {

// The command that the arguments reached, as the user wrote it: "strata model load".
std::string ReachedCommand(const CLI::App& root) {
  std::string name = root.get_name();
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().back();
    name += " " + app->get_name();
  }
  return name;
}

const CLI::App& ReachedApp(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().back();
  }
  return *app;
}

std::string OneLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) {
    text.pop_back();
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string ExplainParseError(const CLI::App& root, const CLI::ParseError& error) {
  // What was left over says more than «a subcommand is required».
  const std::vector<std::string> rest = root.remaining(/*recurse=*/true);
  const bool wants_command = !ReachedApp(root).get_subcommands(nullptr).empty();
  if (!rest.empty() && rest.front().rfind('-', 0) == 0 && rest.front() != "-") {
    return "unknown option " + rest.front();
  }
  if (!rest.empty()) {
    return (wants_command ? "unknown command \"" : "one argument too many: \"") + rest.front() +
           "\"";
  }
  if (wants_command) {
    return "a command is missing";
  }
  if (const auto* count = dynamic_cast<const CLI::ArgumentMismatch*>(&error);
      count != nullptr && std::string(count->what()).find("At Most 1") != std::string::npos) {
    const std::string what = count->what();
    return what.substr(0, what.find(':')) + " is given more than once";
  }
  return OneLine(error.what());
}

// The exit code when parsing ended the run, or -1 to go on.
int Parse(const std::vector<std::string>& args, CLI::App* root, const Environment& environment) {
  try {
    // CLI11 takes them in reverse.
    root->parse(std::vector<std::string>(args.rbegin(), args.rend()));
    return -1;
  } catch (const CLI::CallForHelp& help) {
    return root->exit(help, *environment.out, *environment.err);
  } catch (const CLI::CallForVersion& version) {
    return root->exit(version, *environment.out, *environment.err);
  } catch (const CLI::ParseError& error) {
    *environment.err << "strata: " << ExplainParseError(*root, error) << "; see `"
                     << ReachedCommand(*root) << " --help`\n";
    return kExitUsage;
  }
}

}  // namespace

int RunCli(const std::vector<std::string>& args, const Environment& environment) {
  CLI::App root("Run language models over the machines that you already own.", "strata");
  root.get_formatter()->column_width(34);
  root.footer(
      "Examples:\n"
      "  strata status\n"
      "  strata model add ./models/recall --name recall\n"
      "  strata model load recall\n"
      "  strata chat recall \"Hello\"\n\n"
      "Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage.");
  Context context(environment);
  CommandTree tree(&root, &context);
  AddStatusCommand(&tree);
  AddTopCommand(&tree);
  AddGenerateCommand(&tree);
  AddChatCommand(&tree);
  AddModelCommands(&tree);
  AddNodeCommands(&tree);
  AddSessionCommands(&tree);
  AddKeyCommands(&tree);
  AddBenchCommand(&tree);
  tree.AddGlobalOptions();

  if (const int code = Parse(args, &root, environment); code >= 0) {
    return code;
  }
  absl::Status status = tree.chosen()(context);
  environment.out->flush();
  if (status.ok() && environment.out->fail()) {
    status = Error(absl::StatusCode::kDataLoss, "CANNOT_WRITE", "stdout cannot be written to");
  }
  if (status.ok()) {
    return kExitDone;
  }
  *environment.err << "strata: " << OneLine(Describe(status));
  if (IsUsageError(status)) {
    *environment.err << "; see `" << ReachedCommand(root) << " --help`";
  }
  *environment.err << "\n";
  return IsUsageError(status) ? kExitUsage : kExitFailed;
}

}  // namespace strata::cli
