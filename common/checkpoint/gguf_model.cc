#include "common/checkpoint/gguf_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/gguf_architecture.h"
#include "common/checkpoint/gguf_config.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint64_t kMaxParts = 10'000;

Error InvalidModel(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF", what);
}

// "NAME-00002-of-00003.gguf".
struct Part {
  std::string name;
  uint32_t number = 0;
  uint32_t count = 0;
};
std::optional<Part> PartOf(std::string_view file) {
  constexpr size_t kTail = std::string_view("-00001-of-00003.gguf").size();
  if (file.size() <= kTail) {
    return std::nullopt;
  }
  const std::string tail(file.substr(file.size() - kTail));
  Part part{.name = std::string(file.substr(0, file.size() - kTail))};
  const bool digits = tail.substr(1, 5).find_first_not_of("0123456789") == std::string::npos &&
                      tail.substr(10, 5).find_first_not_of("0123456789") == std::string::npos;
  if (!digits || tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" ||
      !absl::SimpleAtoi(tail.substr(1, 5), &part.number) ||
      !absl::SimpleAtoi(tail.substr(10, 5), &part.count)) {
    return std::nullopt;
  }
  return part;
}

// A small tensor that frequencies are divided by.
absl::StatusOr<std::vector<float>> ReadFactors(const std::string& path, const GgufTensor& tensor) {
  if (tensor.dtype != Dtype::kF32 || tensor.shape.size() != 1 || tensor.shape[0] > kMaxHiddenSize) {
    return UnsupportedModel(absl::StrCat("tensor ", Quoted(tensor.name), " of ",
                                         DtypeName(tensor.dtype), " or with several dimensions"));
  }
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  std::vector<float> factors(tensor.shape[0]);
  RETURN_IF_ERROR(file.ReadAt(tensor.offset, factors.data(), tensor.bytes));
  return factors;
}

// A part's split keys against its place among the files.
absl::Status CheckSplit(const std::string& file, size_t number, size_t count,
                        const GgufHeader& header) {
  GgufReader reader(&header);
  const uint64_t parts = reader.Uint("split.count", 0, kMaxParts, 1);
  const uint64_t part = reader.Uint("split.no", 0, kMaxParts, number);
  RETURN_IF_ERROR(reader.status());
  if (std::max<uint64_t>(parts, 1) != count || (count > 1 && part != number)) {
    return InvalidModel(absl::StrCat(file, ": its keys \"split.no\" and \"split.count\" say part ",
                                     part + 1, " of ", parts, ", its name says part ", number + 1,
                                     " of ", count));
  }
  return absl::OkStatus();
}

}  // namespace

std::string GgufModelName(std::string_view file) {
  const std::optional<Part> part = PartOf(file);
  if (part.has_value()) {
    return part->name;
  }
  return std::string(file.ends_with(".gguf") ? file.substr(0, file.size() - 5) : file);
}

absl::StatusOr<std::vector<std::string>> GgufPartsOf(const std::string& file,
                                                     const std::vector<std::string>& names) {
  const std::optional<Part> part = PartOf(file);
  if (!part.has_value()) {
    return std::vector<std::string>{file};
  }
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    const std::optional<Part> other = PartOf(name);
    if (other.has_value() && other->name == part->name && other->count == part->count) {
      parts.push_back(name);
    }
  }
  std::sort(parts.begin(), parts.end());
  if (part->count == 0 || parts.size() != part->count || PartOf(parts.front())->number != 1 ||
      PartOf(parts.back())->number != part->count) {
    return Error(absl::StatusCode::kNotFound, "MISSING_FILE",
                 absl::StrCat(file, " is one of ", part->count, " parts, and ", parts.size(),
                              " of them are there"))
        .Hint("fetch the others into the same folder");
  }
  return parts;
}

absl::StatusOr<std::vector<std::string>> GgufFilesOf(const std::vector<std::string>& names) {
  std::set<std::string> models;
  std::string first;
  for (const std::string& name : names) {
    if (name == kSafetensorsName || name == kSafetensorsIndexName) {
      return std::vector<std::string>();
    }
    if (absl::EndsWith(name, ".gguf") && !absl::StrContains(name, "mmproj")) {
      models.insert(GgufModelName(name));
      first = first.empty() ? name : first;
    }
  }
  if (models.empty()) {
    return std::vector<std::string>();
  }
  if (models.size() > 1) {
    return Error(absl::StatusCode::kInvalidArgument, "SEVERAL_MODELS",
                 absl::StrCat("the folder has .gguf files of ", models.size(), " models"))
        .Hint("give the path of one of them, such as " + first);
  }
  return GgufPartsOf(first, names);
}

absl::StatusOr<GgufModel> ReadGgufModel(const std::string& folder,
                                        const std::vector<std::string>& files) {
  GgufModel model;
  GgufArchitecture architecture = {};
  GgufFactors factors;
  GgufFile first;
  uint64_t tensors = 0;
  uint64_t layers = 0;
  std::map<std::string, bool> behind;  // "blk.N" behind the layers, and whether it guesses.
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = folder + "/" + files[i];
    ASSIGN_OR_RETURN(GgufFile file, ReadGgufFile(path));
    RETURN_IF_ERROR(CheckSplit(files[i], i, files.size(), file.header));
    if (i == 0) {
      const auto found = FindGgufArchitecture(file.header);
      RETURN_IF_ERROR(Annotate(found.status(), files[0]));
      architecture = *found;
      layers = GgufLayers(architecture, file.header);
    }
    tensors += file.header.tensors.size();
    for (GgufTensor& tensor : file.header.tensors) {
      if (std::vector<float>* to = FactorsOf(tensor.name, &factors); to != nullptr) {
        ASSIGN_OR_RETURN(*to, ReadFactors(path, tensor));
        continue;
      }
      if (architecture.Reads("nextn_predict_layers") && layers != 0 &&
          IsBehindGgufLayers(tensor.name, layers)) {
        // Of a layer that guesses further tokens.
        const std::string layer(tensor.name.substr(0, tensor.name.find('.', 4)));
        bool& guesses = behind[layer];
        guesses = guesses || tensor.name.starts_with(layer + ".nextn.");
        continue;
      }
      auto name = CheckpointName(architecture, tensor.name);
      RETURN_IF_ERROR(Annotate(name.status(), files[i]));
      model.tensors.push_back({*std::move(name), tensor.dtype, std::move(tensor.shape), files[i],
                               tensor.offset, tensor.bytes});
    }
    if (i == 0) {
      first = std::move(file);
    }
  }
  for (const auto& [layer, guesses] : behind) {
    if (!guesses) {
      return UnsupportedModel(absl::StrCat(
          files[0], ": tensors of ", Quoted(layer), " behind the ", layers, " layers of key ",
          Quoted(architecture.Key("block_count")), ", without ", Quoted(layer + ".nextn")));
    }
  }
  GgufReader reader(&first.header);
  const uint64_t all = reader.Uint("split.tensors.count", 0, UINT32_MAX, tensors);
  RETURN_IF_ERROR(Annotate(reader.status(), files[0]));
  if (files.size() > 1 && all != tensors) {
    return InvalidModel(absl::StrCat(files[0], ": key \"split.tensors.count\" is ", all,
                                     ", and the parts have ", tensors, " tensors"));
  }
  auto config = WriteGgufConfig(architecture, first.header, model.tensors, factors);
  RETURN_IF_ERROR(Annotate(config.status(), files[0]));
  model.config_json = std::move(config->config_json);
  model.generation_config_json = std::move(config->generation_config_json);
  return model;
}

}  // namespace strata
