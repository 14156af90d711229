"""Text that the target did not write, for training on mixed data: a draft writes it, or a file has it.

    scripts/train/other_text.py --draft DIR [--tokens 1e5]     the draft writes answers to the prompts of the target's text, at temperature 1
    scripts/train/other_text.py --file TEXTS.jsonl             lines with "prompt" and "answer", or with "text"

The target then reads the text, so the labels are its laws, as everywhere. The result is a shard of the same form as those of generate.py:
draft-00000.npz, draft-00001.npz, ..., or file-00000.npz, .... With `--writers target draft` train.py and heads.py train on a mixture, with
`--writers draft` on text of the draft alone, which is on-policy for this draft (Agarwal et al. 2024, "On-Policy Distillation of
Language Models", arXiv 2306.13649; Zhou et al. 2024, "DistillSpec", arXiv 2310.08461). The mixture has the proportions of the texts. Measured
is text of the target alone, if there is any.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from draft import load
from generate import END, Sequence, pack, require_target
from target import PREFIX, TO_ANSWER, Gguf, Target, rotate
from tqdm import tqdm
from train import HELD_OUT, find_shards

LONGEST_PROMPT, LONGEST = 160, 1024  # tokens of a prompt that a draft answers; of a text


class DraftWriter:
    """Lets a draft (draft.Draft) write. All texts are at the same position in each step."""

    def __init__(self, draft, seed):
        self.draft, self.coins = draft, torch.Generator(draft.head.device).manual_seed(seed)

    def step(self, ids, t, keys, values):
        """Logits [n, K] after the tokens ids [n] at position t. keys, values: for each block [n, heads, positions, E]."""
        d, n = self.draft, len(ids)
        x = F.linear(d.embedding[ids], d.embed_projection)
        norm = lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-5)
        for block, k_of, v_of in zip(d.blocks, keys, values):
            h = norm(x, block.input_layernorm)
            q, k, v = (F.linear(h, w).view(n, block.heads, 1, -1) for w in (block.q_proj, block.k_proj, block.v_proj))
            k_of[:, :, t : t + 1], v_of[:, :, t : t + 1] = rotate(k, d.cos[t], d.sin[t]), v
            q = rotate(q, d.cos[t], d.sin[t])
            a = F.scaled_dot_product_attention(q, k_of[:, :, : t + 1], v_of[:, :, : t + 1])
            x = x + F.linear(a.reshape(n, -1), block.o_proj)
            h = norm(x, block.post_attention_layernorm)
            x = x + F.linear(F.silu(F.linear(h, block.gate_proj)) * F.linear(h, block.up_proj), block.down_proj)
        return norm(x, d.norm) @ d.head.T

    @torch.no_grad()
    def write(self, prompts, limit):
        """The prompts (lists of ids) with at most `limit` drawn tokens after each, up to the end of the answer."""
        device, rows = self.draft.head.device, [list(p) for p in prompts]
        longest, blocks = max(map(len, rows)) + limit, self.draft.blocks
        shape = (len(rows), blocks[0].heads, longest, self.draft.size["head_dim"])
        keys, values = ([torch.zeros(shape, device=device) for _ in blocks] for _ in range(2))
        over = [False] * len(rows)
        for t in range(longest):
            ids = torch.tensor([row[t] if t < len(row) else END for row in rows], device=device)
            q = self.step(ids, t, keys, values).softmax(1)
            drawn = self.draft.vocab[torch.multinomial(q, 1, generator=self.coins)[:, 0]].tolist()
            for i, row in enumerate(rows):
                if len(row) == t + 1 and not over[i]:
                    row.append(drawn[i])
                    over[i] = drawn[i] == END or len(row) == len(prompts[i]) + limit
            if all(over):
                break
        return rows


@torch.no_grad()
def read(target, texts, temperature):
    """generate.Sequences of texts (ids, start) with the target's states and laws from `start` on."""
    done, waiting = [], sorted(texts, key=lambda text: len(text[0]))
    bar = tqdm(total=sum(len(ids) for ids, _ in texts), disable=None, desc="the target reads")
    while waiting:
        count = max(1, 4096 // len(waiting[-1][0]))
        part, waiting = waiting[-count:], waiting[:-count]
        ids = torch.zeros(len(part), len(part[-1][0]) - 1, dtype=torch.long)
        for row, (text, _) in enumerate(part):
            ids[row, : len(text) - 1] = torch.tensor(text[:-1])
        states = target.states(ids.to(target.device))
        for row, (text, start) in enumerate(part):
            f = states[row, start : len(text) - 1]
            s = Sequence(0, temperature, text, 0, start=start, answer=start)
            s.features = list(f.half().cpu().numpy())
            s.lse = torch.cat([target.logits(h).logsumexp(1) for h in f.split(512)]).tolist()
            done.append(s)
        bar.update(sum(len(text) for text, _ in part))
    bar.close()
    return done


def prompts_of(shards):
    """The prompts of the target's text, up to the answer, without those of held-out sequences."""
    out, number = [], 0
    for shard in shards:
        with np.load(shard) as z:
            ends, ids = np.cumsum(z["lengths"]), z["ids"]
            for end, length, answer in zip(ends, z["lengths"], z["answers"]):
                if number % HELD_OUT and answer < LONGEST_PROMPT:
                    out.append(ids[end - length : end - length + answer + 1].tolist())
                number += 1
    return out


def texts_of(path, encode):
    """(ids, start) of the texts in a file."""
    out = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            record = json.loads(line)
            if "text" in record:
                ids, start = encode(record["text"]), 0
            else:
                head = encode(PREFIX + record["prompt"].strip() + TO_ANSWER)
                ids, start = head + encode(record["answer"]) + [END], len(head) - 1
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            raise SystemExit(f'{path}, line {number}: expected "prompt" and "answer", or "text" ({fault!r})')
        ids = ids[:LONGEST]
        if len(ids) > start + 1:
            out.append((ids, start))
    if not out:
        raise SystemExit(f"{path} has no text of at least two tokens")
    return out


def save(cache, name, sequences, sha256):
    """Writes the next shard of this name."""
    number = len(list(cache.glob(f"{name}-?????.npz")))
    path = cache / f"{name}-{number:05d}.npz"
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as out:
        np.savez(out, target=sha256, **pack(sequences))
    os.replace(partial, path)
    print(f"{path}: {len(sequences)} texts, {sum(len(s.lse) for s in sequences)} tokens", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--cache", type=Path, default=Path(".cache/train"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--draft", type=Path, help="folder of a draft of train.py")
    source.add_argument("--file", type=Path, help="texts, one JSON object a line")
    parser.add_argument("--tokens", type=float, default=1e5, help="tokens that the draft writes")
    parser.add_argument("--limit", type=int, default=192, help="largest number of tokens of an answer of the draft")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    if not 1 <= args.limit <= LONGEST or not args.tokens > 0:
        parser.error(f"--limit, --tokens: expected 1 to {LONGEST} tokens of an answer, and a positive number of tokens")
    file = Gguf(args.target)
    sha256, tokenizer = file.sha256(), file.tokenizer()
    args.cache.mkdir(parents=True, exist_ok=True)
    own = find_shards(args.cache, ["target"])
    require_target(own, sha256)
    target = Target(file, args.device)
    if args.file is not None:
        texts = texts_of(args.file, lambda text: tokenizer.encode(text).ids)
        save(args.cache, "file", read(target, texts, float("nan")), sha256)
        return
    prompts = prompts_of(own)
    if not prompts:
        raise SystemExit(f"{args.cache} has no text with prompts; run scripts/train/generate.py first")
    number = len(find_shards(args.cache, ["draft"]))
    order = np.random.default_rng([args.seed, number])
    writer = DraftWriter(load(args.draft, file, args.device), args.seed * 1_000_003 + number)
    texts, written = [], 0
    bar = tqdm(total=int(args.tokens), disable=None, desc="the draft writes")
    while written < args.tokens:
        chosen = [prompts[i] for i in order.integers(len(prompts), size=128)]
        for prompt, ids in zip(chosen, writer.write(chosen, args.limit)):
            texts.append((ids, len(prompt) - 1))
            written += len(ids) - len(prompt)
            bar.update(len(ids) - len(prompt))
    bar.close()
    save(args.cache, "draft", read(target, texts, 1.0), sha256)


if __name__ == "__main__":
    main()
