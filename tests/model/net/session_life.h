#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/backend/cuda_kernels.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"
#include "tests/on_device/on_device.h"

/// Random operations on sessions. Their rows are compared with a simple reference: a fresh prefill of the
/// same text by one thread.
namespace speclab::fixtures {

/// Decoders of different shapes, and one of each kind of arithmetic (tests/golden/families).
inline constexpr const char* kLifeModels[] = {
    "tiny",          "head_dim 12", "three heads of 2", "no groups",    "layers 0 and 2", "gemma2",
    "gemma3",        "gpt2",        "mistral",          "phi3",         "pythia",         "opt",
    "qwen2_windows", "qwen3",       "smollm3",          "llama_dynamic"};
inline constexpr std::size_t kLifeModelCount = std::size(kLifeModels);

inline Shape life_shape(std::size_t which) {
  Shape shape = tiny_shape();
  if (which == 1) shape.head_dim = 12, shape.tied_head = true;  // not a multiple of the vector width
  if (which == 2 || which == 4) {
    shape.heads = 3, shape.kv_heads = 1, shape.head_dim = 2, shape.hidden = shape.embedding_dim = 10;
    shape.ffn = 7, shape.vocab = 37, shape.layers = 3;
  }
  if (which == 3) {
    shape.kv_heads = 4, shape.head_dim = 16, shape.hidden = shape.embedding_dim = 18;
    shape.vocab = 257, shape.layers = 1;
  }
  return shape;
}

/// Stands in place of a numerics class for the backend of tests/on_device.
inline constexpr const char* kDeviceUnderTest = "device under test";

/// Loaded once per class, model and number of threads.
inline std::shared_ptr<const Model> life_model(const std::string& numerics, std::size_t which, int threads) {
  static std::map<std::tuple<std::string, std::size_t, int>, std::shared_ptr<const Model>> models;
  auto& model = models[{numerics, which, threads}];
  if (model) return model;
  const auto backend = numerics == kDeviceUnderTest ? on_device::backend()
                       : numerics == "host-simt"    ? make_cuda_backend({.simulated = true})
                       : numerics == "host-simt-persistent"
                           ? make_cuda_backend({.simulated = true}, CudaKernels::kPersistent)
                           : make_cpu_backend({threads, numerics});
  if (which > 4) {
    const auto folder =
        std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/families" / kLifeModels[which];
    return model = Model::load(Checkpoint::open(folder), backend, {});
  }
  TempDir dir;
  write_huggingface(dir.path(), random_llama(life_shape(which), 40 + which));
  Model::Options options;
  if (which == 4) options.layers = {0, 2};
  return model = Model::load(Checkpoint::open(dir.path()), backend, options);
}

/// Feeds random forests to three sessions of one model, and commits, rewinds, forks and copies them. The seed
/// determines every choice.
class Life {
 public:
  Life(const std::string& numerics, std::size_t which, int threads, unsigned seed)
      : model_(life_model(numerics, which, threads)),
        one_(life_model(numerics, which, 1)),
        capacity_(std::min(96, model_->config().context)),
        random_(seed) {
    for (int i = 0; i < 3; ++i) {
      pairs_.push_back({model_->open(capacity_, kScratch), {}});
      prefill(pairs_.back(), 1 + below(20));
    }
  }

  /// Runs and compares one forward of one, two or three sessions; then does something with each of them.
  /// Returns false when a row differed.
  bool step() {
    const std::size_t feeds = below(4) == 0 ? 1 + below(3) : 1, first = below(pairs_.size());
    std::vector<Draft> drafts;
    std::vector<Pair*> who;
    for (std::size_t i = 0; i < feeds; ++i) {
      who.push_back(&pairs_[(i + first) % pairs_.size()]);
      drafts.push_back(draft(*who.back()));
    }
    if (feeds == 1) {
      feed_in_parts(*who[0], drafts[0], below(3));
    } else {
      std::vector<Feed> batch;
      for (std::size_t i = 0; i < feeds; ++i) {
        batch.push_back({who[i]->session.get(), drafts[i].tokens, drafts[i].parents, drafts[i].rows,
                         drafts[i].logits.data()});
      }
      model_->forward(batch);
    }
    for (std::size_t i = 0; i < feeds; ++i) {
      if (!agrees(*who[i], drafts[i])) return false;
    }
    for (std::size_t i = 0; i < feeds; ++i) change(*who[i], drafts[i], feeds == 1);
    return true;
  }

 private:
  static constexpr int kScratch = 24;

  /// A session and the text that it must hold.
  struct Pair {
    std::unique_ptr<Session> session;
    std::vector<Token> text;
  };
  /// A random forest after the text of a pair, and the rows whose logits are requested.
  struct Draft {
    std::vector<Token> tokens;
    std::vector<std::int32_t> parents, rows;
    std::vector<float> logits;

    std::vector<int> path_to(int node) const {
      std::vector<int> path;
      for (; node >= 0; node = parents[static_cast<std::size_t>(node)]) path.insert(path.begin(), node);
      return path;
    }
  };

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::size_t vocab() const { return static_cast<std::size_t>(model_->config().vocab); }
  Token token() { return static_cast<Token>(below(vocab())); }

  void prefill(Pair& pair, std::size_t count) {
    std::vector<Token> more(count);
    for (Token& each : more) each = token();
    pair.session->prefill(more);
    pair.text.insert(pair.text.end(), more.begin(), more.end());
  }

  Draft draft(const Pair& pair) {
    Draft out;
    const std::size_t room = static_cast<std::size_t>(capacity_) - pair.text.size();
    const std::size_t n = std::min(room, 1 + below(below(4) == 0 ? kScratch : 8)), kind = below(4);
    for (std::size_t i = 0; i < n; ++i) {
      const auto before = static_cast<std::int32_t>(i) - 1;
      out.tokens.push_back(token());
      out.parents.push_back(kind == 0   ? before  // a chain
                            : kind == 1 ? -1      // siblings
                            : kind == 2
                                ? static_cast<std::int32_t>(below(i + 1)) - 1                   // anything
                                : std::max(-1, before - static_cast<std::int32_t>(below(3))));  // deep
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (below(2) == 0) out.rows.push_back(static_cast<std::int32_t>(i));
    }
    if (out.rows.empty()) out.rows.push_back(static_cast<std::int32_t>(n) - 1);
    out.logits.resize(out.rows.size() * vocab());
    return out;
  }

  /// Feeds the forest in one forward and up to `cuts` continuations.
  void feed_in_parts(Pair& pair, Draft& draft, std::size_t cuts) {
    std::size_t begin = 0, row = 0;
    for (;; --cuts) {
      const std::size_t all = draft.tokens.size(), end = cuts == 0 ? all : begin + below(all - begin + 1);
      std::vector<std::int32_t> rows;
      const std::size_t first_row = row;
      for (; row < draft.rows.size() && draft.rows[row] < static_cast<std::int32_t>(end); ++row) {
        rows.push_back(draft.rows[row] - static_cast<std::int32_t>(begin));
      }
      Feed feed{pair.session.get(), std::span(draft.tokens).subspan(begin, end - begin),
                std::span(draft.parents).subspan(begin, end - begin), rows,
                draft.logits.data() + first_row * vocab()};
      feed.continues = begin > 0;
      model_->forward({&feed, 1});
      if (cuts == 0) return;
      begin = end;
    }
  }

  /// Compares three random rows with those of a fresh session, which is fed only text and path, in chunks of
  /// another size.
  bool agrees(const Pair& pair, const Draft& draft) {
    for (int check = 0; check < 3; ++check) {
      const std::size_t r = below(draft.rows.size());
      std::vector<Token> sequence = pair.text;
      for (const int node : draft.path_to(draft.rows[r]))
        sequence.push_back(draft.tokens[static_cast<std::size_t>(node)]);
      const auto fresh = one_->open(capacity_, 1 + static_cast<int>(below(30)));
      std::vector<float> expected(vocab());
      fresh->prefill(sequence, expected.data());
      if (std::memcmp(expected.data(), draft.logits.data() + r * vocab(), vocab() * sizeof(float)) != 0)
        return false;
    }
    return true;
  }

  /// `alone`: no other session has rows in flight that a copy would drop.
  void change(Pair& pair, const Draft& draft, bool alone) {
    const std::vector<int> path = draft.path_to(static_cast<int>(below(draft.tokens.size())));
    switch (below(10)) {
      case 0:  // continues in a copy, with the rows in flight
        pair.session = pair.session->fork();
        commit(pair, draft, path);
        break;
      case 1:
        if (Pair& other = pairs_[below(pairs_.size())]; alone && &other != &pair) {
          other.session->copy(*pair.session);
          other.text = pair.text;
        }
        break;
      case 2: break;  // nothing is kept
      case 3: rewind(pair, 1 + below(pair.text.size())); break;
      default: commit(pair, draft, path);
    }
    if (pair.text.size() + kScratch + 2 > static_cast<std::size_t>(capacity_)) {
      rewind(pair, 1 + below(20));
      if (below(2) == 0) prefill(pair, 1 + below(10));
    }
    EXPECT_EQ(pair.session->length(), static_cast<int>(pair.text.size()));
  }

  void rewind(Pair& pair, std::size_t length) {
    pair.text.resize(length);
    pair.session->rewind(static_cast<int>(length));
  }

  void commit(Pair& pair, const Draft& draft, const std::vector<int>& path) {
    pair.session->commit(path);
    for (const int node : path) pair.text.push_back(draft.tokens[static_cast<std::size_t>(node)]);
  }

  std::shared_ptr<const Model> model_, one_;
  int capacity_;
  std::mt19937 random_;
  std::vector<Pair> pairs_;
};

/// The numerics classes of this CPU, and emulations of those that it lacks.
inline std::vector<std::string> life_classes() {
  std::vector<std::string> classes = cpu_numerics_classes();
  for (const std::string unit : {"avx512-bf16", "amx-bf16"}) {
    if (std::find(classes.begin(), classes.end(), unit) == classes.end())
      classes.push_back(unit + "-emulated");
  }
  return classes;
}

/// Compares at least `least` forwards over every class, model and 1 to 4 threads in turn; returns their
/// number. A failure names the seed that repeats it alone.
inline int compare_lives(int least, int forwards_per_life, unsigned only_seed = 0) {
  const std::vector<std::string> classes = life_classes();
  int compared = 0;
  for (unsigned seed = only_seed > 0 ? only_seed : 1; compared < least; ++seed) {
    const std::string& numerics = classes[seed % classes.size()];
    const std::size_t which = seed / classes.size() % kLifeModelCount;
    const int threads = 1 + static_cast<int>(seed / classes.size() / kLifeModelCount % 4);
    Life life(numerics, which, threads, seed);
    for (int i = 0; i < forwards_per_life; ++i, ++compared) {
      if (life.step()) continue;
      ADD_FAILURE() << "SPECLAB_PROPERTY_SEED=" << seed << ", forward " << i << ": " << kLifeModels[which]
                    << ", " << numerics << ", " << threads << " threads";
      return compared;
    }
    if (only_seed > 0) break;
  }
  return compared;
}

}  // namespace speclab::fixtures
