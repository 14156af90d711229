#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "core/measure/run_result.h"
#include "experiments/config/experiment.h"
#include "experiments/run/run_folder.h"
#include "experiments/run/run_plan.h"

namespace speclab {

/// The lines of a run that are finished, and where more go. A file is open only while a line is written into
/// it, so that the number of cases is not bounded by that of file descriptors.
class RunLines {
 public:
  /// Reads what an interrupted run left in the folder. `note` gets a line of status for each text that
  /// differs from its reference. Both must outlive this.
  RunLines(const Experiment& experiment, const RunFolder& folder,
           std::function<void(const std::string&)> note);

  bool done(const LineKey& key) const { return done_.contains(key); }
  bool failed(const LineKey& key) const { return failed_.contains(key); }
  /// The finished line of repeat 0; null when it is missing or failed.
  const LineRecord* text(const std::string& case_id, const std::string& prompt, std::uint64_t seed) const;
  /// What fingerprint_of() says of a line of a case that carries memory; null when it is missing or failed.
  const std::string* fingerprint(const LineKey& key) const;
  /// Writes a line; it is on the disk afterwards.
  void add(LineRecord line);

  int failures() const { return static_cast<int>(failed_.size()); }
  /// Lines that differ from their reference although equality is promised. A line is compared as soon as both
  /// are there, whichever is measured first.
  int unequal() const { return unequal_; }

 private:
  void keep(LineRecord line);
  void compare(const LineRecord& line, const LineRecord& reference);

  const Experiment& experiment_;
  const RunFolder& folder_;
  std::function<void(const std::string&)> note_;
  std::set<LineKey> done_, failed_;
  std::map<std::tuple<std::string, std::string, std::uint64_t>, LineRecord> texts_;
  std::map<LineKey, std::string> fingerprints_;
  std::map<std::string, const CaseSpec*> cases_;
  int unequal_ = 0;
};

/// SHA-256 of everything of a text that depends on what its strategy had in its memory: emitted and drafted
/// ids, step by step. Two decodings with the same one have left the same behind.
std::string fingerprint_of(const std::vector<GenerationRecord>& turns);

}  // namespace speclab
