// A part of the layers, or a view of part of the cache, on the session of the whole model: values against
// double precision, what is counted and what is refused. part_property_test.cpp has the bits.
#include "core/model/net/layer_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "tests/model/net/double_decoder.h"
#include "tests/model/net/family_logits.h"

namespace speclab::layer_part_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Shape three_layers() {
  Shape shape = tiny_shape();
  shape.layers = 3;
  return shape;
}
std::shared_ptr<const Model> three_layer_model(const TinyModel& tiny,
                                               std::shared_ptr<Backend> backend = make_cpu_backend({1,
                                                                                                    "f32"})) {
  TempDir dir;
  write_huggingface(dir.path(), tiny);
  return Model::load(Checkpoint::open(dir.path()), std::move(backend), {});
}
std::vector<Token> some_tokens(int count) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 29 + 7) % 64);
  return tokens;
}

/// Feeds of chains.
struct Chain {
  explicit Chain(const std::vector<Token>& of) : tokens(of) {
    parents.resize(tokens.size());
    std::iota(parents.begin(), parents.end(), -1);
    rows.resize(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
  }
  Feed feed(Session& session, LayerPart part, const CacheView* view = nullptr, bool with_rows = true) {
    logits.resize(rows.size() * static_cast<std::size_t>(session.model().config().head_rows()));
    Feed feed{&session, tokens, parents, {}, nullptr};
    if (with_rows) feed.rows = rows, feed.logits = logits.data();
    feed.layers = part;
    feed.view = view;
    return feed;
  }
  const std::vector<float>& run(Session& session, LayerPart part, const CacheView* view = nullptr) {
    const Feed one = feed(session, part, view);
    session.model().forward({&one, 1});
    return logits;
  }
  std::vector<Token> tokens;
  std::vector<std::int32_t> parents, rows;
  std::vector<float> logits;
};

void expect_near(const std::vector<float>& logits, const std::vector<std::vector<double>>& all,
                 std::size_t skipped, double tolerance = 2e-5) {
  double most = 0;
  for (const auto& row : all)
    for (const double value : row) most = std::max(most, std::abs(value));
  std::size_t at = 0;
  for (std::size_t row = skipped; row < all.size(); ++row)
    for (const double value : all[row]) ASSERT_NEAR(logits[at++], value, tolerance * most) << "row " << row;
  ASSERT_EQ(at, logits.size());
}

// Drafted rows run some layers; the prompt, whose keys and values they see, has run all.
TEST(LayerSkip, AgreesWithDouble) {
  constexpr std::size_t kPrompt = 21, kDrafted = 4;
  const TinyModel tiny = random_llama(three_layers(), 51);
  const auto model = three_layer_model(tiny);
  const auto tokens = some_tokens(kPrompt + kDrafted);
  for (const std::vector<int>& layers : {std::vector<int>{0, 2}, {1}, {1, 2}, {0, 1, 2}}) {
    const auto session = model->open(64);
    session->prefill(TokenSpan(tokens).first(kPrompt));
    DoublePart part;
    part.runs = [&](int layer, std::size_t row) {
      return row < kPrompt || std::find(layers.begin(), layers.end(), layer) != layers.end();
    };
    Chain chain({tokens.begin() + kPrompt, tokens.end()});
    expect_near(chain.run(*session, LayerPart::only(layers)),
                reference(tiny, tokens, {0, 1, 2}, nullptr, part), kPrompt);
  }
}

// Drafted rows see some positions; the prompt has seen all of its own. CPU and simulated GPU.
TEST(CacheViewForward, AgreesWithDouble) {
  constexpr std::size_t kPrompt = 37, kDrafted = 5;
  const TinyModel tiny = random_llama(three_layers(), 52);
  const auto tokens = some_tokens(kPrompt + kDrafted);
  const auto views = CacheView::per_layer(
      {CacheView::ends(3, 10), CacheView::list({0, 1, 5, 6, 20, 33}), CacheView::list({})});
  DoublePart part;
  part.sees = [&](int layer, std::size_t row, std::size_t key) {
    if (row < kPrompt || key >= kPrompt) return true;
    std::vector<std::int32_t> listed;
    views.of(layer).append(kPrompt, listed);
    return std::find(listed.begin(), listed.end(), static_cast<std::int32_t>(key)) != listed.end();
  };
  const auto expected = reference(tiny, tokens, {0, 1, 2}, nullptr, part);
  for (const bool simulated : {false, true}) {
    const auto model = three_layer_model(
        tiny, simulated ? make_cuda_backend({.simulated = true}) : make_cpu_backend({2, "f32"}));
    const auto session = model->open(64);
    session->prefill(TokenSpan(tokens).first(kPrompt));
    Chain chain({tokens.begin() + kPrompt, tokens.end()});
    expect_near(chain.run(*session, {}, &views), expected, kPrompt, simulated ? .02 : 2e-5);
  }
}

// A tap hands out the state at the exit, without logits and without the head; it is that of a full forward.
TEST(EarlyExit, TapsGiveTheHiddenStatesAtTheExit) {
  for (const auto& backend : {make_cpu_backend({1, "f32"}), make_cuda_backend({.simulated = true})}) {
    const auto model = three_layer_model(random_llama(three_layers(), 53), backend);
    const auto session = model->open(64);
    session->prefill(some_tokens(9));
    Chain chain(some_tokens(3));
    const auto states = [&](LayerPart part, int layer) {
      std::vector<float> out(3 * static_cast<std::size_t>(model->config().hidden));
      const Tap tap{layer, out.data(), {}, Memory::kHost};
      Feed feed = chain.feed(*session, part, nullptr, false);
      feed.taps = {&tap, 1};
      model->forward({&feed, 1});
      return out;
    };
    const auto exit = states({}, 2), last = states({}, kFinalNorm);
    const Work before = session->work();
    EXPECT_EQ(states(LayerPart::until(2), 2), exit);
    EXPECT_EQ((session->work() - before).logit_rows, 0);
    EXPECT_EQ(states(LayerPart::from(2), kFinalNorm), last);
    states(LayerPart::until(2), 1);
    EXPECT_THROW(states(LayerPart::from(2), 1), std::logic_error);
    EXPECT_EQ(states(LayerPart::from(2), 2), exit);
  }
}

// Two sequences exit and go on together; each has the bits of a forward of its own.
TEST(EarlyExit, SequencesOfABatchDoNotTouchEachOther) {
  const auto model = three_layer_model(random_llama(three_layers(), 54));
  Chain a(some_tokens(4)), b({9, 8, 7});
  const auto prompt_a = some_tokens(11), prompt_b = some_tokens(6);
  const auto one = model->open(64), two = model->open(64), alone = model->open(64);
  one->prefill(prompt_a);
  two->prefill(prompt_b);
  for (const LayerPart part : {LayerPart::until(1), LayerPart::from(1)}) {
    const std::vector<Feed> feeds{a.feed(*one, part), b.feed(*two, part)};
    model->forward(feeds);
  }
  alone->prefill(prompt_a);
  EXPECT_EQ(Chain(a).run(*alone, {}), a.logits);
  alone->rewind(0);
  alone->prefill(prompt_b);
  EXPECT_EQ(Chain(b).run(*alone, {}), b.logits);
}

TEST(CacheViewForward, SequencesOfABatchDoNotTouchEachOther) {
  const CacheView layers =
                      CacheView::per_layer({CacheView::ends(1, 4), CacheView::list({2, 3, 7}), CacheView()}),
                  ends = CacheView::ends(2, 2);
  for (const auto& backend : {make_cpu_backend({2, "f32"}), make_cuda_backend({.simulated = true})}) {
    const auto model = three_layer_model(random_llama(three_layers(), 58), backend);
    const CacheView* const views[] = {&layers, nullptr, &ends};
    std::vector<Chain> together{Chain(some_tokens(4)), Chain({9, 8, 7}), Chain({5, 6})}, alone = together;
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Feed> feeds;
    for (std::size_t i = 0; i < 3; ++i) {
      sessions.push_back(model->open(64));
      sessions.back()->prefill(some_tokens(10 + 3 * static_cast<int>(i)));
      feeds.push_back(together[i].feed(*sessions[i], {}, views[i]));
    }
    model->forward(feeds);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(alone[i].run(*sessions[i], {}, views[i]), together[i].logits) << backend->name() << " " << i;
  }
}

// --- what is counted --------------------------------------------------------------------------------------

constexpr double kLayer = 32 * (2 * 32 + 2 * 16) + 3 * 32 * 64, kHead = 64 * 32, kPosition = 2.0 * 16 * 4;

TEST(LayerPartWork, CountsTheLayersThatRan) {
  const auto model = three_layer_model(random_llama(three_layers(), 55));
  const auto session = model->open(64);
  session->prefill(some_tokens(10));
  Chain chain(some_tokens(3));
  const std::vector<int> skip{0, 2};
  const auto counted = [&](LayerPart part) {
    const Work before = session->work();
    chain.run(*session, part);
    return session->work() - before;
  };
  struct Expected {
    LayerPart part;
    int layers;
  };
  const Work whole = counted({});
  for (const auto& [part, layers] :
       {Expected{LayerPart::only(skip), 2}, {LayerPart::until(1), 1}, {LayerPart::from(1), 2}, {{}, 3}}) {
    const Work work = counted(part);
    EXPECT_EQ(work.calls, 1);
    EXPECT_EQ(work.rows, 3);
    EXPECT_EQ(work.keys, 11 + 12 + 13);
    EXPECT_EQ(work.flops, 2 * 3 * (layers * kLayer + kHead) + 4.0 * layers * 32 * 36) << layers;
    EXPECT_EQ(work.weight_bytes, 2 * (layers * kLayer + kHead)) << layers;
    EXPECT_EQ(work.kv_bytes, kPosition * layers * (10 + 3 + 3)) << layers;
  }
  // An exit without logits and the rest of the forward cost as much as one forward, except for the call.
  Feed feed = chain.feed(*session, LayerPart::until(2), nullptr, false);
  const Work before = session->work();
  model->forward({&feed, 1});
  Work both = session->work() - before;
  both += counted(LayerPart::from(2));
  EXPECT_EQ(both.flops, whole.flops);
  EXPECT_EQ(both.weight_bytes, whole.weight_bytes);
  EXPECT_EQ(both.kv_bytes, whole.kv_bytes);
  EXPECT_EQ(both.calls, 2);
}

TEST(CacheViewWork, CountsTheKeysThatWereRead) {
  const auto model = three_layer_model(random_llama(three_layers(), 56));
  const auto session = model->open(64);
  session->prefill(some_tokens(20));
  Chain chain(some_tokens(3));
  const auto counted = [&](const CacheView& view) {
    const Work before = session->work();
    chain.run(*session, {}, &view);
    return session->work() - before;
  };
  const Work ends = counted(CacheView::ends(2, 5));
  EXPECT_EQ(ends.keys, 8 + 9 + 10);
  EXPECT_EQ(ends.flops, 2 * 3 * (3 * kLayer + kHead) + 4.0 * 3 * 32 * 27);
  EXPECT_EQ(ends.kv_bytes, kPosition * 3 * (7 + 3 + 3));
  const Work layers =
      counted(CacheView::per_layer({CacheView::list({3}), CacheView(), CacheView::ends(0, 4)}));
  EXPECT_EQ(layers.keys, 21 + 22 + 23);  // of the layer that sees most
  EXPECT_EQ(layers.flops, 2 * 3 * (3 * kLayer + kHead) + 4.0 * 32 * ((2 + 3 + 4) + 66 + (5 + 6 + 7)));
  EXPECT_EQ(layers.kv_bytes, kPosition * ((1 + 20 + 4) + 3 * (3 + 3)));
}

TEST(CacheViewWork, CountsTheIntersectionWithAWindow) {
  const auto model = Model::load(Checkpoint::open(family_folder() / "gemma3"),  // windows 6, 6, none
                                 make_cpu_backend({1, "f32"}), {});
  const ModelConfig& c = model->config();
  const auto session = model->open(40);
  session->prefill(std::vector<Token>(20, 1));
  const CacheView view = CacheView::list({0, 1, 15, 16, 18});
  const Work before = session->work();
  Chain(std::vector<Token>(2, 1)).run(*session, {}, &view);
  const Work work = session->work() - before;
  const double layer = c.hidden * (2.0 * c.query_width() + 2.0 * c.kv_width()) + 3.0 * c.hidden * c.ffn;
  // In layers with a window, the rows at 20 and 21 see the positions from 15 and from 16 on.
  const double keys = 2 * ((3 + 1) + (2 + 2)) + (6 + 7);
  EXPECT_EQ(work.flops, 2 * (2 * 3 * layer + 2.0 * c.vocab * c.hidden) + 4.0 * c.query_width() * keys);
  EXPECT_EQ(work.kv_bytes, 2.0 * c.kv_width() * 4 * ((3 + 3 + 5) + 3 * 2 * 2));
}

// --- what is refused --------------------------------------------------------------------------------------

TEST(LayerPart, SelectsLayersByNumberAndRefusesOthers) {
  const std::vector<int> have{0, 2, 5}, some{0, 5}, other{1}, descending{5, 0}, twice{2, 2}, none;
  std::vector<int> run;
  const auto of = [&](LayerPart part) {
    part.indices(have, "a model", run);
    return run;
  };
  EXPECT_THAT(of({}), ElementsAre(0, 1, 2));
  EXPECT_THAT(of(LayerPart::until(2)), ElementsAre(0, 1));
  EXPECT_THAT(of(LayerPart::from(2)), ElementsAre(2));
  EXPECT_THAT(of(LayerPart::only(some)), ElementsAre(0, 2));
  for (const auto* wrong : {&other, &descending, &twice, &none})
    EXPECT_THROW(of(LayerPart::only(*wrong)), Error);
  EXPECT_THAT(of(LayerPart::between(1, 2)), ElementsAre(1));
  for (const auto& [exit, next] : {std::pair(0, 2), {2, 2}, {2, 1}, {1, 3}, {-1, 2}})
    EXPECT_THROW(of(LayerPart::between(exit, next)), Error) << exit << " " << next;
  for (const int exit : {-1, 0, 3, 4}) {
    EXPECT_THROW(of(LayerPart::until(exit)), Error) << exit;
    EXPECT_THROW(of(LayerPart::from(exit)), Error) << exit;
  }
  try {
    of(LayerPart::only(descending));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("layers of a forward of a model: got [5, 0], expected at least one of "
                          "[0, 2, 5], ascending, each once"));
  }
}

// Rows of one chain exit at layers 2, 1 and 1. Those of layer 1 go on to layer 2, then all to the end.
TEST(EarlyExit, RowsMayExitEarlierThanRowsBeforeThem) {
  for (const auto& backend : {make_cpu_backend({1, "f32"}), make_cuda_backend({.simulated = true})}) {
    const auto model = three_layer_model(random_llama(three_layers(), 59), backend);
    const auto session = model->open(64), whole = model->open(64);
    session->prefill(some_tokens(9));
    whole->prefill(some_tokens(9));
    const std::vector<Token> tokens{5, 6, 7};
    const std::vector<std::int32_t> parents{-1, 0, 1};
    const auto run = [&](LayerPart part, std::size_t first, std::size_t end, bool continues) {
      std::vector<float> logits(static_cast<std::size_t>(model->config().vocab));
      const auto last = static_cast<std::int32_t>(end - first) - 1;
      Feed feed{session.get(),
                TokenSpan(tokens).subspan(first, end - first),
                std::span(parents).subspan(first, end - first),
                {&last, 1},
                logits.data()};
      feed.layers = part;
      feed.continues = continues;
      model->forward({&feed, 1});
      return logits;
    };
    const auto front = [&](std::vector<int> layers, std::size_t end) {
      std::vector<Token> text = some_tokens(9);
      text.insert(text.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end));
      std::vector<float> logits(static_cast<std::size_t>(model->config().vocab));
      Model::with_layers(model, std::move(layers))->open(64)->prefill(text, logits.data());
      return logits;
    };
    EXPECT_EQ(run(LayerPart::until(2), 0, 1, false), front({0, 1}, 1));
    EXPECT_EQ(run(LayerPart::until(1), 1, 2, true), front({0}, 2));
    EXPECT_EQ(run(LayerPart::until(1), 2, 3, true), front({0}, 3));
    EXPECT_THAT(session->exits_in_flight(), ElementsAre(2, 1, 1));
    EXPECT_THROW(run(LayerPart::from(2), 0, 3, false), std::logic_error);        // two rows stopped before
    EXPECT_THROW(run(LayerPart::from(1), 1, 3, false), std::logic_error);        // a row before them stopped
    EXPECT_THROW(run(LayerPart::between(1, 2), 0, 3, false), std::logic_error);  // not all stopped at 1
    EXPECT_THROW(run(LayerPart::between(1, 2), 2, 3, false), std::logic_error);  // one of two
    const auto fork = session->fork();
    EXPECT_THAT(fork->exits_in_flight(), ElementsAre(2, 1, 1));
    EXPECT_EQ(run(LayerPart::between(1, 2), 1, 3, false), front({0, 1}, 3));
    EXPECT_THAT(session->exits_in_flight(), ElementsAre(2, 2, 2));
    EXPECT_EQ(run(LayerPart::from(2), 0, 3, false), front({0, 1, 2}, 3));
    session->commit(std::vector<int>{0, 1, 2});
    EXPECT_EQ(session->length(), 12);
  }
}

TEST(LayerPartWork, RaisedRowsCostWhatOneForwardCosts) {
  const auto model = three_layer_model(random_llama(three_layers(), 60));
  const auto session = model->open(64);
  session->prefill(some_tokens(10));
  Chain chain(some_tokens(3));
  const auto counted = [&](LayerPart part, bool rows) {
    const Work before = session->work();
    const Feed feed = chain.feed(*session, part, nullptr, rows);
    model->forward({&feed, 1});
    return session->work() - before;
  };
  const Work whole = counted({}, true);
  Work parts = counted(LayerPart::until(1), false);
  parts += counted(LayerPart::between(1, 2), false);
  parts += counted(LayerPart::from(2), true);
  EXPECT_EQ(parts.flops, whole.flops);
  EXPECT_EQ(parts.weight_bytes, whole.weight_bytes);
  EXPECT_EQ(parts.kv_bytes, whole.kv_bytes);
  EXPECT_EQ(parts.calls, 3);
}

TEST(LayerPart, RowsMustBeFinishedBeforeTheyAreCommitted) {
  const auto model = three_layer_model(random_llama(three_layers(), 57));
  const auto session = model->open(64);
  session->prefill(some_tokens(5));
  const std::vector<int> path{0, 1}, skip{0, 2}, other_skip{1, 2};
  Chain chain(some_tokens(3)), longer(some_tokens(4));
  const auto continued = [&](LayerPart part) {
    Feed feed = chain.feed(*session, part);
    feed.continues = true;
    model->forward({&feed, 1});
  };
  chain.run(*session, LayerPart::only(skip));
  EXPECT_THROW(session->commit(path), std::logic_error);
  EXPECT_THROW(continued(LayerPart::only(other_skip)), std::logic_error);
  EXPECT_THROW(continued({}), std::logic_error);
  EXPECT_THROW(chain.run(*session, LayerPart::from(1)), std::logic_error);
  session->commit({});  // nothing is kept

  chain.run(*session, LayerPart::until(1));
  EXPECT_THROW(continued(LayerPart::until(2)), std::logic_error);  // the rows before have no K/V of layer 1
  chain.run(*session, LayerPart::until(2));
  EXPECT_THROW(session->commit(path), std::logic_error);
  EXPECT_THROW(session->fork()->commit(path), std::logic_error);
  const std::vector<int> front{0, 1};
  EXPECT_THROW(continued(LayerPart::only(front)), std::logic_error);  // keeps no hidden states
  EXPECT_THROW(chain.run(*session, LayerPart::from(1)), std::logic_error);
  EXPECT_THROW(longer.run(*session, LayerPart::from(2)), std::logic_error);
  EXPECT_THROW(continued(LayerPart::from(2)), std::logic_error);
  Chain siblings(some_tokens(3));
  siblings.parents = {-1, 0, 0};
  EXPECT_THROW(siblings.run(*session, LayerPart::from(2)), std::logic_error);
  chain.run(*session, LayerPart::from(2));
  EXPECT_THROW(chain.run(*session, LayerPart::from(2)), std::logic_error);  // they have finished
  session->commit(path);
  EXPECT_EQ(session->length(), 7);

  // A draft on part of the cache is no beginning of a forward on all of it.
  const CacheView view = CacheView::ends(1, 2);
  chain.run(*session, LayerPart::until(2), &view);
  EXPECT_THROW(chain.run(*session, LayerPart::from(2)), std::logic_error);
  const auto fork = session->fork();
  EXPECT_THROW(chain.run(*fork, LayerPart::from(2)), std::logic_error);
  chain.run(*session, LayerPart::until(2));
  EXPECT_NO_THROW(chain.run(*session, LayerPart::from(2)));

  const std::vector<Feed> mixed{chain.feed(*session, {}), longer.feed(*fork, LayerPart::until(2))};
  EXPECT_THROW(model->forward(mixed), std::logic_error);
  const CacheView too_long = CacheView::list({3, 7});
  EXPECT_THROW(chain.run(*session, {}, &too_long), std::logic_error);
}

}  // namespace
}  // namespace speclab::layer_part_test
