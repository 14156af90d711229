"""Stage 1: the target writes the training text. Its hidden states are stored, so training needs no target forward.

The target writes in rounds. Each round makes one shard, `text-00012.npz`, of S sequences:
  ids        int32 [N]       all tokens of all sequences, prompts included, one sequence after the other
  lengths    int32 [S]       tokens of each sequence
  starts     int32 [S]       first position whose next token the target chose (features are stored from this position)
  answers    int32 [S]       first position whose next token belongs to the assistant's answer (>= starts)
  features   float16 [M, D]  target's last hidden state after its final norm, for positions starts .. length - 2
  lse        float32 [M]     log-sum-exp of the target's logits at these positions: p = exp(head . feature - lse)
  temperature float32 [S], kind int32 [S] (index in prompts.KINDS)
  target     text            SHA-256 of the target's file; older shards do not have it
The text of a round depends only on the target, the number of the round, the options --seed, --slots and --round and, for
tasks over passages, the passages in the shards that are finished when the round starts.
"""

import argparse
import functools
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import prompts
import torch
from target import PREFIX, TO_ANSWER, Gguf, Target

END = 2  # <|im_end|>
MIN_P = 0.03  # cuts tokens below this share of the largest probability; for the user's turn only


@dataclass
class Sequence:
    """A sequence that the target is writing."""

    kind: int
    temperature: float
    ids: list
    limit: int  # largest number of answer tokens
    opening: bool = False  # the target is still writing the user's turn
    start: int = 0
    answer: int = 0
    forced: list = field(default_factory=list)  # tokens to feed instead of the target's choice
    features: list = field(default_factory=list)
    lse: list = field(default_factory=list)


def is_looping(ids):
    """True when fewer than a third of the last 60 4-grams are distinct."""
    tail = ids[-63:]
    return len({tuple(tail[i : i + 4]) for i in range(len(tail) - 3)}) < 20


def sample(logits, temperature, min_p, coins):
    """Samples one token for each row of logits [n, V]. Returns the tokens [n] and the log-sum-exp [n] of the rows.

    temperature [n] in [0, 1] (0 = greedy), min_p [n], coins [n] in [0, 1). Inverts the cumulative distribution in two levels (block, then
    token), with one exponential per logit, or two at a temperature between 0 and 1. Overwrites logits.
    """
    best, greedy = logits.max(1)
    logits -= best[:, None]
    sharp = ((temperature > 0) & (temperature < 1)).nonzero()[:, 0]
    kept = logits[sharp]
    p = logits.exp_()
    lse = best + p.sum(1).log()
    if len(sharp):
        p[sharp] = (kept / temperature[sharp, None]).exp()
    cut = (min_p > 0).nonzero()[:, 0]
    if len(cut):
        rows = p[cut]
        p[cut] = rows * (rows >= min_p[cut, None])
    blocks = p.view(len(p), -1, 192)
    mass = blocks.sum(2).double().cumsum(1)
    goal = coins.double() * mass[:, -1]
    block = (mass <= goal[:, None]).sum(1).clamp(max=mass.shape[1] - 1)
    rows = torch.arange(len(p), device=p.device)
    before = torch.where(block > 0, mass[rows, (block - 1).clamp(min=0)], 0.0)
    inner = blocks[rows, block].double().cumsum(1)
    goal = torch.minimum(goal - before, inner[:, -1] * (1 - 1e-12))
    drawn = block * 192 + (inner <= goal[:, None]).sum(1).clamp(max=191)
    return torch.where(temperature > 0, drawn, greedy), lse


class Writer:
    """Runs sequences through the target with continuous batching: a finished sequence frees its slot for the next one."""

    def __init__(self, target, encode, seed, stop_loops=True):
        self.target, self.encode, self.stop_loops = target, encode, stop_loops
        self.prefix = encode(PREFIX)
        self.to_answer = encode(TO_ANSWER)
        self.coins = torch.Generator().manual_seed(seed)

    def _admit(self, groups, free):
        """Prefills the next groups (samples of one prompt share its prefill) into the free slots; returns {slot: sequence}."""
        t, placed, prompts_, first = self.target, {}, [], []
        while groups and len(groups[-1]) <= len(free):
            group = groups.pop()
            slots = [free.pop() for _ in group]
            placed.update(zip(slots, group))
            prompts_.append(group[0].ids[len(self.prefix) : -1])
            first.append(slots)
        order = sorted(range(len(first)), key=lambda i: len(prompts_[i]))
        while order:
            longest = max(1, len(prompts_[order[-1]]))
            part, order = order[-max(1, 4096 // longest) :], order[: -max(1, 4096 // longest)]
            ids = torch.zeros(len(part), longest, dtype=torch.long)
            for row, i in enumerate(part):
                ids[row, : len(prompts_[i])] = torch.tensor(prompts_[i], dtype=torch.long)
            slots = torch.tensor([first[i][0] for i in part], device=t.device)
            t.keys[:, slots, :, : len(self.prefix)] = self.prefix_keys
            t.values[:, slots, :, : len(self.prefix)] = self.prefix_values
            t.prefill(ids.to(t.device), slots, len(self.prefix))
        for slots in first:
            for other in slots[1:]:
                t.keys[:, other], t.values[:, other] = t.keys[:, slots[0]], t.values[:, slots[0]]
        return placed

    def write(self, groups, slots, positions, say=lambda *_: None):
        """Writes all sequences. groups: lists of Sequences with equal ids. Returns the finished sequences, in order of completion."""
        t = self.target
        t.allocate(slots, positions)
        t.prefill(torch.tensor([self.prefix], device=t.device), torch.zeros(1, dtype=torch.long, device=t.device))
        n = len(self.prefix)
        self.prefix_keys, self.prefix_values = t.keys[:, :1, :, :n].clone(), t.values[:, :1, :, :n].clone()
        groups = list(reversed(groups))
        active, done, rounds = {}, [], 0
        while groups or active:
            free = [s for s in range(slots) if s not in active]
            if groups and (len(free) >= max(8, slots // 8) or not active):
                active.update(self._admit(groups, free))
            top = max(active) + 1  # slots above the highest active one are not computed
            dummy = Sequence(0, 0.0, [0], 0)
            rows = [active.get(s, dummy) for s in range(top)]
            last = torch.tensor([s.ids[-1] for s in rows], device=t.device)
            position = torch.tensor([len(s.ids) - 1 for s in rows], device=t.device)
            features = t.step(last, position)
            temperature = torch.tensor([1.0 if s.opening else s.temperature for s in rows], device=t.device)
            min_p = torch.tensor([MIN_P if s.opening else 0.0 for s in rows], device=t.device)
            coins = torch.rand(top, generator=self.coins).to(t.device)
            tokens, lse = sample(t.logits(features), temperature, min_p, coins)
            tokens, lse, features = tokens.tolist(), lse.tolist(), features.half().cpu().numpy()
            for slot, s in list(active.items()):
                s.features.append(features[slot])
                s.lse.append(lse[slot])
                if self._advance(s, tokens[slot], positions):
                    done.append(active.pop(slot))
            while not groups and active and max(active) >= len(active):  # closes gaps when no sequence waits for a slot
                source, goal = max(active), min(set(range(slots)) - set(active))
                t.keys[:, goal], t.values[:, goal] = t.keys[:, source], t.values[:, source]
                active[goal] = active.pop(source)
            rounds += 1
            if rounds % 50 == 0:
                say(len(done), len(active), len(groups))
        return done

    def _advance(self, s, token, positions):
        """Appends the next token; returns True when the sequence is complete."""
        if s.forced:
            s.ids.append(s.forced.pop(0))
            s.answer = len(s.ids) - 1
            return False
        if s.opening and (token == END or len(s.ids) - s.start > 48):
            s.opening, s.forced = False, self.to_answer[1:]
            s.ids.append(END)
            return False
        s.ids.append(token)
        written = len(s.ids) - s.answer - 1
        full = len(s.ids) >= positions
        if s.opening:
            return full
        return (
            token == END
            or full
            or written >= s.limit
            or (self.stop_loops and written % 8 == 0 and written > 64 and is_looping(s.ids))
        )


def require_target(shards, sha256):
    """Ends the program if another target wrote one of the shards. A shard that names no target passes."""
    for shard in shards:
        with np.load(shard) as z:
            if "target" in z and str(z["target"]) != sha256:
                raise SystemExit(f"{shard} was written by another target; use another --cache for each target")


@functools.cache
def count(shard):
    """Number of tokens of a shard whose features are stored."""
    with np.load(shard) as z:
        return len(z["lse"])


def pack(sequences):
    """Arrays of a shard (see the top of this file)."""
    return dict(
        ids=np.concatenate([np.array(s.ids, np.int32) for s in sequences]),
        lengths=np.array([len(s.ids) for s in sequences], np.int32),
        starts=np.array([s.start for s in sequences], np.int32),
        answers=np.array([s.answer for s in sequences], np.int32),
        features=np.concatenate([np.stack(s.features) for s in sequences]),
        lse=np.concatenate([np.array(s.lse, np.float32) for s in sequences]),
        temperature=np.array([s.temperature for s in sequences], np.float32),
        kind=np.array([s.kind for s in sequences], np.int32),
    )


def plan(round_, seed, size, passages, writer):
    """The groups of Sequences to write in one round: (groups of short prompts, groups of long prompts).
    Prompts of more than 1,000 tokens are left out."""
    rng = random.Random(f"{seed}/{round_}")
    short, long_ = [], []
    for task in prompts.tasks(rng, size, passages):
        text = PREFIX + task.prompt.strip() + ("" if task.opening else TO_ANSWER)
        ids = writer.encode(text)
        if len(ids) > 1000:
            continue
        group = [
            Sequence(prompts.KINDS.index(task.kind), t, list(ids), task.limit, task.opening, len(ids) - 1, len(ids) - 1)
            for t in task.temperatures
        ]
        (short if len(ids) < 160 else long_).append(group)
    long_.sort(key=lambda g: -len(g[0].ids))
    return short, long_


def read_passages(files, decode):
    """Texts of passages that the target wrote in earlier rounds: the last 4,000 with more than 120 characters."""
    out = []
    for f in files:
        with np.load(f) as z:
            ends = np.cumsum(z["lengths"])
            for i in np.flatnonzero(z["kind"] == prompts.KINDS.index("passage")):
                begin = ends[i] - z["lengths"][i]
                out.append(decode(z["ids"][begin + z["answers"][i] + 1 : ends[i]].tolist()).strip())
    return [p for p in out if len(p) > 120][-4000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--cache", type=Path, default=Path(".cache/train"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--tokens", type=float, default=None, help="stop after this many tokens (default: 1.5e6, on a GPU 6e7)"
    )
    parser.add_argument("--minutes", type=float, default=None, help="start no round after this many minutes")
    parser.add_argument("--slots", type=int, default=None, help="sequences at a time (default: 128, on a GPU 2048)")
    parser.add_argument(
        "--round",
        type=int,
        default=None,
        help="prompts per round; an interruption loses at most a round (default: 3 per slot)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--workers",
        type=int,
        default=None,
        help="processes (default: one per core, on a GPU 1); worker w writes rounds w, w + workers, ..",
    )
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    gpu = args.device != "cpu"
    workers = args.workers or (1 if gpu else len(os.sched_getaffinity(0)))
    if args.worker is None and workers > 1:  # single-threaded workers never wait for each other
        command = [sys.executable, *sys.argv, "--workers", str(workers), "--worker"]
        children = [
            subprocess.Popen(command + [str(w)], env=os.environ | {"OMP_NUM_THREADS": "1"}) for w in range(workers)
        ]
        sys.exit(max(child.wait() for child in children))
    torch.set_grad_enabled(False)
    goal = args.tokens or (6e7 if gpu else 1.5e6)
    slots = args.slots or (2048 if gpu else 128)
    args.cache.mkdir(parents=True, exist_ok=True)

    file = Gguf(args.target)
    tokenizer = file.tokenizer()
    encode = lambda text: tokenizer.encode(text).ids
    target = Target(file, args.device)
    sha256 = file.sha256()
    require_target(sorted(args.cache.glob("text-?????.npz")), sha256)
    begin, round_ = time.time(), args.worker or 0
    while True:
        shards = sorted(args.cache.glob("text-?????.npz"))
        path = args.cache / f"text-{round_:05d}.npz"
        if path in shards:
            round_ += workers
            continue
        if sum(count(s) for s in shards) >= goal or (args.minutes and time.time() - begin > args.minutes * 60):
            break
        passages = read_passages(shards[-40:], tokenizer.decode)
        writer = Writer(target, encode, args.seed * 1_000_003 + round_)
        short, long_ = plan(round_, args.seed, args.round or 3 * slots, passages, writer)
        say = lambda *state: print(
            f"  round {round_}: {state[0]} written, {state[1]} under way, {state[2]} waiting", flush=True
        )
        clock = time.time()
        done = writer.write(short, slots, 400, say) if short else []
        done += writer.write(long_, max(12, slots // 4), 1152, say) if long_ else []
        arrays = pack(done)
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as out:
            np.savez(out, target=sha256, **arrays)
        os.replace(partial, path)
        fresh = len(arrays["lse"])
        print(
            f"round {round_}: {len(done)} sequences, {fresh} tokens, {fresh / (time.time() - clock):.0f} tokens/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
