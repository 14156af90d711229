#include "experiments/analysis/layer_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "core/decoding/loop/decode_loop.h"
#include "core/measure/run_result.h"
#include "core/measure/stats.h"
#include "core/model/net/skipped_layers.h"
#include "experiments/analysis/table.h"
#include "experiments/run/conversation.h"
#include "experiments/run/forced_rows.h"
#include "experiments/run/forward_times.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kTimedRepeats = 9;

SamplingParams sampling_at(double temperature) {
  return {.temperature = temperature, .top_k = 0, .top_p = 1};
}

/// The target's own answers, which go on after end tokens so that all have the same length.
std::vector<ForcedText> texts_of(const ModelSet& models, const std::vector<PromptSpec>& prompts,
                                 const LayerWish& wish) {
  std::vector<ForcedText> texts;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    texts.push_back({Conversation(models, prompts[i], "").tokens(), {}});
  std::size_t longest = 0;
  for (const ForcedText& text : texts) longest = std::max(longest, text.prompt.size());
  LoopOptions options;
  options.capacity = static_cast<int>(longest) + wish.tokens;
  options.hash_rows = options.details = false;
  DecodeLoop loop(models.target(), nullptr, StrategyChoice(baseline_strategy()), options);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Request request;
    request.prompt = texts[i].prompt;
    request.options.sampling = sampling_at(wish.temperature);
    request.options.max_tokens = wish.tokens;
    request.options.ignore_eos = true;
    request.coins = Coins(wish.search.seed, i);
    texts[i].answer = loop.run(request).tokens;
  }
  return texts;
}

/// The times that the search needs, measured on this machine where the wish does not give them.
theory::SkipCosts measured_costs(const Model& target, const LayerWish& wish, int context) {
  theory::SkipCosts costs;
  std::vector<int> sizes(static_cast<std::size_t>(wish.gamma) + 1);
  std::iota(sizes.begin(), sizes.end(), 1);
  std::map<int, double> times;
  if (!wish.target || !wish.per_layer) {
    const ForwardSamples whole = sample_forwards(target, context, sizes, kTimedRepeats);
    const auto& of = whole.device.empty() ? whole.host : whole.device;
    for (const auto& [n, samples] : of) times[n] = stats::median(samples);
  }
  costs.target = wish.target ? *wish.target : theory::RowTimes(times).monotone();
  if (wish.per_layer) {
    costs.per_layer = *wish.per_layer;
  } else {
    const std::span<const int> layers = target.layers();
    const std::vector<int> half(layers.begin(),
                                layers.begin() + static_cast<std::ptrdiff_t>(layers.size() / 2));
    const auto part = Model::with_layers(target.shared_from_this(), half);
    const ForwardSamples samples = sample_forwards(*part, context, {1}, kTimedRepeats);
    const double of_half = stats::median((samples.device.empty() ? samples.host : samples.device).at(1));
    const double share = (1 - of_half / times.at(1)) / static_cast<double>(layers.size() - half.size());
    costs.per_layer = std::max(0.0, share);
  }
  return costs;
}

json choice_json(const theory::SkipChoice& choice) {
  return {{"skip", choice.skip}, {"gamma", choice.gamma},     {"tau", choice.tau},
          {"c", choice.c},       {"speedup", choice.speedup}, {"acceptance", choice.acceptance}};
}

/// The evaluated sets of a search in a file, so that an interrupted search can go on.
class SearchLog {
 public:
  SearchLog(std::filesystem::path path, const json& settings, bool resume) : path_(std::move(path)) {
    if (!resume) write_file(path_, "");
    std::vector<json> lines;
    if (resume) lines = read_json_lines(path_);
    try {
      for (const json& line : lines) {
        if (line.contains("settings")) first_ = line;
        else
          sets_[line.at("skip").get<std::vector<int>>()] = line.at("acceptance").get<std::vector<double>>();
      }
      if (!lines.empty() && (first_.is_null() || first_.at("settings") != settings)) {
        throw Error({path_.string(), "the sets of a search with other settings", "the search to resume",
                     "Start anew without --resume."});
      }
    } catch (const json::exception&) {
      throw Error({path_.string(), "a line that is no evaluated set", "a file of speclab optimize layers",
                   "Start anew without --resume."});
    }
  }
  /// The costs of the search; measured by `measure` unless the file has them.
  json costs(const json& settings, const std::function<json()>& measure) {
    if (first_.is_null()) {
      first_ = {{"settings", settings}, {"costs", measure()}};
      append(first_);
    }
    return first_.at("costs");
  }
  std::optional<std::vector<double>> find(const std::vector<int>& skip) const {
    const auto found = sets_.find(skip);
    return found == sets_.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const std::vector<int>& skip, const std::vector<double>& acceptance) {
    append({{"skip", skip}, {"acceptance", acceptance}});
  }

 private:
  void append(const json& line) { JsonLinesWriter(path_).append(line); }

  std::filesystem::path path_;
  json first_;
  std::map<std::vector<int>, std::vector<double>> sets_;
};

}  // namespace

struct ForcedAcceptance::Text {
  std::vector<Token> all;  // prompt and answer
  std::size_t answer;      // where the answer begins
  std::unique_ptr<Session> full, part;
  std::vector<float> rows;  // the target's logits for each token of the answer, at temperatures above 0
  // The chain in progress:
  std::vector<std::int32_t> parents, wanted;
  std::vector<float> logits;
};

ForcedAcceptance::ForcedAcceptance(std::shared_ptr<const Model> target, std::vector<ForcedText> texts,
                                   int gamma, double temperature)
    : target_(std::move(target)), gamma_(gamma), sampling_(sampling_at(temperature)) {
  const auto width = static_cast<std::size_t>(target_->config().head_rows());
  for (ForcedText& from : texts) {
    auto text = std::make_unique<Text>();
    if (temperature > 0) {
      forced_rows(*target_, from.prompt, from.answer, [&](std::size_t, std::span<const float> row) {
        text->rows.insert(text->rows.end(), row.begin(), row.end());
      });
    }
    text->answer = from.prompt.size();
    text->all = std::move(from.prompt);
    text->all.insert(text->all.end(), from.answer.begin(), from.answer.end());
    const int capacity = static_cast<int>(text->all.size());
    text->full = target_->open(capacity);
    text->full->prefill(TokenSpan(text->all).first(text->all.size() - 1));
    text->part = target_->open(capacity);
    text->logits.resize(static_cast<std::size_t>(gamma) * width);
    texts_.push_back(std::move(text));
  }
}

ForcedAcceptance::~ForcedAcceptance() = default;

// Chains are measured from the end of the text to its beginning, because a session can only be shortened.
// The rows of a chain overwrite no rows of the text before the chain.
std::vector<double> ForcedAcceptance::of(std::span<const int> skip) {
  const std::vector<int> kept = layers_without(target_->layers(), skip, "layers to skip");
  const auto width = static_cast<std::size_t>(target_->config().head_rows());
  const auto gamma = static_cast<std::size_t>(gamma_);
  std::vector<double> reached(gamma, 0), accepted(gamma, 0);
  std::size_t longest = 0;
  for (const auto& text : texts_) {
    text->part->copy(*text->full);
    longest = std::max(longest, text->all.size() - text->answer);
  }
  Distribution p, q;
  std::vector<Feed> feeds;
  std::vector<std::pair<Text*, std::size_t>> fed;  // a text, and where its chain begins in `all`
  for (std::size_t chain = (longest + gamma - 1) / gamma; chain-- > 0;) {
    feeds.clear();
    fed.clear();
    for (const auto& text : texts_) {
      const std::size_t first = text->answer + chain * gamma;
      if (first >= text->all.size()) continue;
      const std::size_t count = std::min(gamma, text->all.size() - first);
      text->parents.resize(count);
      std::iota(text->parents.begin(), text->parents.end(), -1);
      text->wanted.resize(count);
      std::iota(text->wanted.begin(), text->wanted.end(), 0);
      text->part->rewind(static_cast<int>(first) - 1);
      Feed feed{text->part.get(), TokenSpan(text->all).subspan(first - 1, count), text->parents, text->wanted,
                text->logits.data()};
      feed.layers = LayerPart::only(kept);
      feeds.push_back(feed);
      fed.emplace_back(text.get(), first);
    }
    target_->forward(feeds);
    for (const auto& [text, first] : fed) {
      double mass = 1;
      for (std::size_t i = 0; i < text->wanted.size() && mass > 0; ++i) {
        q.assign_logits(std::span<const float>(text->logits).subspan(i * width, width), sampling_, {},
                        target_->config().vocab);
        double beta = q.one_hot() && q.argmax() == text->all[first + i] ? 1 : 0;
        if (!q.one_hot()) {
          const std::size_t row = first + i - text->answer;
          p.assign_logits(std::span<const float>(text->rows).subspan(row * width, width), sampling_, {},
                          target_->config().vocab);
          beta = overlap(p, q);
        }
        reached[i] += mass;
        accepted[i] += mass * beta;
        mass *= beta;
      }
    }
  }
  std::vector<double> acceptance(gamma, 0);
  for (std::size_t i = 0; i < gamma; ++i)
    acceptance[i] = reached[i] > 0 ? std::min(1.0, accepted[i] / reached[i]) : 0;
  return acceptance;
}

json optimized_layers(const ModelSet& models, const std::vector<PromptSpec>& prompts, const LayerWish& wish,
                      const std::filesystem::path& log_path, bool resume,
                      const std::function<bool()>& interrupted,
                      const std::function<void(int, const std::string&)>& progress) {
  const Model& target = *models.target();
  const std::vector<int> layers(target.layers().begin(), target.layers().end());
  every_second_layer(layers, "speclab optimize layers");  // throws if there are too few layers
  json ids = json::array();
  for (const PromptSpec& prompt : prompts) ids.push_back(prompt.id);
  json given = nullptr;  // t(n) of another machine
  for (int n = 1; wish.target && n <= wish.gamma + 1; ++n) given[std::to_string(n)] = wish.target->ratio(n);
  const json settings = {{"target", models.descriptions().at("target").at("sha256")},
                         {"numerics", target.backend().numerics_class()},
                         {"layers", layers},
                         {"prompts", ids},
                         {"tokens", wish.tokens},
                         {"gamma", wish.gamma},
                         {"temperature", wish.temperature},
                         {"seed", wish.search.seed},
                         {"t", given},
                         {"per_layer", wish.per_layer ? json(*wish.per_layer) : json()}};
  SearchLog log(log_path, settings, resume);
  std::vector<ForcedText> texts = texts_of(models, prompts, wish);
  std::size_t context = 0;
  for (const ForcedText& text : texts) context += text.prompt.size() + text.answer.size() / 2;
  const json cost_json = log.costs(settings, [&] {
    const theory::SkipCosts costs =
        measured_costs(target, wish, std::max(1, static_cast<int>(context / texts.size())));
    json t = json::object();
    for (int n = 1; n <= wish.gamma + 1; ++n) t[std::to_string(n)] = costs.target.ratio(n);
    return json{{"t", t}, {"per_layer", costs.per_layer}};
  });
  std::map<int, double> times;
  for (const auto& [n, ratio] : cost_json.at("t").items()) times[std::stoi(n)] = ratio.get<double>();
  const theory::SkipCosts costs{theory::RowTimes(times), cost_json.at("per_layer").get<double>()};

  ForcedAcceptance measured(models.target(), std::move(texts), wish.gamma, wish.temperature);
  int done = 0;
  theory::SkipChoice best;
  const auto acceptance = [&](std::span<const int> skip) -> std::optional<std::vector<double>> {
    const std::vector<int> set(skip.begin(), skip.end());
    std::optional<std::vector<double>> found = log.find(set);
    if (!found) {
      if (interrupted()) return std::nullopt;
      found = measured.of(skip);
      log.add(set, *found);
    }
    const theory::SkipChoice choice = theory::skip_choice(set, *found, costs);
    if (choice.speedup > best.speedup) best = choice;
    progress(++done,
             fmt::format("{} layers skipped, predicted speedup {:.3f}", best.skip.size(), best.speedup));
    return found;
  };
  const theory::SkipSearchResult result = theory::search_skips(layers, costs, wish.search, acceptance);
  json by_size = json::array();
  for (const theory::SkipChoice& choice : result.by_size) by_size.push_back(choice_json(choice));
  json out = settings;
  out["format"] = kSkipFormat;
  out["target"] = models.descriptions().at("target");
  out["skip"] = result.best.skip;
  out["predicted"] = choice_json(result.best);
  out["t"] = cost_json.at("t");
  out["per_layer"] = costs.per_layer;
  out["by_size"] = by_size;
  out["evaluations"] = result.evaluations;
  out["complete"] = result.ended;
  return out;
}

std::string to_layers_text(const json& chosen) {
  Table table{.header = {"skipped", "c", "a_1", "gamma", "tau", "speedup", "layers"},
              .rows = {},
              .right = {true, true, true, true, true, true, false}};
  for (const json& choice : chosen.at("by_size")) {
    table.rows.push_back(
        {std::to_string(choice.at("skip").size()), fmt::format("{:.3f}", choice.at("c").get<double>()),
         fmt::format("{:.3f}", choice.at("acceptance").at(0).get<double>()),
         std::to_string(choice.at("gamma").get<int>()), fmt::format("{:.2f}", choice.at("tau").get<double>()),
         fmt::format("{:.3f}", choice.at("speedup").get<double>()),
         fmt::format("{}", fmt::join(choice.at("skip").get<std::vector<int>>(), ","))});
  }
  return fmt::format(
      "{}The table has the best set of skipped layers that was found for each size, after {} evaluations. "
      "a_1 is the acceptance of the first drafted token. tau and speedup are predicted at the best gamma.\n"
      "Best: skip [{}], predicted speedup {:.3f} at gamma {}.\n",
      to_text(table), chosen.at("evaluations").get<int>(),
      fmt::join(chosen.at("skip").get<std::vector<int>>(), ", "),
      chosen.at("predicted").at("speedup").get<double>(), chosen.at("predicted").at("gamma").get<int>());
}

}  // namespace speclab
