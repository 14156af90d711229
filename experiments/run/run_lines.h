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

/// Holds the finished lines of a run and writes new ones. A file is open only while a line is written into
/// it, so that the limit on open files does not limit the number of cases.
class RunLines {
 public:
  /// Reads the lines that an interrupted run left in the folder. `note` gets a message for each line that
  /// unequal() counts. Experiment and folder must outlive this object.
  RunLines(const Experiment& experiment, const RunFolder& folder,
           std::function<void(const std::string&)> note);

  bool done(const LineKey& key) const { return done_.contains(key); }  ///< finished or failed
  bool failed(const LineKey& key) const { return failed_.contains(key); }
  /// The finished line of repeat 0; null when it is missing or failed.
  const LineRecord* text(const std::string& case_id, const std::string& prompt, std::uint64_t seed) const;
  /// The fingerprint_of() of a finished line. Null when the line is missing or failed, and when the strategy
  /// of its case keeps no memory from one line to the next.
  const std::string* fingerprint(const LineKey& key) const;
  /// Appends a line to the file of its case. The line is in the file when the call returns.
  void add(LineRecord line);

  int failures() const { return static_cast<int>(failed_.size()); }
  /// Number of lines that differ from their reference although equality is promised. A line is compared as
  /// soon as the line and repeat 0 of its reference are finished, in either order. Later repeats of a
  /// reference are compared with its repeat 0.
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

/// SHA-256 of the ids that each turn emitted and of the tree that each step drafted. These are everything
/// that depends on the memory of the strategy. Two decodings with the same fingerprint leave the same memory
/// behind.
std::string fingerprint_of(const std::vector<GenerationRecord>& turns);

}  // namespace speclab
