"""Decodes greedily with transformers, with or without its prompt lookup, for scripts/compare/compare_drafting.py.

Reads one JSON object per line from standard input, and answers each with one line of JSON.

    PYTHON transformers_lookup.py MODEL.gguf THREADS DTYPE
    {"ids": [1, 2], "tokens": 64, "lookup": 10}
        -> {"ids": [...], "prefill_tokens": n, "calls": n, "decode_ns": n, "prefill_ns": n}

`lookup`: largest number of tokens that a step copies; 0: no prompt lookup. `prefill_tokens`: tokens that the first
forward emitted. This forward runs over the prompt, and with lookup also over the first draft, so it may emit several
tokens. `calls`: the number of forwards after the first one. Prints {"ready": versions} first.
"""

import json
import pathlib
import sys
import time

import torch
import transformers


class Emitted:
    """A streamer. transformers gives it the prompt, and then the tokens that each forward emitted."""

    def __init__(self):
        self.counts = []

    def put(self, tokens):
        self.counts.append(tokens.numel())

    def end(self):
        pass


def main():
    file, threads, dtype = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=getattr(torch, dtype), local_files_only=True
    ).eval()
    ends, forward = [], model.forward

    def timed(*args, **kwargs):
        out = forward(*args, **kwargs)
        ends.append(time.perf_counter_ns())
        return out

    model.forward = timed
    print(
        json.dumps({"ready": f"transformers {transformers.__version__}, torch {torch.__version__}, {dtype}"}),
        flush=True,
    )
    for line in sys.stdin:
        asked = json.loads(line)
        ids = torch.tensor([asked["ids"]])
        ends.clear()
        options = {"prompt_lookup_num_tokens": asked["lookup"]} if asked["lookup"] else {}
        emitted = Emitted()
        begin = time.perf_counter_ns()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=asked["tokens"],
                min_new_tokens=asked["tokens"],  # so that the end token does not end the text
                do_sample=False,
                use_cache=True,
                streamer=emitted,
                **options,
            )
        end = time.perf_counter_ns()
        answer = {
            "ids": out[0, len(asked["ids"]) :].tolist(),
            "prefill_tokens": emitted.counts[1],
            "calls": len(ends) - 1,
            "prefill_ns": ends[0] - begin,
            "decode_ns": end - ends[0],
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
