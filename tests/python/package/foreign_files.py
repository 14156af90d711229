"""Small files in other programs' formats, written by hand for the tests. The modules of python/speclab/foreign name the sources of the
formats; no file here comes from another project."""

import json


def lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


def answer(question, lengths, *, category="writing", model="m-7b", wall=(2.0,), steps=None, **changes):
    """A line of a Spec-Bench answer file with the accepted lengths of one turn, or of several that `steps` cuts."""
    steps = steps or [len(lengths)]
    cuts = [sum(steps[:i]) for i in range(len(steps) + 1)]
    choice = {
        "index": 0,
        "turns": ["text"] * len(steps),
        "decoding_steps": steps,
        "new_tokens": [sum(lengths[a:b]) for a, b in zip(cuts, cuts[1:])],
        "wall_time": list(wall),
        "accept_lengths": lengths,
    }
    head = {"question_id": question, "category": category, "answer_id": f"a{question}", "model_id": model}
    return {**head, "choices": [{**choice, **changes}], "tstamp": 1700000000.0}


def response(name, drafted, accepted, *, detailed=True, spec_tokens=3, milliseconds=100.0, **changes):
    """A vLLM response with metrics/speculative_decoding."""
    by_length = {}
    for k, j in zip(drafted, accepted):
        by_length.setdefault(str(k), [0] * (k + 1))[j] += 1
    found = {
        "mean_acceptance_length": 1 + sum(accepted) / len(accepted),
        "draft_acceptance_rate": sum(accepted) / max(sum(drafted), 1),
        "acceptance_histogram": [accepted.count(j) for j in range(spec_tokens + 1)],
        "acceptance_histogram_by_draft_length": by_length,
        "num_spec_steps": len(accepted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "num_spec_tokens": spec_tokens,
    }
    if detailed:
        found |= {"per_step_accepted": accepted, "per_step_drafted": drafted}
    tokens = len(accepted) + sum(accepted) + 1
    metrics = {"time_to_first_token_ms": 9.0, "generation_time_ms": milliseconds}
    metrics["speculative_decoding"] = {**found, **changes}
    return {"id": name, "model": "m", "choices": [], "usage": {"completion_tokens": tokens}, "metrics": metrics}


def counters(drafts, drafted, accepted_at, *, seconds=1.0, tokens=100, started=5.0, labels='model_name="m",engine="0"'):
    """The part of a page /metrics that is about speculative decoding, among other samples."""
    name = "vllm:spec_decode_num"
    rows = [
        "# HELP vllm:num_requests_running Number of requests.",
        f"vllm:num_requests_running{{{labels}}} 0.0",
        f"process_start_time_seconds {started}",
        f"{name}_drafts_total{{{labels}}} {drafts}.0",
        f"{name}_drafts_created{{{labels}}} 1.7e9",
        f"{name}_draft_tokens_total{{{labels}}} {drafted}.0",
        f"{name}_accepted_tokens_total{{{labels}}} {sum(accepted_at)}.0",
        f"vllm:generation_tokens_total{{{labels}}} {tokens}.0",
        f"vllm:request_decode_time_seconds_sum{{{labels}}} {seconds}",
    ]
    rows += [
        f'{name}_accepted_tokens_per_pos_total{{{labels},position="{i}"}} {n}.0' for i, n in enumerate(accepted_at)
    ]
    return "\n".join(rows) + "\n"


def attempt(task, drafts, drafted_at, accepted_at, *, run=1, decode=1.5, **changes):
    """A compact attempt of llama-spec-bench."""
    stage = {
        "type": "mtp",
        "drafts": drafts,
        "draft_tokens": sum(drafted_at),
        "accepted": sum(accepted_at),
        "accept_percent": 0.0,
        "accept_length": 0.0,
        "drafted_by_position": drafted_at,
        "accepted_by_position": accepted_at,
    }
    head = {"row_type": "attempt", "task": task, "run": run, "ok": True, "stop": "eog", "error": None}
    generated = drafts + sum(accepted_at)
    return {**head, "generated": generated, "decode_s": decode, "decode_tps": 1.0, "stages": [stage], **changes}


def detailed_attempt(task, drafts, drafted_at, accepted_at, *, repeat=0, decode=1.5):
    """A detailed attempt of llama-spec-bench."""
    stage = {
        "type": "mtp",
        "num_drafts": drafts,
        "drafted_by_position": drafted_at,
        "accepted_by_position": accepted_at,
    }
    return {
        "row_type": "attempt",
        "task_id": task,
        "task_name": task,
        "task_category": "reasoning",
        "repeat_index": repeat,
        "variant": {"is_baseline": False, "spec_types": ["mtp"]},
        "timing": {"prompt_s": 0.1, "decode_s": decode, "total_s": decode + 0.1},
        "tokens": {"prompt": 10, "generated": drafts + sum(accepted_at)},
        "speculative": {"num_drafts": drafts, "stages": [stage]},
        "quality": {"ok": True, "error": None, "retries_used": 0, "hit_eog": True},
        "prompt": "p",
        "output": "o",
    }


def trace(name, ngram, eagle):
    """A line of a SpecDecode-Bench trace."""
    return {
        "id": name,
        "prompt_token_ids": [1, 2],
        "generated_token_ids": list(range(len(ngram) + 1)),
        "acc_eagle": {"acc_len": eagle},
        "acc_ngram": {"acc_len": ngram},
    }
