#include "experiments/run/teacher.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <tuple>

#include "core/base/error.h"
#include "core/measure/run_result.h"
#include "core/decoding/rules/accept.h"
#include "experiments/run/forced_rows.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kFailed = "failed";

/// The sampling parameters of the draft. A strategy's option that is missing or -1 means the target's value.
SamplingParams draft_sampling(const json& options, SamplingParams sampling) {
  if (const double t = options.value("draft_temperature", -1.0); t >= 0) sampling.temperature = t;
  if (const int k = options.value("draft_top_k", -1); k >= 0) sampling.top_k = k;
  if (const double p = options.value("draft_top_p", -1.0); p >= 0) sampling.top_p = p;
  return sampling;
}

/// Returns true if every drafted token comes from the draft model's own distribution. Strategies that copy do
/// not promise that. Nor do strategies that can work without a draft model, or with several.
bool drafts_from_model(const CaseSpec& spec) {
  return spec.drafts.size() == 1 && spec.strategy.info().most_drafts == 1 &&
         spec.strategy.info().needs_draft && spec.options().contains("draft_temperature");
}

/// One acceptance estimate. Cases that differ only in gamma, budget or max_tokens share it.
struct Estimate {
  std::vector<std::string> cases;
  GenerationOptions generation;
  SamplingParams draft;
  double sum = 0;
  std::size_t positions = 0;
};

/// Applies the logits processors of a case to rows of a fixed text. Keeps the processed row until the next
/// call.
class ProcessedRow {
 public:
  /// Returns `row`, or the processed copy if a processor is active. `before` is the text before the token
  /// that the row predicts. `ids` are the tokens of a reduced vocabulary, as in LogitsProcessors::apply().
  std::span<const float> operator()(const LogitsProcessors& processors, std::span<const float> row,
                                    std::span<const Token> ids, TokenSpan before) {
    if (!processors.active()) return row;
    out_.resize(row.size());
    processors.apply(row, ids, before, {}, out_);
    return out_;
  }

 private:
  std::vector<float> out_;
};

/// True if processors have banned every token of a row.
bool nothing_left(std::span<const float> row) {
  return std::ranges::all_of(row, [](float logit) { return std::isinf(logit) && logit < 0; });
}

/// The estimates of one draft, with its logits over the current text.
struct DraftEstimates {
  std::map<std::string, Estimate> estimates;
  const ModelConfig* config = nullptr;
  std::vector<float> rows;  ///< [answer, head_rows]
};

}  // namespace

/// The answer of a turn and the context before it.
struct TeacherForcing::Text {
  std::vector<Token> context, answer;
};

int TeacherForcing::run(const std::filesystem::path& file, const std::function<bool()>& interrupted) {
  int failed = 0;
  std::set<std::tuple<std::string, std::string, std::string, std::uint64_t>> done;
  for (const json& line : read_json_lines(file)) {
    try {
      done.emplace(line.at("kind"), line.at("case"), line.at("prompt"), line.at("seed").get<std::uint64_t>());
    } catch (const json::exception& error) {
      throw Error({file.string(), error.what(), "lines of teacher forcing",
                   "Delete the file; the run then measures its lines again."});
    }
  }
  JsonLinesWriter writer(file);
  std::set<std::string> with_nll;
  for (const CaseSpec& spec : experiment_.cases) {
    if (spec.loss_class() != LossClass::l3) continue;
    with_nll.insert(spec.id);
    with_nll.insert(spec.reference);
  }
  for (const PromptSpec& prompt : experiment_.prompts) {
    for (const std::uint64_t seed : experiment_.seeds) {
      if (interrupted()) return failed;
      Ids alpha, nll;
      for (const CaseSpec& spec : experiment_.cases) {
        const bool tests_all = !spec.generation.acceptance_rule().accepts_by_depth;
        if (drafts_from_model(spec) && tests_all && texts_(spec.id, prompt.id, seed) &&
            texts_(spec.reference, prompt.id, seed) && !done.contains({"alpha", spec.id, prompt.id, seed})) {
          alpha.push_back(spec.id);
        }
        if (with_nll.contains(spec.id) && texts_(spec.id, prompt.id, seed) &&
            !done.contains({"nll", spec.id, prompt.id, seed}))
          nll.push_back(spec.id);
      }
      std::vector<json> lines;
      try {
        lines = measure(prompt, seed, alpha, nll, interrupted);
      } catch (const Error&) {
        lines = measure_each(prompt, seed, alpha, nll, interrupted);
      }
      for (const json& line : lines) {
        writer.append(line);
        if (line["kind"] == kFailed) ++failed;
      }
    }
  }
  return failed;
}

std::vector<json> TeacherForcing::measure_each(const PromptSpec& prompt, std::uint64_t seed, const Ids& alpha,
                                               const Ids& nll, const std::function<bool()>& interrupted) {
  std::vector<json> lines;
  const auto measure_one = [&](const char* kind, const std::string& id, const Ids& of_alpha,
                               const Ids& of_nll) {
    try {
      for (json& line : measure(prompt, seed, of_alpha, of_nll, interrupted))
        lines.push_back(std::move(line));
    } catch (const Error& error) {
      lines.push_back({{"kind", kFailed},
                       {"estimate", kind},
                       {"case", id},
                       {"prompt", prompt.id},
                       {"seed", seed},
                       {"message", error.what()}});
    }
  };
  for (const std::string& id : alpha) measure_one("alpha", id, {id}, {});
  for (const std::string& id : nll) measure_one("nll", id, {}, {id});
  return lines;
}

std::vector<json> TeacherForcing::measure(const PromptSpec& prompt, std::uint64_t seed,
                                          const Ids& missing_alpha, const Ids& missing_nll,
                                          const std::function<bool()>& interrupted) {
  const auto texts_of = [&](const LineRecord& line) {
    std::vector<Text> texts;
    Conversation conversation(models_, prompt, experiment_.system);
    for (const GenerationRecord& turn : line.turns) {
      texts.push_back({conversation.tokens(), turn.tokens});
      conversation.answer(turn.tokens);
    }
    return texts;
  };
  const auto line_json = [&](const char* kind, const std::string& id, double sum, const char* unit,
                             std::size_t count) {
    return json{{"kind", kind}, {"case", id}, {"prompt", prompt.id},
                {"seed", seed}, {"sum", sum}, {unit, count}};
  };
  std::vector<json> out;
  const Model& target = *models_.target();
  const int vocab = target.config().vocab;
  Distribution p, raw, q;
  ProcessedRow processed;

  for (const std::string& id : missing_nll) {
    if (interrupted()) return {};
    double sum = 0;
    std::size_t count = 0;
    for (const Text& text : texts_of(*texts_(id, prompt.id, seed))) {
      forced_rows(target, text.context, text.answer, [&](std::size_t i, std::span<const float> row) {
        raw.assign_logits(row, {.temperature = 1}, {}, vocab);
        sum -= std::log(raw.prob(text.answer[i]));
        ++count;
      });
    }
    out.push_back(line_json("nll", id, sum, "tokens", count));
  }

  // Cases are grouped by reference and draft, because one run of each model over a text serves a whole group.
  std::map<std::string, std::map<std::string, DraftEstimates>> references;
  for (const std::string& id : missing_alpha) {
    const CaseSpec& spec = experiment_.case_by_id(id);
    const GenerationOptions generation = Decoder::generation_for(spec, prompt);
    json key = spec.options();
    key.erase("gamma");
    key.erase("budget");
    key.erase("max_tokens");
    Estimate& estimate = references[spec.reference][spec.draft].estimates[key.dump()];
    estimate.cases.push_back(id);
    estimate.generation = generation;
    estimate.draft = draft_sampling(spec.options(), generation.sampling);
  }
  for (auto& [reference, drafts] : references) {
    for (const Text& text : texts_of(*texts_(reference, prompt.id, seed))) {
      if (interrupted()) return {};
      std::vector<DraftEstimates*> fitting;
      for (auto& [name, of_draft] : drafts) {
        const Model& draft = *models_.draft(name);
        if (static_cast<int>(text.context.size() + text.answer.size()) > draft.config().context) continue;
        const auto width = static_cast<std::size_t>(draft.config().head_rows());
        of_draft.config = &draft.config();
        of_draft.rows.resize(width * text.answer.size());
        forced_rows(draft, text.context, text.answer, [&](std::size_t i, std::span<const float> row) {
          std::copy(row.begin(), row.end(), of_draft.rows.begin() + static_cast<std::ptrdiff_t>(i * width));
        });
        fitting.push_back(&of_draft);
      }
      if (fitting.empty()) continue;
      std::vector<Token> whole = text.context;
      whole.insert(whole.end(), text.answer.begin(), text.answer.end());
      const int prompt_length = static_cast<int>(text.context.size());
      forced_rows(target, text.context, text.answer, [&](std::size_t i, std::span<const float> row) {
        if (i == 0) return;  // the first token comes from prefill and is never drafted
        const TokenSpan before = TokenSpan(whole).first(text.context.size() + i);
        for (DraftEstimates* of_draft : fitting) {
          const auto width = static_cast<std::size_t>(of_draft->config->head_rows());
          const auto draft_row = std::span<const float>(of_draft->rows).subspan(i * width, width);
          for (auto& [key, estimate] : of_draft->estimates) {
            const GenerationOptions& options = estimate.generation;
            const LogitsProcessors processors = options.processors(models_.end_tokens(), prompt_length);
            const std::span<const float> of_target = processed(processors, row, {}, before);
            p.assign_logits(of_target, options.sampling, {}, vocab);
            // As in decoding: only a lossy criterion at temperature 0 looks at `raw`, the softmax
            // at temperature 1 after the logits processors.
            const AcceptanceRule& rule = options.acceptance_rule();
            const bool wants_raw = options.sampling.temperature <= 0 &&
                                   rule.loss(options.rule_options, options.sampling) == LossClass::l3;
            if (wants_raw) raw.assign_logits(of_target, {.temperature = 1}, {}, vocab);
            const std::vector<Token>& ids = of_draft->config->head_ids;
            const std::span<const float> of_q = processed(processors, draft_row, ids, before);
            if (processors.active() && nothing_left(of_q)) continue;  // as in decoding: nothing is drafted
            q.assign_logits(of_q, estimate.draft, ids, vocab);
            ++estimate.positions;
            estimate.sum += rule.expected({&p, wants_raw ? &raw : &p}, &q, -1, options.rule_options);
          }
        }
      });
    }
    for (const auto& [name, of_draft] : drafts) {
      for (const auto& [key, estimate] : of_draft.estimates) {
        for (const std::string& id : estimate.cases)
          out.push_back(line_json("alpha", id, estimate.sum, "positions", estimate.positions));
      }
    }
  }
  return out;
}

}  // namespace speclab
