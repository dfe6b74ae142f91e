// What attention keeps of a tile of queries, how spans become answers, and how keys and values are
// prefetched. Included before attention-inl.h, which says what is computed.

constexpr uint32_t kSpanPages = kSpanKeys / 16;
constexpr int kQueryBlock = kTiling.register_lanes >= 8 ? 8 : 4;

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// Positions [from, end).
struct KeyRange {
  uint32_t from;
  uint32_t end;
};

// The weights of a block's queries from one of them and one page on, and the pages' factors.
struct WeighedPages {
  const float* weights;  // [pages][queries][16]
  const float* factors;  // [pages][queries]
  size_t queries;

  STRATA_INLINE WeighedPages From(size_t page) const {
    return {weights + page * queries * 16, factors + page * queries, queries};
  }
  STRATA_INLINE WeighedPages Of(size_t query) const {
    return {weights + query * 16, factors + query, queries};
  }
};

// Where a tile of queries is being computed, block by block in each span.
struct AttendState {
  float* q;                     // Of each block [head_dim][queries], one after another.
  float* total;                 // [queries of the tile][PartialFloats]: O, M, L.
  KeyRange seen[kTileQueries];  // What each query sees; neither end ever falls.
  // Of one block.
  size_t queries;
  float* scores;   // [32][queries][16]: scores, then weights.
  float* factors;  // [32][queries]: a of each page.
  float* sums;     // [32][queries]: of each page's weights.
  float* span;     // [queries][PartialFloats]: o, m, l of the span.
  float* page;     // [16][head_dim]: keys that hold their values.

  WeighedPages weighed() const { return {scores, factors, queries}; }
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
  state.queries = block;
  state.scores = take(block * kSpanKeys);
  state.factors = take(block * kSpanPages);
  state.sums = take(block * kSpanPages);
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

// Whether any of the keys are in a page of the span.
STRATA_INLINE bool InPage(KeyRange keys, uint32_t page) {
  return keys.from < (page + 1) * 16 && keys.end > page * 16;
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

// Those of `pages` that all of the queries see all of.
STRATA_INLINE KeyRange PagesSeenWhole(const KeyRange* keys, int queries, KeyRange pages) {
  KeyRange whole = pages;
  for (int i = 0; i < queries; ++i) {
    const uint32_t from = (keys[i].from + 15) / 16;
    const uint32_t end = keys[i].end / 16;
    whole.from = whole.from > from ? whole.from : from;
    whole.end = whole.end < end ? whole.end : end;
  }
  return whole.from < whole.end ? whole : KeyRange{pages.end, pages.end};
}

// Queries whose spans are merged at once: exps of two differences each fill the lanes.
constexpr int kMergedQueries = static_cast<int>(kLanes) / 2;

// total := total and span, of up to kMergedQueries queries, each [PartialFloats].
class SpanMerge {
 public:
  explicit SpanMerge(size_t padded) : padded_(padded) {}
  ~SpanMerge() {
    if (queries_ > 0) {
      Merge();
    }
  }
  SpanMerge(const SpanMerge&) = delete;
  SpanMerge& operator=(const SpanMerge&) = delete;

  // To be merged when it is full, or ends. Both stay where they are until then.
  void Add(const float* span, float* total) {
    spans_[queries_] = span;
    totals_[queries_] = total;
    if (++queries_ == kMergedQueries) {
      Merge();
    }
  }

 private:
  void Merge() {
    alignas(64) float exponents[16] = {};
    for (int i = 0; i < queries_; ++i) {
      float* const largest = totals_[i] + padded_;
      const float m = *largest > spans_[i][padded_] ? *largest : spans_[i][padded_];
      exponents[i] = *largest - m;
      exponents[kMergedQueries + i] = spans_[i][padded_] - m;
      *largest = m;
    }
    alignas(64) float factors[16];
    Store(Exp(Load(exponents)), factors);
    for (int i = 0; i < queries_; ++i) {
      const float* const span = spans_[i];
      float* const total = totals_[i];
      const float old = factors[i];
      const float now = factors[kMergedQueries + i];
      for (size_t d = 0; d < padded_; d += kLanes) {
        Store(Fma(Load(total + d), Set(old), Mul(Load(span + d), Set(now))), total + d);
      }
      total[padded_ + 1] = std::fma(total[padded_ + 1], old, span[padded_ + 1] * now);
    }
    queries_ = 0;
  }

  const size_t padded_;
  int queries_ = 0;
  const float* spans_[kMergedQueries];
  float* totals_[kMergedQueries];
};

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

// Prefetches pages while others are computed, as many as these: to the second cache, as they are
// more than the first one holds; a few lines at a time, as a processor waits for what it prefetches
// in a burst; in the order of memory, in which hardware helps; and from call to call, as a span may
// have few pages and the next one many.
template <typename T>
class PagesAhead {
 public:
  // For what `args` attends, and, where its first tile does, for what comes after it. Other tiles
  // begin with pages that the one before has just read.
  PagesAhead(const AttendArgs& args, bool first_tile)
      : args_(args),
        call_(&args),
        prefetched_(first_tile && args.prefetched != nullptr ? args.prefetched : &own_),
        chained_(first_tile) {
    if (prefetched_->turn < args.turn) {
      const KeyRange pages = PagesOf(args);
      const uint32_t here = first_tile ? 0 : kLead;
      const uint32_t left = pages.end - pages.from;
      *prefetched_ = {.turn = args.turn,
                      .page = pages.from + (here < left ? here : left),
                      .ahead = static_cast<int>(here)};
    }
    Find();
    PrefetchUntilAhead(kFirst);
  }
  ~PagesAhead() { PrefetchRest(); }
  PagesAhead(const PagesAhead&) = delete;
  PagesAhead& operator=(const PagesAhead&) = delete;

  // Where the next `lines` lines are. When all were prefetched it stays behind the last.
  STRATA_INLINE const uint8_t* Take(int lines) {
    if (left_ <= 0) {
      BeginPage();
    }
    const uint8_t* const from = at_;
    if (left_ > 0) {
      at_ += lines * 64;
      left_ -= lines;
    }
    return from;
  }
  STRATA_INLINE void Prefetch(int lines) {
    const uint8_t* const from = Take(lines);
    STRATA_UNROLL
    for (int line = 0; line < lines; ++line) {
      Prefetch(from + line * 64);
    }
  }
  static STRATA_INLINE void Prefetch(const uint8_t* line) { __builtin_prefetch(line, 0, 2); }

  // The pages of `span` were computed.
  void Attended(uint32_t span) {
    const KeyRange keys = KeysInSpan(SeenByAny(args_), span);
    prefetched_->ahead -= static_cast<int>((keys.end + 15) / 16 - keys.from / 16);
    PrefetchUntilAhead(kLead);
  }

  // Whether more pages than usual are to be prefetched in the next span, as at a thread's first
  // one: waiting for all that should be on their way would take longer than it takes to compute
  // them.
  bool IsBehind() const { return prefetched_->ahead < kLead / 2; }

 private:
  // While a span's keys are scored half as many pages are prefetched; more than half a span has to
  // be on its way before.
  static constexpr int kLead = 24;
  static constexpr int kFirst = 4;  // Before a thread's first span.

  // Those that a call attends.
  static KeyRange PagesOf(const AttendArgs& args) {
    const KeyRange seen = SeenByAny(args);
    const KeyRange spans = SpansTaken(args, seen);
    const uint32_t from = spans.from * kSpanPages;
    const uint32_t end = spans.end * kSpanPages;
    return {from > seen.from / 16 ? from : seen.from / 16,
            end < (seen.end + 15) / 16 ? end : (seen.end + 15) / 16};
  }
  // The call whose pages are prefetched next.
  void Find() {
    while (call_ != nullptr && call_->turn < prefetched_->turn) {
      call_ = call_->next;
    }
    end_ = call_ != nullptr ? PagesOf(*call_).end : 0;
  }
  void BeginPage() {
    while (call_ != nullptr && prefetched_->page >= end_) {
      const AttendArgs* const next = chained_ ? call_->next : nullptr;
      if (next == nullptr) {
        return;
      }
      call_ = next;
      const KeyRange pages = PagesOf(*next);
      prefetched_->turn = next->turn;
      prefetched_->page = pages.from;
      end_ = pages.end;
    }
    if (call_ == nullptr) {
      return;
    }
    at_ = call_->kv + call_->pages[prefetched_->page - call_->first_page] * call_->page_bytes;
    left_ = static_cast<int>(
        (call_->value_bytes + 16 * PaddedHeadDim(call_->head_dim) * sizeof(T)) / 64);
    ++prefetched_->page;
    ++prefetched_->ahead;
  }
  void PrefetchRest() {
    while (left_ > 0) {
      Prefetch(1);
    }
  }
  void PrefetchUntilAhead(int lead) {
    PrefetchRest();
    while (prefetched_->ahead < lead) {
      BeginPage();
      if (left_ <= 0) {
        return;
      }
      PrefetchRest();
    }
  }

  const AttendArgs& args_;
  const AttendArgs* call_;
  PrefetchedPages own_;
  PrefetchedPages* const prefetched_;
  const bool chained_;
  uint32_t end_ = 0;  // Of the call's pages.
  const uint8_t* at_ = args_.kv;
  int left_ = 0;  // Lines of the page from at_ on.
};

// What a block left in state.span, of the tile's queries [from, from + queries), to what they have
// of the spans before; the tile's first query is query `first`.
inline void TakeSpan(const AttendArgs& args, const AttendState& state, uint32_t first, int from,
                     int queries, uint32_t span) {
  const size_t stride = PartialFloats(ValueDim(args));
  SpanMerge merge(PaddedHeadDim(ValueDim(args)));
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
      merge.Add(sums, total);
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
  const KeyRange any = SeenByAny(args);
  const auto sums = [&](uint32_t query, uint32_t span) {
    return args.partial + (size_t{query} * args.partial_spans + span) * stride;
  };
  // Span by span, as those of one query wait for each other.
  for (uint32_t span = any.from / kSpanKeys + 1; span < SpansOf(any.end); ++span) {
    SpanMerge merge(padded);
    for (uint32_t query = 0; query < args.rows * args.group; ++query) {
      const KeyRange seen = SeenBy(args, query);
      const uint32_t first = seen.from / kSpanKeys;
      if (span > first && span < SpansOf(seen.end)) {
        merge.Add(sums(query, span), sums(query, first));
      }
    }
  }
  for (uint32_t query = 0; query < args.rows * args.group; ++query) {
    WriteAnswer(args, sums(query, SeenBy(args, query).from / kSpanKeys), query);
  }
}
