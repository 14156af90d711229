#include "core/measure/run_result.h"

#include <fmt/format.h>

#include <bit>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/sha256.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Seven significant digits carry everything that a float probability has, in half the bytes.
double shortened(double value) {
  return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr);
}

json to_json(const Work& passes) {
  return {{"calls", passes.calls},      {"rows", passes.rows},   {"logit_rows", passes.logit_rows},
          {"keys", passes.keys},        {"flops", passes.flops}, {"weight_bytes", passes.weight_bytes},
          {"kv_bytes", passes.kv_bytes}};
}

Work passes_from_json(const json& value) {
  Work passes;
  value.at("calls").get_to(passes.calls);
  value.at("rows").get_to(passes.rows);
  value.at("logit_rows").get_to(passes.logit_rows);
  value.at("keys").get_to(passes.keys);
  value.at("flops").get_to(passes.flops);
  value.at("weight_bytes").get_to(passes.weight_bytes);
  value.at("kv_bytes").get_to(passes.kv_bytes);
  return passes;
}

json to_json(const DraftedToken& token, int node) {
  json value = {{"id", token.id},     {"p", shortened(token.p)}, {"q", shortened(token.q)},
                {"rank", token.rank}, {"tested", token.tested},  {"accepted", token.accepted}};
  if (token.parent != node - 1) value["parent"] = token.parent;
  if (token.confidence >= 0) value["confidence"] = shortened(token.confidence);
  if (token.tested) value["expected"] = shortened(token.expected);
  if (token.distance >= 0) value["distance"] = shortened(token.distance);
  return value;
}

DraftedToken drafted_from_json(const json& value, int node) {
  DraftedToken token;
  value.at("id").get_to(token.id);
  value.at("p").get_to(token.p);
  value.at("q").get_to(token.q);
  value.at("rank").get_to(token.rank);
  value.at("tested").get_to(token.tested);
  value.at("accepted").get_to(token.accepted);
  token.parent = value.value("parent", node - 1);
  token.confidence = value.value("confidence", -1.0f);
  token.expected = value.value("expected", -1.0);
  token.distance = value.value("distance", -1.0);
  return token;
}

json to_json(const StepRecord& step) {
  json tokens = json::array();
  for (std::size_t i = 0; i < step.drafted.size(); ++i)
    tokens.push_back(to_json(step.drafted[i], static_cast<int>(i) + 1));
  json value = {{"source", step.source},
                {"drafted", step.drafted.size()},
                {"accepted", step.accepted},
                {"emitted", step.emitted},
                {"ended_by", to_string(step.ended_by)},
                {"nodes", step.drafted.size() + 1},
                {"rows", step.rows},
                {"draft_calls", step.draft_calls},
                {"ns", step.times.ns},
                {"tokens", std::move(tokens)}};
  if (step.pool_size >= 0) value["pool"] = step.pool_size;
  for (const ProbedToken& probe : step.probes)
    value["probes"].push_back({probe.id, probe.parent, probe.best});
  return value;
}

EndedBy ended_by_from(const std::string& name) {
  for (EndedBy value : {EndedBy::rejection, EndedBy::bonus, EndedBy::eos, EndedBy::length, EndedBy::schedule,
                        EndedBy::none}) {
    if (name == to_string(value)) return value;
  }
  throw Error({.what = "ended_by",
               .got = name,
               .expected = "rejection, bonus, eos, length, schedule or none",
               .advice = ""});
}

Finish finish_from(const std::string& name) {
  for (Finish value : {Finish::eos, Finish::length, Finish::stop, Finish::context, Finish::cancelled}) {
    if (name == to_string(value)) return value;
  }
  throw Error(
      {.what = "finish", .got = name, .expected = "eos, length, stop, context or cancelled", .advice = ""});
}

StepRecord step_from_json(const json& value) {
  StepRecord step;
  value.at("source").get_to(step.source);
  value.at("accepted").get_to(step.accepted);
  value.at("emitted").get_to(step.emitted);
  step.ended_by = ended_by_from(value.at("ended_by").get<std::string>());
  value.at("rows").get_to(step.rows);
  value.at("draft_calls").get_to(step.draft_calls);
  value.at("ns").get_to(step.times.ns);
  int node = 0;
  for (const json& token : value.at("tokens")) step.drafted.push_back(drafted_from_json(token, ++node));
  step.pool_size = value.value("pool", std::int64_t{-1});
  if (const auto probes = value.find("probes"); probes != value.end()) {
    for (const json& probe : *probes) step.probes.push_back({probe.at(0), probe.at(1), probe.at(2)});
  }
  return step;
}

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

}  // namespace

std::vector<Token> LineRecord::tokens() const {
  std::vector<Token> all;
  for (const GenerationRecord& turn : turns) all.insert(all.end(), turn.tokens.begin(), turn.tokens.end());
  return all;
}

std::vector<std::uint32_t> LineRecord::row_hashes() const {
  std::vector<std::uint32_t> all;
  for (const GenerationRecord& turn : turns)
    all.insert(all.end(), turn.row_hashes.begin(), turn.row_hashes.end());
  return all;
}

std::int64_t LineRecord::decode_ns() const {
  std::int64_t sum = 0;
  for (const GenerationRecord& turn : turns) sum += turn.decode_ns;
  return sum;
}

std::int64_t LineRecord::cpu_ns() const {
  std::int64_t sum = 0;
  for (const GenerationRecord& turn : turns) sum += turn.cpu_ns;
  return sum;
}

std::int64_t LineRecord::prefill_ns() const {
  std::int64_t sum = 0;
  for (const GenerationRecord& turn : turns) sum += turn.prefill_ns + turn.draft_prefill_ns;
  return sum;
}

std::string output_hash(TokenSpan tokens) {
  static_assert(std::endian::native == std::endian::little);
  return sha256_hex(std::as_bytes(tokens));
}

nlohmann::json to_json(const LineRecord& line) {
  json out = {{"schema_version", kSchemaVersion},
              {"case", line.case_id},
              {"prompt", line.prompt},
              {"category", line.category},
              {"seed", line.seed},
              {"repeat", line.repeat},
              {"order", line.order}};
  if (!line.error.empty()) {
    out["error"] = line.error;
    return out;
  }
  json turns = json::array(), steps = json::array();
  Work target_prefill, target, draft_prefill, draft;
  PhaseTimes phases;
  std::int64_t prefill_ns = 0, draft_prefill_ns = 0;
  for (const GenerationRecord& turn : line.turns) {
    json entry = {{"context_length", turn.context_length},
                  {"tokens", turn.tokens.size()},
                  {"steps", turn.steps.size()},
                  {"prefill_ns", turn.prefill_ns},
                  {"draft_prefill_ns", turn.draft_prefill_ns},
                  {"decode_ns", turn.decode_ns},
                  {"cpu_ns", turn.cpu_ns},
                  {"finish", to_string(turn.finish)},
                  {"work",
                   {{"target_prefill", to_json(turn.target_prefill)},
                    {"target", to_json(turn.target)},
                    {"draft_prefill", to_json(turn.draft_prefill)},
                    {"draft", to_json(turn.draft)}}}};
    if (!turn.context.empty()) entry["context"] = turn.context;
    if (turn.round_trips > 0 || turn.planned_steps > 0) {
      entry["device"] = {{"planned_steps", turn.planned_steps},
                         {"round_trips", turn.round_trips},
                         {"stamped_ns", turn.stamped_ns}};
    }
    turns.push_back(std::move(entry));
    for (const StepRecord& step : turn.steps) {
      steps.push_back(to_json(step));
      phases += step.times;
    }
    target_prefill += turn.target_prefill;
    target += turn.target;
    draft_prefill += turn.draft_prefill;
    draft += turn.draft;
    prefill_ns += turn.prefill_ns;
    draft_prefill_ns += turn.draft_prefill_ns;
  }
  const std::vector<Token> tokens = line.tokens();
  const std::vector<std::uint32_t> hashes = line.row_hashes();
  out["context_length"] = line.turns.empty() ? 0 : line.turns.front().context_length;
  out["tokens"] = tokens;
  out["turns"] = std::move(turns);
  out["output_hash"] = output_hash(tokens);
  out["logits_hash"] = sha256_hex(std::as_bytes(std::span(hashes)));
  out["row_hashes"] = hashes;
  out["wall_ns"] = line.decode_ns();
  out["cpu_ns"] = line.cpu_ns();
  out["prefill_ns"] = prefill_ns;
  out["draft_prefill_ns"] = draft_prefill_ns;
  out["phase_ns"] = {{"draft", phases[Phase::draft]},
                     {"target", phases[Phase::target]},
                     {"accept", phases[Phase::accept]},
                     {"other", phases[Phase::other]}};
  out["work"] = {{"target_prefill", to_json(target_prefill)},
                 {"target", to_json(target)},
                 {"draft_prefill", to_json(draft_prefill)},
                 {"draft", to_json(draft)}};
  out["matches_reference"] = or_null(line.matches_reference);
  out["first_divergence"] = or_null(line.first_divergence);
  if (!line.gpu.is_null()) out["gpu"] = line.gpu;
  out["steps"] = std::move(steps);
  if (!line.pieces.empty()) {
    out["pieces"] = line.pieces;
    out["text"] = line.text;
  }
  return out;
}

LineRecord line_from_json(const nlohmann::json& value, const std::string& where) try {
  LineRecord line;
  if (const int version = value.at("schema_version").get<int>(); version != kSchemaVersion) {
    throw Error({.what = where + ": schema_version",
                 .got = std::to_string(version),
                 .expected = std::to_string(kSchemaVersion),
                 .advice = "Read it with the version of speclab that wrote it."});
  }
  value.at("case").get_to(line.case_id);
  value.at("prompt").get_to(line.prompt);
  value.at("category").get_to(line.category);
  value.at("seed").get_to(line.seed);
  value.at("repeat").get_to(line.repeat);
  value.at("order").get_to(line.order);
  line.error = value.value("error", "");
  if (!line.error.empty()) return line;
  const auto tokens = value.at("tokens").get<std::vector<Token>>();
  const auto hashes = value.at("row_hashes").get<std::vector<std::uint32_t>>();
  const json& steps = value.at("steps");
  std::size_t token = 0, step = 0;
  for (const json& entry : value.at("turns")) {
    GenerationRecord turn;
    entry.at("context_length").get_to(turn.context_length);
    turn.context = entry.value("context", std::vector<Token>());
    const auto token_count = entry.at("tokens").get<std::size_t>(),
               step_count = entry.at("steps").get<std::size_t>();
    if (token + token_count > tokens.size() || step + step_count > steps.size()) {
      throw Error({.what = where,
                   .got = "turns that count more tokens or steps than there are",
                   .expected = "",
                   .advice = ""});
    }
    turn.tokens.assign(tokens.begin() + token, tokens.begin() + token + token_count);
    if (!hashes.empty()) turn.row_hashes.assign(hashes.begin() + token, hashes.begin() + token + token_count);
    for (std::size_t i = 0; i < step_count; ++i) turn.steps.push_back(step_from_json(steps[step + i]));
    token += token_count;
    step += step_count;
    entry.at("prefill_ns").get_to(turn.prefill_ns);
    entry.at("draft_prefill_ns").get_to(turn.draft_prefill_ns);
    entry.at("decode_ns").get_to(turn.decode_ns);
    entry.at("cpu_ns").get_to(turn.cpu_ns);
    if (entry.contains("device")) {
      const json& device = entry["device"];
      device.at("planned_steps").get_to(turn.planned_steps);
      device.at("round_trips").get_to(turn.round_trips);
      device.at("stamped_ns").get_to(turn.stamped_ns);
    }
    turn.finish = finish_from(entry.at("finish").get<std::string>());
    const json& work = entry.at("work");
    turn.target_prefill = passes_from_json(work.at("target_prefill"));
    turn.target = passes_from_json(work.at("target"));
    turn.draft_prefill = passes_from_json(work.at("draft_prefill"));
    turn.draft = passes_from_json(work.at("draft"));
    line.turns.push_back(std::move(turn));
  }
  if (value.contains("pieces")) value.at("pieces").get_to(line.pieces);
  line.text = value.value("text", "");
  if (!value.at("matches_reference").is_null())
    line.matches_reference = value["matches_reference"].get<bool>();
  if (!value.at("first_divergence").is_null()) line.first_divergence = value["first_divergence"].get<int>();
  line.gpu = value.value("gpu", nlohmann::json());
  return line;
} catch (const nlohmann::json::exception& error) {
  throw Error({.what = where,
               .got = error.what(),
               .expected = "a line of a run",
               .advice = "See results/SCHEMA.md."});
}

}  // namespace speclab
