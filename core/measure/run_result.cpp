#include "core/measure/run_result.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/base/utf8.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Rounds to seven significant digits. These are enough for a float probability and take half the bytes.
double shortened(double value) { return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr); }

json to_json(const Work& passes) {
  json value = {{"calls", passes.calls},      {"rows", passes.rows},   {"logit_rows", passes.logit_rows},
                {"keys", passes.keys},        {"flops", passes.flops}, {"weight_bytes", passes.weight_bytes},
                {"kv_bytes", passes.kv_bytes}};
  if (passes.hidden_bytes > 0) value["hidden_bytes"] = passes.hidden_bytes;
  return value;
}

/// Upper limit of a number in a record, so that sums stay far within 64 bits.
constexpr std::int64_t kMostNumber = 1'000'000'000'000'000;

/// Reads a whole number and checks its range. nlohmann::json itself would convert 1e300 to an int and -1 to a
/// size.
template <class T>
T whole(const json& value, const char* name, std::int64_t least, std::int64_t most) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                        : value.is_number_integer() && value >= least && value <= most;
  if (!fits || value < least) {
    throw Error({.what = name,
                 .got = printable(value.dump(-1, ' ', false, json::error_handler_t::replace), 40),
                 .expected = fmt::format("a whole number from {} to {}", least, most),
                 .advice = "The record is damaged."});
  }
  return value.get<T>();
}
/// Largest tree_number that a record may have, because readers use the number as an index into arrays.
constexpr std::int64_t kMostTreeNumber = 1023;
template <class T>
constexpr std::int64_t kMostOf = std::cmp_less(std::numeric_limits<T>::max(), kMostNumber)
                                     ? static_cast<std::int64_t>(std::numeric_limits<T>::max())
                                     : kMostNumber;
template <class T>
void read(const json& object, const char* name, T& out, std::int64_t least = 0,
          std::int64_t most = kMostOf<T>) {
  out = whole<T>(object.at(name), name, least, most);
}
template <class T>
std::vector<T> read_all(const json& object, const char* name, std::int64_t least = 0) {
  const auto& values = object.at(name).get_ref<const json::array_t&>();
  std::vector<T> out;
  out.reserve(values.size());
  for (const json& value : values) out.push_back(whole<T>(value, name, least, kMostOf<T>));
  return out;
}

Work passes_from_json(const json& value) {
  Work passes;
  read(value, "calls", passes.calls);
  read(value, "rows", passes.rows);
  read(value, "logit_rows", passes.logit_rows);
  read(value, "keys", passes.keys);
  value.at("flops").get_to(passes.flops);
  value.at("weight_bytes").get_to(passes.weight_bytes);
  value.at("kv_bytes").get_to(passes.kv_bytes);
  passes.hidden_bytes = value.value("hidden_bytes", 0.0);
  return passes;
}

json to_json(const DraftedToken& token, int node) {
  json value = {{"id", token.id},     {"p", shortened(token.p)}, {"q", shortened(token.q)},
                {"rank", token.rank}, {"tested", token.tested},  {"accepted", token.accepted}};
  if (token.parent != node - 1) value["parent"] = token.parent;
  if (token.confidence >= 0) value["confidence"] = shortened(token.confidence);
  if (token.entropy >= 0) value["entropy"] = shortened(token.entropy);
  if (token.predicted >= 0) value["predicted"] = shortened(token.predicted);
  if (token.tested) value["expected"] = shortened(token.expected);
  if (token.distance >= 0) value["distance"] = shortened(token.distance);
  if (token.kl >= 0) value["kl"] = std::isfinite(token.kl) ? json(shortened(token.kl)) : json(nullptr);
  return value;
}

DraftedToken drafted_from_json(const json& value, int node) {
  DraftedToken token;
  read(value, "id", token.id, -1);
  value.at("p").get_to(token.p);
  value.at("q").get_to(token.q);
  read(value, "rank", token.rank, -1);
  value.at("tested").get_to(token.tested);
  value.at("accepted").get_to(token.accepted);
  token.parent = node - 1;
  if (value.contains("parent")) read(value, "parent", token.parent, 0, node - 1);
  token.confidence = value.value("confidence", -1.0f);
  token.entropy = value.value("entropy", -1.0f);
  token.predicted = value.value("predicted", -1.0f);
  token.expected = value.value("expected", -1.0);
  token.distance = value.value("distance", -1.0);
  if (const auto kl = value.find("kl"); kl != value.end())
    token.kl = kl->is_null() ? std::numeric_limits<double>::infinity() : kl->get<double>();
  return token;
}

json to_json(const AheadWork& work) {
  return {{"forwards", work.forwards},
          {"drafted", work.drafted},
          {"right", work.right},
          {"ns", work.ns},
          {"overlapped_ns", work.overlapped_ns},
          {"waited_ns", work.waited_ns}};
}

AheadWork ahead_from_json(const json& value) {
  AheadWork work;
  read(value, "forwards", work.forwards);
  read(value, "drafted", work.drafted);
  value.at("right").get_to(work.right);
  read(value, "ns", work.ns);
  read(value, "overlapped_ns", work.overlapped_ns, 0, work.ns);
  read(value, "waited_ns", work.waited_ns);
  return work;
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
  if (step.root_confidence >= 0) value["root_confidence"] = shortened(step.root_confidence);
  if (step.tree_number >= 0) value["tree"] = step.tree_number;
  if (step.ahead) value["ahead"] = to_json(*step.ahead);
  for (const ProbedToken& probe : step.probes)
    value["probes"].push_back({probe.id, probe.parent, probe.best});
  for (const Contribution& part : step.contributions) value["sources"].push_back({part.first, part.source});
  for (const DraftReview& review : step.reviews)
    value["reviews"].push_back({review.reviewer, review.source, review.tested, review.kept});
  for (const DevicePart& part : step.parts) value["parts"].push_back({part.rows, part.ns});
  const auto width = static_cast<std::size_t>(step.top_width);
  for (std::size_t i = 0; width > 0 && i + width <= step.top.size(); i += width) {
    json row = json::array();
    for (std::size_t k = 0; k < width; ++k) row.push_back(shortened(step.top[i + k]));
    value["top"].push_back(std::move(row));
  }
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

constexpr std::array<std::string_view, 3> kPromises = {"nothing", "ids", "rows"};  // in the order of Promise

Promise promise_from(const std::string& name) {
  const auto found = std::ranges::find(kPromises, name);
  if (found != kPromises.end()) return static_cast<Promise>(found - kPromises.begin());
  throw Error({.what = "promise", .got = name, .expected = "nothing, ids or rows", .advice = ""});
}

/// Reads the largest probabilities of the rows of `drafted` tokens: one list per token, all of equal length.
void read_top(const json& rows, int drafted, StepRecord& step) {
  const bool fits = rows.is_array() && std::cmp_equal(rows.size(), drafted) && drafted > 0 &&
                    rows[0].is_array() && !rows[0].empty() && std::ranges::all_of(rows, [&](const json& row) {
                      return row.is_array() && row.size() == rows[0].size() &&
                             std::ranges::all_of(row, [](const json& p) { return p.is_number(); });
                    });
  if (!fits) {
    throw Error({.what = "top",
                 .got = printable(rows.dump(-1, ' ', false, json::error_handler_t::replace), 40),
                 .expected = fmt::format("{} lists of numbers, all of equal length", drafted),
                 .advice = "The record is damaged."});
  }
  step.top_width = static_cast<int>(rows[0].size());
  for (const json& row : rows) {
    for (const json& p : row) step.top.push_back(p.get<float>());
  }
}

StepRecord step_from_json(const json& value) {
  StepRecord step;
  value.at("source").get_to(step.source);
  int node = 0;
  for (const json& token : value.at("tokens")) step.drafted.push_back(drafted_from_json(token, ++node));
  read(value, "accepted", step.accepted, 0, node);
  read(value, "emitted", step.emitted, 0, node + 1);
  step.ended_by = ended_by_from(value.at("ended_by").get<std::string>());
  read(value, "rows", step.rows);
  read(value, "draft_calls", step.draft_calls);
  const json& ns = value.at("ns");
  for (std::size_t phase = 0; phase < step.times.ns.size(); ++phase)
    step.times.ns[phase] = whole<std::int64_t>(ns.at(phase), "ns", 0, kMostNumber);
  if (value.contains("pool")) read(value, "pool", step.pool_size);
  step.root_confidence = value.value("root_confidence", -1.0f);
  if (value.contains("tree")) read(value, "tree", step.tree_number, 0, kMostTreeNumber);
  if (const auto top = value.find("top"); top != value.end()) read_top(*top, node, step);
  if (const auto ahead = value.find("ahead"); ahead != value.end()) step.ahead = ahead_from_json(*ahead);
  if (const auto probes = value.find("probes"); probes != value.end()) {
    const auto at = [](const json& probe, std::size_t i) {
      return whole<int>(probe.at(i), "probes", -1, std::numeric_limits<int>::max());
    };
    for (const json& probe : *probes) step.probes.push_back({at(probe, 0), at(probe, 1), at(probe, 2)});
  }
  if (const auto parts = value.find("sources"); parts != value.end()) {
    std::int64_t least = 1;  // a contribution does not begin at a lower node than the one before
    for (const json& part : *parts) {
      step.contributions.push_back({whole<int>(part.at(0), "sources", least, node + 1), part.at(1)});
      least = step.contributions.back().first;
    }
  }
  if (const auto reviews = value.find("reviews"); reviews != value.end()) {
    for (const json& review : *reviews) {
      const int tested = whole<int>(review.at(2), "reviews", 0, kMostOf<int>);
      step.reviews.push_back(
          {review.at(0), review.at(1), tested, whole<int>(review.at(3), "reviews", 0, tested)});
    }
  }
  if (const auto parts = value.find("parts"); parts != value.end()) {
    for (const json& part : *parts)
      step.parts.push_back({whole<int>(part.at(0), "parts", 0, kMostOf<int>),
                            whole<std::int64_t>(part.at(1), "parts", 0, kMostNumber)});
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

std::vector<float> LineRecord::row_entropies() const {
  std::vector<float> all;
  for (const GenerationRecord& turn : turns)
    all.insert(all.end(), turn.row_entropies.begin(), turn.row_entropies.end());
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

namespace {

std::string logits_hash(const std::vector<std::uint32_t>& row_hashes) {
  return sha256_hex(std::as_bytes(std::span(row_hashes)));
}

/// Checks a stored hash against the data that it was computed from.
void require_hash(const json& line, const char* name, const std::string& hash, const char* of) {
  const std::string stored = line.at(name).get<std::string>();
  if (stored == hash) return;
  throw Error({.what = name,
               .got = printable(stored, 64),
               .expected = fmt::format("{}, the hash of the line's {}", hash, of),
               .advice = "The line was changed after it was written."});
}

}  // namespace

nlohmann::json to_json(const LineRecord& line) {
  json out = {{"schema_version", kSchemaVersion},
              {"case", line.case_id},
              {"prompt", line.prompt},
              {"category", line.category},
              {"seed", line.seed},
              {"repeat", line.repeat},
              {"order", line.order}};
  if (line.calibration_rounds >= 0) out["calibration_rounds"] = line.calibration_rounds;
  if (!line.error.empty()) {
    out["error"] = line.error;
    return out;
  }
  for (const ProbeTimes& probe : line.probes) out["probes"].push_back({probe.memory_ns, probe.arithmetic_ns});
  for (const TimedForward& forward : line.drift) out["drift"].push_back({forward.rows, forward.ns});
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
    if (turn.observe_prompt_ns > 0) entry["observe_prompt_ns"] = turn.observe_prompt_ns;
    for (const Work& work : turn.drafts) entry["work"]["drafts"].push_back(to_json(work));
    if (!turn.context.empty()) entry["context"] = turn.context;
    if (turn.round_trips > 0 || turn.planned_steps > 0) {
      entry["device"] = {{"planned_steps", turn.planned_steps},
                         {"verified_steps", turn.verified_steps},
                         {"round_trips", turn.round_trips},
                         {"stamped_ns", turn.stamped_ns}};
      if (!turn.device_graph.empty()) entry["device"]["graph"] = turn.device_graph;
      if (!turn.device_graph_problem.empty()) entry["device"]["graph_problem"] = turn.device_graph_problem;
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
  out["logits_hash"] = logits_hash(hashes);
  out["row_hashes"] = hashes;
  for (const float entropy : line.row_entropies()) out["target_entropy"].push_back(shortened(entropy));
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
  if (line.promise) {
    out["promise"] = kPromises[static_cast<std::size_t>(*line.promise)];
  } else {
    out["matches_reference"] = or_null(line.matches_reference);
    out["first_divergence"] = or_null(line.first_divergence);
  }
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
  if (const json& version = value.at("schema_version"); version != kSchemaVersion) {
    throw Error({.what = "schema_version",
                 .got = printable(version.dump(-1, ' ', false, json::error_handler_t::replace), 40),
                 .expected = std::to_string(kSchemaVersion),
                 .advice = "Read it with the version of speclab that wrote it."});
  }
  value.at("case").get_to(line.case_id);
  value.at("prompt").get_to(line.prompt);
  value.at("category").get_to(line.category);
  const json& seed = value.at("seed");
  if (!seed.is_number_unsigned())
    whole<std::uint64_t>(seed, "seed", 0, std::numeric_limits<std::int64_t>::max());
  seed.get_to(line.seed);
  read(value, "repeat", line.repeat);
  read(value, "order", line.order);
  if (value.contains("calibration_rounds")) read(value, "calibration_rounds", line.calibration_rounds, 0);
  line.error = value.value("error", "");
  if (!line.error.empty()) return line;
  if (const auto probes = value.find("probes"); probes != value.end()) {
    for (const json& probe : *probes) {
      line.probes.push_back({whole<std::int64_t>(probe.at(0), "probes", 1, kMostOf<std::int64_t>),
                             whole<std::int64_t>(probe.at(1), "probes", 1, kMostOf<std::int64_t>)});
    }
  }
  if (const auto drift = value.find("drift"); drift != value.end()) {
    for (const json& forward : *drift)
      line.drift.push_back({whole<int>(forward.at(0), "drift", 1, kMostOf<int>),
                            whole<std::int64_t>(forward.at(1), "drift", 1, kMostOf<std::int64_t>)});
  }
  const auto tokens = read_all<Token>(value, "tokens");
  const auto hashes = read_all<std::uint32_t>(value, "row_hashes");
  if (!hashes.empty() && hashes.size() != tokens.size()) {
    throw Error({.what = "row_hashes",
                 .got = fmt::format("{} of them", hashes.size()),
                 .expected = fmt::format("one for each of {} tokens, or none", tokens.size()),
                 .advice = "The record is damaged."});
  }
  std::vector<float> entropies;
  if (value.contains("target_entropy")) value["target_entropy"].get_to(entropies);
  if (!entropies.empty() && entropies.size() != tokens.size()) {
    throw Error({.what = "target_entropy",
                 .got = fmt::format("{} of them", entropies.size()),
                 .expected = fmt::format("one for each of {} tokens, or none", tokens.size()),
                 .advice = "The record is damaged."});
  }
  require_hash(value, "output_hash", output_hash(tokens), "tokens");
  require_hash(value, "logits_hash", logits_hash(hashes), "row_hashes");
  const json& steps = value.at("steps");
  std::size_t token = 0, step = 0;
  for (const json& entry : value.at("turns")) {
    GenerationRecord turn;
    read(entry, "context_length", turn.context_length);
    if (entry.contains("context")) turn.context = read_all<Token>(entry, "context");
    // The line holds one list of the tokens of all turns and one of their steps. Each turn takes the next
    // part of both lists.
    std::size_t token_count = 0, step_count = 0;
    read(entry, "tokens", token_count, 0, static_cast<std::int64_t>(tokens.size() - token));
    read(entry, "steps", step_count, 0, static_cast<std::int64_t>(steps.size() - step));
    turn.tokens.assign(tokens.begin() + token, tokens.begin() + token + token_count);
    if (!hashes.empty()) turn.row_hashes.assign(hashes.begin() + token, hashes.begin() + token + token_count);
    if (!entropies.empty())
      turn.row_entropies.assign(entropies.begin() + token, entropies.begin() + token + token_count);
    for (std::size_t i = 0; i < step_count; ++i) turn.steps.push_back(step_from_json(steps[step + i]));
    token += token_count;
    step += step_count;
    read(entry, "prefill_ns", turn.prefill_ns);
    read(entry, "draft_prefill_ns", turn.draft_prefill_ns);
    if (entry.contains("observe_prompt_ns")) read(entry, "observe_prompt_ns", turn.observe_prompt_ns);
    read(entry, "decode_ns", turn.decode_ns);
    read(entry, "cpu_ns", turn.cpu_ns);
    if (entry.contains("device")) {
      const json& device = entry["device"];
      read(device, "planned_steps", turn.planned_steps);
      if (device.contains("verified_steps")) read(device, "verified_steps", turn.verified_steps);
      read(device, "round_trips", turn.round_trips);
      read(device, "stamped_ns", turn.stamped_ns);
      if (device.contains("graph")) turn.device_graph = device["graph"].get<std::string>();
      if (device.contains("graph_problem"))
        turn.device_graph_problem = device["graph_problem"].get<std::string>();
    }
    turn.finish = finish_from(entry.at("finish").get<std::string>());
    const json& work = entry.at("work");
    turn.target_prefill = passes_from_json(work.at("target_prefill"));
    turn.target = passes_from_json(work.at("target"));
    turn.draft_prefill = passes_from_json(work.at("draft_prefill"));
    turn.draft = passes_from_json(work.at("draft"));
    for (const json& one : work.value("drafts", json::array())) turn.drafts.push_back(passes_from_json(one));
    line.turns.push_back(std::move(turn));
  }
  if (value.contains("pieces")) value.at("pieces").get_to(line.pieces);
  line.text = value.value("text", "");
  if (value.contains("promise")) {
    line.promise = promise_from(value["promise"].get<std::string>());
  } else {
    if (!value.at("matches_reference").is_null())
      line.matches_reference = value["matches_reference"].get<bool>();
    if (!value.at("first_divergence").is_null())
      read(value, "first_divergence", line.first_divergence.emplace());
  }
  line.gpu = value.value("gpu", nlohmann::json());
  if (line.gpu.contains("joules"))
    static_cast<void>(
        line.gpu["joules"].get<double>());  // throws unless joules is a number; metrics rely on that
  return line;
} catch (const Error& error) {
  Error::Text text = error.text();
  text.what = where + ": " + text.what;
  throw Error(std::move(text));
} catch (const nlohmann::json::exception& error) {
  throw Error({.what = where,
               .got = error.what(),
               .expected = "a line of a run",
               .advice = "See results/SCHEMA.md."});
}

}  // namespace speclab
