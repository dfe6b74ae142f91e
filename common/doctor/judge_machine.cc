// One process and its machine.
#include <algorithm>
#include <string>
#include <vector>

#include "common/doctor/finding_list.h"
#include "common/doctor/findings.h"
#include "common/units.h"

namespace strata::doctor {
namespace {

constexpr char kCertificates[] = "docs/OPERATIONS.md, Certificates";

// The command that makes the folder of certificates anew.
std::string MakeAnew(const v1::MachineFacts& facts) {
  if (facts.program() == "strata-coordinator") {
    return "`strata cluster certificate coordinator coordinator --hosts ADDRESS`";
  }
  return "`strata cluster certificate worker " + facts.node() +
         " --hosts ADDRESS`, or join anew: `strata node token`";
}

std::string HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? address : address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

// Numbers alone: where a name leads is asked elsewhere.
bool IsNumeric(const std::string& host) {
  return host.find_first_not_of("0123456789.") == std::string::npos ||
         host.find(':') != std::string::npos;
}

void JudgeCertificate(const v1::MachineFacts& facts, FindingList* out) {
  const v1::CertificateFacts& tls = facts.certificate();
  if (tls.folder().empty()) {
    return;
  }
  if (tls.has_error()) {
    const std::string kind = CertificateKind(tls.error().reason());
    out->Error(kind.empty() ? "CERTIFICATE_UNUSABLE" : kind, facts.node(), tls.error().message(),
               "make it anew with " + MakeAnew(facts) + ", then `" + Restart(facts) + "`");
  } else if (!tls.ends_soon().empty()) {
    out->Warn("CERTIFICATE_ENDS_SOON", facts.node(),
              "the certificate in " + tls.folder() + " " + tls.ends_soon(),
              "make it anew with " + MakeAnew(facts) + ", then `" + Restart(facts) + "`",
              {.measured = tls.ends_soon(), .limit = "30 days and a third of its time are left"});
  }
  if (tls.key_open()) {
    constexpr int kOctal = 8;
    std::string mode;
    for (uint32_t bits = tls.key_mode(); bits != 0; bits /= kOctal) {
      mode.insert(mode.begin(), static_cast<char>('0' + bits % kOctal));
    }
    out->Error("KEY_READABLE", facts.node(),
               "every user of the machine may read " + tls.folder() + "/key.pem",
               "`chmod o-rwx " + tls.folder() + "/key.pem`; whoever read it can take " +
                   Named(facts.node()) + "'s place: then make it anew (" + kCertificates + ")",
               {.measured = "mode " + mode, .limit = "mode 640"});
  }
}

void JudgeMemory(const v1::MachineFacts& facts, const Limits& limits, FindingList* out) {
  const v1::MemoryFacts& memory = facts.memory();
  const uint64_t rest = memory.promised_bytes() > memory.resident_bytes()
                            ? memory.promised_bytes() - memory.resident_bytes()
                            : 0;
  if (memory.promised_bytes() != 0 && memory.available_bytes() != 0 &&
      rest > memory.available_bytes()) {
    out->Error("MEMORY_SHORT", facts.node(),
               "it may use " + FormatSize(memory.promised_bytes()) +
                   " of memory, and the machine does not have what is missing of that",
               "end what else runs there, or start it with a smaller --memory, such as --memory " +
                   std::to_string(std::max<uint64_t>(
                       1, (memory.resident_bytes() + memory.available_bytes() / 10 * 8) >> 20)) +
                   "MiB",
               {.measured = FormatSize(memory.available_bytes()) + " available",
                .limit = FormatSize(rest) + " more that it may take"});
  }
  if (memory.swapped_bytes() >= limits.swapped_bytes) {
    out->Warn(
        "SWAP_IN_USE", facts.node(),
        "the system has put memory of " + Named(facts.node()) +
            " out to swap: each step that touches it waits for a disk",
        "lower --memory, or end what else runs there; then `swapoff -a` (and remove swap from "
        "/etc/fstab), or MemorySwapMax=0 by `systemctl edit " +
            (facts.boot().unit().empty() ? facts.program() : facts.boot().unit()) + "`",
        {.measured = FormatSize(memory.swapped_bytes()) + " of it in swap",
         .limit = FormatSize(limits.swapped_bytes)});
  }
}

void JudgeDisk(const v1::MachineFacts& facts, const Limits& limits, FindingList* out) {
  const v1::DiskFacts& disk = facts.disk();
  if (disk.path().empty()) {
    return;
  }
  if (disk.read_only()) {
    out->Error("DISK_READ_ONLY", facts.node(), "the disk of " + disk.path() + " is read-only",
               "`dmesg` says whether it failed; `mount -o remount,rw` mounts it for writing");
    return;
  }
  if (!disk.writable()) {
    out->Error("STATE_UNWRITABLE", facts.node(),
               disk.path() + " (--data-dir) cannot be written to by the user that it runs as",
               "`chown -R USER " + disk.path() +
                   "`, with the user of the service, or start it with another --data-dir");
  } else if (disk.total_bytes() != 0 && disk.free_bytes() < limits.free_disk_bytes) {
    out->Error("DISK_FULL", facts.node(), "the disk of " + disk.path() + " is nearly full",
               facts.program() == "strata-coordinator"
                   ? "free some of it; `strata model remove M` deletes what was uploaded or pulled"
                   : "free some of it, or start the worker with a smaller --cache-limit",
               {.measured = FormatSize(disk.free_bytes()) + " free",
                .limit = FormatSize(limits.free_disk_bytes)});
  }
  const uint64_t room = disk.free_bytes() + disk.cache_bytes();
  if (disk.cache_limit_bytes() != 0 && disk.total_bytes() != 0 && disk.cache_limit_bytes() > room) {
    out->Warn("CACHE_LIMIT_TOO_LARGE", facts.node(),
              "the disk of " + disk.path() +
                  " is full before the cache of weights has reached its --cache-limit",
              "start the worker with --cache-limit " +
                  std::to_string(std::max<uint64_t>(1, (room / 10 * 9) >> 20)) +
                  "MiB, or give it a larger disk",
              {.measured = FormatSize(room) + " for the cache",
               .limit = FormatSize(disk.cache_limit_bytes())});
  }
  if (disk.in_memory() && facts.program() == "strata-coordinator" &&
      !facts.boot().config().empty()) {
    out->Error("STATE_IN_MEMORY", facts.node(),
               disk.path() +
                   " (--data-dir) is in memory: models, keys and nodes are forgotten when the "
                   "machine restarts",
               "start it with --data-dir on a disk, such as /var/lib/strata/coordinator");
  }
}

void JudgeProcessor(const v1::MachineFacts& facts, FindingList* out) {
  const v1::ProcessorFacts& processor = facts.processor();
  if (processor.backend() == "cpu" && !processor.built_isa().empty()) {
    if (processor.built_isa() != processor.best_isa()) {
      out->Warn("ISA_NOT_BUILT", facts.node(),
                "this build has no kernels for what its processor has",
                "install the packages, which have the kernels of every machine, or build with "
                "-DSTRATA_KERNELS=all",
                {.measured = processor.built_isa(), .limit = processor.best_isa()});
    }
    if (processor.isa() != processor.built_isa()) {
      out->Warn("ISA_SLOWER", facts.node(),
                "it computes with a lesser instruction set than its processor has, and a step is "
                "as slow as the slowest node",
                "unset STRATA_CPU_ISA in its environment, then `" + Restart(facts) + "`",
                {.measured = processor.isa(), .limit = processor.built_isa()});
    }
  }
  for (const std::string& gpu : processor.gpus()) {
    if (processor.backend() == gpu) {
      continue;
    }
    const bool built = std::find(processor.backends().begin(), processor.backends().end(), gpu) !=
                       processor.backends().end();
    out->Warn("GPU_UNUSED", facts.node(),
              "a driver for GPUs (" + gpu + ") is loaded, and the worker computes on the " +
                  processor.backend(),
              built ? "start the worker with --backend " + gpu + ", which says why it cannot"
                    : "build strata-worker with -DSTRATA_CUDA=on: docs/GPU.md",
              {.measured = processor.backend(), .limit = gpu});
  }
}

void JudgeBoot(const v1::MachineFacts& facts, FindingList* out) {
  const v1::BootFacts& boot = facts.boot();
  if (!boot.config_error().empty()) {
    out->Error("CONFIG_BROKEN", facts.node(),
               "the next start refuses its file of flags: " + boot.config_error(),
               "mend " + boot.config() + "; `" + facts.program() + " --help` has all flags");
  } else if (!boot.changed_flags().empty()) {
    std::string names;
    for (const std::string& name : boot.changed_flags()) {
      names += (names.empty() ? "" : ", ") + name;
    }
    out->Warn("CONFIG_DIFFERS", facts.node(),
              boot.config() + " says otherwise than what runs: " + names,
              "`" + Restart(facts) + "` takes what the file says; or write there what runs");
  }
  if (facts.certificate().in_memory() && !boot.config().empty()) {
    out->Error("TLS_IN_MEMORY", facts.node(),
               facts.certificate().folder() + " is in memory, and gone when the machine restarts",
               "put it on a disk, such as /etc/strata/tls, and set tls-dir to that");
  }
  if (!boot.systemd() || boot.unit().empty()) {
    return;
  }
  const std::string systemctl = boot.user_unit() ? "systemctl --user " : "systemctl ";
  if (boot.unit_found() && !boot.unit_enabled()) {
    out->Error("UNIT_NOT_ENABLED", facts.node(),
               boot.unit() + " does not start when the machine does",
               "`" + systemctl + "enable " + boot.unit() + "`");
  }
  if (boot.unit_found() && !boot.waits_for_network()) {
    out->Warn(
        "UNIT_BEFORE_NETWORK", facts.node(), boot.unit() + " may start before the network is there",
        "`" + systemctl + "edit " + boot.unit() +
            "`, and write [Unit], After=network-online.target and Wants=network-online.target");
  }
  if (boot.user_unit() && !boot.lingers()) {
    out->Error("NO_LINGER", facts.node(),
               boot.unit() + " is a unit of the user " + boot.user() +
                   ", and ends and starts with that user's session",
               "`loginctl enable-linger " + boot.user() + "`");
  }
}

void JudgeAddress(const v1::MachineFacts& facts, FindingList* out) {
  const std::string host = HostOf(facts.address());
  if (!facts.address_is_given() || facts.machine_addresses().empty() || !IsNumeric(host) ||
      host.starts_with("127.") || host == "::1") {
    return;
  }
  if (std::find(facts.machine_addresses().begin(), facts.machine_addresses().end(), host) ==
      facts.machine_addresses().end()) {
    std::string has;
    for (const std::string& address : facts.machine_addresses()) {
      has += (has.empty() ? "" : ", ") + address;
    }
    out->Warn("ADVERTISE_NOT_HERE", facts.node(),
              "it advertises " + facts.address() + ", which is no address of this machine",
              "unless a router or a container's host passes that address on to it, start it with "
              "--advertise of one of its own",
              {.measured = host, .limit = has});
  }
}

}  // namespace

std::string Named(std::string_view node) {
  return node.empty() ? "the coordinator" : "node " + std::string(node);
}

std::string Restart(const v1::MachineFacts& facts) {
  const std::string unit = facts.boot().unit().empty() ? facts.program() : facts.boot().unit();
  return (facts.boot().user_unit() ? "systemctl --user restart " : "systemctl restart ") + unit;
}

std::string CertificateKind(const std::string& reason) {
  if (reason == "TLS_EXPIRED") return "CERTIFICATE_LAPSED";
  if (reason == "TLS_NOT_YET_VALID") return "CERTIFICATE_NOT_YET_VALID";
  if (reason == "TLS_WRONG_NAME" || reason == "NOT_YOUR_NAME") return "CERTIFICATE_WRONG_NAME";
  if (reason == "TLS_WRONG_CA" || reason == "TLS_NOT_ACCEPTED")
    return "CERTIFICATE_WRONG_AUTHORITY";
  if (reason == "TLS_KEY_MISMATCH") return "KEY_OF_ANOTHER";
  if (reason == "NO_TLS" || reason == "TLS_WANTED") return "TLS_ON_ONE_SIDE";
  return reason.starts_with("TLS_") ? "CERTIFICATE_UNUSABLE" : "";
}

void JudgeMachineInto(const v1::MachineFacts& facts, const Limits& limits, FindingList* out) {
  JudgeCertificate(facts, out);
  JudgeMemory(facts, limits, out);
  JudgeDisk(facts, limits, out);
  JudgeProcessor(facts, out);
  JudgeBoot(facts, out);
}

std::vector<Finding> JudgeMachine(const v1::MachineFacts& facts, const Limits& limits) {
  FindingList out;
  if (facts.has_error()) {
    out.Error("PROGRAM_FAILS", facts.node(), facts.error().message(), facts.error().hint());
    return *out.all();
  }
  JudgeMachineInto(facts, limits, &out);
  JudgeAddress(facts, &out);
  if (facts.has_to_coordinator()) {
    // Of the coordinator nothing is known but that.
    v1::ClusterFacts pair;
    *pair.add_links() = facts.to_coordinator();
    JudgeLinks(pair, limits, &out);
  }
  return *out.all();
}

}  // namespace strata::doctor
