// Attention over pages of keys that hold their values (AttendArgs::latent_values), which all heads
// see: lanes are queries when scoring, so that keys need not be stored transposed, and dimensions
// when summing values. What is computed is what attention-inl.h says, after which this is included.

// A page of keys that hold their values, [16][head_dim], as floats.
inline const float* PageInFloats(const float* keys, size_t count, float* floats) { return keys; }
inline const float* PageInFloats(const F16* keys, size_t count, float* floats) {
  for (size_t i = 0; i < count; i += kLanes) {
    Store(Load(keys + i), floats + i);
  }
  return floats;
}

// Scores of 16 queries, a lane each ([head_dim][16]), with the keys of a page.
inline void ScoreLatents(const AttendArgs& args, const float* q, const float* keys, float* scores) {
  constexpr int kKeys = kTiling.register_lanes >= 16 ? 16 : 4;
  alignas(64) float by_key[16][16];
  for (int first = 0; first < 16; first += kKeys) {
    const float* const from = keys + size_t{args.head_dim} * first;
    Lanes acc[kKeys];
    Clear(acc);
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      const Lanes x = Load(q + d * 16);
      STRATA_UNROLL
      for (int j = 0; j < kKeys; ++j) {
        acc[j] = Fma(x, Set(from[j * args.head_dim + d]), acc[j]);
      }
    }
    STRATA_UNROLL
    for (int j = 0; j < kKeys; ++j) {
      Store(Mul(acc[j], Set(args.scale)), by_key[first + j]);
    }
  }
  for (int query = 0; query < 16; query += 4) {
    for (int j = 0; j < 16; j += 4) {
      TransposeWords(&by_key[j][query], sizeof(by_key[0]), scores + query * 16 + j,
                     16 * sizeof(float));
    }
  }
}

// The weighted values of a span to the sums of `queries` queries, Q of them at once.
template <typename T, int Q = kQueryBlock>
void AddLatents(const AttendArgs& args, AttendState state, const KeyRange* keys, uint32_t span,
                int queries) {
  for (; queries >= Q; queries -= Q, keys += Q) {
    const KeyRange pages = PagesSeen(keys, Q);
    if (pages.end > 0) {
      AddPagesOfSpan<T, Q>(args, state, keys, span, pages.from, pages.end);
    }
    state.scores += Q * 16;
    state.factors += Q;
    state.span += Q * PartialFloats(ValueDim(args));
  }
  if constexpr (Q > 1) {
    AddLatents<T, Q / 2>(args, state, keys, span, queries);
  }
}

// The same of up to 16 queries whose keys hold their values.
template <typename T>
void AttendLatentSpan(const AttendArgs& args, const AttendState& state, uint32_t span,
                      int queries) {
  // What is computed in lanes without a query is of the last one, and not looked at.
  KeyRange keys[kLatentQueries];
  for (uint32_t i = 0; i < kLatentQueries; ++i) {
    keys[i] = KeysInSpan(state.seen[i], span);
  }
  const KeyRange pages = PagesSeen(keys, queries);
  for (uint32_t page = pages.from; page < pages.end; ++page) {
    const T* const stored = KeysOf<T>(args, span * kSpanPages + page);
    ScoreLatents(args, state.q, PageInFloats(stored, size_t{16} * args.head_dim, state.page),
                 state.scores + page * kLatentQueries * 16);
  }
  WeighSpan<kLatentQueries>(args, state, keys, pages);
  AddLatents<T>(args, state, keys, span, queries);
}

// Up to 16 queries whose keys hold their values.
template <typename T>
void AttendLatentBlock(const AttendArgs& args, uint32_t first, int queries) {
  AttendState state = StateIn(args, kLatentQueries, kLatentQueries);
  for (int i = 0; i < static_cast<int>(kLatentQueries); ++i) {
    const uint32_t query = first + (i < queries ? i : queries - 1);
    const float* const q = QueryAt(args, query);
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      state.q[d * kLatentQueries + i] = q[d];
    }
    state.seen[i] = SeenBy(args, query);
  }
  AttendSpans(args, state, first, queries, [&](uint32_t span) {
    AttendLatentSpan<T>(args, state, span, queries);
    TakeSpan(args, state, first, 0, queries, span);
  });
}

template <typename T>
void AttendLatents(const AttendArgs& args, uint32_t queries) {
  for (uint32_t first = 0; first < queries; first += kLatentQueries) {
    const uint32_t left = queries - first;
    AttendLatentBlock<T>(args, first,
                         static_cast<int>(left < kLatentQueries ? left : kLatentQueries));
  }
}

void Attend(const AttendArgs& args) {
  const uint32_t queries = args.rows * args.group;
  if (args.latent_values != 0) {
    args.kv_f16 ? AttendLatents<F16>(args, queries) : AttendLatents<float>(args, queries);
  } else if (args.kv_f16) {
    AttendQueries<F16>(args, queries);
  } else {
    AttendQueries<float>(args, queries);
  }
}
