#include "experiments/cli/corpus_files.h"

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/model/files/checkpoint.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

std::vector<Token> ids_of(const json& document, const std::string& where,
                          const std::optional<Tokenizer>& tokenizer) {
  const bool text = document.is_object() && document.contains("text") && document["text"].is_string();
  if (text && tokenizer) return tokenizer->encode(document["text"].get<std::string>());
  const json ids = document.is_object() && document.contains("ids") ? document["ids"] : json();
  bool whole = ids.is_array();
  for (const json& id : ids) whole = whole && id.is_number_integer() && id >= 0 && id <= INT32_MAX;
  if (!whole) {
    throw Error({where, document.dump().substr(0, 80),
                 tokenizer ? R"({"text": "..."} or {"ids": [1, 2]})"
                           : R"({"ids": [1, 2]}, because the model has no tokenizer)",
                 ""});
  }
  return ids.get<std::vector<Token>>();
}

void add_file(TokenCorpus& corpus, const std::string& path, const std::optional<Tokenizer>& tokenizer) {
  const MappedFile file = MappedFile::open(path);
  std::string_view text = file.text();
  if (!path.ends_with(".jsonl")) {
    if (!tokenizer)
      throw Error({path, "text", "a .jsonl file with ids, because the model has no tokenizer",
                   "Convert the text to token ids."});
    corpus.add(tokenizer->encode(text));
    return;
  }
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const json document = json::parse(line, nullptr, false);
    if (document.is_discarded())
      throw Error({where, "no JSON", "one JSON document per line", "Repair or remove the line."});
    corpus.add(ids_of(document, where, tokenizer));
  }
}

}  // namespace

void add_documents(TokenCorpus& corpus, const std::vector<std::string>& paths,
                   const std::optional<Tokenizer>& tokenizer) {
  for (const std::string& path : paths) add_file(corpus, path, tokenizer);
}

std::optional<BuildArguments> parse_build(const Command& command, const std::vector<std::string>& arguments,
                                          const po::options_description& more) {
  po::options_description options;
  options.add_options()("model", po::value<std::string>(),
                        "the model whose tokenizer encodes the texts: a GGUF file or a directory")(
      "out", po::value<std::string>(), "the file to write")("json", "print JSON");
  options.add(more);
  auto values = parse_arguments(command, arguments, options, {"ACTION", "FILE..."});
  if (!values) return std::nullopt;
  const std::string action = required(*values, "ACTION", command);
  const std::string name = fmt::format("speclab {}", command.name);
  if (action != "build")
    throw Error({name, "\"" + action + "\"", "\"build\"", name + " --help shows an example."});
  const std::string out = required(*values, "out", command);
  const Checkpoint checkpoint = Checkpoint::open(required(*values, "model", command));
  if (!values->count("FILE"))
    throw Error({name + " build", "no files", "one or more texts", "Name .txt or .jsonl files."});
  const auto files = (*values)["FILE"].as<std::vector<std::string>>();
  return BuildArguments{std::move(*values), out, checkpoint.config().vocab, checkpoint.tokenizer(), files};
}

}  // namespace speclab
