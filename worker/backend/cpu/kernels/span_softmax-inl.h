// The softmax of a span's scores. Included after attention_spans-inl.h and before attention-inl.h,
// which says what is computed.

// Turns the scores of Q queries with the pages of a span, in state.scores, into weights, and leaves
// the pages' factors and sums. Four vectors of scores are taken at a time: those of four queries,
// or of fewer and as many more pages.
template <int Q>
class SpanSoftmax {
 public:
  // `keys` [Q], within the span; `pages` are those that any of them is in.
  SpanSoftmax(const AttendState& state, const KeyRange* keys, KeyRange pages)
      : state_(state), keys_(keys), pages_(pages) {
    for (int i = 0; i < Q; ++i) {
      largest_[i] = kNegativeInfinity;
    }
    whole_ = PagesSeenWhole(keys, Q, pages);
  }

  // M and L of each query to `padded` floats behind its span's begin, spans `stride` apart.
  void Run(size_t padded, size_t stride) {
    // One thing of all pages before the next: vectors are loaded of what was stored one by one,
    // which has to be in the cache by then.
    ByParts([&](uint32_t at) { FindLargest(at); },
            [&](uint32_t at, int query) { FindLargestOfOne(at, query); });
    ByParts([&](uint32_t at) { Weigh(at); }, [&](uint32_t at, int) { WeighOne(at); });
    // Lanes before the first and behind the last page hold what was there; nothing reads them.
    for (uint32_t at = pages_.from * Q / kLanes * kLanes; at < pages_.end * Q; at += kLanes) {
      Store(Exp(Load(state_.factors + at)), state_.factors + at);
    }
    alignas(64) float l[kLanes] = {};
    SumPages(l);
    STRATA_UNROLL
    for (int i = 0; i < Q; ++i) {
      float* const to = state_.span + i * stride + padded;
      to[0] = largest_[i];
      to[1] = l[i];
    }
  }

 private:
  static constexpr uint32_t kPages = Q < 4 ? 4 / Q : 1;

  // one(at, query) for each vector of scores of the pages [page, end) that its query sees some of;
  // it is the at'th of all.
  template <typename One>
  STRATA_INLINE void OneByOne(uint32_t page, uint32_t end, const One& one) const {
    for (; page < end; ++page) {
      for (int i = 0; i < Q; ++i) {
        if (InPage(keys_[i], page)) {
          one(page * Q + i, i);
        }
      }
    }
  }
  // Page after page: four(at) for four vectors from the at'th on, whose pages all queries see all
  // of, and one(at, query) for the others.
  template <typename Four, typename One>
  STRATA_INLINE void ByParts(const Four& four, const One& one) {
    const uint32_t end = whole_.from + (whole_.end - whole_.from) / kPages * kPages;
    OneByOne(pages_.from, whole_.from, one);
    for (uint32_t at = whole_.from * Q; at < end * Q; at += 4) {
      four(at);
    }
    OneByOne(end, pages_.end, one);
  }

  STRATA_INLINE float* ScoresAt(uint32_t at) const { return state_.scores + size_t{at} * 16; }

  STRATA_INLINE void FindLargest(uint32_t at) {
    const float* const scores = ScoresAt(at);
    Lanes rows[4];
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) {
      rows[i] = Load(scores + i * 16);
    }
    alignas(16) float largest[4];
    LargestLanes(rows, largest);
    Grow<4 / kPages>(at, at % Q, largest);
    for (uint32_t page = 1; page < kPages; ++page) {
      Grow<4 / kPages>(at + page * Q, 0, largest + page * Q);
    }
  }
  void FindLargestOfOne(uint32_t at, int query) {
    float* const scores = ScoresAt(at);
    const uint32_t first = at / Q * 16;
    Lanes s = Load(scores);
    if (keys_[query].end - first < 16) {
      s = FirstN(s, Set(kNegativeInfinity), keys_[query].end - first);
    }
    if (first < keys_[query].from) {
      s = FirstN(Set(kNegativeInfinity), s, keys_[query].from - first);
    }
    Store(s, scores);
    const float largest = LargestLane(s);
    Grow<1>(at, query, &largest);
  }
  // With the largest scores that a page has of some queries from one on. What is taken off their
  // scores stands where their sums will be.
  template <int kQueries>
  STRATA_INLINE void Grow(uint32_t at, uint32_t query, const float* largest) {
    // Apart from where they go, so that compilers make one vector of four queries.
    alignas(16) float m[kQueries];
    alignas(16) float grown[kQueries];
    STRATA_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      const float before = largest_[query + i];
      m[i] = before > largest[i] ? before : largest[i];
      grown[i] = before - m[i];
    }
    std::memcpy(state_.factors + at, grown, sizeof(grown));
    std::memcpy(state_.sums + at, m, sizeof(m));
    std::memcpy(largest_ + query, m, sizeof(m));
  }

  STRATA_INLINE void Weigh(uint32_t at) {
    float* const scores = ScoresAt(at);
    float* const sums = state_.sums + at;
    Lanes rows[4];
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) {
      rows[i] = Sub(Load(scores + i * 16), Set(sums[i]));
    }
    ExpsBounded<4>(rows);
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) {
      Store(rows[i], scores + i * 16);
    }
    TreeSums(rows, sums);
  }
  void WeighOne(uint32_t at) {
    Lanes weights = Sub(Load(ScoresAt(at)), Set(state_.sums[at]));
    ExpsBounded<1>(&weights);
    Store(weights, ScoresAt(at));
    state_.sums[at] = TreeSum(weights);
  }

  // A query's sum waits for the one of the page before: those of all go on side by side.
  void SumPages(float (&l)[kLanes]) const {
    const auto add = [&](uint32_t at, int query) {
      l[query] = std::fma(l[query], state_.factors[at], state_.sums[at]);
    };
    OneByOne(pages_.from, whole_.from, add);
    Lanes sums = Load(l);  // With whatever is behind those of Q queries.
    for (uint32_t page = whole_.from; page < whole_.end; ++page) {
      sums = Fma(sums, Load(state_.factors + page * Q), Load(state_.sums + page * Q));
    }
    Store(sums, l);
    OneByOne(whole_.end, pages_.end, add);
  }

  const AttendState& state_;
  const KeyRange* const keys_;
  const KeyRange pages_;
  KeyRange whole_;  // Those of them that all queries see all of.
  alignas(16) float largest_[Q];
};
