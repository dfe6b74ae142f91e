#include "worker/weights/kept_layers.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/layer_weights.h"
#include "common/status.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHead = "strata-layer 1 ";
constexpr size_t kMaxFileBytes = size_t{8} << 20;
constexpr size_t kKeyDigits = 64;

absl::Status BadRecord(const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, "CACHE_CORRUPT", "a record of a layer has " + what);
}

// Takes the text up to `end`, which has to be there, off the front.
std::optional<std::string_view> Take(std::string_view* text, char end) {
  const size_t at = text->find(end);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view taken = text->substr(0, at);
  text->remove_prefix(at + 1);
  return taken;
}

bool IsKey(std::string_view text) {
  return text.size() == kKeyDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A file's text, or nothing if it cannot be read or is larger than any.
std::optional<std::string> TextOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char buffer[4096];
  while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxFileBytes) {
      return std::nullopt;
    }
  }
  return file.eof() ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace

std::string KeptLayerText(const KeptLayer& layer, std::string_view layout) {
  std::string text = std::string(kHead) + std::string(layout) + "\n";
  const auto put = [&text](const char* kind, const std::vector<Blob>& blobs) {
    for (const Blob& blob : blobs) {
      text += std::string(kind) + " " + blob.sha256 + " " + std::to_string(blob.bytes) + "\n";
    }
  };
  put("packed", layer.packed);
  put("blob", layer.blobs);
  return text + "end\n";
}

absl::StatusOr<std::optional<KeptLayer>> ParseKeptLayer(std::string_view text,
                                                        std::string_view layout) {
  const std::optional<std::string_view> head = Take(&text, '\n');
  if (!head.has_value() || !head->starts_with(kHead)) {
    return BadRecord("another beginning");
  }
  if (head->substr(kHead.size()) != layout) {
    return std::nullopt;
  }
  KeptLayer layer;
  while (text != "end\n") {
    std::optional<std::string_view> line = Take(&text, '\n');
    if (!line.has_value()) {
      return BadRecord("no end");
    }
    const std::optional<std::string_view> kind = Take(&*line, ' ');
    const std::optional<std::string_view> digest = Take(&*line, ' ');
    Blob blob;
    const auto [end, error] =
        std::from_chars(line->data(), line->data() + line->size(), blob.bytes);
    const bool known = kind == "packed" || kind == "blob";
    if (!known || !digest.has_value() || !IsKey(*digest) || error != std::errc() ||
        end != line->data() + line->size()) {
      return BadRecord("a line that is none");
    }
    blob.sha256 = std::string(*digest);
    (kind == "packed" ? layer.packed : layer.blobs).push_back(std::move(blob));
  }
  return layer;
}

KeptLayers::KeptLayers(WeightCache* cache, std::string layout)
    : cache_(cache), layout_(std::move(layout)) {
  MutexLock lock(&mutex_);
  std::error_code error;
  fs::recursive_directory_iterator it(cache_->directory() + "/layers", error);
  std::vector<fs::path> useless;
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (!it->is_regular_file(ignored)) {
      continue;
    }
    const std::optional<std::string> text =
        IsKey(name) && layers_.size() < kMostLayers ? TextOf(it->path()) : std::nullopt;
    absl::StatusOr<std::optional<KeptLayer>> layer = std::optional<KeptLayer>();
    if (text.has_value()) {
      layer = ParseKeptLayer(*text, layout_);
    }
    if (layer.ok() && layer->has_value() && IsThere(**layer)) {
      layers_[name] = **std::move(layer);
    } else {
      useless.push_back(it->path());
    }
  }
  for (const fs::path& path : useless) {
    fs::remove(path, error);
  }
}

std::string KeptLayers::PathOf(const std::string& key) const {
  return cache_->directory() + "/layers/" + key.substr(0, 2) + "/" + key;
}

bool KeptLayers::IsThere(const KeptLayer& layer) const {
  const auto packed = [this](const Blob& blob) { return cache_->HasPacked(blob); };
  const auto stored = [this](const Blob& blob) {
    const std::optional<Blob> found = cache_->Find(blob.sha256);
    return found.has_value() && found->bytes == blob.bytes;
  };
  return std::all_of(layer.packed.begin(), layer.packed.end(), packed) &&
         std::all_of(layer.blobs.begin(), layer.blobs.end(), stored);
}

void KeptLayers::Record(const std::string& key, KeptLayer layer) {
  const std::string path = PathOf(key);
  const std::string text = KeptLayerText(layer, layout_);
  MutexLock writing(&writing_);
  {
    MutexLock lock(&mutex_);
    if (!layers_.contains(key)) {
      std::erase_if(layers_, [&](const auto& entry) {
        return layers_.size() >= kMostLayers && !IsThere(entry.second);
      });
      if (layers_.size() >= kMostLayers) {
        return;
      }
    }
    layers_[key] = std::move(layer);
    ++changes_;
  }
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  std::ofstream file(path + ".partial", std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) {
    fs::rename(path + ".partial", path, error);
  } else {
    fs::remove(path + ".partial", error);
  }
}

std::optional<KeptLayer> KeptLayers::Find(const std::string& key) const {
  MutexLock lock(&mutex_);
  const auto it = layers_.find(key);
  return it == layers_.end() || !IsThere(it->second) ? std::nullopt : std::optional(it->second);
}

std::vector<std::string> KeptLayers::Keys() const {
  std::vector<std::string> keys;
  MutexLock lock(&mutex_);
  for (const auto& [key, layer] : layers_) {
    if (IsThere(layer)) keys.push_back(key);
  }
  return keys;
}

uint64_t KeptLayers::changes() const {
  MutexLock lock(&mutex_);
  return changes_;
}

}  // namespace strata
