#include "tests/sim/sim_loader.h"

#include <algorithm>
#include <optional>

#include "common/layer_weights.h"
#include "common/status.h"
#include "coordinator/cluster/weight_holders.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_model.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {
namespace {

// Shorter than those of a worker, as step timeouts are here.
constexpr nanoseconds kCallTimeout = milliseconds(400);
// How often in a row nobody may answer for a blob.
constexpr int kMostTries = 8;
// Of asking the coordinator who has a blob.
constexpr int kRounds = 3;

bool IsOf(const v1::DropLayers& message, uint64_t deployment, uint32_t layer) {
  const auto& layers = message.layers();
  return message.deployment() == deployment &&
         (layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end());
}

}  // namespace

std::vector<LayerNeeds> NeedsOf(const v1::Load& load) {
  std::vector<LayerNeeds> all;
  for (uint32_t layer = load.first_layer(); layer <= load.last_layer(); ++layer) {
    LayerNeeds& needs = all.emplace_back();
    needs.layer = layer;
    bool embeds = false;
    bool heads = false;
    for (const v1::TensorBlob& tensor : load.tensors()) {
      const bool embedding = tensor.name() == kEmbedding && layer == load.first_layer();
      const bool head = tensor.name() == kHead && layer == load.last_layer();
      embeds |= embedding;
      heads |= head;
      if (embedding || head || tensor.name() == LayerTensor(layer)) {
        needs.blobs.push_back(tensor.sha256());
      }
    }
    needs.key = LayerWeightsKey(load.numerics_class(), embeds, heads, needs.blobs);
  }
  return all;
}

struct SimLoader::Job {
  WorkerLife life;
  std::vector<LayerNeeds> layers;
  std::function<bool()> goes_on;
  std::function<void(const Loaded&)> done;
  Loaded loaded;
  size_t layer = 0;
  // Of the layer at hand.
  size_t blob = 0;
  bool damaged = false;
  // Of the blob at hand.
  uint64_t asked = 0;
  int tries = 0;
  int rounds = 0;
  std::vector<std::string> not_from;
  std::deque<v1::BlobSource> sources;

  const LayerNeeds& needs() const { return layers[layer]; }
  const std::string& sha256() const { return needs().blobs[blob]; }
};

void SimLoader::After(nanoseconds delay, const std::function<void()>& what) const {
  world().After(delay, [reach = reach_, what] { reach(what); });
}

void SimLoader::Load(const WorkerLife& life, const v1::Load& load, std::function<bool()> goes_on,
                     std::function<void(const Loaded&)> done) {
  auto job = std::make_shared<Job>();
  job->life = life;
  job->layers = NeedsOf(load);
  job->goes_on = std::move(goes_on);
  job->done = std::move(done);
  NextLayer(job);
}

void SimLoader::End(const JobPtr& job, const absl::Status& status) {
  job->loaded.status = status;
  job->done(job->loaded);
}

void SimLoader::NextLayer(const JobPtr& job) {
  if (!job->goes_on()) {
    return;
  }
  if (job->layer == job->layers.size()) {
    End(job, absl::OkStatus());
    return;
  }
  const SimCache::Found found = cache_->UsePacked(job->needs().key);
  if (!found.there) {
    job->blob = 0;
    job->damaged = false;
    NextBlob(job);
    return;
  }
  world().Count(Rule::kCached);
  if (found.damaged) {
    job->loaded.damaged.insert(job->needs().layer);
  }
  ++job->layer;
  After(milliseconds(1), [this, job] { NextLayer(job); });
}

void SimLoader::NextBlob(const JobPtr& job) {
  if (!job->goes_on()) {
    return;
  }
  if (job->blob == job->needs().blobs.size()) {
    After(milliseconds(world().random.Between(1, 20)), [this, job] { Pack(job); });
    return;
  }
  if (const SimCache::Found found = cache_->UseBlob(job->sha256()); found.there) {
    job->damaged |= found.damaged;
    ++job->blob;
    NextBlob(job);
    return;
  }
  job->tries = job->rounds = 0;
  job->not_from.clear();
  Fetch(job);
}

void SimLoader::Pack(const JobPtr& job) {
  if (!job->goes_on()) {
    return;
  }
  if (!cache_->AddPacked(job->needs().key, job->damaged, in_use_())) {
    world().Count(Rule::kNotPacked);
  }
  if (job->damaged) {
    job->loaded.damaged.insert(job->needs().layer);
  }
  ++job->layer;
  NextLayer(job);
}

// ---- From elsewhere.

std::function<void(std::function<void()>)> SimLoader::Answer(const JobPtr& job) {
  return [reach = reach_, job, asked = ++job->asked](const std::function<void()>& what) {
    reach([job, asked, what] {
      if (job->asked == asked && job->goes_on()) {
        what();
      }
    });
  };
}

void SimLoader::Fetch(const JobPtr& job) {
  if (job->tries == kMostTries) {
    End(job, Error(absl::StatusCode::kUnavailable, "NO_SOURCE", "nobody gives a blob"));
    return;
  }
  const bool may_name = job->rounds < kRounds && !distrusted_.contains(job->sha256());
  ++job->rounds;
  const auto answers = Answer(job);
  const WeightHolders::Ask ask = {.node = job->life.name,
                                  .incarnation = job->life.incarnation,
                                  .blob = DigestPrefix(job->sha256()),
                                  .may_name = may_name,
                                  .not_from = job->not_from};
  const auto answer = [this, job, answers](const std::vector<v1::BlobSource>& sources) {
    answers([this, job, sources] { OnCoordinator(job, sources); });
  };
  job->life.TellCoordinator(
      [cluster = cluster_, ask, answer] { cluster->coordinator->OnBlobAsked(ask, answer); });
  world().After(kCallTimeout, [this, job, answers] {
    answers([this, job] {
      ++job->tries;
      Fetch(job);
    });
  });
}

void SimLoader::OnCoordinator(const JobPtr& job, const std::vector<v1::BlobSource>& sources) {
  if (sources.empty()) {
    OnBlob(job, /*damaged=*/false, "");
    return;
  }
  job->sources.assign(sources.begin(), sources.end());
  AskNextSource(job);
}

void SimLoader::AskNextSource(const JobPtr& job) {
  while (!job->sources.empty() &&
         liars_.contains({job->sources.front().node(), job->sources.front().incarnation()})) {
    job->not_from.push_back(job->sources.front().node());
    job->sources.pop_front();
  }
  if (job->sources.empty()) {
    Fetch(job);
    return;
  }
  const v1::BlobSource source = job->sources.front();
  job->sources.pop_front();
  job->not_from.push_back(source.node());
  const auto answers = Answer(job);
  const Machine here = job->life.machine;
  const Machine there = MachineOf(source.node());
  const auto answer = [this, job, answers, source, network = cluster_->network, here, there](
                          bool given, bool damaged) {
    network->SendControl(there, here, [this, job, answers, source, given, damaged] {
      answers([this, job, source, given, damaged] { OnSource(job, source, given, damaged); });
    });
  };
  cluster_->network->SendControl(
      here, there, [worker = cluster_->worker(there), source, sha256 = job->sha256(), answer] {
        worker->OnBlobAsked(source.incarnation(), sha256, answer);
      });
  world().After(kCallTimeout, [this, job, answers] {
    answers([this, job] {
      world().Count(Rule::kSourceLeft);
      AskNextSource(job);
    });
  });
}

void SimLoader::OnSource(const JobPtr& job, const v1::BlobSource& source, bool given,
                         bool damaged) {
  if (!given) {
    world().Count(Rule::kSourceLeft);
    AskNextSource(job);
  } else if (!SimCache::Takes(job->sha256(), damaged)) {
    world().Count(Rule::kBlobThrownAway);
    liars_.insert({source.node(), source.incarnation()});
    distrusted_.insert(job->sha256());
    Fetch(job);
  } else {
    world().Count(Rule::kFromWorker);
    OnBlob(job, damaged, source.node());
  }
}

void SimLoader::OnBlob(const JobPtr& job, bool damaged, const std::string& from) {
  ++job->asked;  // What else comes for it is not asked for any more.
  world().Tell([&] {
    return job->life.name + " has a blob of layer " + std::to_string(job->needs().layer) +
           " from " + (from.empty() ? "the coordinator" : from);
  });
  ++job->loaded.fetched;
  if (!cache_->AddBlob(job->sha256(), damaged, in_use_())) {
    world().Count(Rule::kDiskFull);
    End(job, Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", "the disk is full"));
    return;
  }
  job->damaged |= damaged;
  ++job->blob;
  NextBlob(job);
}

void SimLoader::Give(const std::string& sha256,
                     const std::function<void(bool given, bool damaged)>& answer) {
  const SimCache::Found found = cache_->UseBlob(sha256);
  if (!found.there) {
    answer(false, false);
    return;
  }
  const bool spoilt = cache_->Spoils();
  if (spoilt) {
    world().Count(FaultKind::kSpoilBlob);
  }
  After(milliseconds(world().random.Between(1, 30)),
        [answer, damaged = found.damaged || spoilt] { answer(true, damaged); });
}

// ---- Layers that are kept.

void SimLoader::OnKeep(const WorkerLife& life, const v1::KeepLayer& message) {
  waiting_.push_back({life, message});
  KeepNext();
}

void SimLoader::KeepNext() {
  if (keeps_ || waiting_.empty()) {
    return;
  }
  keeps_ = true;
  const Waiting next = std::move(waiting_.front());
  waiting_.pop_front();
  const auto done = [this, next](const Loaded& loaded) {
    keeps_ = false;
    SayKept(next.life, next.message, loaded);
    KeepNext();
  };
  const LayerNeeds needs = NeedsOf(next.message.load()).front();
  if (cache_->HasPacked(needs.key)) {
    done({});
    return;
  }
  Load(
      next.life, next.message.load(), [this, keeping = keeping_] { return keeping == keeping_; },
      done);
}

void SimLoader::SayKept(const WorkerLife& life, const v1::KeepLayer& message,
                        const Loaded& loaded) {
  const LayerNeeds needs = NeedsOf(message.load()).front();
  absl::Status status = loaded.status;
  if (status.ok() && !cache_->HasPacked(needs.key)) {
    status = Error(absl::StatusCode::kUnavailable, "LAYER_NOT_KEPT", "it did not stay");
  }
  v1::WorkerMessage said;
  v1::LayerKept* kept = said.mutable_layer_kept();
  kept->set_deployment(message.deployment());
  kept->set_layer(needs.layer);
  kept->set_fetched_bytes(loaded.fetched);
  if (status.ok()) {
    world().Count(Rule::kKept);
    kept->set_bytes(1);
    kept_[{message.deployment(), needs.layer}] = needs.key;
  } else {
    *kept->mutable_error() = DetailOf(status);
  }
  life.Say(std::move(said));
}

void SimLoader::OnDrop(const v1::DropLayers& message) {
  std::vector<std::string> gone;
  std::erase_if(kept_, [&](const auto& entry) {
    const bool drop = IsOf(message, entry.first.first, entry.first.second);
    if (drop) gone.push_back(entry.second);
    return drop;
  });
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    return IsOf(message, waiting.message.deployment(), waiting.message.load().first_layer());
  });
  const SimCache::InUse in_use = in_use_();
  for (const std::string& key : gone) {
    if (!in_use.contains(key)) cache_->DropPacked(key);
  }
}

void SimLoader::EndLife() {
  ++keeping_;
  keeps_ = false;
  waiting_.clear();
  kept_.clear();
}

SimCache::InUse SimLoader::Kept() const {
  SimCache::InUse keys;
  for (const auto& [place, key] : kept_) {
    keys.insert(key);
  }
  return keys;
}

}  // namespace strata::sim
