#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/model/checkpoint.h"
#include "core/spec/datastore.h"
#include "experiments/command.h"

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
                           : R"({"ids": [1, 2]}: the model has no tokenizer)",
                 ""});
  }
  return ids.get<std::vector<Token>>();
}

// A .jsonl file holds a document a line, any other file is a document.
void add_file(Datastore::Builder& builder, const std::string& path,
              const std::optional<Tokenizer>& tokenizer) {
  const MappedFile file = MappedFile::open(path);
  std::string_view text = file.text();
  if (!path.ends_with(".jsonl")) {
    if (!tokenizer)
      throw Error(
          {path, "text", "a .jsonl file with ids: the model has no tokenizer", "Encode it yourself."});
    builder.add(tokenizer->encode(text));
    return;
  }
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const json document = json::parse(line, nullptr, false);
    if (document.is_discarded())
      throw Error({where, "no JSON", "a document as JSON on each line", "Repair or remove the line."});
    builder.add(ids_of(document, where, tokenizer));
  }
}

int run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("model", po::value<std::string>(), "whose tokenizer and ids it is for")(
      "out", po::value<std::string>(), "the file to write")("json", "as JSON");
  const auto values = parse_arguments(command, arguments, options, {"ACTION", "FILE..."});
  if (!values) return kOk;
  const std::string action = required(*values, "ACTION", command);
  if (action != "build")
    throw Error({"speclab datastore", "\"" + action + "\"", "\"build\"",
                 "speclab datastore --help shows an example."});
  const std::string out = required(*values, "out", command);
  const Checkpoint checkpoint = Checkpoint::open(required(*values, "model", command));
  const std::optional<Tokenizer> tokenizer = checkpoint.tokenizer();
  if (!values->count("FILE"))
    throw Error(
        {"speclab datastore build", "no files", "texts to put into it", "Name .txt or .jsonl files."});
  Datastore::Builder builder(checkpoint.config().vocab, tokenizer ? tokenizer->sha256() : "");
  for (const std::string& path : (*values)["FILE"].as<std::vector<std::string>>())
    add_file(builder, path, tokenizer);
  builder.write(out);
  const Datastore store = Datastore::open(out);
  if (values->count("json")) {
    fmt::print("{}\n", json{{"path", out},
                            {"tokens", store.tokens()},
                            {"vocab", store.vocab()},
                            {"tokenizer", store.tokenizer()}}
                           .dump(2));
  } else {
    fmt::print("{}: {} tokens\n", out, store.tokens());
  }
  return kOk;
}

}  // namespace

const Command kDatastoreCommand = {"datastore", "build --model PATH --out FILE TEXT...",
                                   "Builds the datastore that the strategy `retrieval` looks up.",
                                   "speclab datastore build --model models/SmolLM2-135M-Instruct.Q4_1.gguf "
                                   "--out texts.datastore notes.txt answers.jsonl",
                                   run};

}  // namespace speclab
