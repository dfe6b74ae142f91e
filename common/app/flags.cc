#include "common/app/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "common/app/flag_file.h"
#include "common/printable.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

constexpr size_t kShownBytes = 128;

using SetFn = std::function<absl::Status(const std::string&)>;

absl::Status BadValue(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG", what);
}

std::string EnvName(const std::string& prefix, std::string name) {
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return prefix + name;
}

}  // namespace

class Flags::Impl {
 public:
  Impl(std::string program, std::string env_prefix, std::string description, std::string footer)
      : program_(std::move(program)), env_prefix_(std::move(env_prefix)) {
    app_.description(std::move(description));
    app_.name(program_);
    app_.footer(std::move(footer));
    app_.set_version_flag("--version", program_ + " " + kVersion);
    app_.add_option("--config", config_path_, "Read flags from this TOML file: name = \"value\"");
  }

  void Add(const std::string& name, const std::string& help, const std::string& shown,
           const std::string& type, SetFn set) {
    Entry& entry = entries_[name];
    entry.set = std::move(set);
    entry.shown = shown;
    std::string text = help + " [" + EnvName(env_prefix_, name) + "]";
    if (!shown.empty()) {
      text += " (default " + shown + ")";
    }
    entry.option = app_.add_option("--" + name, entry.text, text);
    entry.option->type_name(type);
  }

  void AddSwitch(const std::string& name, const std::string& help, SetFn set) {
    Entry& entry = entries_[name];
    entry.set = std::move(set);
    entry.option =
        app_.add_flag("--" + name, entry.flag, help + " [" + EnvName(env_prefix_, name) + "]");
    entry.is_switch = true;
    entry.shown = "false";
  }

  std::optional<int> Parse(int argc, const char* const* argv, const GetEnvFn& get_env) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::Success& asked) {
      if (const std::vector<std::string> rest = app_.remaining();
          !rest.empty() && rest.front().rfind('-', 0) != 0) {
        return Refuse("there is no command '" + Printable(rest.front(), kShownBytes) + "'");
      }
      return Answer(asked);
    } catch (const CLI::ParseError& error) {
      return Refuse(error.what());
    }
    std::map<std::string, FlagFileValue> file;
    if (!config_path_.empty()) {
      auto read = ReadFlagFile(config_path_, Names());
      if (!read.ok()) {
        return Refuse(std::string(read.status().message()));
      }
      file = *std::move(read);
    }
    for (auto& [name, entry] : entries_) {
      std::string value;
      std::string where = "--" + name;
      const std::string env = EnvName(env_prefix_, name);
      if (entry.option->count() > 0) {
        value = entry.is_switch ? (entry.flag ? "true" : "false") : entry.text;
        entry.from = "command line";
      } else if (const char* set = get_env(env.c_str()); set != nullptr) {
        value = set;
        where = env;
        entry.from = "environment";
      } else if (auto it = file.find(name); it != file.end()) {
        value = it->second.text;
        where = it->second.where + name;
        entry.from = "file";
      } else {
        continue;
      }
      entry.given = true;
      entry.shown = value;
      if (absl::Status status = entry.set(value); !status.ok()) {
        return Refuse(where + ": " + Describe(status));
      }
    }
    return std::nullopt;
  }

  bool IsSet(const std::string& name) const {
    const auto it = entries_.find(name);
    return it != entries_.end() && it->second.given;
  }

  FlagReport Report() const {
    FlagReport report;
    report.config = config_path_;
    for (const auto& [name, entry] : entries_) {
      report.values.push_back({name, entry.shown, entry.from});
    }
    return report;
  }

 private:
  struct Entry {
    SetFn set;
    std::string text;
    bool flag = false;
    bool is_switch = false;
    bool given = false;
    std::string shown;  // What holds: the value given, or the default as --help shows it.
    std::string from = "default";
    CLI::Option* option = nullptr;
  };

  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& [name, entry] : entries_) names.insert(name);
    return names;
  }

  // To --help or --version.
  int Answer(const CLI::Success& asked) const {
    if (dynamic_cast<const CLI::CallForVersion*>(&asked) != nullptr) {
      std::printf("%s %s\n", program_.c_str(), kVersion);
    } else {
      std::fputs(app_.help().c_str(), stdout);
    }
    return 0;
  }

  int Refuse(std::string what) const {
    std::replace(what.begin(), what.end(), '\n', ' ');
    std::fprintf(stderr, "%s: %s; see %s --help\n", program_.c_str(), what.c_str(),
                 program_.c_str());
    return 2;
  }

  const std::string program_;
  const std::string env_prefix_;
  CLI::App app_;
  std::string config_path_;
  std::map<std::string, Entry> entries_;
};

Flags::Flags(std::string program, std::string env_prefix, std::string description,
             std::string footer)
    : impl_(std::make_unique<Impl>(std::move(program), std::move(env_prefix),
                                   std::move(description), std::move(footer))) {}
Flags::~Flags() = default;

void Flags::Text(const std::string& name, std::string* target, const std::string& help) {
  impl_->Add(name, help, *target, "TEXT", [target](const std::string& value) {
    *target = value;
    return absl::OkStatus();
  });
}

void Flags::Switch(const std::string& name, bool* target, const std::string& help) {
  impl_->AddSwitch(name, help, [target](const std::string& value) -> absl::Status {
    if (value != "true" && value != "false" && value != "1" && value != "0") {
      return BadValue("'" + value + "' is neither true nor false");
    }
    *target = value == "true" || value == "1";
    return absl::OkStatus();
  });
}

void Flags::Number(const std::string& name, uint64_t* target, const std::string& help,
                   uint64_t least, uint64_t most) {
  impl_->Add(name, help, std::to_string(*target), "N",
             [target, least, most](const std::string& value) -> absl::Status {
               uint64_t number = 0;
               const char* end = value.data() + value.size();
               auto [rest, error] = std::from_chars(value.data(), end, number);
               if (error != std::errc() || rest != end) {
                 return BadValue("'" + value + "' is no whole number");
               }
               if (number < least || number > most) {
                 return BadValue(value + " is not between " + std::to_string(least) + " and " +
                                 std::to_string(most));
               }
               *target = number;
               return absl::OkStatus();
             });
}

void Flags::Size(const std::string& name, uint64_t* target, const std::string& help,
                 const std::string& zero_means, uint64_t least) {
  impl_->Add(name, help, *target == 0 ? zero_means : FormatSize(*target), "SIZE",
             [target, least](const std::string& value) -> absl::Status {
               ASSIGN_OR_RETURN(const uint64_t size, ParseSize(value));
               if (size < least) {
                 const bool unit = value.find_first_not_of("0123456789. ") != std::string::npos;
                 return BadValue(value +
                                 (unit ? " is less than the least that works, "
                                       : " is bytes, since it has no unit, and less than "
                                         "the least that works, ") +
                                 FormatSize(least) + "; write it like 8GiB");
               }
               *target = size;
               return absl::OkStatus();
             });
}

void Flags::Duration(const std::string& name, std::chrono::nanoseconds* target,
                     const std::string& help, std::chrono::nanoseconds least,
                     const std::string& zero_means) {
  const bool says = target->count() == 0 && !zero_means.empty();
  impl_->Add(name, help, says ? zero_means : FormatDuration(*target), "TIME",
             [target, least](const std::string& value) -> absl::Status {
               ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, ParseDuration(value));
               if (time < least) {
                 return BadValue(value + " is less than " + FormatDuration(least));
               }
               *target = time;
               return absl::OkStatus();
             });
}

void Flags::Choice(const std::string& name, std::string* target, std::vector<std::string> choices,
                   const std::string& help) {
  std::string type;
  for (const std::string& choice : choices) {
    type += (type.empty() ? "" : "|") + choice;
  }
  impl_->Add(
      name, help, *target, type,
      [target, choices = std::move(choices), type](const std::string& value) -> absl::Status {
        if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
          return BadValue("'" + value + "' is none of " + type);
        }
        *target = value;
        return absl::OkStatus();
      });
}

std::optional<int> Flags::Parse(int argc, const char* const* argv, const GetEnvFn& get_env) {
  return impl_->Parse(argc, argv, get_env);
}

bool Flags::IsSet(const std::string& name) const { return impl_->IsSet(name); }

FlagReport Flags::Report() const { return impl_->Report(); }

}  // namespace strata
