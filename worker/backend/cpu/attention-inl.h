// Attention over pages. Included after kernels-inl.h and attention_spans-inl.h, in the same way.
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

// Dots of Q queries with the keys of the pages [first, end), whose first scores are at `scores`.
// `kAsk`: half of what is ahead is asked for meanwhile.
template <typename T, int Q, int P, bool kAsk>
void ScorePages(const AttendArgs& args, const float* q, uint32_t first, uint32_t end, float* scores,
                PagesAhead<T>* ahead) {
  // For each input of a page half of the lines that an input's keys and values have.
  constexpr int kLines = P * sizeof(T) / 4;
  for (; first + P <= end; first += P, scores += P * 16) {
    const T* keys[P];
    Lanes acc[P][Q];
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      keys[p] = KeysOf<T>(args, first + p);
      STRATA_UNROLL
      for (int i = 0; i < Q; ++i) {
        acc[p][i] = Set(0.0f);
      }
    }
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      if (kAsk && (kLines > 0 || d % 2 == 0)) {
        ahead->Ask(kLines > 0 ? kLines : 1);
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
        Store(acc[p][i], scores + i * kSpanKeys + p * 16);
      }
    }
  }
  if constexpr (P > 1) {
    ScorePages<T, Q, P / 2, kAsk>(args, q, first, end, scores, ahead);
  }
}

// take(page, pages) for the pages from the first one with keys to the last, four at once; at the
// end there may be fewer.
template <typename Take>
STRATA_INLINE void ByFourPages(KeyRange keys, const Take& take) {
  uint32_t page = keys.from / 16;
  const uint32_t end = (keys.end + 15) / 16;
  for (; page + 4 <= end; page += 4) {
    take(page, std::integral_constant<uint32_t, 4>());
  }
  if (page < end) {
    take(page, end - page);
  }
}

// Sums of keys and queries to scores of one query's span, and the largest before each page at
// `before` and from it on at `maxima`. Returns m.
template <bool kCapped>
float ScaleScores(const AttendArgs& args, KeyRange keys, float* scores, float* before,
                  float* maxima) {
  const Lanes scales = Set(args.scale);
  const Lanes caps = Set(args.soft_cap);
  const auto scores_of = [&](uint32_t page) {
    Lanes s = Mul(Load(scores + page * 16), scales);
    if constexpr (kCapped) {
      s = SoftCap(s, caps);
    }
    const uint32_t visible = keys.end - page * 16;
    if (visible < 16) {
      s = FirstN(s, Set(kNegativeInfinity), visible);
    }
    if (page * 16 < keys.from) {
      s = FirstN(Set(kNegativeInfinity), s, keys.from - page * 16);
    }
    return s;
  };
  float m = kNegativeInfinity;
  ByFourPages(keys, [&](uint32_t page, auto pages) {
    Lanes rows[4];
    STRATA_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      rows[i] = Set(kNegativeInfinity);
      if (i < pages) {
        rows[i] = scores_of(page + i);
        Store(rows[i], scores + (page + i) * 16);
      }
    }
    alignas(16) float largest[4];
    LargestLanes(rows, largest);
    for (uint32_t i = 0; i < pages; ++i) {
      before[page + i] = m;
      m = m > largest[i] ? m : largest[i];
      maxima[page + i] = m;
    }
  });
  return m;
}

// Scores of one query's span to weights, and the largest of the pages to the sums of their weights.
STRATA_INLINE void WeighScores(KeyRange keys, float* scores, float* maxima_to_sums) {
  ByFourPages(keys, [&](uint32_t page, auto pages) {
    Lanes rows[4];
    STRATA_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      rows[i] = Set(kNegativeInfinity);
      if (i < pages) {
        rows[i] = Sub(Load(scores + (page + i) * 16), Set(maxima_to_sums[page + i]));
      }
    }
    ExpsBounded<4>(rows);
    STRATA_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if (i < pages) {
        Store(rows[i], scores + (page + i) * 16);
      }
    }
    alignas(16) float sums[4];
    TreeSums(rows, sums);
    std::memcpy(maxima_to_sums + page, sums, pages * sizeof(float));
  });
}

// Adds the keys `in_page` of each of the pages [page, end) to the sums of Q queries, D * 16
// dimensions of them from `dim` on; weights and factors are those of the first page. `kAsk`: the
// other half of what is ahead is asked for meanwhile.
template <typename T, int Q, int D, bool kAsk>
STRATA_INLINE void AddValues(const AttendArgs& args, uint32_t page, uint32_t end, KeyRange in_page,
                             const float* weights, const float* factors, float* sums, size_t dim,
                             PagesAhead<T>* ahead) {
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
  for (; page < end; ++page, weights += 16, ++factors) {
    const T* const values = ValuesOf<T>(args, page) + dim;
    STRATA_UNROLL
    for (int i = 0; i < Q; ++i) {
      const Lanes factor = Set(factors[i * kSpanPages]);
      STRATA_UNROLL
      for (int d = 0; d < D; ++d) {
        acc[i][d] = Mul(acc[i][d], factor);
      }
    }
    const uint8_t* lines = kAsk ? ahead->Take(D * 4 * sizeof(T)) : nullptr;
    for (size_t j = in_page.from; j < in_page.end; ++j) {
      STRATA_UNROLL
      for (size_t d = 0; d < D; ++d) {
        if (kAsk && (j * D + d) % (4 / sizeof(T)) == 0) {
          PagesAhead<T>::Ask(lines);
          lines += 64;
        }
        const Lanes v = Load(values + j * values_stride + d * 16);
        STRATA_UNROLL
        for (size_t i = 0; i < Q; ++i) {
          acc[i][d] = Fma(Set(weights[i * kSpanKeys + j]), v, acc[i][d]);
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

template <typename T, int Q, int D, bool kAsk = false>
void AddPages(const AttendArgs& args, uint32_t page, uint32_t end, KeyRange in_page,
              const float* weights, const float* factors, float* sums, size_t dim = 0,
              PagesAhead<T>* ahead = nullptr) {
  for (; dim + D * 16 <= PaddedHeadDim(ValueDim(args)); dim += D * 16) {
    AddValues<T, Q, D, kAsk>(args, page, end, in_page, weights, factors, sums, dim, ahead);
  }
  if constexpr (D > 1) {
    AddPages<T, Q, D / 2, kAsk>(args, page, end, in_page, weights, factors, sums, dim, ahead);
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
    AddPages<T, Q, AtOnce(Q)>(args, at, at + 1, in_page(keys[0]), state.scores + first,
                              state.factors + page, state.span);
    return;
  }
  for (int i = 0; i < Q; ++i) {
    if (keys[i].from < first + 16 && keys[i].end > first) {
      AddPages<T, 1, AtOnce(1)>(args, at, at + 1, in_page(keys[i]),
                                state.scores + i * kSpanKeys + first,
                                state.factors + i * kSpanPages + page, state.span + i * stride);
    }
  }
}

// The weighted values of the pages [first, end) of a span to the sums of Q queries.
template <typename T, int Q>
void AddPagesOfSpan(const AttendArgs& args, const AttendState& state, const KeyRange* keys,
                    uint32_t span, uint32_t first, uint32_t end, PagesAhead<T>* ahead = nullptr) {
  // Pages that all the queries see all of; their sums stay in registers.
  uint32_t whole = first;
  uint32_t whole_end = end;
  bool same = true;
  for (int i = 0; i < Q; ++i) {
    whole = whole > (keys[i].from + 15) / 16 ? whole : (keys[i].from + 15) / 16;
    whole_end = whole_end < keys[i].end / 16 ? whole_end : keys[i].end / 16;
    same = same && keys[i].from == keys[0].from && keys[i].end == keys[0].end;
  }
  if (whole >= whole_end) {
    whole = whole_end = end;
  }
  for (; first < whole; ++first) {
    AddPartOfPage<T, Q>(args, state, keys, same, span, first);
  }
  if (whole < whole_end) {
    const auto add =
        ahead != nullptr ? AddPages<T, Q, AtOnce(Q), true> : AddPages<T, Q, AtOnce(Q), false>;
    add(args, span * kSpanPages + whole, span * kSpanPages + whole_end, {0, 16},
        state.scores + whole * 16, state.factors + whole, state.span, 0, ahead);
  }
  for (; whole_end < end; ++whole_end) {
    AddPartOfPage<T, Q>(args, state, keys, same, span, whole_end);
  }
}

// Pages [from, end) of a span, of which some of the queries see keys; {kSpanPages, 0}: none does.
STRATA_INLINE KeyRange PagesSeen(const KeyRange* keys, int queries) {
  KeyRange pages{kSpanPages, 0};
  for (int i = 0; i < queries; ++i) {
    if (keys[i].end > 0) {
      pages.from = pages.from < keys[i].from / 16 ? pages.from : keys[i].from / 16;
      pages.end = pages.end > (keys[i].end + 15) / 16 ? pages.end : (keys[i].end + 15) / 16;
    }
  }
  return pages;
}

// Scores to weights of the span of each of `queries` <= Q, with sums that hold no value yet. Leaves
// the factors and the sums of the pages' weights.
template <int Q>
STRATA_INLINE void SoftmaxSpans(const AttendArgs& args, const AttendState& state,
                                const KeyRange* keys, int queries) {
  const size_t padded = PaddedHeadDim(ValueDim(args));
  const size_t stride = PartialFloats(ValueDim(args));
  const auto scale = args.soft_cap == 0 ? ScaleScores<false> : ScaleScores<true>;
  // One thing of all queries that are near in memory before the next: lanes are loaded of what was
  // stored one by one, which has to be in the cache by then.
  for (int from = 0; from < queries; from += kQueryBlock) {
    const int end = from + kQueryBlock < queries ? from + kQueryBlock : queries;
    for (int i = from; i < end; ++i) {
      float* const span = state.span + i * stride;
      std::memset(span, 0, padded * sizeof(float));
      span[padded] = scale(args, keys[i], state.scores + i * kSpanKeys,
                           state.factors + i * kSpanPages, state.sums + i * kSpanPages);
    }
    for (int i = from; i < end; ++i) {
      // Lanes before the first and behind the last page hold what was there; nothing reads them.
      for (uint32_t page = keys[i].from / 256 * 16; page * 16 < keys[i].end; page += 16) {
        float* const factors = state.factors + i * kSpanPages + page;
        Store(Exp(Sub(Load(factors), Load(state.sums + i * kSpanPages + page))), factors);
      }
    }
    for (int i = from; i < end; ++i) {
      WeighScores(keys[i], state.scores + i * kSpanKeys, state.sums + i * kSpanPages);
    }
  }
  // A query's sum waits for the one of the page before: those of all queries go on side by side.
  const KeyRange pages = PagesSeen(keys, queries);
  float l[Q] = {};
  for (uint32_t page = pages.from; page < pages.end; ++page) {
    STRATA_UNROLL
    for (int i = 0; i < Q; ++i) {
      if (i < queries && keys[i].from < (page + 1) * 16 && keys[i].end > page * 16) {
        const uint32_t at = static_cast<uint32_t>(i) * kSpanPages + page;
        l[i] = std::fma(l[i], state.factors[at], state.sums[at]);
      }
    }
  }
  STRATA_UNROLL
  for (int i = 0; i < Q; ++i) {
    if (i < queries) {
      state.span[i * stride + padded + 1] = l[i];
    }
  }
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
  const auto score = ahead != nullptr ? ScorePages<T, Q, PagesAtOnce(Q), true>
                                      : ScorePages<T, Q, PagesAtOnce(Q), false>;
  score(args, state.q + size_t{args.head_dim} * first, before + pages.from, before + pages.end,
        state.scores + pages.from * 16, ahead);
  SoftmaxSpans<Q>(args, state, keys, Q);
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
  PagesAhead<T> asks(args, first == 0);
  AttendSpans(args, state, first, queries, [&](uint32_t span) {
    PagesAhead<T>* ahead = &asks;  // Only the first block that sees any of the span asks.
    ByBlocks(queries, [&](auto block, int from) {
      constexpr int kQueries = block.kQueries;
      if (state.seen[from + kQueries - 1].end <= span * kSpanKeys ||
          state.seen[from].from >= (span + 1) * kSpanKeys) {
        return;
      }
      AttendSpan<T, kQueries>(args, state, from, span, ahead);
      TakeSpan(args, state, first, from, kQueries, span);
      ahead = nullptr;
    });
    asks.Attended(span);
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
