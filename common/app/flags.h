// Flags of a process: the command line beats the environment, which beats the file given with
// --config (TOML), which beats the default. Unknown flags and keys are refused.
#ifndef STRATA_COMMON_APP_FLAGS_H_
#define STRATA_COMMON_APP_FLAGS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/app/flag_file.h"

namespace strata {

inline constexpr char kVersion[] = "0.1.0";

// Looks up an environment variable; getenv, handed in.
using GetEnvFn = std::function<const char*(const char*)>;

class Flags {
 public:
  // `env_prefix` as in "STRATA_WORKER_": --data-dir is STRATA_WORKER_DATA_DIR.
  Flags(std::string program, std::string env_prefix, std::string description,
        std::string footer = "");
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // Each registers --NAME; the target's present value is the default, shown in --help. Targets
  // outlive this. `name` without dashes.
  void Text(const std::string& name, std::string* target, const std::string& help);
  void Switch(const std::string& name, bool* target, const std::string& help);
  // Values outside of [least, most] are wrong use.
  void Number(const std::string& name, uint64_t* target, const std::string& help,
              uint64_t least = 0, uint64_t most = UINT64_MAX);
  // "8GiB"; 0 prints as `zero_means`. Less than `least` is wrong use.
  void Size(const std::string& name, uint64_t* target, const std::string& help,
            const std::string& zero_means = "0", uint64_t least = 0);
  // "500ms"; less than `least` is wrong use. A default of 0 prints as `zero_means`, or as a time.
  void Duration(const std::string& name, std::chrono::nanoseconds* target, const std::string& help,
                std::chrono::nanoseconds least = std::chrono::nanoseconds(0),
                const std::string& zero_means = "");
  // A text that is one of `choices`.
  void Choice(const std::string& name, std::string* target, std::vector<std::string> choices,
              const std::string& help);

  // Fills the targets. A value: exit with it at once (0 after --help or --version, 2 after wrong
  // use, which was said on stderr).
  std::optional<int> Parse(int argc, const char* const* argv, const GetEnvFn& get_env);

  // Whether the user gave a value, by whichever way.
  bool IsSet(const std::string& name) const;
  // After Parse: what each flag is, and from where.
  FlagReport Report() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_COMMON_APP_FLAGS_H_
