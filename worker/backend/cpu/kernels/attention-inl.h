// Attention over pages. Included after span_softmax-inl.h, in the same way as kernels-inl.h.
//
// Per (query, head), whatever the batch, for each span of 512 keys by absolute position of which it
// sees any, in order:
//   pages in order that hold visible keys j, up to 16:
//     s_j = (chain fma(q[d], k_j[d], acc) in ascending d) * scale
//     s_j = cap * tanh(s_j / cap), where scores are capped
//     m' = max(m, s_j); a = exp(m - m'); p_j = exp(s_j - m'), 0 for keys that are not visible
//     l = fma(l, a, tree sum of p); o[d] = o[d] * a, then fma(p_j, v_j[d], o[d]) in ascending j
//     m = m'
// beginning with m = -inf, l = 0, o = 0. Spans are merged in order into the first one's (M, L, O):
//   m' = max(M, m); A = exp(M - m'); a = exp(m - m'); L = fma(L, A, l * a); O = fma(O, A, o * a)
// and the answer is O / L; of a head with a sink, a score t that no value has:
//   m' = max(M, t); A = exp(M - m'); O * A / fma(L, A, exp(t - m'))
// A window hides keys before it as the query's own position hides those
// behind: pages without a visible key take no part, and need not be there. Values of keys that are
// not visible are not read; the lanes of their scores are computed beside the others and replaced.
// Where keys hold their values (AttendArgs::latent_values), v_j[d] is k_j[d], and all else is so.

template <typename T>
STRATA_INLINE const T* KeysOf(const AttendArgs& args, uint32_t page) {
  return reinterpret_cast<const T*>(args.kv + args.pages[page - args.first_page] * args.page_bytes);
}
template <typename T>
STRATA_INLINE const T* ValuesOf(const AttendArgs& args, uint32_t page) {
  return reinterpret_cast<const T*>(args.kv + args.pages[page - args.first_page] * args.page_bytes +
                                    args.value_bytes);
}

// Scores of Q queries with the keys of the pages [first, end), to `scores`. Meanwhile half of as
// many pages is prefetched, `kHalves` times.
template <typename T, int Q, int P, int kHalves>
void ScorePages(const AttendArgs& args, const float* q, uint32_t first, uint32_t end, float* scores,
                PagesAhead<T>* ahead) {
  // For each input of a page half of the lines that an input's keys and values have.
  constexpr int kLines = kHalves * P * static_cast<int>(sizeof(T)) / 4;
  const Lanes scale = Set(args.scale);
  for (; first + P <= end; first += P, scores += P * Q * 16) {
    const T* keys[P];
    Lanes acc[P][Q];
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      keys[p] = KeysOf<T>(args, first + p);
    }
    Clear(acc);
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      if (kHalves > 0 && (kLines > 0 || d % 2 == 0)) {
        ahead->Prefetch(kLines > 0 ? kLines : 1);
      }
      // Keys stay in registers, and not queries, which are more.
      Lanes k[P];
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        k[p] = Load(keys[p] + d * 16);
      }
      STRATA_UNROLL
      for (int i = 0; i < Q; ++i) {
        const Lanes x = Set(q[d * Q + i]);
        STRATA_UNROLL
        for (int p = 0; p < P; ++p) {
          acc[p][i] = Fma(x, k[p], acc[p][i]);
        }
      }
    }
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      STRATA_UNROLL
      for (int i = 0; i < Q; ++i) {
        Store(Mul(acc[p][i], scale), scores + (p * Q + i) * 16);
      }
    }
  }
  if constexpr (P > 1) {
    ScorePages<T, Q, P / 2, kHalves>(args, q, first, end, scores, ahead);
  }
}

// All scores of a block of queries with the pages.
STRATA_INLINE void CapScores(const AttendArgs& args, uint32_t queries, KeyRange pages,
                             float* scores) {
  const Lanes caps = Set(args.soft_cap);
  for (uint32_t at = pages.from * queries; at < pages.end * queries; ++at) {
    Store(SoftCap(Load(scores + at * 16), caps), scores + at * 16);
  }
}

// Adds the keys `in_page` of each of the pages [page, end) to the sums of Q queries, D * 16
// dimensions of them from `dim` on; `weighed` begins with the first page. `kPrefetch`: the other
// half of what is ahead is prefetched meanwhile.
template <typename T, int Q, int D, bool kPrefetch>
STRATA_INLINE void AddValues(const AttendArgs& args, uint32_t page, uint32_t end, KeyRange in_page,
                             WeighedPages weighed, float* sums, size_t dim, PagesAhead<T>* ahead) {
  const size_t values_stride =
      args.latent_values != 0 ? args.head_dim : PaddedHeadDim(args.head_dim);
  const size_t stride = PartialFloats(ValueDim(args));
  Lanes acc[Q][D];
  STRATA_UNROLL
  for (int i = 0; i < Q; ++i) {
    STRATA_UNROLL
    for (int d = 0; d < D; ++d) {
      acc[i][d] = Load(sums + i * stride + dim + d * 16);
    }
  }
  for (; page < end; ++page, weighed = weighed.From(1)) {
    const T* const values = ValuesOf<T>(args, page) + dim;
    STRATA_UNROLL
    for (int i = 0; i < Q; ++i) {
      const Lanes factor = Set(weighed.factors[i]);
      STRATA_UNROLL
      for (int d = 0; d < D; ++d) {
        acc[i][d] = Mul(acc[i][d], factor);
      }
    }
    const uint8_t* lines = kPrefetch ? ahead->Take(D * 4 * sizeof(T)) : nullptr;
    for (size_t j = in_page.from; j < in_page.end; ++j) {
      STRATA_UNROLL
      for (size_t d = 0; d < D; ++d) {
        if (kPrefetch && (j * D + d) % (4 / sizeof(T)) == 0) {
          PagesAhead<T>::Prefetch(lines);
          lines += 64;
        }
        const Lanes v = Load(values + j * values_stride + d * 16);
        STRATA_UNROLL
        for (size_t i = 0; i < Q; ++i) {
          acc[i][d] = Fma(Set(weighed.weights[i * 16 + j]), v, acc[i][d]);
        }
      }
    }
  }
  STRATA_UNROLL
  for (int i = 0; i < Q; ++i) {
    STRATA_UNROLL
    for (int d = 0; d < D; ++d) {
      Store(acc[i][d], sums + i * stride + dim + d * 16);
    }
  }
}

template <typename T, int Q, int D, bool kPrefetch = false>
void AddPages(const AttendArgs& args, uint32_t page, uint32_t end, KeyRange in_page,
              WeighedPages weighed, float* sums, size_t dim = 0, PagesAhead<T>* ahead = nullptr) {
  for (; dim + D * 16 <= PaddedHeadDim(ValueDim(args)); dim += D * 16) {
    AddValues<T, Q, D, kPrefetch>(args, page, end, in_page, weighed, sums, dim, ahead);
  }
  if constexpr (D > 1) {
    AddPages<T, Q, D / 2, kPrefetch>(args, page, end, in_page, weighed, sums, dim, ahead);
  }
}

// Pages whose keys Q queries take at once, and vectors of values: they divide a span, and a head.
constexpr int PagesAtOnce(int queries) {
  const int fit = kTiling.register_lanes / queries;
  return fit >= 8 ? 8 : fit >= 2 ? 2 : 1;
}
constexpr int AtOnce(int queries) {
  const int fit = kTiling.register_lanes / queries;
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

// Page `page` of a span to the sums of Q queries, of which some do not see all of it; `same`: each
// sees the same keys.
template <typename T, int Q>
void AddPartOfPage(const AttendArgs& args, const AttendState& state, const KeyRange* keys,
                   bool same, uint32_t span, uint32_t page) {
  const size_t stride = PartialFloats(ValueDim(args));
  const uint32_t at = span * kSpanPages + page;
  const uint32_t first = page * 16;
  const auto in_page = [first](KeyRange range) {
    return KeyRange{range.from > first ? range.from - first : 0,
                    range.end - first < 16 ? range.end - first : 16};
  };
  if (same) {
    AddPages<T, Q, AtOnce(Q)>(args, at, at + 1, in_page(keys[0]), state.weighed().From(page),
                              state.span);
    return;
  }
  for (int i = 0; i < Q; ++i) {
    if (InPage(keys[i], page)) {
      AddPages<T, 1, AtOnce(1)>(args, at, at + 1, in_page(keys[i]),
                                state.weighed().Of(i).From(page), state.span + i * stride);
    }
  }
}

// The weighted values of the pages [first, end) of a span to the sums of Q queries.
template <typename T, int Q>
void AddPagesOfSpan(const AttendArgs& args, const AttendState& state, const KeyRange* keys,
                    uint32_t span, uint32_t first, uint32_t end, PagesAhead<T>* ahead = nullptr) {
  bool same = true;
  for (int i = 0; i < Q; ++i) {
    same = same && keys[i].from == keys[0].from && keys[i].end == keys[0].end;
  }
  KeyRange whole = PagesSeenWhole(keys, Q, {first, end});  // Their sums stay in registers.
  for (; first < whole.from; ++first) {
    AddPartOfPage<T, Q>(args, state, keys, same, span, first);
  }
  if (whole.from < whole.end) {
    const auto add =
        ahead != nullptr ? AddPages<T, Q, AtOnce(Q), true> : AddPages<T, Q, AtOnce(Q), false>;
    add(args, span * kSpanPages + whole.from, span * kSpanPages + whole.end, {0, 16},
        state.weighed().From(whole.from), state.span, 0, ahead);
  }
  for (; whole.end < end; ++whole.end) {
    AddPartOfPage<T, Q>(args, state, keys, same, span, whole.end);
  }
}

// The scores in state.scores to weights, with sums that hold no value yet.
template <int Q>
STRATA_INLINE void WeighSpan(const AttendArgs& args, const AttendState& state, const KeyRange* keys,
                             KeyRange pages) {
  if (args.soft_cap != 0) {
    CapScores(args, Q, pages, state.scores);
  }
  const size_t padded = PaddedHeadDim(ValueDim(args));
  const size_t stride = PartialFloats(ValueDim(args));
  for (int i = 0; i < Q; ++i) {
    for (size_t d = 0; d < padded; d += kLanes) {
      Store(Set(0.0f), state.span + i * stride + d);
    }
  }
  SpanSoftmax<Q>(state, keys, pages).Run(padded, stride);
}

// One span of the Q queries from the tile's `first` into state.span.
template <typename T, int Q>
void AttendSpan(const AttendArgs& args, const AttendState& state, int first, uint32_t span,
                PagesAhead<T>* ahead) {
  KeyRange keys[Q];
  for (int i = 0; i < Q; ++i) {
    keys[i] = KeysInSpan(state.seen[first + i], span);
  }
  const KeyRange pages = PagesSeen(keys, Q);
  const uint32_t before = span * kSpanPages;
  const auto score = ahead == nullptr    ? ScorePages<T, Q, PagesAtOnce(Q), 0>
                     : ahead->IsBehind() ? ScorePages<T, Q, PagesAtOnce(Q), 2>
                                         : ScorePages<T, Q, PagesAtOnce(Q), 1>;
  score(args, state.q + size_t{args.head_dim} * first, before + pages.from, before + pages.end,
        state.scores + pages.from * Q * 16, ahead);
  WeighSpan<Q>(args, state, keys, pages);
  AddPagesOfSpan<T, Q>(args, state, keys, span, pages.from, pages.end, ahead);
}

inline const float* QueryAt(const AttendArgs& args, uint32_t query) {
  return args.q + query / args.group * args.q_stride + size_t{query % args.group} * args.head_dim;
}

template <int Q>
struct BlockOf {
  static constexpr int kQueries = Q;
};

// function(BlockOf<Q>(), first) for the blocks that `queries` queries are divided into.
template <int Q = kQueryBlock, typename Function>
STRATA_INLINE void ByBlocks(int queries, const Function& function, int first = 0) {
  for (; first + Q <= queries; first += Q) {
    function(BlockOf<Q>(), first);
  }
  if constexpr (Q > 1) {
    ByBlocks<Q / 2>(queries, function, first);
  }
}

template <typename T>
void AttendTile(const AttendArgs& args, uint32_t first, int queries) {
  AttendState state = StateIn(args, kTileQueries, kMaxQueryBlock);
  ByBlocks(queries, [&](auto block, int from) {
    constexpr int kQueries = block.kQueries;
    const float* q[kQueries];
    for (int i = 0; i < kQueries; ++i) {
      q[i] = QueryAt(args, first + from + i);
      state.seen[from + i] = SeenBy(args, first + from + i);
    }
    float* const to = state.q + size_t{args.head_dim} * from;
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      STRATA_UNROLL
      for (int i = 0; i < kQueries; ++i) {
        to[d * kQueries + i] = q[i][d];
      }
    }
  });
  PagesAhead<T> prefetches(args, first == 0);
  AttendSpans(args, state, first, queries, [&](uint32_t span) {
    PagesAhead<T>* ahead = &prefetches;  // Only the first block that sees any of the span asks.
    ByBlocks(queries, [&](auto block, int from) {
      constexpr int kQueries = block.kQueries;
      if (state.seen[from + kQueries - 1].end <= span * kSpanKeys ||
          state.seen[from].from >= (span + 1) * kSpanKeys) {
        return;
      }
      state.queries = kQueries;
      AttendSpan<T, kQueries>(args, state, from, span, ahead);
      TakeSpan(args, state, first, from, kQueries, span);
      ahead = nullptr;
    });
    prefetches.Attended(span);
  });
}

template <typename T>
void AttendQueries(const AttendArgs& args, uint32_t queries) {
  for (uint32_t first = 0; first < queries; first += kTileQueries) {
    const uint32_t left = queries - first;
    AttendTile<T>(args, first, static_cast<int>(left < kTileQueries ? left : kTileQueries));
  }
}

template <typename T>
void AppendKvAs(const float* k, const float* v, uint32_t head_dim, uint32_t slot, T* keys,
                T* values) {
  T* const to = values + slot * PaddedHeadDim(head_dim);
  for (uint32_t d = 0; d < head_dim; d += 16) {
    const uint32_t part = head_dim - d < 16 ? head_dim - d : 16;
    T rounded[16];
    Store(LoadPart(k + d, part), rounded);
    for (uint32_t i = 0; i < part; ++i) {
      keys[(d + i) * 16 + slot] = rounded[i];
    }
    Store(LoadPart(v + d, part), to + d);
  }
}

void AppendKv(const float* k, const float* v, uint32_t head_dim, uint32_t slot, bool kv_f16,
              uint8_t* page, size_t value_bytes) {
  if (kv_f16) {
    AppendKvAs(k, v, head_dim, slot, reinterpret_cast<F16*>(page),
               reinterpret_cast<F16*>(page + value_bytes));
  } else {
    AppendKvAs(k, v, head_dim, slot, reinterpret_cast<float*>(page),
               reinterpret_cast<float*>(page + value_bytes));
  }
}
