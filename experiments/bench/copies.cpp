// Measures what drafting by copying costs on the host: a step of each strategy that copies earlier text, and
// the indexes of a long text.
//
//     speclab_bench --model MODEL --benchmark_filter=copies [--text FILE]
//
// Times are CPU time of the thread, because other processes disturb it least. Only copies/decoding uses the
// wall time of real decoding. `p99_us` and `slowest_us` are the 99th percentile and the maximum over the
// steps. Without --text the text is made up: tokens drawn by Zipf's law, and between them copies of earlier
// passages, whose lengths have a geometric distribution. The timed settings of a strategy come from its
// registration (StrategyInfo::benchmarks).
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/options_json.h"
#include "core/measure/stats.h"
#include "core/decoding/drafting/datastore.h"
#include "core/decoding/loop/decode_loop.h"
#include "core/decoding/registry.h"
#include "core/decoding/drafting/suffix_automaton.h"
#include "core/decoding/drafting/suffix_speculation.h"
#include "experiments/bench/bench.h"

namespace speclab::bench {
namespace {

using nlohmann::json;

constexpr int kMostTokens = 10'000'000;
constexpr int kHeldOut = 20'000;  // number of tokens after the indexed text; the benchmarks look them up

std::int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

std::vector<Token> made_up_text(std::size_t size, int vocab) {
  std::mt19937_64 random(1);
  std::vector<double> mass(static_cast<std::size_t>(vocab));
  for (std::size_t i = 0; i < mass.size(); ++i)
    mass[i] = (i == 0 ? 0 : mass[i - 1]) + 1 / (static_cast<double>(i) + 2.7);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<Token> text;
  text.reserve(size);
  while (text.size() < size) {
    if (text.size() > 100 && uniform() < .35) {
      const auto length = static_cast<std::size_t>(2 - std::log(1 - uniform()) * 6);
      const std::size_t from = random() % (text.size() - 1);
      for (std::size_t i = 0; i < length && from + i < text.size() && text.size() < size; ++i)
        text.push_back(text[from + i]);
    } else {
      const double x = uniform() * mass.back();
      text.push_back(static_cast<Token>(std::lower_bound(mass.begin(), mass.end(), x) - mass.begin()));
    }
  }
  return text;
}

/// The text of --text, or a made-up one. Its last kHeldOut tokens are not indexed.
const std::vector<Token>& long_text(const Setting& setting) {
  static std::vector<Token> text;
  if (!text.empty()) return text;
  const Model& model = *setting.models->target();
  if (setting.text.empty()) {
    text = made_up_text(kMostTokens + kHeldOut, model.config().tokens());
    return text;
  }
  SPECLAB_CHECK(model.tokenizer(), "no tokenizer for {}", setting.text);
  const MappedFile file = MappedFile::open(setting.text);
  // Encodes pieces of whole lines and stops as soon as there are enough tokens, because encoding is slow.
  std::string_view rest = file.text();
  while (!rest.empty() && text.size() < kMostTokens + kHeldOut) {
    const std::size_t end = rest.find('\n', std::min<std::size_t>(rest.size(), 100'000));
    const std::string_view piece = rest.substr(0, end == std::string_view::npos ? end : end + 1);
    const std::vector<Token> tokens = model.tokenizer()->encode(piece);
    text.insert(text.end(), tokens.begin(), tokens.end());
    rest.remove_prefix(piece.size());
  }
  if (text.size() < 2 * kHeldOut) {
    throw Error({setting.text, fmt::format("{} tokens", text.size()),
                 fmt::format("at least {}", 2 * kHeldOut), "Use a longer text."});
  }
  text.resize(std::min<std::size_t>(text.size(), kMostTokens + kHeldOut));
  return text;
}

TokenSpan indexed_text(const Setting& setting, std::size_t most) {
  const TokenSpan text = long_text(setting);
  return text.first(std::min(most, text.size() - kHeldOut));
}
TokenSpan held_out_text(const Setting& setting) { return TokenSpan(long_text(setting)).last(kHeldOut); }
/// The text for strategies that copy from the text alone: the end of --text, or else a made-up text, which
/// repeats itself.
TokenSpan short_text(const Setting& setting) {
  if (!setting.text.empty()) return held_out_text(setting);
  static const std::vector<Token> text = made_up_text(kHeldOut, setting.models->target()->config().tokens());
  return text;
}

/// Collects the times of single steps. The time that the benchmark reports is their mean.
class Steps {
 public:
  template <class Work>
  void time(Work work) {
    const std::int64_t begin = thread_cpu_ns();
    work();
    ns_.push_back(thread_cpu_ns() - begin);
  }
  void finish(benchmark::State& state) {
    std::sort(ns_.begin(), ns_.end());
    double sum = 0;
    for (const std::int64_t ns : ns_) sum += static_cast<double>(ns);
    state.SetIterationTime(sum * 1e-9 / static_cast<double>(ns_.size()));
    state.counters["p99_us"] = static_cast<double>(ns_[ns_.size() * 99 / 100]) * 1e-3;
    state.counters["slowest_us"] = static_cast<double>(ns_.back()) * 1e-3;
  }

 private:
  std::vector<std::int64_t> ns_;
};

/// Costs with which further rows are free, so that the budget never shortens a draft. The timed steps include
/// the time in which the budget is computed.
std::shared_ptr<const StepCosts> free_rows() {
  return std::make_shared<const StepCosts>(StepCosts{{1}, {1}});
}

/// Times the steps that a decode loop would make along a given text, starting after `context` tokens. Each
/// step emits the next token of the text.
void run_steps(benchmark::State& state, const Setting& setting, const StrategyEntry& entry,
               const json& options, TokenSpan text, int context) {
  constexpr int kSteps = 256, kPrompts = 8;
  Resources resources;
  resources.target = setting.models->target();
  resources.capacity = context + kSteps + 1;
  resources.costs = free_rows();
  StrategyChoice choice(entry);
  parse_options(choice.fields(), options, std::string(entry.info.name));
  const auto strategy = choice.make(resources);
  Sequence sequence;
  sequence.tokens.reserve(static_cast<std::size_t>(resources.capacity));
  Draft draft;
  Acceptance acceptance;
  Steps steps;
  double drafted = 0;
  for (int prompt = 0; prompt < kPrompts; ++prompt) {
    const std::size_t begin = static_cast<std::size_t>(prompt) * 997 % (text.size() - resources.capacity);
    sequence.tokens.assign(text.begin() + begin, text.begin() + begin + context);
    sequence.prompt_length = context - 1;
    strategy->begin(sequence);
    for (int step = 0; step < kSteps; ++step) {
      sequence.depth_limit = 64;
      draft.reset(sequence.tokens.back());
      const Sequence* const sequences[] = {&sequence};
      Draft* const drafts[] = {&draft};
      steps.time([&] {
        strategy->draft(sequences, drafts);
        sequence.tokens.push_back(text[begin + static_cast<std::size_t>(context + step)]);
        const Outcome outcome{&draft, &acceptance, 1};
        strategy->observe(sequences, {&outcome, 1});
      });
      drafted += draft.tree.drafted();
    }
  }
  steps.finish(state);
  state.counters["drafted"] = drafted / kSteps / kPrompts;
}

void add_steps(const Setting& setting, const StrategyEntry& entry, const std::string& label,
               const json& options) {
  for (const int context : {1024, 8192}) {
    add(
        fmt::format("copies/step/{}/context:{}", label, context),
        [=](benchmark::State& state) {
          for (auto _ : state) run_steps(state, setting, entry, options, short_text(setting), context);
        },
        Clock::kManual)
        ->Iterations(1);
  }
}

/// Times draft and observe of a strategy that reads the target's rows, in wall time. This needs real
/// decoding, because the time depends on where the forward has left the rows. `host_us` is this time plus the
/// time of all other work that is neither forward nor acceptance (trees, masks, commit, record). `of_step` is
/// the share of `host_us` in a step. All are medians over the steps. The first steps are left out, because
/// there is little to draft yet.
void add_decoding(const Setting& setting, const StrategyEntry& entry, const std::string& label,
                  const json& options) {
  add(
      "copies/decoding/" + label,
      [=](benchmark::State& state) {
        constexpr std::size_t kPrompt = 128, kFirst = 6;
        StrategyChoice choice(entry);
        parse_options(choice.fields(), options, std::string(entry.info.name));
        LoopOptions loop_options{.capacity = 256, .hash_rows = false, .details = false};
        loop_options.costs = free_rows();
        DecodeLoop loop(setting.models->target(), nullptr, choice, loop_options);
        Request request;
        request.prompt = TokenSpan(short_text(setting)).first(kPrompt);
        request.options.max_tokens = 48;
        request.options.ignore_eos = true;
        for (auto _ : state) {
          const GenerationRecord record = loop.run(request);
          std::vector<double> draft, host, share, rows;
          for (std::size_t i = std::min(kFirst, record.steps.size() - 1); i < record.steps.size(); ++i) {
            const PhaseTimes& times = record.steps[i].times;
            draft.push_back(static_cast<double>(times[Phase::draft]));
            host.push_back(draft.back() + static_cast<double>(times[Phase::other]));
            share.push_back(host.back() / static_cast<double>(times.total()));
            rows.push_back(record.steps[i].rows);
          }
          state.SetIterationTime(stats::median(draft) * 1e-9);
          state.counters["host_us"] = stats::median(host) * 1e-3;
          state.counters["of_step"] = stats::median(share);
          state.counters["rows"] = stats::median(rows);
        }
      },
      Clock::kManual)
      ->Iterations(1);
}

/// Measures memory and build time of a suffix automaton, then the time of a look-up after each token of a
/// text that the automaton does not hold.
void add_index(const Setting& setting, int tokens) {
  add(
      fmt::format("copies/index/suffix_automaton/tokens:{}", tokens),
      [=](benchmark::State& state) {
        const TokenSpan text = indexed_text(setting, static_cast<std::size_t>(tokens));
        const TokenSpan queries = held_out_text(setting);
        for (auto _ : state) {
          SuffixAutomaton index(64);
          const std::int64_t begin = thread_cpu_ns();
          for (const Token token : text) index.append(token);
          const auto n = static_cast<double>(text.size());
          state.SetIterationTime(static_cast<double>(thread_cpu_ns() - begin) * 1e-9 / n);
          state.counters["tokens"] = n;
          state.counters["bytes_per_token"] = static_cast<double>(index.bytes()) / n;
          state.counters["states_per_token"] = static_cast<double>(index.states()) / n;
          state.counters["edges_per_token"] = static_cast<double>(index.edges()) / n;
          for (const bool tree : {false, true}) {
            SuffixSpeculationOptions options;
            options.tree = tree;
            SuffixSpeculation speculation;
            SuffixAutomaton::Match match;
            std::vector<std::int64_t> ns;
            double matched = 0;
            for (const Token token : queries) {
              const std::int64_t from = thread_cpu_ns();
              match = index.extend(match, token);
              speculation.run(index, match, false, 64, options);
              ns.push_back(thread_cpu_ns() - from);
              matched += match.length;
            }
            std::sort(ns.begin(), ns.end());
            const std::string kind = tree ? "tree" : "path";
            state.counters[kind + "_us"] = static_cast<double>(ns[ns.size() / 2]) * 1e-3;
            state.counters[kind + "_p99_us"] = static_cast<double>(ns[ns.size() * 99 / 100]) * 1e-3;
            state.counters["matched"] = matched / static_cast<double>(queries.size());
          }
        }
      },
      Clock::kManual)
      ->Iterations(1);
}

/// Times steps with a datastore of the first `tokens` tokens of the long text (fewer if it is shorter).
void add_datastore_steps(const Setting& setting, const StrategyEntry& entry, const std::string& label,
                         json options, int tokens) {
  add(
      fmt::format("copies/step/{}/tokens:{}", label, tokens),
      [=](benchmark::State& state) {
        std::error_code ignored;  // if there is no folder for temporary files, the current folder is used
        const auto path = std::filesystem::temp_directory_path(ignored) /
                          fmt::format("speclab_bench-{}-{}.datastore", ::getpid(), tokens);
        const Model& target = *setting.models->target();
        Datastore::Builder builder(target.config().vocab, target.tokenizer_sha256());
        builder.add(indexed_text(setting, static_cast<std::size_t>(tokens)));
        builder.write(path);
        json with_file = options;
        with_file[std::string(entry.info.needs_file)] = path.string();
        for (auto _ : state) run_steps(state, setting, entry, with_file, held_out_text(setting), 1024);
        std::filesystem::remove(path, ignored);
      },
      Clock::kManual)
      ->Iterations(1);
}

}  // namespace

void add_copies(const Setting& setting) {
  for (const StrategyEntry& entry : strategies()) {
    for (const StrategyBenchmark& benchmark : entry.info.benchmarks) {
      const std::string label(benchmark.label);
      const json options = json::parse(benchmark.options);
      switch (benchmark.kind) {
        case BenchmarkKind::replayed: add_steps(setting, entry, label, options); break;
        case BenchmarkKind::decoded: add_decoding(setting, entry, label, options); break;
        case BenchmarkKind::from_datastore:
          for (const int tokens : {100'000, kMostTokens})
            add_datastore_steps(setting, entry, label, options, tokens);
          break;
      }
    }
  }
  for (const int tokens : {100'000, 1'000'000, kMostTokens}) add_index(setting, tokens);
}

}  // namespace speclab::bench
