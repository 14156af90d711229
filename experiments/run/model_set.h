#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/backend_choice.h"
#include "core/model/text/chat_template.h"
#include "core/model/files/checkpoint.h"
#include "core/model/net/model.h"
#include "core/model/text/tokenizer.h"
#include "experiments/config/experiment.h"

namespace speclab {

/// The chat template that goes by `name`, or ("") the one in the model's files, with BOS and EOS as the
/// tokenizer spells them. Throws Error for one that is not known.
ChatTemplate chat_template_of(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                              const std::string& name);

/// A target with its tokenizer and its drafts, each loaded once.
class ModelSet {
 public:
  /// `chat_template`: "" for the one in the file, or a name (ChatTemplate::names). `from`: where the target
  /// can be had, for the message when it is missing. Throws Error when a file is missing or damaged, for a
  /// template that is not known, and for a shape that cannot contain the model.
  ModelSet(const std::string& target, std::shared_ptr<Backend> backend, const std::string& chat_template,
           const InflateShape& inflate = {}, const std::string& from = "");

  const std::shared_ptr<const Model>& target() const { return target_; }
  /// Loads the draft, bound to the target. Throws Error when it does not fit the target.
  void add_draft(const DraftSpec& draft);
  /// Null for the empty name.
  std::shared_ptr<const Model> draft(const std::string& name) const;

  const std::optional<Tokenizer>& tokenizer() const { return target_->tokenizer(); }
  const ChatTemplate& chat_template() const { return template_; }
  /// Tokens that end an answer; none without a tokenizer.
  std::vector<Token> end_tokens() const;
  Backend& backend() const { return *backend_; }

  /// {"<role>": {"path", "name", "sha256", "parameters", "weight_bytes", "embedding_bytes", "layers"}}:
  /// "target" and each draft; of a twin "inflated": {"from": {"name", sizes}, "to": {sizes}} too.
  const nlohmann::json& descriptions() const { return descriptions_; }

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const Model> target_;
  std::map<std::string, std::shared_ptr<const Model>> drafts_;
  ChatTemplate template_ = ChatTemplate::plain();
  nlohmann::json descriptions_ = nlohmann::json::object();
};

}  // namespace speclab
