#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// A finished run in the names and formats of other tools, by their own definitions; results/SCHEMA.md says
/// where those differ from ours. Names and definitions were read in
/// - vLLM: vllm/v1/spec_decode/metrics.py (016a8587); fields of a request, and which steps are drafts: its
///   manual, features/speculative_decoding/acceptance_metrics (0.32.0; table of fields from 02cf515f)
/// - SGLang 0.5.23, python/sglang/srt: managers/tokenizer_manager.py (meta_info), metrics_reporter.py and
///   metrics_collector.py (gauges); names without the bonus since pull request 23530
/// - llama.cpp 0c1e57098, tools/server: server-common.cpp (timings), server-context.cpp (log),
///   server-task.cpp (/metrics); examples/speculative-simple/speculative-simple.cpp
/// - Spec-Bench fd2c1cd7: evaluation/eval.py writes what evaluation/speed.py reads (Xia et al. 2024)
/// Counts are those of repeat 0, over all prompts, seeds and turns (a turn is one of their requests); times
/// are medians over repeats, null for a case that lost equality with its reference.

/// vllm, sglang, spec-bench, llama.cpp.
std::span<const std::string_view> export_tools();

/// JSON lines. vllm, sglang, llama.cpp: {"case": id, ...} for each case, or for the one of that id.
/// spec-bench: an answer file, one line for each prompt, of one case: a run with several needs `case_id`, for
/// evaluation/speed.py takes all lines of a file for one method. Throws Error for an unknown tool or case,
/// and for an answer file of a case whose times mean nothing.
std::string export_run(const RunData& run, const std::string& tool, const std::string& case_id);

}  // namespace speclab
