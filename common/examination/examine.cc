#include "common/examination/examine.h"

#include <google/protobuf/util/json_util.h>
#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "common/app/flags.h"
#include "common/examination/boot_facts.h"
#include "common/examination/machine_facts.h"
#include "common/platform/addresses.h"
#include "common/rpc/address.h"
#include "common/rpc/live_tls.h"
#include "common/status.h"

namespace strata {
namespace {

// The host that a certificate has to name; "" where nobody dials a certain one.
std::string HostIn(const std::string& address) {
  const auto parsed = ParseHostPort(address);
  return parsed.ok() && !IsAnyAddress(parsed->host) ? parsed->host : "";
}

void LookAtBoot(const ExamineOptions& options, v1::BootFacts* facts) {
  bool user_unit = false;
  facts->set_config(options.flags.config);
  facts->set_unit(options.running ? UnitOfProcess(options.root, &user_unit)
                                  : UnitOfConfig(options.flags.config));
  facts->set_user_unit(user_unit);
  const passwd* who = getpwuid(geteuid());
  facts->set_user(who != nullptr ? who->pw_name : std::to_string(geteuid()));
  LookAtUnit(options.root, who != nullptr ? who->pw_dir : "", facts);
  const auto changed = ChangedFlags(options.flags);
  if (!changed.ok()) {
    facts->set_config_error(std::string(changed.status().message()));
    return;
  }
  for (const std::string& name : *changed) facts->add_changed_flags(name);
}

}  // namespace

v1::MachineFacts Examine(const ExamineOptions& options) {
  v1::MachineFacts facts;
  facts.set_program(options.program);
  facts.set_node(options.node);
  facts.set_version(kVersion);
  facts.set_machine(MachineId(options.root));
  facts.set_address(options.address);
  facts.set_address_is_given(options.address_is_given);
  for (const std::string& address : MachineAddresses()) facts.add_machine_addresses(address);
  *facts.mutable_memory() = LookAtMemory(options.root, options.promised_memory_bytes);
  *facts.mutable_disk() = LookAtDisk(options.data_dir);
  facts.mutable_disk()->set_cache_limit_bytes(options.cache_limit_bytes);
  facts.mutable_disk()->set_cache_bytes(options.cache_bytes);
  const auto now_s = static_cast<int64_t>(std::time(nullptr));
  *facts.mutable_certificate() =
      LookAtCertificate(TlsFolderInUse(options.tls_dir, options.data_dir + "/tls", now_s),
                        HostIn(options.address), now_s);
  if (!options.processor.backend().empty()) {
    *facts.mutable_processor() = options.processor;
    for (std::string& gpu : GpuDrivers(options.root)) {
      facts.mutable_processor()->add_gpus(std::move(gpu));
    }
  }
  LookAtBoot(options, facts.mutable_boot());
  for (const FlagReport::Value& value : options.flags.values) {
    v1::FlagValue* flag = facts.add_flags();
    flag->set_name(value.name);
    flag->set_value(value.text);
    flag->set_from(value.from);
  }
  facts.set_unix_time_s(
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  return facts;
}

std::string FactsDocument(const v1::MachineFacts& facts) {
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(facts, &text);
  return status.ok() ? text : "";
}

absl::StatusOr<v1::MachineFacts> ParseFacts(const std::string& document) {
  v1::MachineFacts facts;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(document, &facts, options);
  if (!status.ok()) {
    return Error(absl::StatusCode::kInvalidArgument, "NO_FACTS",
                 "what it says of this machine cannot be read");
  }
  return facts;
}

}  // namespace strata
