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
#include "core/model/toy/markov_table.h"
#include "experiments/config/experiment.h"

namespace speclab {

/// Number of weights in a tensor, and in all tensors of a checkpoint.
double weight_count(const Checkpoint::TensorInfo& tensor);
double weight_count(const Checkpoint& checkpoint);

/// The chat template called `name`; if `name` is "", the one in the model's files. BOS and EOS are spelled as
/// the tokenizer spells them. Throws Error for an unknown template.
ChatTemplate chat_template_of(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                              const std::string& name);

/// A target with its tokenizer and its drafts, each loaded once.
class ModelSet {
 public:
  /// `chat_template`: a name (ChatTemplate::names), or "" for the template in the model's files. `from` is
  /// the place to get the target from; the message about a missing target names it. Throws Error when a file
  /// is missing or damaged, when the template is unknown, and when `inflate` is a shape that cannot contain
  /// the model.
  ModelSet(const std::string& target, std::shared_ptr<Backend> backend, const std::string& chat_template,
           const InflateShape& inflate = {}, const std::string& from = "");
  /// A toy as the target. It has no tokenizer and no chat template, so its prompts are token ids.
  ModelSet(const toy::MarkovSpec& target, std::shared_ptr<Backend> backend);

  const std::shared_ptr<const Model>& target() const { return target_; }
  /// Loads the draft and binds it to the target. Throws Error when it does not fit the target.
  void add_draft(const DraftSpec& draft);
  /// A draft that was added; null for the empty name.
  std::shared_ptr<const Model> draft(const std::string& name) const;
  /// The drafts with these names.
  std::vector<std::shared_ptr<const Model>> drafts(const std::vector<std::string>& names) const;

  const std::optional<Tokenizer>& tokenizer() const { return target_->tokenizer(); }
  const ChatTemplate& chat_template() const { return template_; }
  /// Tokens that end an answer; none without a tokenizer.
  std::vector<Token> end_tokens() const;
  Backend& backend() const { return *backend_; }

  /// {ROLE: {"path", "name", "sha256", "parameters", "weight_bytes", "embedding_bytes", "layers"}}, where
  /// ROLE is "target" or the name of a draft. An inflated model also has "inflated": {"from": {"name",
  /// sizes}, "to": {sizes}}. A toy also has "markov", its parameters; its "path" is a text about them.
  const nlohmann::json& descriptions() const { return descriptions_; }

 private:
  void add(const std::string& role, const toy::MarkovSpec& spec, const Checkpoint& checkpoint,
           const Model& model);

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const Model> target_;
  std::map<std::string, std::shared_ptr<const Model>> drafts_;
  ChatTemplate template_ = ChatTemplate::plain();
  nlohmann::json descriptions_ = nlohmann::json::object();
};

}  // namespace speclab
