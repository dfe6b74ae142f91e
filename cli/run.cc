#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <vector>

#include "cli/command.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata::cli {
namespace {

constexpr size_t kShownBytes = 128;  // Of a word that the user wrote.

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

// Insertions, deletions, replacements and swaps of neighbours between two words.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> steps(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      steps[i][j] = std::min({steps[i - 1][j] + 1, steps[i][j - 1] + 1,
                              steps[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        steps[i][j] = std::min(steps[i][j], steps[i - 2][j - 2] + 1);
      }
    }
  }
  return steps.back().back();
}

// "; did you mean X?" for the nearest of `known`, if one is near.
std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 64;
  if (word.size() > kLongest) {
    return "";
  }
  std::string nearest;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& other : known) {
    if (const size_t distance = Distance(word, other); distance < least) {
      least = distance;
      nearest = other;
    }
  }
  return nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?";
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

// The word where a command's name should be, with the nearest that is one; "" if there is none.
std::string UnknownCommand(const CLI::App& root) {
  const CLI::App& reached = ReachedApp(root);
  const std::vector<std::string> known = CommandsOf(reached);
  const std::vector<std::string> rest = root.remaining(/*recurse=*/true);
  if (known.empty() || rest.empty() || rest.front().rfind('-', 0) == 0) {
    return "";
  }
  return "unknown command \"" + Printable(rest.front(), kShownBytes) + "\"" +
         Nearest(rest.front(), known);
}

std::string ExplainParseError(const CLI::App& root, const CLI::ParseError& error) {
  // What was left over says more than «a subcommand is required».
  std::vector<std::string> rest = root.remaining(/*recurse=*/true);
  const bool no_options = !rest.empty() && rest.front() == "--";  // All behind it are words.
  if (no_options) rest.erase(rest.begin());
  const bool wants_command = !ReachedApp(root).get_subcommands(nullptr).empty();
  if (!no_options && !rest.empty() && rest.front().rfind('-', 0) == 0 && rest.front() != "-") {
    const std::string name = rest.front().substr(0, rest.front().find('='));
    return "unknown option " + Printable(rest.front(), kShownBytes) +
           Nearest(name, OptionsOf(ReachedApp(root)));
  }
  if (!rest.empty()) {
    const std::string unknown = UnknownCommand(root);
    return !unknown.empty()
               ? unknown
               : "one argument too many: \"" + Printable(rest.front(), kShownBytes) + "\"";
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

int RefuseUse(const std::string& what, const CLI::App& root, const Environment& environment) {
  *environment.err << "strata: " << what << "; see `" << ReachedCommand(root) << " --help`\n";
  return kExitUsage;
}

// The exit code when parsing ended the run, or -1 to go on.
int Parse(const std::vector<std::string>& args, CLI::App* root, const Environment& environment) {
  try {
    // CLI11 takes them in reverse.
    root->parse(std::vector<std::string>(args.rbegin(), args.rend()));
    return -1;
  } catch (const CLI::Success& asked) {
    // For help, or the version. Of a command that does not exist there is none.
    if (const std::string unknown = UnknownCommand(*root); !unknown.empty()) {
      return RefuseUse(unknown, *root, environment);
    }
    return root->exit(asked, *environment.out, *environment.err);
  } catch (const CLI::ParseError& error) {
    return RefuseUse(ExplainParseError(*root, error), *root, environment);
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
  AddAuditCommand(&tree);
  AddClusterCommands(&tree);
  AddLoginCommand(&tree);
  AddBenchCommand(&tree);
  AddDoctorCommand(&tree);
  AddSupportBundleCommand(&tree);
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
    return context.done_code();
  }
  *environment.err << "strata: " << OneLine(Describe(status));
  if (IsUsageError(status)) {
    *environment.err << "; see `" << ReachedCommand(root) << " --help`";
  }
  *environment.err << "\n";
  return IsUsageError(status) ? kExitUsage : context.failed_code();
}

}  // namespace strata::cli
