#include "tests/slow/slow_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "tests/model/heads/random_heads.h"
#include "tests/model/net/target_model.h"

namespace speclab::fixtures {
namespace {

namespace fs = std::filesystem;

bool asked_for(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

/// Quotes a word for a shell command.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Makes random heads over the most frequent tokens of the prompts, so that the target accepts some of their
/// guesses. Those of Hydra have prefix attention.
void make_heads(const fs::path& folder, const std::vector<std::string>& texts) {
  const Checkpoint target = Checkpoint::open(target_file());
  const std::optional<Tokenizer> tokenizer = target.tokenizer();
  ASSERT_TRUE(tokenizer.has_value());
  std::map<Token, int> counts;
  for (const std::string& text : texts)
    for (const Token token : tokenizer->encode(text)) ++counts[token];
  std::vector<std::pair<int, Token>> order;
  for (const auto& [token, count] : counts) order.emplace_back(-count, token);
  std::sort(order.begin(), order.end());
  RandomHead shape{.inner = 32};
  for (std::size_t i = 0; i < order.size() && i < 64; ++i) shape.ids.push_back(order[i].second);
  std::sort(shape.ids.begin(), shape.ids.end());
  shape.version = 3;
  RandomHead queries = shape;
  queries.queries = true;
  write_random_head(folder / "block_draft_queries", "block_draft", target.config(), queries);
  for (const char* kind : {"medusa", "hydra", "mlp_speculator", "eagle", "parallel_eagle", "mtp", "falcon",
                           "block_draft", "pass"}) {
    shape.prefix = std::string(kind) == "hydra";
    if (std::string(kind) == "pass") shape.ids.clear();  // it has the output head of the target
    write_random_head(folder / kind, kind, target.config(), shape);
    if (std::string(kind) != "mtp") continue;
    RandomHead several = shape;
    several.blocks = 3;
    write_random_head(folder / "mtp_modules", kind, target.config(), several);
  }
  // These use the target's output layer, so they have no vocabulary map.
  write_random_head(folder / "blockwise", "blockwise", target.config(), {.inner = 32});
}

}  // namespace

int run_speclab(const std::string& arguments) {
  const std::string command = fmt::format("cd {} && SPECLAB_BACKEND=cpu exec {} {}",
                                          quoted(SPECLAB_SOURCE_DIR), quoted(SPECLAB_BINARY), arguments);
  std::fflush(nullptr);
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void make_files_of_prompts() {
  const fs::path root = SPECLAB_SOURCE_DIR, folder = root / "build/slow";
  fs::create_directories(folder);
  std::ofstream documents(folder / "prompts.jsonl");
  std::vector<std::string> texts;
  for (const nlohmann::json& prompt : read_json_lines(root / "configs/prompts/speclab.jsonl")) {
    for (const nlohmann::json& turn : prompt["turns"]) {
      documents << nlohmann::json{{"text", turn}}.dump() << "\n";
      texts.push_back(turn.get<std::string>());
    }
  }
  documents.close();
  make_heads(folder / "heads", texts);
  for (const char* made : {"datastore build --out build/slow/prompts.datastore",
                           "ngram build --order 3 --out build/slow/prompts.ngrams"})
    EXPECT_EQ(run_speclab(fmt::format("{} --model {} build/slow/prompts.jsonl", made,
                                      quoted(target_file().string()))),
              0)
        << made;
}

SlowRun::SlowRun(const std::string& name) { run(name, "tests/slow/" + name + ".json"); }

SlowRun::SlowRun(const std::string& name, const nlohmann::json& experiment) {
  const fs::path file = fs::path(SPECLAB_SLOW_FOLDER) / (name + ".json");
  fs::create_directories(file.parent_path());
  write_json_file(file, experiment);
  run(name, file.string());
}

void SlowRun::run(const std::string& name, const std::string& file) {
  trial = asked_for("SPECLAB_SLOW_TRIAL");
  const fs::path folder = fs::path(SPECLAB_SLOW_FOLDER) / (trial ? name + "-trial" : name);
  const bool resume = asked_for("SPECLAB_SLOW_RESUME") && fs::exists(folder / "config.json");
  if (!resume) fs::remove_all(folder);
  std::string command = fmt::format("run {} --out {}", quoted(file), quoted(folder.string()));
  if (resume) command += " --resume";
  if (trial) command += " --set prompts.limit=2 --set options.max_tokens=16";
  exit_code = run_speclab(command);
  if (!fs::exists(folder / "config.json")) return;
  config = read_json_file(folder / "config.json");
  for (const auto& entry : config["cases"]) {
    const auto id = entry["id"].get<std::string>();
    lines[id] = read_case_file(folder / "cases" / case_file_name(id));
  }
}

const LineRecord* SlowRun::line(const std::string& case_id, const std::string& prompt) const {
  for (const LineRecord& line : lines.at(case_id)) {
    if (line.prompt == prompt) return &line;
  }
  return nullptr;
}

void DraftCounts::add(const LineRecord& line) {
  for (const GenerationRecord& turn : line.turns) {
    for (const StepRecord& step : turn.steps) {
      ++steps;
      emitted += step.emitted;
      for (const DraftedToken& token : step.drafted) {
        ++drafted;
        tested += token.tested;
        accepted += token.tested && token.accepted;
        rejected += token.tested && !token.accepted;
      }
    }
  }
}

DraftCounts& DraftCounts::operator+=(const DraftCounts& other) {
  steps += other.steps, emitted += other.emitted, drafted += other.drafted;
  tested += other.tested, accepted += other.accepted, rejected += other.rejected;
  return *this;
}

}  // namespace speclab::fixtures
