#include "experiments/run/prompt_times.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/measure/clock.h"
#include "core/measure/stats.h"
#include "core/model/net/session.h"
#include "experiments/run/forward_times.h"

namespace speclab {
namespace {

using nlohmann::json;

double time_prompt(Session& session, TokenSpan prompt, std::size_t piece, std::vector<float>& logits) {
  const std::int64_t begin = wall_now_ns();
  session.rewind(0);
  for (; prompt.size() > piece; prompt = prompt.subspan(piece)) session.prefill(prompt.first(piece));
  session.prefill(prompt, logits.data());
  return static_cast<double>(wall_now_ns() - begin);
}

}  // namespace

json prompt_times(const Model& model, const std::vector<int>& tokens, int repeats,
                  const std::function<void(const json&)>& keep) {
  const PromptRows together = model.backend().prompt_rows();
  const auto session = model.open(*std::max_element(tokens.begin(), tokens.end()));
  std::vector<float> logits(static_cast<std::size_t>(model.config().head_rows()));
  json out = json::array();
  for (const int length : tokens) {
    const std::vector<Token> prompt = timed_context(model, length);
    std::vector<double> own, library;
    for (int repeat = -1; repeat < repeats; ++repeat) {
      const std::size_t piece =
          together.most > 0 ? static_cast<std::size_t>(together.least - 1) : prompt.size();
      const double own_ns = time_prompt(*session, prompt, piece, logits);
      const double library_ns = together.most > 0 ? time_prompt(*session, prompt, prompt.size(), logits) : 0;
      if (repeat < 0) continue;
      own.push_back(own_ns);
      if (together.most > 0) library.push_back(library_ns);
    }
    out.push_back({{"tokens", length}, {"own_ns", own}});
    if (!library.empty()) out.back()["library_ns"] = library;
    if (keep) keep(out);
  }
  return out;
}

Table prompt_table(const json& times) {
  Table table{.header = {"tokens", "own ms", "library ms", "library / own"},
              .rows = {},
              .right = {true, true, true, true}};
  for (const json& entry : times) {
    const auto milliseconds = [&](const char* name) {
      return 1e-6 * stats::median(entry[name].get<std::vector<double>>());
    };
    const double own = milliseconds("own_ns");
    table.rows.push_back({std::to_string(entry["tokens"].get<int>()), number_text(own), "", ""});
    if (!entry.contains("library_ns")) continue;
    table.rows.back()[2] = number_text(milliseconds("library_ns"));
    table.rows.back()[3] = number_text(milliseconds("library_ns") / own);
  }
  return table;
}

}  // namespace speclab
