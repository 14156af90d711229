"""What heads are worth on held-out text: their acceptance and accuracy, and a check of acceptance with the total variation of the laws."""

import torch
from distillation.acceptance import CHECKED, acceptance, compare, total_variation

RANKS = 10  # ranks of a head whose accuracy is measured
MEASURED = 8192  # positions of each head from which the card's numbers come


def held_out(heads, states, device):
    """Batches of held-out text, the same ones at each call."""
    for shard in range(len(states.shards)):
        yield from states.batches(heads.reads_text, shard, True, 2048, 0, device)


@torch.no_grad()
def measure(heads, states, device, enough=None):
    """(alpha [heads], accuracy [heads, RANKS]) on held-out sequences, teacher-forced: the tokens before a guess are those of the text.
    alpha: mean of sum_v min(p, q) over all tokens of the target. accuracy: how often the head's token of each rank is the target's best
    token; a best token that the head cannot draft counts as missed. `enough`: positions of each head after which to stop."""
    count = heads.count
    alpha, hits, seen = torch.zeros(count), torch.zeros(count, RANKS), torch.zeros(count)
    heads.eval()
    for batch in held_out(heads, states, device):
        for i, hidden, place in heads.predictions(batch):
            (features, rows), (output, ids) = heads.target_law(batch, place), heads.law_output(i)
            for f, h in zip(features.split(256), hidden.split(256)):
                p, q = (f @ rows.T).softmax(1), (h @ output.T).softmax(1)
                drafted = q.topk(RANKS).indices
                alpha[i] += torch.minimum(p if ids is None else p[:, ids], q).sum().item()
                hits[i] += ((drafted if ids is None else ids[drafted]) == p.argmax(1, keepdim=True)).sum(0).cpu()
                seen[i] += len(f)
        if enough is not None and seen.min() >= enough:
            break
    heads.train()
    require_seen(seen)
    return alpha / seen, hits / seen[:, None]


def require_seen(seen):
    if not seen.all():
        missing = (seen == 0).nonzero()[:, 0].tolist()
        raise SystemExit(f"no held-out position has a label for the heads {missing}; write more or longer text")


@torch.no_grad()
def check(heads, states, device, enough=CHECKED):
    """Compares E[alpha] with 1 - E[TV] on held-out positions, by head, in float64 and over all tokens of the target, and raises
    RuntimeError if they differ (distillation/acceptance.py). The comparison with the golden heads (test_golden_heads.py) finds a
    vocabulary map that is permuted. Returns what the card says."""
    sums, seen = torch.zeros(heads.count, 2, dtype=torch.float64), torch.zeros(heads.count)
    heads.eval()
    for batch in held_out(heads, states, device):
        for i, hidden, place in heads.predictions(batch):
            left = enough - int(seen[i])
            if left <= 0:
                continue
            features, rows = heads.target_law(batch, place)
            output, ids = heads.law_output(i)
            rows, output = rows.double(), output.double()
            for f, h in zip(features[:left].split(64), hidden[:left].split(64)):
                p, q = (f.double() @ rows.T).softmax(1), (h.double() @ output.T).softmax(1)
                sums[i, 0] += acceptance(p, q, ids).sum().item()
                sums[i, 1] += total_variation(p, q, ids).sum().item()
                seen[i] += len(f)
        if seen.min() >= enough:
            break
    heads.train()
    require_seen(seen)
    alpha, distance = (sums / seen[:, None]).T
    return {
        "alpha": alpha.tolist(),
        "total_variation": distance.tolist(),
        "largest_difference": compare(alpha, distance),
        "positions": [int(n) for n in seen],
    }


@torch.no_grad()
def moved(heads, states, device, enough=CHECKED):
    """Mean total variation between the laws of a fine-tuned target as it was and as it is, on held-out positions."""
    total, seen = 0.0, 0
    heads.eval()
    for batch in held_out(heads, states, device):
        for _ in heads.predictions(batch):
            pass
        for place in heads.places[: enough - seen].split(64):
            total, seen = total + heads.distance(batch, place).sum().item(), seen + len(place)
        if seen >= enough:
            break
    heads.train()
    return total / seen


def report(when, alpha, accuracy):
    print(
        f"{when}: held-out alpha by head {[round(a, 3) for a in alpha.tolist()]}, best token right {[round(a, 3) for a in accuracy[:, 0].tolist()]}",
        flush=True,
    )
