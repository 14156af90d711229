#pragma once

#include <string>
#include <vector>

#include "core/base/token.h"
#include "core/model/heads/head_file.h"
#include "core/model/heads/head_runner.h"

namespace speclab {

/// Trained vectors that stand in place of the embeddings of the tokens after the pending one: the look-ahead
/// embeddings of PaSS, and the mask queries of a block draft.
class LearnedInputs {
 public:
  /// Reads NAME.weight [count, hidden] on the backend of the target. Throws Error like HeadFile.
  LearnedInputs(const HeadFile& file, const std::string& name, int count, const Model& target);

  int count() const { return table_.out; }
  /// Writes the embedding of `pending`, then the first `learned` vectors, [1 + learned, hidden].
  void after(HeadRunner& runner, Token pending, int learned, HeadRows& to);

 private:
  PackedMatrix table_;
  std::vector<Token> numbers_;  // 0, 1, ..., count - 1
  HeadRows embedded_, learned_;
};

}  // namespace speclab
