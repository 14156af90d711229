#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/model/net/session.h"

/// Runs forwards of the tiny models of every family (tests/golden/families) on any backend.
namespace speclab::fixtures {

inline std::filesystem::path family_folder() {
  return std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/families";
}

inline std::vector<Token> family_tokens(const std::string& family) {
  std::ifstream file(family_folder() / family / "golden.json");
  return nlohmann::json::parse(file)["tokens"].get<std::vector<Token>>();
}

/// Logits of every token of a text that is fed as one chain. [tokens, vocabulary]
inline std::vector<float> family_logits(const std::string& family, const std::shared_ptr<Backend>& backend,
                                        const std::vector<Token>& tokens) {
  const auto model = Model::load(Checkpoint::open(family_folder() / family), backend, {});
  const auto session = model->open(std::min(64, model->config().context));
  std::vector<std::int32_t> parents(tokens.size()), rows(tokens.size());
  std::iota(parents.begin(), parents.end(), -1);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(model->config().vocab));
  session->forward(tokens, parents, rows, logits.data());
  return logits;
}

/// The largest difference / the largest absolute value of `b`.
inline float apart(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0, most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(b[i]));
    most = std::max(most, std::fabs(a[i] - b[i]));
  }
  return most / largest;
}

}  // namespace speclab::fixtures
