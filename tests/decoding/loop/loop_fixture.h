#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/options_json.h"
#include "core/model/net/model.h"
#include "core/model/toy/markov_table.h"
#include "core/decoding/loop/decode_loop.h"
#include "tests/model/files/model_files.h"

/// Helpers with which a test decodes on tiny models in a line or two.
namespace speclab::fixtures {

using nlohmann::json;
using ModelPtr = std::shared_ptr<const Model>;

inline ModelPtr load_tiny_on(std::shared_ptr<Backend> backend, const TinyModel& tiny,
                             ModelPtr target = nullptr) {
  TempDir dir;
  write_huggingface(dir.path(), tiny);
  return Model::load(Checkpoint::open(dir.path()), std::move(backend), {{}, std::move(target)});
}

inline ModelPtr load_tiny(const TinyModel& tiny, ModelPtr target = nullptr) {
  static const std::shared_ptr<Backend> backend = make_cpu_backend({1, "f32"});
  return load_tiny_on(backend, tiny, std::move(target));
}

inline ModelPtr tiny_target(std::uint64_t seed = 1) { return load_tiny(random_llama(tiny_shape(), seed)); }

/// A model without layers: a table of random logits, one row for each last token.
inline TinyModel random_table(int vocab, std::uint64_t seed, double spread = 2) {
  return markov_table(vocab, toy::random_logits(vocab, vocab, seed, spread));
}

/// A model made of such a table. Models with different seeds agree on some tokens, so one can draft for
/// another.
inline ModelPtr random_markov(int vocab, std::uint64_t seed, double spread = 2) {
  return load_tiny(random_table(vocab, seed, spread));
}

inline GenerationOptions generation(const json& options) {
  GenerationOptions out;
  parse_options(option_fields(out), options, "test");
  return out;
}

/// A strategy with these options. It drafts without a budget unless the options ask for one, because a loop
/// with a budget needs a table of costs (LoopOptions::costs).
inline StrategyChoice choose(const std::string& name, const json& options = json::object()) {
  StrategyChoice choice(find_strategy(name));
  if (choice.needs_costs()) parse_options(choice.fields(), {{"budget", "fixed"}}, "test");
  parse_options(choice.fields(), options, "test");
  return choice;
}

/// An entry for a strategy that `make` creates. It has no options and is not registered.
inline StrategyEntry local_entry(std::unique_ptr<Strategy> (*make)(const void*, const Resources&)) {
  StrategyInfo info{};
  info.name = "local";
  return {info, [](const void*) { return std::shared_ptr<void>(); }, [](void*, OptionVisitor&) {}, make};
}

struct Decode {
  ModelPtr target;
  ModelPtr draft = nullptr;
  StrategyChoice strategy = choose("autoregressive");
  json options = json::object();
  std::vector<Token> prompt{1, 2, 3};
  LoopOptions loop{};
  Coins coins{7, 3};
  std::vector<Token> eos{};
  std::vector<Token> reference{};
  std::vector<ModelPtr> drafts{};  ///< in place of `draft`, if not empty

  Request request() const {
    Request out;
    out.prompt = prompt;
    out.options = generation(options);
    out.coins = coins;
    out.eos = eos;
    out.reference = reference;
    return out;
  }
  GenerationRecord run() const {
    LoopOptions loop_options = loop;
    if (loop_options.capacity == 0) loop_options.capacity = std::min(target->config().context, 256);
    if (!drafts.empty()) return DecodeLoop(target, drafts, strategy, loop_options).run(request());
    return DecodeLoop(target, draft, strategy, loop_options).run(request());
  }
};

inline int total(const GenerationRecord& record, int StepRecord::* field) {
  int sum = 0;
  for (const StepRecord& step : record.steps) sum += step.*field;
  return sum;
}

inline int drafted(const GenerationRecord& record) {
  int sum = 0;
  for (const StepRecord& step : record.steps) sum += static_cast<int>(step.drafted.size());
  return sum;
}

}  // namespace speclab::fixtures
