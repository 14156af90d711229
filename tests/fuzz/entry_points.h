#pragma once

#include <span>
#include <string_view>

/// The readers of files that others wrote, each behind one function, for the fuzzers and for the tests that
/// repeat what they found.
namespace speclab::fuzz {

// All of them read `input` and use what was read. False: refused with an Error that says what and why.
// Anything else that is thrown is a finding.

bool read_safetensors_file(std::string_view input);
/// The file, and then as a model: metadata, all tensors, tokenizer, chat template.
bool read_gguf(std::string_view input);
/// tokenizer.json; texts go there and back.
bool read_tokenizer(std::string_view input);
/// tokenizer.model of SentencePiece, and what it holds as GGUF has it; texts go there and back.
bool read_sentencepiece(std::string_view input);
/// The Jinja source; conversations are rendered.
bool read_chat_template(std::string_view input);
/// A configuration of `speclab run`.
bool read_experiment(std::string_view input);
/// A JSONL file.
bool read_prompts(std::string_view input);
/// A draft's directory: config.json, a zero byte, model.safetensors with draft_vocab.
bool read_draft(std::string_view input);
/// A datastore of `retrieval`; phrases are looked up. Its checksum is put right first, here and in the next
/// one.
bool read_datastore(std::string_view input);
/// A file of `ngram_model`; its laws are computed.
bool read_ngram_model(std::string_view input);
/// Of a run folder the lines of a case, of the calibration and of teacher forcing, a zero byte between them,
/// read as
/// --resume and `speclab report` do.
bool read_record(std::string_view input);

struct EntryPoint {
  std::string_view name;  ///< "safetensors", "gguf", "tokenizer", "sentencepiece", "chat_template",
                          ///< "experiment", "prompts", "draft", "datastore", "ngram_model", "record"
  bool (*read)(std::string_view input);
};
std::span<const EntryPoint> entry_points();

}  // namespace speclab::fuzz
