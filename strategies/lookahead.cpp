// Lookahead decoding: the forward that verifies also runs a Jacobi iteration over W positions of the coming
// text. The last N iterates (N - 1 in the window, and the new predictions) give n-grams of N tokens, which go
// into a pool. Pool entries that begin with the pending token are verified as guesses, all in one tree. There
// is no draft model: the target guesses for itself.
//
// Paper:       Fu, Bailis, Stoica, Zhang 2024, "Break the Sequential Dependency of LLM Inference Using
//              Lookahead Decoding", Algorithms 2 to 4; the defaults are those of the paper for a 7B model.
// Draft cost:  W (N - 1) rows in every forward. Guesses that share a prefix share its rows, so a step has at
//              most (W + G)(N - 1) rows.
// Budget:      with "budget": "auto" a step feeds the window only while the steps with it give more tokens
//              per time than the steps without it, and it verifies only the guesses that are worth their
//              rows. Without the window a step is autoregressive, apart from guesses that the pool still has.
//              Now and then the window is tried anew.
// Emulation:   the option `emulate` repeats the steps of lade (the authors' code) or of llama.cpp. Three
//              things are not emulated. lade fills its first level during the prompt's forward, which saves
//              it one step per text. Both programs draw the first window in another way. At T > 0 llama.cpp
//              samples the tokens of its window; here they are the target's best tokens.
// Loses when:  rows are expensive: t((W + G)(N - 1)) exceeds tokens per step, as on most CPUs.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/draft_budget.h"
#include "core/decoding/budget/draft_switch.h"
#include "core/decoding/drafting/lookahead_window.h"
#include "core/decoding/drafting/ngram_pool.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostGuesses = 64;  // largest number of guesses in a step if neither option G nor V limits it

enum class Forward { one, accepted };
enum class InitialWindow { random, prompt };
enum class Emulate { none, lade, llama_cpp };

struct LookaheadOptions {
  int W = 15, N = 5, G = 15, V = 0;
  bool full_match_bonus = true;
  Forward forward = Forward::one;
  bool pool_from_prompt = false;
  NgramPool::Order evict = NgramPool::Order::lru;
  InitialWindow initial = InitialWindow::random;
  bool window_from_pool = false;
  bool accept_window = false;
  bool keep_pool = false;
  Emulate emulate = Emulate::none;
  BudgetOptions budget;
  bool carries_memory() const { return keep_pool; }
  void fields(OptionVisitor& visit) {
    visit("W", W, Range<int>{0, 256},
          "number of columns of the window; 0: no window, the pool fills only with pool_from_prompt");
    visit("N", N, Range<int>{2, 32}, "n-gram size: N - 1 iterates in the window, N - 1 tokens in a guess");
    visit("G", G, Range<int>{-1, 256},
          "largest number of guesses that the pool keeps for each token; -1: no limit");
    visit("V", V, Range<int>{0, 256},
          "guesses verified in a step, newest first; 0: as many as G, or 64 if G is -1");
    visit("full_match_bonus", full_match_bonus, "a completely matching guess gives one more token, N in all");
    visit("forward", forward, {{Forward::one, "one"}, {Forward::accepted, "accepted"}},
          "how far the window moves in a step: always by one, or by as many tokens as were emitted");
    visit("pool_from_prompt", pool_from_prompt,
          "the n-grams of the prompt and of the text go into the pool too");
    visit("evict", evict, {{NgramPool::Order::lru, "lru"}, {NgramPool::Order::fifo, "fifo"}},
          "which guess a full list of the pool drops. lru: the one that was seen longest ago; fifo: the "
          "one that was added first");
    visit("initial", initial, {{InitialWindow::random, "random"}, {InitialWindow::prompt, "prompt"}},
          "first window: random tokens of the prompt, or its first ones in order");
    visit("window_from_pool", window_from_pool,
          "tokens of the window's first level are replaced by the newest guess");
    visit("accept_window", accept_window,
          "the window's first level is a guess too; with N = 2 and forward \"accepted\" this is Jacobi "
          "decoding");
    visit("keep_pool", keep_pool,
          "the pool stays for the next prompt; prompts are then decoded in the order of their file");
    visit("emulate", emulate,
          {{Emulate::none, "none"}, {Emulate::lade, "lade"}, {Emulate::llama_cpp, "llama_cpp"}},
          "do the same steps as another implementation, including its faults; overrides full_match_bonus, "
          "and llama_cpp also overrides evict and forward; needs budget fixed");
    budget.fields(visit);
  }
};

class Lookahead final : public Strategy {
 public:
  Lookahead(const LookaheadOptions& options, const Resources& resources)
      : options_(options),
        lade_(options.emulate == Emulate::lade),
        llama_cpp_(options.emulate == Emulate::llama_cpp) {
    if (lade_) options_.full_match_bonus = false;
    if (llama_cpp_)
      options_.full_match_bonus = true, options_.evict = NgramPool::Order::fifo,
      options_.forward = Forward::accepted;
    if (options.emulate != Emulate::none && (options.N < 3 || options.W < 1 || options.accept_window)) {
      throw Error({"lookahead: emulate",
                   std::string(lade_ ? "\"lade\"" : "\"llama_cpp\"") + " with N " +
                       std::to_string(options.N) + ", W " + std::to_string(options.W) + ", accept_window " +
                       (options.accept_window ? "on" : "off"),
                   "N of at least 3, W of at least 1 and accept_window off, as in that implementation", ""});
    }
    if (options.emulate != Emulate::none && options.budget.automatic()) {
      throw Error({"lookahead: emulate", "emulate with budget \"auto\"", "budget \"fixed\"",
                   "An emulation repeats the steps of a program that has no budget. Set budget to fixed."});
    }
    guesses_ = options_.V > 0 ? options_.V : options_.G >= 0 ? options_.G : kMostGuesses;
    if (options_.G >= 0) guesses_ = std::min(guesses_, options_.G);
    guess_length_ = options_.full_match_bonus ? options_.N - 1 : options_.N - 2;
    for (int i = 0; i < resources.batch; ++i)
      slots_.push_back(
          std::make_unique<Slot>(options_, resources.target->config().vocab, resources.capacity));
    if (!options_.budget.automatic()) return;
    costs_ = resources.costs;
    for (const auto& slot : slots_) {
      slot->guesses.emplace(costs_);
      // The window makes no n-grams while it warms up, and the pool first needs some.
      if (options_.W > 0)
        slot->worth.emplace(
            DraftSwitch::Settings{.first_guess = .5, .trial_steps = 8, .idle_steps = options_.N});
    }
  }

  Reads reads() const override { return {.rows = true}; }
  int max_nodes() const override {
    return 1 + LookaheadWindow::max_nodes(options_.W, options_.N - 1) + guesses_ * guess_length_ +
           (options_.accept_window ? options_.W : 0);
  }

  void begin(const Sequence& sequence) override {
    Slot& slot = *slots_[static_cast<std::size_t>(sequence.slot)];
    if (!options_.keep_pool) slot.pool.clear();
    slot.running.assign(sequence.tokens.begin(), sequence.tokens.end());
    if (options_.pool_from_prompt) {
      for (std::size_t end = 1; end <= slot.running.size(); ++end) insert_newest(slot, end);
    }
    if (slot.guesses) slot.guesses->begin();
    if (slot.worth) slot.worth->begin();
    start_window(slot, sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& sequence = *sequences[i];
      Slot& slot = *slots_[static_cast<std::size_t>(sequence.slot)];
      Draft& draft = *drafts[i];
      if (slot.worth) decide(slot, sequence);
      if (options_.window_from_pool && slot.fed) refresh_window(slot, sequence.tokens.back());
      slot.level0.clear();
      const bool warm = slot.window.warm();
      if (options_.accept_window && warm && slot.fed) offer_window(slot, sequence.depth_limit, draft);
      draft.must_keep = draft.tree.drafted();
      if (warm || !slot.fed) offer_guesses(slot, sequence, draft);
      if (slot.guesses) slot.guesses->limit(draft, slot.fed ? window_rows(slot) - draft.must_keep : 0);
      if (slot.fed) slot.window.feed(draft, sequence.probe_limit, slot.level0);
      draft.pool_size = static_cast<std::int64_t>(slot.pool.size());
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& sequence = *sequences[i];
      const Outcome& outcome = outcomes[i];
      Slot& slot = *slots_[static_cast<std::size_t>(sequence.slot)];
      const TokenSpan emitted = TokenSpan(sequence.tokens).last(static_cast<std::size_t>(outcome.emitted));
      if (slot.guesses) slot.guesses->observe(emitted);
      if (slot.worth) slot.worth->observe(outcome.emitted, costs_->target(outcome.draft->tree.size()));
      int draws = 0;
      const auto draw = [&](int) { return random_text_token(sequence, slot.running, draws++); };
      const LookaheadWindow::Refill refill = std::cref(draw);  // std::cref avoids an allocation
      slot.predictions.clear();
      if (slot.fed) slot.window.predict(outcome.rows, refill, slot.predictions);
      for (Token& token : slot.predictions) {
        if (std::ranges::find(sequence.eos, token) != sequence.eos.end()) token = refill(0);
      }
      if (slot.fed && slot.window.warm() && slot.window.width() > 0)
        collect(slot, outcome.draft->tree.token(0));
      for (const Token token : emitted) {
        slot.running.push_back(lade_ ? emitted.back() : token);
        if (options_.pool_from_prompt) insert_newest(slot, slot.running.size());
      }
      if (!slot.fed) continue;
      if (llama_cpp_) advance_like_llama_cpp(slot, outcome.emitted);
      else
        slot.window.advance(slot.predictions, options_.forward == Forward::one ? 1 : outcome.emitted, refill,
                            0);
    }
  }

 private:
  struct Slot {
    Slot(const LookaheadOptions& options, int vocab, int capacity)
        : window(options.W, options.N - 1), pool(vocab, options.N - 1, options.G, options.evict) {
      const int made =
          options.W + (options.pool_from_prompt ? 1 : 0);  // n-grams that are made for each token of the text
      if (options.G != 0) pool.reserve(static_cast<std::size_t>(made) * static_cast<std::size_t>(capacity));
      running.reserve(static_cast<std::size_t>(capacity) + 1);
      predictions.reserve(static_cast<std::size_t>(options.W + options.N));
      ngram.reserve(static_cast<std::size_t>(options.N));
    }
    LookaheadWindow window;
    NgramPool pool;
    // The text that the pool and the refills use. With `emulate: lade`, a step that emits n tokens appends
    // the last of them n times, as lade does.
    std::vector<Token> running;
    std::vector<Token> predictions, ngram;
    std::vector<int> level0;  // nodes of the window's first level, if they are candidates
    bool fed = true;          // whether this step feeds the window
    // With a budget:
    std::optional<DraftBudget> guesses;
    std::optional<DraftSwitch> worth;  // no value if the window has no columns
  };

  void start_window(Slot& slot, const Sequence& sequence) const {
    const auto first = [&](int draw) {
      if (options_.initial == InitialWindow::random) return random_text_token(sequence, slot.running, draw);
      return slot.running[static_cast<std::size_t>(draw) % slot.running.size()];
    };
    if (llama_cpp_) slot.window.start_full(std::cref(first));
    else slot.window.start(std::cref(first));
    slot.fed = true;
  }

  static int window_rows(const Slot& slot) {
    return std::max(0, slot.window.width() * slot.window.filled() - 1);
  }

  // Decides whether this step feeds the window. A window that was off starts anew.
  void decide(Slot& slot, const Sequence& sequence) const {
    const bool feed = slot.worth->decide(costs_->target(options_.W * (options_.N - 1)), costs_->target(1));
    if (feed && !slot.fed) start_window(slot, sequence);
    slot.fed = feed;
  }

  // Inserts the n-gram of N tokens that ends before `end`.
  void insert_newest(Slot& slot, std::size_t end) {
    const auto n = static_cast<std::size_t>(options_.N);
    if (end < n) return;
    slot.pool.insert(slot.running[end - n], TokenSpan(slot.running).subspan(end - n + 1, n - 1));
  }

  // Collects one n-gram per column (Algorithm 2, n-gram collection): the token of the first level at offset
  // i, then the tokens of the later levels and of the new predictions for the offsets after it. Offset 0 is
  // the pending token. In llama.cpp, column 0 begins with the window's own token instead.
  void collect(Slot& slot, Token pending) {
    const LookaheadWindow& window = slot.window;
    for (int column = 0; column < window.width(); ++column) {
      slot.ngram.clear();
      for (int level = 1; level < window.filled(); ++level) slot.ngram.push_back(window.at(level, column));
      slot.ngram.push_back(slot.predictions[static_cast<std::size_t>(column)]);
      slot.pool.insert(column == 0 && !llama_cpp_ ? pending : window.at(0, column), slot.ngram);
    }
  }

  static void refresh_window(Slot& slot, Token pending) {
    const int entry = slot.pool.newest(pending);
    if (entry < 0) return;
    int column = 1;
    for (const Token token : slot.pool.continuation(entry)) {
      if (column < slot.window.width()) slot.window.at(0, column++) = token;
    }
  }

  static void offer_window(Slot& slot, int limit, Draft& draft) {
    slot.level0.push_back(0);
    for (int column = 1; column < slot.window.width() && column <= limit; ++column)
      slot.level0.push_back(draft.add(slot.window.at(0, column), slot.level0.back()));
    if (draft.tree.drafted() > 0) draft.source = "window";
  }

  // Adds the guesses as one tree. Guesses that begin with the same tokens share nodes; children are in the
  // order of the guesses. Sharing loses no accepted token: if two children had the same token, the second
  // could never be accepted after the first was rejected.
  void offer_guesses(Slot& slot, const Sequence& sequence, Draft& draft) {
    const int before = draft.tree.drafted();
    const auto length = static_cast<std::size_t>(std::clamp(sequence.depth_limit, 0, guess_length_));
    int left = guesses_;
    for (int entry = slot.pool.newest(sequence.tokens.back()); entry >= 0 && left > 0;
         entry = slot.pool.older(entry), --left) {
      int node = 0;
      for (const Token token : slot.pool.continuation(entry).first(length)) {
        const int shared = draft.tree.child(node, token);
        node = shared > 0 ? shared : draft.add(token, node);
      }
    }
    if (draft.tree.drafted() == before) return;
    draft.source = before > 0 ? "window+pool" : "pool";
    if (before > 0) draft.contributions = {{1, "window"}, {before + 1, "pool"}};
  }

  // Advances one level for each emitted token. The predictions become the last level. For each further token
  // the oldest level is dropped, and the last level is a copy of the level that is then the oldest.
  void advance_like_llama_cpp(Slot& slot, int emitted) {
    const auto none = [](int) { return Token(0); };
    slot.window.advance(slot.predictions, 1, none, 0);
    for (int i = 1; i < emitted; ++i) {
      for (int column = 0; column < slot.window.width(); ++column)
        slot.predictions[static_cast<std::size_t>(column)] = slot.window.at(1, column);
      slot.window.advance(slot.predictions, 1, none, 0);
    }
  }

  LookaheadOptions options_;
  bool lade_, llama_cpp_;
  std::shared_ptr<const StepCosts> costs_;  // null without a budget
  int guesses_ = 0;
  int guess_length_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
};

constexpr StrategyBenchmark kLookaheadBenchmarks[] = {
    {"lookahead,W:15,N:5,G:15", R"({"W": 15, "N": 5, "G": 15})", BenchmarkKind::decoded}};

const RegisterStrategy<LookaheadOptions, Lookahead> registered{{
    .name = "lookahead",
    .summary = "n-grams from a parallel Jacobi iteration of the target itself, verified as a tree",
    .paper = "Fu, Bailis, Stoica, Zhang 2024, Lookahead Decoding",
    .draft_source = "n-grams of the target's own earlier predictions",
    .stop_rule = "budget; N - 1 tokens in each of at most G guesses",
    .verification = "tree, with a window of probes",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .divides_over_devices = true,
    .follows_steps = true,
    .searched_as = SearchedAs::window,
    .law = StrategyLaw::window,
    .benchmarks = kLookaheadBenchmarks,
}};

}  // namespace
}  // namespace speclab
