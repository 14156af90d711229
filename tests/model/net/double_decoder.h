#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/model/files/model_files.h"

namespace speclab::fixtures {

/// Restricts a forward: which rows run through a layer, and which keys a row sees there. By default all rows
/// run through all `layers` and see the full cache. Rows and keys are positions.
struct DoublePart {
  std::function<bool(int layer, std::size_t row)> runs = [](int, std::size_t) { return true; };
  std::function<bool(int layer, std::size_t row, std::size_t key)> sees = [](int, std::size_t, std::size_t) {
    return true;
  };
};

/// The decoder in double precision for one causal sequence, straight from the definitions. Returns [n,
/// head_rows].
inline std::vector<std::vector<double>> reference(const TinyModel& tiny, const std::vector<Token>& tokens,
                                                  const std::vector<int>& layers,
                                                  const TinyModel* target = nullptr,
                                                  const DoublePart& part = {}) {
  const ModelConfig& c = tiny.config;
  const auto at = [&](const std::string& name) -> const TinyTensor& {
    return (name == "token_embedding" && target ? *target : tiny).tensors.at(name);
  };
  const auto times = [](const TinyTensor& w, const std::vector<double>& x) {
    std::vector<double> y(static_cast<std::size_t>(w.shape[0]));
    for (std::size_t j = 0; j < y.size(); ++j)
      for (std::size_t k = 0; k < x.size(); ++k) y[j] += w.values[j * x.size() + k] * x[k];
    return y;
  };
  const auto norm = [&](const TinyTensor& w, const std::vector<double>& x) {
    double squares = 0;
    for (double value : x) squares += value * value;
    std::vector<double> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] * w.values[i] / std::sqrt(squares / static_cast<double>(x.size()) + c.norm_eps);
    return y;
  };
  const std::size_t n = tokens.size();
  std::vector<std::vector<double>> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const TinyTensor& embedding = at("token_embedding");
    const auto width = static_cast<std::size_t>(embedding.shape[1]);
    x[i].assign(embedding.values.begin() + static_cast<std::ptrdiff_t>(tokens[i] * width),
                embedding.values.begin() + static_cast<std::ptrdiff_t>((tokens[i] + 1) * width));
    if (c.embedding_of_target) x[i] = times(at("embed_projection"), x[i]);
  }
  const int hd = c.head_dim, half = hd / 2;
  for (const int layer : layers) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    std::vector<std::vector<double>> q(n), k(n), v(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto h = norm(at(name + "attn_norm"), x[i]);
      q[i] = times(at(name + "attn_q"), h);
      k[i] = times(at(name + "attn_k"), h);
      v[i] = times(at(name + "attn_v"), h);
      for (auto* rows : {&q[i], &k[i]}) {
        for (std::size_t head = 0; head < rows->size() / static_cast<std::size_t>(hd); ++head) {
          for (int j = 0; j < half; ++j) {
            const double angle = static_cast<double>(i) * std::pow(c.rope_theta, -2.0 * j / hd);
            double &a = (*rows)[head * hd + j], &b = (*rows)[head * hd + j + half];
            const double a0 = a, b0 = b;
            a = a0 * std::cos(angle) - b0 * std::sin(angle);
            b = b0 * std::cos(angle) + a0 * std::sin(angle);
          }
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (!part.runs(layer, i)) continue;
      std::vector<double> mixed(static_cast<std::size_t>(c.query_width()));
      for (int head = 0; head < c.heads; ++head) {
        const int kv = head / (c.heads / c.kv_heads);
        std::vector<double> weight(i + 1);
        double total = 0;
        for (std::size_t s = 0; s <= i; ++s) {
          if (s < i && !part.sees(layer, i, s)) continue;
          double score = 0;
          for (int d = 0; d < hd; ++d) score += q[i][head * hd + d] * k[s][kv * hd + d];
          total += weight[s] = std::exp(score / std::sqrt(hd));
        }
        for (std::size_t s = 0; s <= i; ++s)
          for (int d = 0; d < hd; ++d) mixed[head * hd + d] += weight[s] / total * v[s][kv * hd + d];
      }
      const auto out = times(at(name + "attn_out"), mixed);
      for (std::size_t d = 0; d < out.size(); ++d) x[i][d] += out[d];
      const auto h = norm(at(name + "ffn_norm"), x[i]);
      auto gate = times(at(name + "ffn_gate"), h);
      const auto up = times(at(name + "ffn_up"), h);
      for (std::size_t d = 0; d < gate.size(); ++d) gate[d] = gate[d] / (1 + std::exp(-gate[d])) * up[d];
      const auto down = times(at(name + "ffn_down"), gate);
      for (std::size_t d = 0; d < down.size(); ++d) x[i][d] += down[d];
    }
  }
  std::vector<std::vector<double>> logits;
  for (auto& row : x)
    logits.push_back(times(c.tied_head ? at("token_embedding") : at("head"),
                           c.final_norm ? norm(at("final_norm"), row) : row));
  return logits;
}

}  // namespace speclab::fixtures
