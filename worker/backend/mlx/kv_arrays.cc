#include "worker/backend/mlx/kv_arrays.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "worker/backend/mlx/available.h"
#include "worker/backend/mlx/guard.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

constexpr int kPage = static_cast<int>(kPageTokens);

uint64_t ElementBytes(const StageSpec& spec) {
  return spec.kv_dtype == v1::KV_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

// `rows` rows as one, so that they are copied as one piece.
mx::array InPieces(const mx::array& all, int rows) {
  return mx::reshape(all, {all.shape(0) / rows, rows * all.shape(1)});
}

mx::array TakeSlices(const mx::array& rows, int heads, const mx::array& slices) {
  return mx::reshape(mx::take(InPieces(rows, kPage), slices, 0),
                     {1, heads, slices.shape(0) / heads * kPage, rows.shape(1)});
}

mx::array Scattered(const mx::array& rows, const mx::array& slots, const mx::array& values) {
  return mx::scatter(
      rows, slots,
      mx::reshape(mx::astype(values, rows.dtype()), {slots.shape(0), 1, rows.shape(1)}), 0);
}

// In memory of its own, evaluated: [heads * 16, width]. By an array of indices, since by a number
// it would be a view, and whoever wrote the rows then would copy them all.
mx::array PageOf(const mx::array& rows, int heads, PageId page) {
  mx::array copy =
      mx::reshape(mx::take(InPieces(rows, heads * kPage), mx::array({static_cast<int>(page)}), 0),
                  {heads * kPage, rows.shape(1)});
  mx::eval(copy);
  return copy;
}

// `page` is [heads * 16, width], of the rows' kind.
mx::array WithPage(const mx::array& rows, PageId to, const mx::array& page) {
  const int count = page.shape(0);
  const int first = static_cast<int>(to) * count;
  return mx::scatter(rows, mx::arange(first, first + count, mx::int32), mx::expand_dims(page, 1),
                     0);
}

// Whether the stage's layer, counted from its first, is of the group.
bool IsOf(const StageSpec& spec, uint32_t local, uint32_t group) {
  return spec.model.layers[spec.first_layer + local].attention.kv_group == group;
}

bool IsLazy(const mx::array& array) { return array.status() == mx::array::Status::unscheduled; }

}  // namespace

uint32_t KvHeadsOf(const AttentionSpec& attention) {
  return attention.latent.rank != 0 ? 1 : attention.kv_heads;
}

template <typename Function>
void KvArrays::Each(const Function& function) {
  for (Layer& layer : layers_) {
    for (std::optional<mx::array>* const rows : {&layer.keys, &layer.values}) {
      if (rows->has_value()) {
        function(**rows);
      }
    }
  }
}

uint64_t KvArrays::Bytes(const StageSpec& spec) {
  uint64_t bytes = 0;
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    const AttentionSpec& attention = spec.model.layers[layer].attention;
    bytes += spec.kv_pages[attention.kv_group] * kPageTokens * attention.KvNumbers() *
             ElementBytes(spec);
  }
  return bytes;
}

absl::Status KvArrays::Allocate(const StageSpec& spec, uint64_t shared_bytes) {
  layers_.clear();
  bytes_ = 0;
  const uint64_t needed = Bytes(spec);
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    const AttentionSpec& attention = spec.model.layers[layer].attention;
    const uint64_t pages = spec.kv_pages[attention.kv_group];
    const uint64_t most =
        uint64_t{std::numeric_limits<int>::max()} / (uint64_t{kPageTokens} * KvHeadsOf(attention));
    if (pages > most) {
      return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                   absl::StrCat("the stage's KV has ", pages,
                                " pages of a group, where the mlx "
                                "backend counts ",
                                most))
          .Limit(absl::StrCat("pages=", most))
          .Hint("load fewer KV tokens on this node");
    }
  }
  RETURN_IF_ERROR(CheckAvailable("the stage's KV", needed, shared_bytes));
  const mx::Dtype dtype = spec.kv_dtype == v1::KV_DTYPE_F32 ? mx::float32 : mx::float16;
  absl::Status status = Guarded("allocating KV", [&] {
    layers_.resize(spec.last_layer - spec.first_layer + 1);
    for (uint32_t i = 0; i < layers_.size(); ++i) {
      const AttentionSpec& attention = spec.model.layers[spec.first_layer + i].attention;
      const bool latent = attention.latent.rank != 0;
      layers_[i].heads = static_cast<int>(KvHeadsOf(attention));
      const int slots =
          static_cast<int>(spec.kv_pages[attention.kv_group]) * layers_[i].heads * kPage;
      const int width = static_cast<int>(latent ? attention.latent.kept() : attention.head_dim);
      if (slots > 0) {
        layers_[i].keys = mx::zeros({slots, width}, dtype);
        if (!latent) {
          layers_[i].values = mx::zeros({slots, width}, dtype);
        }
      }
    }
    Each([](mx::array& rows) { mx::eval(rows); });
    return absl::OkStatus();
  });
  if (!status.ok()) {
    layers_.clear();
    return status;
  }
  bytes_ = needed;
  return absl::OkStatus();
}

void KvArrays::Append(uint32_t local, const mx::array& slots, const mx::array& keys,
                      const std::optional<mx::array>& values) {
  Layer& layer = layers_[local];
  // Where nothing else has the rows when this is evaluated, they are written in place.
  layer.keys = Scattered(*layer.keys, slots, keys);
  if (values.has_value()) {
    layer.values = Scattered(*layer.values, slots, *values);
  }
}

mx::array KvArrays::Keys(uint32_t local, const mx::array& slices) const {
  return TakeSlices(*layers_[local].keys, layers_[local].heads, slices);
}

std::optional<mx::array> KvArrays::Values(uint32_t local, const mx::array& slices) const {
  const std::optional<mx::array>& rows = layers_[local].values;
  return rows.has_value() ? std::make_optional(TakeSlices(*rows, layers_[local].heads, slices))
                          : std::nullopt;
}

void KvArrays::CopyPage(const StageSpec& spec, uint32_t group, PageId from, PageId to) {
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    for (std::optional<mx::array>* const rows : {&layers_[i].keys, &layers_[i].values}) {
      if (rows->has_value() && IsOf(spec, i, group)) {
        *rows = WithPage(**rows, to, PageOf(**rows, layers_[i].heads, from));
        mx::eval(**rows);
      }
    }
  }
}

uint64_t KvArrays::PageBytes(const StageSpec& spec, uint32_t group) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i <= spec.last_layer - spec.first_layer; ++i) {
    const AttentionSpec& attention = spec.model.layers[spec.first_layer + i].attention;
    bytes += IsOf(spec, i, group) ? kPageTokens * attention.KvNumbers() * ElementBytes(spec) : 0;
  }
  return bytes;
}

void KvArrays::ReadPage(const StageSpec& spec, uint32_t group, PageId page, uint8_t* out) const {
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    for (const std::optional<mx::array>* const rows : {&layers_[i].keys, &layers_[i].values}) {
      if (rows->has_value() && IsOf(spec, i, group)) {
        const mx::array copy = PageOf(**rows, layers_[i].heads, page);
        std::memcpy(out, copy.data<uint8_t>(), copy.nbytes());
        out += copy.nbytes();
      }
    }
  }
}

void KvArrays::WritePage(const StageSpec& spec, uint32_t group, PageId page, const uint8_t* in) {
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    for (std::optional<mx::array>* const rows : {&layers_[i].keys, &layers_[i].values}) {
      if (rows->has_value() && IsOf(spec, i, group)) {
        const int count = layers_[i].heads * kPage;
        const int width = (*rows)->shape(1);
        const size_t bytes = static_cast<size_t>(count) * width * (*rows)->itemsize();
        mx::allocator::Data data = mx::allocator::malloc(bytes);
        std::memcpy(data.buffer().raw_ptr(), in, bytes);
        in += bytes;
        *rows =
            WithPage(**rows, page, mx::array(std::move(data), {count, width}, (*rows)->dtype()));
        mx::eval(**rows);
      }
    }
  }
}

void KvArrays::AddPending(std::vector<mx::array>* outputs) const {
  for (const Layer& layer : layers_) {
    for (const std::optional<mx::array>* const rows : {&layer.keys, &layer.values}) {
      if (rows->has_value() && IsLazy(**rows)) {
        outputs->push_back(**rows);
      }
    }
  }
}

void KvArrays::Recover() {
  Each([](mx::array& rows) {
    while (IsLazy(rows)) {
      const mx::array before = rows.inputs().front();
      rows = before;
    }
  });
}

}  // namespace strata::mlx
