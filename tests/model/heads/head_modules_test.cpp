#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "tests/model/heads/head_fixture.h"

// Modules of heads against double arithmetic: float32 on the CPU within 1e-5 of the largest number, the
// simulated GPU, which rounds inputs of linear layers to bf16, within 2e-2. Rows do not depend on each other.

namespace speclab::head_modules_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kHidden = 32, kVocab = 64;  // of tiny_shape()

struct Kind {
  const char* name;
  std::shared_ptr<Backend> backend;
  double tolerance;
};

std::vector<Kind> kinds() {
  return {{"f32", make_cpu_backend({2, "f32"}), 1e-5},
          {"host-simt", make_cuda_backend({.simulated = true}), 2e-2}};
}

class HeadModules : public testing::Test {
 protected:
  std::shared_ptr<const Model> target(const std::shared_ptr<Backend>& backend) const {
    write_huggingface(dir_.path() / "target", tiny_);
    return Model::load(Checkpoint::open(dir_.path() / "target"), backend, {});
  }
  HeadFile head(const std::string& dtype = "BF16") const {
    write_head(file(), tensors_, dtype);
    return HeadFile::open(file());
  }
  std::filesystem::path file() const { return dir_.path() / "head.safetensors"; }
  void add(const std::string& name, std::vector<std::int64_t> shape, double mean = 0, double deviation = .3) {
    tensors_[name] = random_tensor(random_, std::move(shape), mean, deviation);
  }
  static std::vector<float> get(HeadRunner& run, const HeadRows& rows) {
    std::vector<float> out(static_cast<std::size_t>(rows.rows()) * static_cast<std::size_t>(rows.width()));
    run.get(rows, out.data());
    return out;
  }
  static void expect_near(const std::vector<float>& got, const std::vector<std::vector<double>>& expected,
                          double tolerance) {
    double largest = 0;
    for (const auto& row : expected)
      for (const double value : row) largest = std::max(largest, std::abs(value));
    std::size_t at = 0;
    for (const auto& row : expected)
      for (const double value : row) ASSERT_NEAR(got.at(at++), value, tolerance * largest) << at - 1;
    ASSERT_EQ(at, got.size());
  }

  TempDir dir_;
  TinyModel tiny_ = random_llama(tiny_shape(), 5);
  Tensors tensors_;
  std::mt19937_64 random_{11};
};

// x + SiLU(W x + b), then a head of its own: one head of Medusa (Cai et al. 2024).
TEST_F(HeadModules, AMedusaHeadEqualsDouble) {
  add("0.linear.weight", {kHidden, kHidden});
  add("0.linear.bias", {kHidden});
  add("1.weight", {kVocab, kHidden});
  for (const Kind& kind : kinds()) {
    for (const char* dtype : {"F32", "BF16"}) {
      HeadRunner run(target(kind.backend));
      const HeadFile file = head(dtype);
      const HeadLinear block = file.linear(*kind.backend, "0.linear", {kHidden}, kHidden, Bias::kPresent),
                       last = file.linear(*kind.backend, "1", {kHidden}, kVocab, Bias::kNone);
      const auto medusa = [&](const float* states, int n) {
        HeadRows h, y, logits;
        run.put(states, n, kHidden, h);
        run.linear(block, {&h}, y);
        run.activate(Activation::kSilu, y);
        run.add(h, y);
        run.linear(last, {&y}, logits);
        return get(run, logits);
      };
      const std::vector<float> states = random_rows(random_, 5, kHidden);
      std::vector<std::vector<double>> expected;
      for (int i = 0; i < 5; ++i) {
        const auto x = row_of(states, kHidden, i);
        auto y = plus(times(tensors_.at("0.linear.weight"), x), tensors_.at("0.linear.bias"));
        for (std::size_t k = 0; k < y.size(); ++k) y[k] = x[k] + apply(Activation::kSilu, y[k]);
        expected.push_back(times(tensors_.at("1.weight"), y));
      }
      const std::vector<float> got = medusa(states.data(), 5);
      expect_near(got, expected, kind.tolerance);
      for (int i = 0; i < 5; ++i) {
        const std::vector<float> alone = medusa(states.data() + i * kHidden, 1);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.begin() + i * kVocab)) << kind.name << i;
      }
      EXPECT_EQ(run.work().calls, 6);
      constexpr double kWeights = kHidden * kHidden + kVocab * kHidden;
      EXPECT_EQ(run.work().flops, 2 * 10 * kWeights);
      EXPECT_EQ(run.work().weight_bytes, 2 * 6 * kWeights);
    }
  }
}

// A layer over several vectors equals the layer over their concatenation, as in Hydra (Ankner et al. 2024)
// and EAGLE.
TEST_F(HeadModules, LinearLayersTakeSeveralInputs) {
  add("fc.weight", {24, kHidden + 8 + kHidden});
  add("fc.bias", {24});
  for (const Kind& kind : kinds()) {
    HeadRunner run(target(kind.backend));
    const HeadFile file = head();
    const HeadLinear fc = file.linear(*kind.backend, "fc", {kHidden, 8, kHidden}, 24, Bias::kPresent);
    const std::vector<float> a = random_rows(random_, 3, kHidden);
    std::vector<float> b = random_rows(random_, 3, 8);
    const std::vector<Token> tokens{4, 60, 4};
    std::vector<float> embedded(3 * kHidden);
    run.target().embed(tokens, embedded.data());
    HeadRows first, second, third, y;
    run.put(a.data(), 3, kHidden, first);
    run.put(b.data(), 3, 8, second);
    run.embed(tokens, third);
    run.linear(fc, {&first, &second, &third}, y);
    std::vector<std::vector<double>> expected;
    for (int i = 0; i < 3; ++i) {
      std::vector<double> x = row_of(a, kHidden, i);
      for (const auto& [rows, width] : {std::pair(&b, 8), std::pair(&embedded, kHidden)}) {
        const auto more = row_of(*rows, width, i);
        x.insert(x.end(), more.begin(), more.end());
      }
      expected.push_back(plus(times(tensors_.at("fc.weight"), x), tensors_.at("fc.bias")));
    }
    expect_near(get(run, y), expected, kind.tolerance);

    // The caller chooses the order of the rows.
    const std::vector<float> all = get(run, y);
    HeadRows chosen;
    run.select(y, std::vector<std::int32_t>{2, 0}, chosen);
    std::vector<float> swapped(all.begin() + 2 * 24, all.end());
    swapped.insert(swapped.end(), all.begin(), all.begin() + 24);
    EXPECT_EQ(get(run, chosen), swapped);
  }
}

TEST_F(HeadModules, NormsAndActivationsEqualDouble) {
  add("rms.weight", {kHidden}, 1);
  add("layer.weight", {kHidden}, 1);
  add("layer.bias", {kHidden});
  for (const Kind& kind : kinds()) {
    HeadRunner run(target(kind.backend));
    const HeadFile file = head();
    const std::vector<float> rows = random_rows(random_, 4, kHidden);
    for (const NormKind of : {NormKind::kRms, NormKind::kLayer}) {
      const bool rms = of == NormKind::kRms;
      const HeadNorm norm = file.norm(*kind.backend, rms ? "rms" : "layer", of, kHidden, 1e-3f);
      HeadRows x;
      run.put(rows.data(), 4, kHidden, x);
      run.norm(norm, x);
      std::vector<std::vector<double>> expected;
      for (int i = 0; i < 4; ++i) {
        const auto row = row_of(rows, kHidden, i);
        expected.push_back(
            rms ? rms_normed(row, tensors_.at("rms.weight"), 1e-3)
                : layer_normed(row, tensors_.at("layer.weight"), tensors_.at("layer.bias"), 1e-3));
      }
      expect_near(get(run, x), expected, 1e-5);
    }
    for (const Activation function :
         {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
      HeadRows x;
      run.put(rows.data(), 4, kHidden, x);
      run.activate(function, x);
      std::vector<std::vector<double>> expected;
      for (int i = 0; i < 4; ++i) {
        expected.push_back(row_of(rows, kHidden, i));
        for (double& value : expected.back()) value = apply(function, value);
      }
      expect_near(get(run, x), expected, 1e-5);
    }
  }
}

TEST_F(HeadModules, TheTargetsHeadIsThatOfItsForwards) {
  for (const Kind& kind : kinds()) {
    const auto model = target(kind.backend);
    HeadRunner run(model);
    const std::vector<Token> tokens{1, 2, 3};
    const std::vector<std::int32_t> parents{-1, 0, 1}, rows{0, 1, 2};
    std::vector<float> logits(3 * kVocab);
    HeadRows states, out;
    const Tap tap{2, run.room(states, 3, kHidden), {}, Memory::kBackend};
    model->open(16)->forward(tokens, parents, rows, logits.data(), {&tap, 1});
    run.logits(states, FinalNorm::kApply, out);
    EXPECT_EQ(get(run, out), logits) << kind.name;
    EXPECT_EQ(run.work().logit_rows, 3);
  }
}

TEST_F(HeadModules, ErrorsNameFileTensorAndShapes) {
  add("fc.weight", {24, kHidden});
  add("norm.weight", {kHidden});
  tensors_["broken.weight"] = tensors_.at("norm.weight");
  tensors_["broken.weight"].values[3] = std::numeric_limits<float>::quiet_NaN();
  const auto backend = make_cpu_backend({1, "f32"});
  const HeadFile file = head();
  const auto message = [](const auto& read) -> std::string {
    try {
      read();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string path = this->file().string();
  EXPECT_THAT(message([&] { file.linear(*backend, "up", {8}, 4, Bias::kNone); }),
              AllOf(HasSubstr(path), HasSubstr("tensor up.weight"), HasSubstr("no such tensor"),
                    HasSubstr("shape [4, 8]")));
  EXPECT_THAT(message([&] { file.linear(*backend, "fc", {kHidden, 8}, 24, Bias::kNone); }),
              AllOf(HasSubstr(path), HasSubstr("tensor fc.weight"), HasSubstr("got shape [24, 32]"),
                    HasSubstr("expected [24, 40]")));
  EXPECT_THAT(message([&] { file.linear(*backend, "fc", {kHidden}, 24, Bias::kPresent); }),
              AllOf(HasSubstr(path), HasSubstr("tensor fc.bias"), HasSubstr("no such tensor")));
  EXPECT_THAT(message([&] { file.norm(*backend, "norm", NormKind::kRms, 16, 1e-5f); }),
              AllOf(HasSubstr(path), HasSubstr("tensor norm.weight"), HasSubstr("got shape [32]"),
                    HasSubstr("expected [16]")));
  EXPECT_THAT(message([&] { file.norm(*backend, "norm", NormKind::kLayer, kHidden, 1e-5f); }),
              AllOf(HasSubstr(path), HasSubstr("tensor norm.bias")));
  EXPECT_THAT(message([&] { file.norm(*backend, "broken", NormKind::kRms, kHidden, 1e-5f); }),
              AllOf(HasSubstr(path), HasSubstr("tensor broken.weight"), HasSubstr("finite")));
  EXPECT_THAT(message([&] {
                file.decoder_layers(backend, decoder_layers_of(target(backend)->config()), "layers.{}.");
              }),
              AllOf(HasSubstr(path), HasSubstr("tensor layers.0.input_layernorm.weight"),
                    HasSubstr("no such tensor"), HasSubstr("[32]")));
  EXPECT_THAT(message([&] { HeadFile::open(dir_.path() / "none.safetensors"); }),
              HasSubstr("none.safetensors"));
  EXPECT_TRUE(file.has("fc.weight"));
  EXPECT_FALSE(file.has("fc.bias"));
}

}  // namespace
}  // namespace speclab::head_modules_test
