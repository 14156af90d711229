#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Exports a finished run with the names, formats and definitions of other tools. results/SCHEMA.md says
/// where their definitions differ from ours. The names and definitions come from:
/// - vLLM: vllm/v1/spec_decode/metrics.py (016a8587); fields of a request, and which steps count as drafts:
///   its manual, features/speculative_decoding/acceptance_metrics (0.32.0; table of fields from 02cf515f)
/// - SGLang 0.5.23, python/sglang/srt: managers/tokenizer_manager.py (meta_info), metrics_reporter.py and
///   metrics_collector.py (gauges); since pull request 23530 SGLang has names for counts without the bonus
/// - llama.cpp 0c1e57098, tools/server: server-common.cpp (timings), server-context.cpp (log),
///   server-task.cpp (/metrics); examples/speculative-simple/speculative-simple.cpp
/// - Spec-Bench fd2c1cd7: evaluation/eval.py writes what evaluation/speed.py reads (Xia et al. 2024)
/// Counts are taken from repeat 0, over all prompts, seeds and turns. Those tools call a turn a request.
/// Times are medians over repeats, and null for a case that is not equal to its reference.

/// The tools: vllm, sglang, spec-bench, llama.cpp.
std::span<const std::string_view> export_tools();

/// Returns JSON lines. vllm, sglang, llama.cpp: {"case": id, ...} for each case, or for the case `case_id`.
/// spec-bench: an answer file of one case, with one line for each prompt. A run with several cases needs
/// `case_id`, because evaluation/speed.py takes all lines of a file for one method. Throws Error for an
/// unknown tool or case, and for spec-bench also when `case_id` is "" and the run has several cases, when the
/// case is not equal to its reference, and when an answer contains U+241E.
std::string export_run(const RunData& run, const std::string& tool, const std::string& case_id);

}  // namespace speclab
