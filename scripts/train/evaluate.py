"""Acceptance of an exported draft on the user's prompts: alpha, agreement and tau (tokens per target call) by category.

The prompts are JSON lines in Spec-Bench's format (question_id, category, turns; the first turn is used). The target decodes each
prompt once greedily and several times (--samples) at T = 1. The texts are kept in the cache. tau then needs no speculative decoding:
  greedy  a drafted token is accepted if it is the target's next token, so the accepted tokens are the target's own text;
  T = 1   the target's text has the same law as the output of speculative sampling. A token x that was emitted at a
          tested position was an accepted drafted token with probability min(p(x), q(x)) / p(x). The coins are drawn
          20 times.
Agreement: how often the draft's most probable token is the next token of the text.

For heads, first_turns.py writes the same prompts for the engine.
"""

import argparse
import hashlib
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from draft import load
from first_turns import choose
from generate import Sequence, Writer, pack
from target import PREFIX, TO_ANSWER, Gguf, Target

GAMMAS = (2, 4, 6)
GROUPS = dict(
    translation="translation", summarization="summarisation", qa="qa", math_reasoning="maths", rag="rag"
)  # all other categories: mt_bench


def steps_taken(accepts, gamma):
    """Number of target calls for n tokens; accepts[i] says whether token i is accepted if it is tested."""
    i = steps = 0
    while i < len(accepts):
        run = 0
        while run < gamma and i + run < len(accepts) and accepts[i + run]:
            run += 1
        i, steps = i + run + 1, steps + 1
    return steps


def target_text(file, tokenizer, prompts, tokens, samples, cache, device):
    """The target's answers as arrays like those of a shard of generate.py: one greedy answer and `samples` answers at T = 1 per prompt,
    in the order of prompts. Here the array `kind` holds the number of the prompt."""
    key = hashlib.sha256(json.dumps([file.sha256(), prompts, tokens, samples]).encode()).hexdigest()[:12]
    path = cache / f"evaluation-{key}.npz"
    if not path.exists():
        writer = Writer(Target(file, device), lambda text: tokenizer.encode(text).ids, 7, stop_loops=False)
        groups = []
        for number, prompt in enumerate(prompts):
            ids = tokenizer.encode(PREFIX + prompt + TO_ANSWER).ids
            groups.append(
                [
                    Sequence(number, t, list(ids), tokens, start=len(ids) - 1, answer=len(ids) - 1)
                    for t in [0.0] + [1.0] * samples
                ]
            )
        done = writer.write(groups, 64, max(len(g[0].ids) for g in groups) + tokens + 1)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, **pack(sorted(done, key=lambda s: (s.kind, s.temperature))))
    return np.load(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--ids", default="", help="question_ids to use, separated by blanks (default: all)")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens per prompt")
    parser.add_argument("--samples", type=int, default=4, help="texts at T = 1 per prompt")
    parser.add_argument("--target", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--draft", type=Path, default=Path("models/draft/smollm2-135m-instruct"))
    parser.add_argument("--cache", type=Path, default=Path(".cache/train"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    file = Gguf(args.target)
    tokenizer = file.tokenizer()
    questions = choose(args.prompts, args.ids.split())
    text = target_text(
        file, tokenizer, [q["turns"][0] for q in questions], args.tokens, args.samples, args.cache, args.device
    )
    draft = load(args.draft, file, args.device)

    rng = np.random.default_rng(0)
    sums = defaultdict(lambda: np.zeros(2))  # (greedy or not, group, quantity) -> (sum, count)
    begins = np.cumsum(text["lengths"]) - text["lengths"]
    offsets = np.cumsum(text["lengths"] - 1 - text["starts"]) - (text["lengths"] - 1 - text["starts"])
    all_features, all_lse = torch.from_numpy(text["features"]), torch.from_numpy(text["lse"])
    for i, number in enumerate(text["kind"]):
        question, greedy = questions[number], text["temperature"][i] == 0
        ids = torch.from_numpy(text["ids"][begins[i] : begins[i] + text["lengths"][i]]).long().to(args.device)
        start = int(text["starts"][i])
        rows = slice(offsets[i], offsets[i] + len(ids) - 1 - start)
        log_p = all_features[rows].float().to(args.device) @ draft.embedding.T - all_lse[rows, None].to(args.device)
        q = torch.zeros_like(log_p)
        q[:, draft.vocab] = (draft(ids[None, :-1])[0, start:] @ draft.head.T).softmax(1)
        p, written = log_p.exp(), ids[start + 1 :, None]
        overlap = torch.minimum(p, q).sum(1).cpu().numpy()
        agree = (q.argmax(1) == written[:, 0]).cpu().numpy()
        chance = (q.gather(1, written) / p.gather(1, written)).clamp(max=1)[:, 0].cpu().numpy()
        for group in ("all", GROUPS.get(question["category"], "mt_bench")):

            def add(quantity, total, count):
                sums[bool(greedy), group, quantity] += (total, count)

            add("alpha", overlap.sum(), len(overlap))
            add("agreement", agree.sum(), len(agree))
            for gamma in GAMMAS:  # the first token comes from prefill
                coins = [agree[1:]] if greedy else rng.random((20, len(chance) - 1)) < chance[1:]
                for accepts in coins:
                    add(f"tau {gamma}", len(accepts), steps_taken(accepts, gamma))
    print(f"{len(questions)} prompts; a forward of the draft reads {draft.step_bytes() / 1e6:.2f} MB of weights")
    print(f"{'text':7}{'group':14}{'tokens':>7}{'alpha':>8}{'agree':>8}" + "".join(f"{f'tau {g}':>8}" for g in GAMMAS))
    for greedy in (True, False):
        for group in ("all", "mt_bench", *GROUPS.values()):
            if (greedy, group, "alpha") in sums:
                value = lambda name: "{:8.3f}".format(np.divide(*sums[greedy, group, name]))
                print(
                    f"{'T = 0' if greedy else 'T = 1':7}{group:14}{sums[greedy, group, 'alpha'][1]:7.0f}"
                    + "".join(value(n) for n in ("alpha", "agreement", *(f"tau {g}" for g in GAMMAS)))
                )


if __name__ == "__main__":
    main()
