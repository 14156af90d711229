"""Stage 2: distils the target into the draft on the stored text, then exports the draft.

Loss at a position: by default -sum_v p(v) log q(v) over the draft vocabulary, with p normalised over the full vocabulary, so that positions
with mass outside the draft vocabulary weigh less. p keeps its 64 largest entries in the draft vocabulary. --objective chooses another
distance of q from p (distillation/objectives.py). The fit of the head before the first step (--warm-steps) and the printed loss on held-out
text always use the default loss, so trainings with different objectives start alike and can be compared. Matrices inside the blocks are
trained with Muon (Jordan et al. 2024: momentum, orthogonalised by a Newton-Schulz iteration), all other weights with Adam. The learning
rate rises for 20 steps, stays constant until 40 % of the training is done, then decays linearly to zero.

At the end the program compares E[alpha] with 1 - E[TV] of the exported draft on held-out positions, over all tokens of the target
(distillation/acceptance.py). If they differ, the program ends with an error. Both numbers are in summary.json beside the text.

Boost-tuning (--boost; Miao et al. 2024, "SpecInfer", arXiv 2305.09781, Section 3) trains several drafts one after the other, each on what
the drafts before it get wrong, so that together they cover more of the target's text. The paper drops the prompts on which an earlier
draft writes the same tokens as the target. Here a sample is one position of a text: it is dropped if the best token of an earlier draft
is the target's best one. --boost-rest keeps dropped positions with a smaller weight in the loss.
"""

import argparse
import bisect
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from distillation.acceptance import CHECKED, acceptance, compare, total_variation
from distillation.labels import Labels
from distillation.objectives import OBJECTIVES, DistillationLoss, objective_loss
from draft import SIZES, Draft, export, load
from generate import require_target
from initialise import start_blocks, start_head
from target import Gguf

FORMAT = 2  # of the file with the state before the first step
HELD_OUT = 40  # every 40th sequence is kept for validation
# Who wrote a shard, by the beginning of its name (other_text.py).
WRITERS = {"target": "text", "draft": "draft", "file": "file"}


class Muon:
    """Optimizer with momentum that replaces the update of a matrix by about the nearest semi-orthogonal matrix. Computes
    matrices of equal shape in one batch."""

    def __init__(self, parameters, momentum=0.95, decay=0.01):
        self.parameters, self.momentum, self.decay = list(parameters), momentum, decay
        self.buffers = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self, rate):
        shapes = {}
        for p, b in zip(self.parameters, self.buffers):
            b.lerp_(p.grad, 1 - self.momentum)
            shapes.setdefault(tuple(sorted(p.shape)), []).append((p, p.grad.lerp(b, self.momentum)))
        for group in shapes.values():
            x = torch.stack([u if u.shape[0] <= u.shape[1] else u.T for _, u in group])
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            for (p, u), o in zip(group, x):
                p.mul_(1 - rate * self.decay)
                p.add_(o if u.shape[0] <= u.shape[1] else o.T, alpha=-rate * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def find_shards(cache, writers):
    """The shards of these writers, the target's first."""
    return [s for writer, name in WRITERS.items() if writer in writers for s in sorted(cache.glob(f"{name}-?????.npz"))]


def require_text(shards, cache, writers):
    """Ends the program if there is no shard of these writers."""
    if not shards:
        raise SystemExit(
            f"{cache} has no text of the writers {', '.join(writers)} ({WRITERS[writers[0]]}-00000.npz, ...). scripts/train/generate.py lets the "
            "target write text, scripts/train/other_text.py lets a draft write it or reads a file. train_draft.sh and train_heads.sh of the "
            "same folder make the text and train"
        )


def choose_vocabulary(shards, embedding, size, device):
    """Returns (sorted ids [size], smoothed frequency [V], sampled features). The frequency of a token is the normalised
    sum of its share of the written tokens, its mean probability under the target on the sample, and a weak Zipf prior."""
    V = len(embedding)
    counts, mass, positions = torch.zeros(V), torch.zeros(V), 0
    samples = []
    per_shard = max(64, 8192 // len(shards))
    for path in shards:
        with np.load(path) as z:
            ends = np.cumsum(z["lengths"])
            ids, keep = z["ids"], np.ones(len(z["ids"]), bool)
            for e, n, s in zip(ends, z["lengths"], z["starts"]):
                keep[e - n : e - n + s + 1] = False
            counts += torch.bincount(torch.from_numpy(ids[keep]).long(), minlength=V)
            chosen = np.sort(
                np.random.default_rng(0).choice(len(z["lse"]), min(per_shard, len(z["lse"])), replace=False)
            )
            f = torch.from_numpy(z["features"][chosen]).float().to(device)
            samples.append(f.cpu())
            for part, lse in zip(f.split(1024), torch.from_numpy(z["lse"][chosen]).to(device).split(1024)):
                mass += (part @ embedding.to(device).T - lse[:, None]).exp().sum(0).cpu()
            positions += len(chosen)
    zipf = 1 / (torch.arange(V) + 200.0)
    frequency = counts / counts.sum() + mass / positions + 0.05 * zipf / zipf.sum()
    vocab = frequency.topk(size).indices.sort().values
    print(
        f"vocabulary of {size} tokens: it has {counts[vocab].sum() / counts.sum():.4f} of the written tokens and "
        f"{mass[vocab].sum() / mass.sum():.4f} of the mass of p",
        flush=True,
    )
    return vocab, frequency / frequency.sum(), torch.cat(samples)


def warm_head(draft, text, steps, rng):
    """Fits the head and a linear map A (target's feature f -> hidden vector), so that softmax(head A f) comes close to p.

    No transformer takes part. Starts from initialise.head_start. The last alpha that it prints is about the largest that
    a draft with hidden vectors of this width can reach.
    """
    head = draft.head
    fit = torch.linalg.lstsq(
        head.detach().double(), (draft.embedding - draft.embedding.mean(0))[draft.vocab].double()
    ).solution.float()
    linear = torch.nn.Parameter(fit.to(head.device))  # [d, D]
    adam = torch.optim.Adam(
        [dict(params=[p], rate=0.02 * p.detach().pow(2).mean().sqrt().item()) for p in (head, linear)],
        betas=(0.9, 0.98),
    )
    alpha, step = [], 0
    for shard, begin in enumerate(text.begins):
        features = text.features(shard)
        order = torch.from_numpy(rng.permutation(len(features)))[: 1024 * (-(-steps // len(text.shards)))]
        for rows in order.split(1024):
            hidden = features[rows].to(head.device).float() @ linear.T
            index, p = (t.to(head.device) for t in text.labels.at(begin + rows))
            if step % 10 == 0:
                with torch.no_grad():
                    q = (hidden[:256] @ head.T).softmax(1).gather(1, index[:256])
                    alpha.append(torch.minimum(q, p[:256]).sum(1).mean().item())
            loss = DistillationLoss.apply(hidden, head, index, p)
            adam.zero_grad()
            loss.backward()
            for group in adam.param_groups:
                group["lr"] = group["rate"] * max(0.02, 1 - step / steps)
            adam.step()
            step += 1
    print(f"head fitted to the target's features in {step} steps: alpha {alpha[0]:.3f} -> {alpha[-1]:.3f}", flush=True)


class Text:
    """All sequences, and the target's distribution on the draft vocabulary at their positions. weight float [M] holds the weight of each
    position in the loss, which is 1 unless the draft is boost-tuned."""

    own = 0  # number of sequences that the target wrote; they come first

    def __init__(self, shards, embedding, vocab, device):
        """embedding [V, D] of the target and vocab [K]: the labels count within these tokens (distillation/labels.py)."""
        self.shards, self.sequences, self.begins, offset = shards, [], [], 0
        for path in shards:
            with np.load(path) as z:
                ids, lengths, starts = z["ids"], z["lengths"], z["starts"]
            self.begins.append(offset)
            for e, n, s in zip(np.cumsum(lengths), lengths, starts):
                self.sequences.append((torch.from_numpy(ids[e - n : e - 1].astype(np.int64)), int(s), offset))
                offset += int(n) - 1 - int(s)
            if path.name.startswith(WRITERS["target"]):
                self.own = len(self.sequences)
        self.labels, self.tokens = Labels(shards, self.begins, embedding[vocab], device), offset
        self.weight = torch.ones(offset)
        self._features = None, None

    def features(self, shard):
        """The target's states at the positions of a shard, [positions, D] in float16. The last shard stays in memory."""
        if self._features[0] != shard:
            with np.load(self.shards[shard]) as z:
                self._features = shard, torch.from_numpy(z["features"])
        return self._features[1]

    def held_out(self, i):
        """Whether sequence i is kept for validation: True, False, or None if it is not used at all. If the target wrote some of the text, only
        its sequences are kept; every 40th one of the others is left out."""
        if i % HELD_OUT:
            return False
        return True if self.own == 0 or i < self.own else None

    def split(self):
        """(training, held-out) sequence numbers. Training leaves out sequences without a position that counts."""
        numbers = range(len(self.sequences))
        training = [i for i in numbers if self.held_out(i) is False and self.counts(i)]
        return training, [i for i in numbers if self.held_out(i)]

    def counts(self, i):
        """True if a position of sequence i has a weight in the loss."""
        tokens, start, offset = self.sequences[i]
        return bool(self.weight[offset : offset + len(tokens) - start].any())

    def batches(self, numbers, size, rng):
        """Batches in random order: lists of numbers of sequences of about equal length. A padded batch has about `size` tokens."""
        numbers = sorted(numbers, key=lambda i: len(self.sequences[i][0]) + rng.randint(-8, 8))
        out, batch = [], []
        for i in numbers:
            if batch and (len(batch) + 1) * len(self.sequences[i][0]) > size:
                out, batch = out + [batch], []
            batch.append(i)
        out.append(batch)
        rng.shuffle(out)
        return out

    def places(self, batch):
        """ids [n, L] padded with 0 on the right; (row, column, number in the text) of the M positions whose next token
        the target chose."""
        longest = max(len(self.sequences[i][0]) for i in batch)
        ids, row, column, place = torch.zeros(len(batch), longest, dtype=torch.long), [], [], []
        for r, i in enumerate(batch):
            tokens, start, offset = self.sequences[i]
            ids[r, : len(tokens)] = tokens
            n = len(tokens) - start
            (
                row.append(torch.full((n,), r)),
                column.append(torch.arange(start, start + n)),
                place.append(torch.arange(offset, offset + n)),
            )
        return ids, torch.cat(row), torch.cat(column), torch.cat(place)

    def load(self, batch, device, weighted=True):
        """ids [n, L] as in places(); (row, column) of the M positions with a loss; index and p [M, TOP] and weight [M] of these positions.
        If `weighted`, positions of weight 0 are left out."""
        ids, row, column, place = self.places(batch)
        if weighted:
            keep = self.weight[place] > 0
            row, column, place = row[keep], column[keep], place[keep]
        return [t.to(device) for t in (ids, row, column, *self.labels.at(place), self.weight[place])]


@torch.no_grad()
def validate(draft, text, numbers):
    """(loss, alpha = mean sum min(p, q), greedy agreement) on held-out sequences; p beyond its TOP largest entries is not counted."""
    sums, n = np.zeros(3), 0
    draft.eval()
    for batch in text.batches(numbers, 4096, random.Random(0)):
        ids, row, column, index, p, _ = text.load(batch, draft.head.device, weighted=False)
        hidden = draft(ids)[row, column]
        for h, k, w in zip(hidden.split(512), index.split(512), p.split(512)):
            log_q = (h @ draft.head.T).log_softmax(1)
            top = log_q.gather(1, k)
            sums += [
                -(w * top).sum().item(),
                torch.minimum(w, top.exp()).sum().item(),
                (log_q.argmax(1) == k[:, 0]).sum().item(),
            ]
        n += len(p)
    draft.train()
    return sums / n


@torch.no_grad()
def check(draft, text, numbers, enough=CHECKED):
    """Compares E[alpha] with 1 - E[TV] on the first `enough` positions of the sequences `numbers`, in float64 and over all tokens of the
    target, and raises RuntimeError if they differ (distillation/acceptance.py). Returns what summary.json says."""
    device = draft.head.device
    rows, head = draft.embedding.double(), draft.head.double()
    sums, seen = torch.zeros(2, dtype=torch.float64), 0
    for i in numbers:
        tokens, start, offset = text.sequences[i]
        count = min(len(tokens) - start, enough - seen)
        shard = bisect.bisect_right(text.begins, offset) - 1
        features = text.features(shard)[offset - text.begins[shard] :][:count].to(device).double()
        hidden = draft(tokens[None].to(device))[0, start:][:count].double()
        p, q = (features @ rows.T).softmax(1), (hidden @ head.T).softmax(1)
        sums += torch.stack([measured(p, q, draft.vocab).sum().cpu() for measured in (acceptance, total_variation)])
        seen += count
        if seen == enough:
            break
    alpha, distance = sums / seen
    return dict(
        alpha=alpha.item(),
        total_variation=distance.item(),
        largest_difference=compare(alpha, distance),
        positions=seen,
    )


@torch.no_grad()
def covered(text, vocab, drafts, numbers=None):
    """Bool [positions of the text]: True where the best token of one of the drafts is the target's best token within
    `vocab`. Looks only at the sequences `numbers` (default: all); False elsewhere."""
    out = torch.zeros(text.tokens, dtype=torch.bool)
    numbers = range(len(text.sequences)) if numbers is None else numbers
    for draft in drafts:
        device = draft.head.device
        for batch in text.batches(numbers, 4096, random.Random(0)):
            ids, row, column, place = text.places(batch)
            hidden = draft(ids.to(device))[row.to(device), column.to(device)]
            best = torch.cat([(h @ draft.head.T).argmax(1) for h in hidden.split(512)])
            out[place] |= draft.vocab[best].cpu() == vocab[text.labels.at(place)[0][:, 0]]
    return out


def boost(text, vocab, earlier, rest):
    """Gives the positions that earlier drafts cover the weight `rest`. Ends the program if nothing is left to train on."""
    hit = covered(text, vocab, earlier)
    text.weight[hit] = rest
    print(f"boost-tuning: {len(earlier)} earlier drafts cover {hit.float().mean():.4f} of the positions", flush=True)
    if not text.split()[0]:
        raise SystemExit("--boost: the earlier drafts cover all positions, so nothing is left to train on")


def start_key(args, target, shards):
    """A hash of all that the state before the first step depends on. It is part of the names of two files: the one with this state
    and the one with the state of the training, which depends on the objective too. FORMAT is that of the first file."""
    earlier = [hashlib.sha256((d / "model.safetensors").read_bytes()).hexdigest() for d in args.boost]
    names = [(s.name, s.stat().st_size) for s in shards]
    what = [FORMAT, target, names, args.size, args.seed, args.warm_steps, args.plain, earlier, args.boost_rest]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]


def prepare(args, file, embedding, shards):
    """Does everything before the first step. Returns {vocabulary, weight of each position, first weights of the draft}."""
    size = SIZES[args.size]
    vocab, frequency, features = choose_vocabulary(shards, embedding, size["draft_vocab"], args.device)
    text = Text(shards, embedding, vocab, args.device)
    if args.boost:
        boost(text, vocab, [load(d, file, args.device) for d in args.boost], args.boost_rest)
    draft = Draft(embedding, vocab, size)
    start_head(draft, frequency, features)
    draft.to(args.device)
    warm_head(draft, text, args.warm_steps, np.random.default_rng(args.seed))
    draft.to("cpu")
    start_blocks(draft, frequency, args.seed, circuit=not args.plain)
    return dict(vocab=vocab, weight=text.weight, draft=draft.state_dict())


def average(parameters, extra):
    """Replaces the gradients by their mean over all workers; returns the mean of `extra` over all workers."""
    if not dist.is_initialized():
        return extra
    flat = torch.cat([p.grad.flatten() for p in parameters] + [torch.tensor([extra])])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, g in zip(parameters, flat.split([p.numel() for p in parameters] + [1])):
        p.grad.copy_(g.view_as(p))
    return flat[-1].item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--cache", type=Path, default=Path(".cache/train"))
    parser.add_argument("--out", type=Path, default=Path("models/draft/smollm2-135m-instruct"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="256")
    parser.add_argument(
        "--objective", choices=OBJECTIVES, default="forward_kl", help="distance of q from p that the training lowers"
    )
    parser.add_argument("--epochs", type=float, default=None, help="default: 4, on a GPU 1")
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="time limit; the learning rate decays to zero by then"
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=None,
        help="tokens per step and worker, padding and prompts included (default: 2560 / workers, on a GPU 16384)",
    )
    parser.add_argument("--muon-rate", type=float, default=0.01)
    parser.add_argument("--adam-rate", type=float, default=7e-4)
    parser.add_argument(
        "--dropout",
        type=float,
        default=None,
        help="dropout of the outputs of attention and feed-forward (default: 0.1, on a GPU 0)",
    )
    parser.add_argument(
        "--warm-steps",
        type=int,
        default=120,
        help="training steps of the head alone, before the whole draft is trained",
    )
    parser.add_argument(
        "--boost",
        type=Path,
        nargs="+",
        default=[],
        metavar="DRAFT",
        help="exported drafts that were trained before this one: train only on positions that none of them gets right",
    )
    parser.add_argument(
        "--boost-rest",
        type=float,
        default=0.0,
        help="weight in the loss of the positions that an earlier draft gets right, from 0 to 1 (default: 0)",
    )
    parser.add_argument("--shards", type=int, default=None, help="use only the first N shards (default: all)")
    parser.add_argument(
        "--writers", nargs="+", choices=WRITERS, default=["target"], help="whose text to train on (other_text.py)"
    )
    parser.add_argument(
        "--plain", action="store_true", help="random weights in the blocks instead of the induction circuit"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=None,
        help="processes, each with its own batch in a step (default: one per core, at most 4, on a GPU 1)",
    )
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not 0 <= args.boost_rest <= 1:
        parser.error(f"--boost-rest: {args.boost_rest} is no weight from 0 to 1")
    if args.boost_rest and not args.boost:
        parser.error("--boost-rest: there is no --boost, so all positions have weight 1")
    for directory in args.boost:
        if not (directory / "model.safetensors").exists():
            parser.error(f"--boost: {directory} holds no exported draft")
        if directory.resolve() == args.out.resolve():
            parser.error(f"--boost: {directory} is also --out, so the new draft would replace it")
    gpu = args.device != "cpu"
    workers, worker = args.workers or (1 if gpu else min(4, len(os.sched_getaffinity(0)))), args.worker or 0
    meeting = args.cache.resolve() / "meeting"
    shards = find_shards(args.cache, args.writers)[: args.shards]
    require_text(shards, args.cache, args.writers)
    file = Gguf(args.target)
    target = file.sha256()
    require_target(shards, target)
    key = start_key(args, target, shards)
    start = args.cache / f"start-{args.size}-{key}.pt"
    state = args.cache / f"state-{args.size}-{key}-{args.objective}.pt"
    embedding = file.tensor("token_embd.weight")
    if not start.exists():
        torch.save(prepare(args, file, embedding, shards), start.with_suffix(".partial"))
        os.replace(start.with_suffix(".partial"), start)
    # Single-threaded workers wait for each other only once per step. Threads would wait in every matrix product.
    if args.worker is None and workers > 1:
        meeting.unlink(missing_ok=True)
        command = [sys.executable, *sys.argv, "--workers", str(workers), "--worker"]
        children = [
            subprocess.Popen(command + [str(w)], env=os.environ | {"OMP_NUM_THREADS": "1"}) for w in range(workers)
        ]
        sys.exit(max(child.wait() for child in children))
    if workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=worker, world_size=workers)
    torch.manual_seed(args.seed + worker)  # for dropout
    epochs, size = args.epochs or (1 if gpu else 4), args.batch or (16384 if gpu else 2560 // workers)
    rng = random.Random(args.seed)
    begin = torch.load(start, weights_only=True)
    text, draft = (
        Text(shards, embedding, begin["vocab"], args.device),
        Draft(embedding, begin["vocab"], SIZES[args.size]),
    )
    text.weight = begin["weight"]
    draft.load_state_dict(begin["draft"])
    draft.to(args.device)
    training, held_out = text.split()
    draft.dropout = args.dropout if args.dropout is not None else (0.0 if gpu else 0.1)
    if worker == 0:
        print(
            f"{text.tokens} tokens of text; a forward of the draft reads {draft.step_bytes() / 1e6:.2f} MB", flush=True
        )

    inner = [p for b in draft.blocks for p in b.parameters() if p.dim() == 2]
    outer = [p for p in draft.parameters() if not any(p is q for q in inner)]
    muon, adam = (
        Muon(inner),
        torch.optim.AdamW(outer, lr=args.adam_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    )
    step, elapsed, seen = 0, 0.0, 0.0  # seen: number of epochs so far
    if state.exists():
        saved = torch.load(state, weights_only=False)
        draft.load_state_dict(saved["draft"]), adam.load_state_dict(saved["adam"]), rng.setstate(saved["rng"])
        [b.copy_(s) for b, s in zip(muon.buffers, saved["muon"])]
        step, elapsed, seen = saved["step"], saved["elapsed"], saved["seen"]

    def show():
        if worker == 0:
            print(
                "epoch {:.2f}, {:.0f} s, step {}: held-out loss {:.3f}, alpha {:.3f}, greedy agreement {:.3f}".format(
                    seen, elapsed, step, *validate(draft, text, held_out)
                ),
                flush=True,
            )

    show()
    parameters = list(draft.parameters())
    clock, queue, mark = time.time() - elapsed, [], time.time()
    while True:
        if len(queue) < workers:
            queue = text.batches(training, size, rng)
            share = workers / len(queue)
        progress = max(seen / epochs, elapsed / (60 * args.minutes))
        if progress >= 1:
            break
        rate = min(1, (step + 1) / 20) * min(1, (1 - progress) / 0.6)
        ids, row, column, *labels = text.load([queue.pop() for _ in range(workers)][worker], args.device)
        loss = objective_loss(args.objective, draft(ids)[row, column], draft.head, *labels)
        draft.zero_grad()
        loss.backward()
        elapsed = average(parameters, time.time() - clock)
        muon.step(args.muon_rate * rate)
        adam.param_groups[0]["lr"] = args.adam_rate * rate
        adam.step()
        step, seen = step + 1, seen + share
        if worker == 0 and time.time() - mark > 100:
            mark = time.time()
            torch.save(
                dict(
                    draft=draft.state_dict(),
                    adam=adam.state_dict(),
                    muon=muon.buffers,
                    rng=rng.getstate(),
                    step=step,
                    elapsed=elapsed,
                    seen=seen,
                ),
                state.with_suffix(".partial"),
            )
            os.replace(state.with_suffix(".partial"), state)
            show()
    show()
    if worker:
        return
    export(draft, args.out, file)
    final = validate(draft, text, held_out)
    checked = check(load(args.out, file, args.device), text, held_out)
    print("E[alpha] {alpha:.4f} = 1 - E[TV], difference {largest_difference:.1g}".format(**checked), flush=True)
    boosted = {}
    if args.boost:
        earlier = [load(d, file, args.device) for d in args.boost]
        drafts = draft.eval(), *earlier
        before, after = (covered(text, begin["vocab"], d, held_out).sum() for d in (earlier, drafts))
        positions = sum(len(text.sequences[i][0]) - text.sequences[i][1] for i in held_out)
        boosted = dict(covered_before=before.item() / positions, covered=after.item() / positions)
        print(
            "held-out positions that a draft covers: {covered_before:.4f}, with the new draft {covered:.4f}".format(
                **boosted
            ),
            flush=True,
        )
        boosted["boost"] = [str(d) for d in args.boost]
    (args.cache / "summary.json").write_text(
        json.dumps(
            dict(
                tokens=text.tokens,
                epochs=epochs,
                steps=step,
                seconds=elapsed,
                loss=final[0],
                alpha=final[1],
                agreement=final[2],
                step_bytes=draft.step_bytes(),
                writers=args.writers,
                objective=args.objective,
                check=checked,
                **boosted,
            )
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
