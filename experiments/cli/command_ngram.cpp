#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/decoding/drafting/ngrams/ngram_file.h"
#include "experiments/cli/corpus_files.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

int run_ngram(const Command& command, const std::vector<std::string>& arguments) {
  int order = 3;
  po::options_description more;
  more.add_options()("order", po::value(&order)->default_value(3), "longest n-gram, from 1 to 6");
  const auto build = parse_build(command, arguments, more);
  if (!build) return kOk;
  if (order < 1 || order > NgramCounts::kMostOrder) {
    throw Error({"--order", std::to_string(order),
                 fmt::format("an order from 1 to {}", NgramCounts::kMostOrder), ""});
  }
  NgramFile::Builder builder(build->vocab, build->tokenizer_sha256());
  add_documents(builder, build->files, build->tokenizer);
  builder.write(build->out, order);
  const NgramFile file = NgramFile::open(build->out);
  nlohmann::json sizes = nlohmann::json::array();
  for (int length = 1; length <= file.order(); ++length) sizes.push_back(file.nodes(length));
  if (build->values.count("json")) {
    fmt::print(
        "{}\n",
        nlohmann::json{
            {"path", build->out}, {"ngrams", sizes}, {"vocab", file.vocab()}, {"tokenizer", file.tokenizer()}}
            .dump(2));
  } else {
    fmt::print("{}: {} n-grams of 1 to {} tokens\n", build->out, sizes.dump(), file.order());
  }
  return kOk;
}

}  // namespace

const Command kNgramCommand = {"ngram", "build --model PATH --out FILE [--order N] TEXT...",
                               "Builds an n-gram model of texts for strategies that draft from one.",
                               "speclab ngram build --model models/SmolLM2-135M-Instruct.Q4_1.gguf "
                               "--out texts.ngrams --order 3 notes.txt answers.jsonl",
                               run_ngram};

}  // namespace speclab
