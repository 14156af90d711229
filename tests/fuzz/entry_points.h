#pragma once

#include <span>
#include <string_view>

/// One function for each reader of foreign files. The fuzzers call them, and so do the tests that repeat the
/// fuzzers' findings.
namespace speclab::fuzz {

// All functions read `input` and use the result. They return false when the reader throws an Error. Any other
// exception is a bug that the fuzzer has found.

bool read_safetensors_file(std::string_view input);
/// A GGUF file, and then the model in it: metadata, all tensors, tokenizer, chat template.
bool read_gguf(std::string_view input);
/// tokenizer.json; texts are encoded and decoded.
bool read_tokenizer(std::string_view input);
/// tokenizer.model of SentencePiece, and the same content as GGUF keys; texts are encoded and decoded.
bool read_sentencepiece(std::string_view input);
/// The Jinja source of a chat template; conversations are rendered.
bool read_chat_template(std::string_view input);
/// A config of `speclab run`.
bool read_experiment(std::string_view input);
/// A JSONL file of prompts.
bool read_prompts(std::string_view input);
/// The directory of a draft: config.json, a zero byte, model.safetensors with draft_vocab.
bool read_draft(std::string_view input);
/// A datastore of `retrieval`; phrases are looked up. Its checksum is corrected first, here and in
/// read_ngram_model().
bool read_datastore(std::string_view input);
/// A file of `ngram_model`; its laws are computed.
bool read_ngram_model(std::string_view input);
/// Three files of a run folder, separated by zero bytes: the lines of a case, calibration.jsonl and
/// teacher.jsonl. They are read as --resume and `speclab report` read them.
bool read_record(std::string_view input);

struct EntryPoint {
  std::string_view name;  ///< "safetensors", "gguf", "tokenizer", "sentencepiece", "chat_template",
                          ///< "experiment", "prompts", "draft", "datastore", "ngram_model", "record"
  bool (*read)(std::string_view input);
};
std::span<const EntryPoint> entry_points();

}  // namespace speclab::fuzz
