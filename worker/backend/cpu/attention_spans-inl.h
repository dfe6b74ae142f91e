// What attention keeps of a tile of queries, how spans become answers, and how keys and values are
// asked for. Included before attention-inl.h, which says what is computed.

constexpr uint32_t kSpanPages = kSpanKeys / 16;
constexpr int kQueryBlock = kTiling.register_lanes >= 8 ? 8 : 4;

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// Positions [from, end).
struct KeyRange {
  uint32_t from;
  uint32_t end;
};

// Where a tile of queries is being computed, block by block in each span.
struct AttendState {
  float* q;                     // Of each block [head_dim][queries], one after another.
  float* total;                 // [queries of the tile][PartialFloats]: O, M, L.
  KeyRange seen[kTileQueries];  // What each query sees; neither end ever falls.
  // Of one block.
  float* scores;   // [queries][512]: scores, then weights.
  float* factors;  // [queries][32]: a of each page.
  float* maxima;   // [queries][32]: scratch.
  float* span;     // [queries][PartialFloats]: o, m, l of the span.
  float* page;     // [16][head_dim]: keys that hold their values.
};

// Of at most `tile` queries, in blocks of at most `block`.
STRATA_INLINE AttendState StateIn(const AttendArgs& args, uint32_t tile, uint32_t block) {
  const size_t stride = PartialFloats(ValueDim(args));
  AttendState state;
  float* next = args.scratch;
  const auto take = [&next](size_t floats) {
    float* const from = next;
    next += floats;
    return from;
  };
  state.q = take(tile * PaddedHeadDim(args.head_dim));
  state.total = take(tile * stride);
  state.scores = take(block * kSpanKeys);
  state.factors = take(block * kSpanPages);
  state.maxima = take(block * kSpanPages);
  state.span = take(block * stride);
  state.page = next;
  return state;
}

STRATA_INLINE KeyRange SeenBy(const AttendArgs& args, uint32_t query) {
  const uint32_t position = args.position + query / args.group;
  return {FirstSeen(position, args.window), position + 1};
}

// Counted from the span's first key; {0, 0} where none is in it.
STRATA_INLINE KeyRange KeysInSpan(KeyRange seen, uint32_t span) {
  const uint32_t first = span * kSpanKeys;
  if (seen.end <= first || seen.from >= first + kSpanKeys) {
    return {0, 0};
  }
  return {seen.from > first ? seen.from - first : 0,
          seen.end - first < kSpanKeys ? seen.end - first : kSpanKeys};
}

// total := total and span, both one query's [PartialFloats].
inline void MergeSpan(size_t padded, const float* span, float* total) {
  const float m = total[padded] > span[padded] ? total[padded] : span[padded];
  alignas(64) float exponents[16] = {total[padded] - m, span[padded] - m};
  alignas(64) float factors[16];
  Store(Exp(Load(exponents)), factors);
  const Lanes old_factor = Set(factors[0]);
  const Lanes new_factor = Set(factors[1]);
  for (size_t d = 0; d < padded; d += kLanes) {
    Store(Fma(Load(total + d), old_factor, Mul(Load(span + d), new_factor)), total + d);
  }
  total[padded] = m;
  total[padded + 1] = std::fma(total[padded + 1], factors[0], span[padded + 1] * factors[1]);
}

// The sum of a query's weights with that of its sink; `factor` is what the weighted values take.
inline float SumWithSink(float largest, float sum, float sink, float* factor) {
  const float m = largest > sink ? largest : sink;
  alignas(64) float exponents[16] = {largest - m, sink - m};
  alignas(64) float factors[16];
  Store(Exp(Load(exponents)), factors);
  *factor = factors[0];
  return std::fma(sum, factors[0], factors[1]);
}

// Of one query, from its merged spans.
inline void WriteAnswer(const AttendArgs& args, const float* total, uint32_t query) {
  const size_t value_dim = ValueDim(args);
  const size_t padded = PaddedHeadDim(value_dim);
  float* const out =
      args.out + query / args.group * args.out_stride + size_t{query % args.group} * value_dim;
  float all = total[padded + 1];
  float factor = 1;
  if (args.sinks != nullptr) {
    all = SumWithSink(total[padded], all, args.sinks[query % args.group], &factor);
  }
  const Lanes sum = Set(all);
  const Lanes factors = Set(factor);
  for (size_t d = 0; d < value_dim; d += kLanes) {
    const Lanes y = Div(Mul(Load(total + d), factors), sum);
    if (d + kLanes <= value_dim) {
      Store(y, out + d);
    } else {
      StorePart(y, out + d, value_dim - d);
    }
  }
}

// What all queries see together.
STRATA_INLINE KeyRange SeenByAny(const AttendArgs& args) {
  return {SeenBy(args, 0).from, args.position + args.rows};
}

// Spans [from, end) that a call takes up of queries that see the keys `seen`.
STRATA_INLINE KeyRange SpansTaken(const AttendArgs& args, KeyRange seen) {
  KeyRange spans{seen.from / kSpanKeys, SpansOf(seen.end)};
  if (args.partial != nullptr) {
    spans.from = args.first_span > spans.from ? args.first_span : spans.from;
    spans.end = args.end_span < spans.end ? args.end_span : spans.end;
  }
  return spans;
}

// The pages of a span, which are asked for while the span before it is computed: to the second
// cache, as they are more than the first one holds, a few lines at a time, as a processor waits for
// what it asks for in a burst, and in the order of memory, in which hardware helps.
template <typename T>
class PagesAhead {
 public:
  // Those that queries of `args` see of `span`.
  PagesAhead(const AttendArgs& args, uint32_t span) : args_(args), at_(args.kv) {
    const KeyRange keys = KeysInSpan(SeenByAny(args), span);
    page_ = span * kSpanPages + keys.from / 16;
    end_ = span * kSpanPages + (keys.end + 15) / 16;
  }
  // What is read when a call has computed `span`.
  static PagesAhead After(const AttendArgs& args, uint32_t span) {
    if (span + 1 < SpansTaken(args, SeenByAny(args)).end) {
      return PagesAhead(args, span + 1);
    }
    if (args.next != nullptr) {
      return PagesAhead(*args.next, SpansTaken(*args.next, SeenByAny(*args.next)).from);
    }
    PagesAhead none(args, span);
    none.page_ = none.end_;
    return none;
  }

  // Where the next `lines` lines are. When all were asked for it stays behind the last.
  STRATA_INLINE const uint8_t* Take(int lines) {
    if (left_ <= 0 && page_ < end_) {
      at_ = args_.kv + args_.pages[page_ - args_.first_page] * args_.page_bytes;
      left_ = static_cast<int>(
          (args_.value_bytes + 16 * PaddedHeadDim(args_.head_dim) * sizeof(T)) / 64);
      ++page_;
    }
    const uint8_t* const from = at_;
    if (left_ > 0) {
      at_ += lines * 64;
      left_ -= lines;
    }
    return from;
  }
  STRATA_INLINE void Ask(int lines) {
    const uint8_t* const from = Take(lines);
    STRATA_UNROLL
    for (int line = 0; line < lines; ++line) {
      Ask(from + line * 64);
    }
  }
  void AskForRest() {
    while (left_ > 0 || page_ < end_) {
      Ask(4);
    }
  }
  static STRATA_INLINE void Ask(const uint8_t* line) { __builtin_prefetch(line, 0, 2); }

 private:
  const AttendArgs& args_;
  uint32_t page_;
  uint32_t end_;
  const uint8_t* at_;
  int left_ = 0;  // Lines of the page from at_ on.
};

// What a block left in state.span, of the tile's queries [from, from + queries), to what they have
// of the spans before; the tile's first query is query `first`.
inline void TakeSpan(const AttendArgs& args, const AttendState& state, uint32_t first, int from,
                     int queries, uint32_t span) {
  const size_t padded = PaddedHeadDim(ValueDim(args));
  const size_t stride = PartialFloats(ValueDim(args));
  for (int i = 0; i < queries; ++i) {
    const KeyRange seen = state.seen[from + i];
    if (KeysInSpan(seen, span).end == 0) {
      continue;
    }
    const float* const sums = state.span + i * stride;
    float* const total = state.total + (from + i) * stride;
    if (args.partial != nullptr) {
      const size_t at = size_t{first + from + i} * args.partial_spans + span;
      std::memcpy(args.partial + at * stride, sums, stride * sizeof(float));
    } else if (span == seen.from / kSpanKeys) {
      std::memcpy(total, sums, stride * sizeof(float));
    } else {
      MergeSpan(padded, sums, total);
    }
  }
}

// The answers of the tile of `queries` queries from `first` on; `attend` takes a span up.
template <typename AttendOne>
STRATA_INLINE void AttendSpans(const AttendArgs& args, const AttendState& state, uint32_t first,
                               int queries, const AttendOne& attend) {
  const KeyRange spans = SpansTaken(args, {state.seen[0].from, state.seen[queries - 1].end});
  for (uint32_t span = spans.from; span < spans.end; ++span) {
    attend(span);
  }
  if (args.partial == nullptr) {
    const size_t stride = PartialFloats(ValueDim(args));
    for (int i = 0; i < queries; ++i) {
      WriteAnswer(args, state.total + i * stride, first + i);
    }
  }
}

void MergeSpans(const AttendArgs& args) {
  const size_t padded = PaddedHeadDim(ValueDim(args));
  const size_t stride = PartialFloats(ValueDim(args));
  for (uint32_t query = 0; query < args.rows * args.group; ++query) {
    const KeyRange seen = SeenBy(args, query);
    const uint32_t first = seen.from / kSpanKeys;
    float* const spans = args.partial + size_t{query} * args.partial_spans * stride;
    float* const total = spans + first * stride;
    for (uint32_t span = first + 1; span < SpansOf(seen.end); ++span) {
      MergeSpan(padded, spans + span * stride, total);
    }
    WriteAnswer(args, total, query);
  }
}
