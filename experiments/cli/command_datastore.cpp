#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/decoding/drafting/datastore.h"
#include "experiments/cli/corpus_files.h"

namespace speclab {
namespace {

int run_datastore(const Command& command, const std::vector<std::string>& arguments) {
  const auto build = parse_build(command, arguments, {});
  if (!build) return kOk;
  Datastore::Builder builder(build->vocab, build->tokenizer_sha256());
  add_documents(builder, build->files, build->tokenizer);
  builder.write(build->out);
  const Datastore store = Datastore::open(build->out);
  if (build->values.count("json")) {
    fmt::print("{}\n", nlohmann::json{{"path", build->out},
                                      {"tokens", store.tokens()},
                                      {"vocab", store.vocab()},
                                      {"tokenizer", store.tokenizer()}}
                           .dump(2));
  } else {
    fmt::print("{}: {} tokens\n", build->out, store.tokens());
  }
  return kOk;
}

}  // namespace

const Command kDatastoreCommand = {"datastore", "build --model PATH --out FILE TEXT...",
                                   "Builds a datastore of texts for strategies that copy from one.",
                                   "speclab datastore build --model models/SmolLM2-135M-Instruct.Q4_1.gguf "
                                   "--out texts.datastore notes.txt answers.jsonl",
                                   run_datastore};

}  // namespace speclab
