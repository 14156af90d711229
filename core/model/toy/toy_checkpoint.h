#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/token.h"
#include "core/model/files/checkpoint.h"
#include "core/model/toy/markov_table.h"

namespace speclab::toy {

// A toy as a model: a decoder without layers, whose embedding is one-hot and whose output head is the table.
// The logits of its rows are those of the table, bit for bit, on every backend. It has no tokenizer, so
// prompts are token ids.
//
// A token is a context of the chain (MarkovRows), because a model without layers sees the last token only.
// With order 1 a token is a symbol. With a higher order the next token must continue the context of the last
// one: after token c it is next(c, symbol), and the logits of all other tokens are so low that their
// probability is 0. The model then has V^k tokens.

/// Writes the toy as a folder in Hugging Face's layout (config.json, model.safetensors), which every command
/// opens as a model. `name` is the model's name in records. Throws Error if a file cannot be written.
void write_toy(const std::filesystem::path& directory, const MarkovTable& table, const std::string& name);

/// Opens the toy without leaving files behind. Throws Error if temporary files cannot be written.
Checkpoint open_toy(const MarkovTable& table, const std::string& name);

/// Draws a text of `tokens` tokens from the chain at temperature 1. The context before the first token is
/// drawn uniformly. The same seed gives the same text.
std::vector<Token> sample_text(const MarkovRows& rows, int tokens, std::uint64_t seed);

}  // namespace speclab::toy
