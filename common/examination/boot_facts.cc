#include "common/examination/boot_facts.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <vector>

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 10'000;

// "strata-worker@a.service" is an instance of "strata-worker@.service".
std::string TemplateOf(const std::string& unit) {
  const size_t at = unit.find('@');
  const size_t dot = unit.rfind('.');
  if (at == std::string::npos || dot == std::string::npos || dot < at) {
    return unit;
  }
  return unit.substr(0, at + 1) + unit.substr(dot);
}

// Of the manager whose units these are, those of the administrator before those of packages.
std::vector<std::string> UnitFolders(const std::string& root, const std::string& home, bool user) {
  if (user) {
    return {root + home + "/.config/systemd/user", root + "/etc/systemd/user",
            root + "/usr/lib/systemd/user"};
  }
  return {root + "/etc/systemd/system", root + "/run/systemd/system",
          root + "/usr/lib/systemd/system", root + "/lib/systemd/system"};
}

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Whether a line After= or Wants= of a unit, or of what `systemctl edit` puts beside it, has the
// target of a network that is there.
bool MentionsNetwork(const std::string& text) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("After=") && line.find("network-online.target") != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool WaitsForNetwork(const std::vector<std::string>& folders, const std::string& unit) {
  std::error_code error;
  for (const std::string& folder : folders) {
    if (MentionsNetwork(ReadAll(folder + "/" + unit)) ||
        MentionsNetwork(ReadAll(folder + "/" + TemplateOf(unit)))) {
      return true;
    }
    for (const std::string& name : {unit, TemplateOf(unit)}) {
      for (const auto& entry : fs::directory_iterator(folder + "/" + name + ".d", error)) {
        if (MentionsNetwork(ReadAll(entry.path()))) return true;
      }
    }
  }
  return false;
}

// Whether a target wants it: there is a link in its folder.
bool IsEnabled(const std::vector<std::string>& folders, const std::string& unit) {
  std::error_code error;
  size_t seen = 0;
  for (const std::string& folder : folders) {
    for (fs::directory_iterator at(folder, error), end; !error && at != end && seen < kMostEntries;
         at.increment(error), ++seen) {
      const std::string name = at->path().filename().string();
      if ((name.ends_with(".wants") || name.ends_with(".requires")) &&
          fs::symlink_status(at->path() / unit, error).type() == fs::file_type::symlink) {
        return true;
      }
      error.clear();
    }
  }
  return false;
}

}  // namespace

std::string UnitOfProcess(const std::string& root, bool* user) {
  std::ifstream in(root + "/proc/self/cgroup");
  *user = false;
  for (std::string line; std::getline(in, line);) {
    const size_t slash = line.rfind('/');
    if (slash == std::string::npos) {
      continue;
    }
    const std::string last = line.substr(slash + 1);
    if (last.starts_with("strata-") && last.ends_with(".service")) {
      *user = line.find("/user@") != std::string::npos;
      return last;
    }
  }
  return "";
}

std::string UnitOfConfig(const std::string& config) {
  const fs::path path(config);
  const std::string name = path.stem().string();
  if (path.parent_path() != "/etc/strata" || path.extension() != ".toml") {
    return "";
  }
  if (name == "coordinator" || name == "worker") {
    return "strata-" + name + ".service";
  }
  constexpr char kWorker[] = "worker-";
  return name.starts_with(kWorker)
             ? "strata-worker@" + name.substr(sizeof(kWorker) - 1) + ".service"
             : "";
}

void LookAtUnit(const std::string& root, const std::string& home, v1::BootFacts* facts) {
  std::error_code error;
  facts->set_systemd(fs::is_directory(root + "/run/systemd/system", error));
  if (facts->unit().empty()) {
    return;
  }
  const std::vector<std::string> folders = UnitFolders(root, home, facts->user_unit());
  for (const std::string& folder : folders) {
    if (fs::exists(folder + "/" + facts->unit(), error) ||
        fs::exists(folder + "/" + TemplateOf(facts->unit()), error)) {
      facts->set_unit_found(true);
    }
  }
  facts->set_unit_enabled(IsEnabled(folders, facts->unit()));
  // Units of users know nothing of the network; the manager that starts them waits for it.
  facts->set_waits_for_network(facts->user_unit() || WaitsForNetwork(folders, facts->unit()));
  facts->set_lingers(!facts->user_unit() ||
                     fs::exists(root + "/var/lib/systemd/linger/" + facts->user(), error));
}

}  // namespace strata
