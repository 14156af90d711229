#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/text/tokenizer.h"
#include "core/decoding/drafting/token_corpus.h"
#include "experiments/cli/command.h"

/// Arguments and input files of `speclab datastore` and `speclab ngram`, which both build a file from texts.
namespace speclab {

/// Reads texts into a corpus. A .jsonl file holds one document per line, {"text": "..."} or {"ids": [1, 2]}.
/// Any other file is a single document. Without a tokenizer, only ids are allowed. Throws Error that names
/// the file, and the line of a .jsonl file.
void add_documents(TokenCorpus& corpus, const std::vector<std::string>& paths,
                   const std::optional<Tokenizer>& tokenizer);

/// The arguments of `speclab NAME build --model PATH --out FILE TEXT...`, checked.
struct BuildArguments {
  boost::program_options::variables_map values;
  std::string out;
  int vocab;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::string> files;
  std::string tokenizer_sha256() const { return tokenizer ? tokenizer->sha256() : ""; }
};
/// Parses these arguments. `more` holds the options that only this command has. Returns nothing for --help.
std::optional<BuildArguments> parse_build(const Command& command, const std::vector<std::string>& arguments,
                                          const boost::program_options::options_description& more);

}  // namespace speclab
