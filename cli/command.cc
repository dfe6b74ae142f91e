#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <utility>

#include "cli/renew_own.h"
#include "common/names.h"
#include "common/status.h"

namespace strata::cli {
namespace {

constexpr char kDefaultCoordinator[] = "127.0.0.1:7070";
constexpr char kUsageReason[] = "USAGE";

}  // namespace

void Interrupts::Set(std::function<void()> handler) {
  MutexLock lock(&mutex_);
  handler_ = std::move(handler);
}

bool Interrupts::Fire() {
  MutexLock lock(&mutex_);
  if (!handler_) {
    return false;
  }
  // Once: a second Ctrl-C ends the process even if the handler did not help.
  const std::function<void()> handler = std::exchange(handler_, nullptr);
  handler();
  return true;
}

OnInterrupt::OnInterrupt(const Context& context, std::function<void()> handler)
    : interrupts_(context.environment().interrupts) {
  if (interrupts_ != nullptr) {
    interrupts_->Set(std::move(handler));
  }
}

OnInterrupt::~OnInterrupt() {
  if (interrupts_ != nullptr) {
    interrupts_->Set(nullptr);
  }
}

std::string Context::Setting(const std::string& flag_value, const char* variable) const {
  if (!flag_value.empty()) {
    return flag_value;
  }
  return environment_.variable ? environment_.variable(variable).value_or("") : "";
}

std::string Context::ConfigDir() const {
  const std::string config = Setting("", "XDG_CONFIG_HOME");
  const std::string home = Setting("", "HOME");
  return !config.empty() ? config + "/strata" : !home.empty() ? home + "/.config/strata" : "";
}

std::string Context::UserName() const {
  const std::string name = Setting(Setting("", "USER"), "LOGNAME");
  return CheckNodeName(name).ok() ? name : "me";
}

std::string Context::LoggedInAt() const {
  if (!Setting(coordinator_flag_, "STRATA_COORDINATOR").empty() || ConfigDir().empty()) {
    return "";
  }
  std::ifstream in(ConfigDir() + "/coordinator");
  std::string address;
  std::getline(in, address);
  return address;
}

std::string Context::coordinator() const {
  std::string address = Setting(coordinator_flag_, "STRATA_COORDINATOR");
  if (address.empty()) {
    address = LoggedInAt();
  }
  return address.empty() ? kDefaultCoordinator : address;
}

std::string Context::TlsDir() const {
  const std::string dir = Setting(tls_dir_flag_, "STRATA_TLS_DIR");
  return dir.empty() && !LoggedInAt().empty() ? ConfigDir() + "/tls" : dir;
}

void Context::FollowAuthority() const {
  if (!TlsDir().empty()) {
    RenewOwn(TlsDir(), coordinator(), AskWhen::kNow, environment_.err);
  }
}

absl::StatusOr<std::unique_ptr<sdk::Client>> Context::Connect() const {
  sdk::ClientOptions options;
  options.coordinator = coordinator();
  options.tls_dir = TlsDir();
  options.api_key = Setting("", "STRATA_API_KEY");
  options.follow_tls_files = true;
  if (!options.tls_dir.empty() && !std::exchange(renewed_, true)) {
    RenewOwn(options.tls_dir, options.coordinator, AskWhen::kHourly, environment_.err);
  }
  auto client = sdk::Client::Connect(options);
  if (ReasonOf(client.status()) == "BAD_ADDRESS") {
    return UsageError("--coordinator " + Describe(client.status()));
  }
  return client;
}

CommandTree::CommandTree(CLI::App* root, Context* context) : root_(root), context_(context) {
  root_->require_subcommand(1);
  apps_.push_back(root_);
}

CLI::App* CommandTree::AddGroup(const std::string& name, const std::string& description) {
  CLI::App* group = root_->add_subcommand(name, description);
  group->require_subcommand(1);
  apps_.push_back(group);
  group->footer("`strata " + name + " COMMAND --help` explains each.");
  return group;
}

CLI::App* CommandTree::AddLeaf(CLI::App* parent, const std::string& name,
                               const std::string& description, const std::string& examples,
                               Action action) {
  CLI::App* leaf = parent->add_subcommand(name, description);
  apps_.push_back(leaf);
  leaf->footer(examples.empty() ? "" : "Examples:\n" + examples);
  leaf->callback([this, action = std::move(action)] { chosen_ = action; });
  return leaf;
}

void CommandTree::AddGlobalOptions() {
  const std::string group = "Global options";
  for (CLI::App* app : apps_) {
    app->add_option("--coordinator", context_->coordinator_flag_,
                    "The cluster's coordinator; default that of a login, else\n"
                    "127.0.0.1:7070 (environment: STRATA_COORDINATOR)")
        ->type_name("HOST:PORT")
        ->group(group);
    app->add_option("--tls-dir", context_->tls_dir_flag_,
                    "Folder with ca.pem, cert.pem and key.pem\n(environment: STRATA_TLS_DIR)")
        ->type_name("DIR")
        ->group(group);
    app->add_flag("--json", context_->json_, "One JSON document on stdout")->group(group);
    app->set_help_flag("-h,--help", "Say what this command does, and end")->group(group);
    app->set_version_flag("--version", std::string("strata ") + STRATA_VERSION,
                          "Print the version, and end")
        ->group(group);
  }
}

absl::Status UsageError(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, kUsageReason, message);
}

bool IsUsageError(const absl::Status& status) { return ReasonOf(status) == kUsageReason; }

}  // namespace strata::cli
