"""The training of heads: steps, rate, checkpoints, curve and progress bar. It is the same for all kinds."""

import os
import random
import time

import torch
from distillation.objectives import objective_loss
from tqdm import tqdm

from head_training.measure import held_out, measure

POINTS = 10  # of the curve, besides the point before the training
CURVE = 1024  # held-out positions of each head at a point of the curve


def loss_of(heads, batch, options):
    """sum_i decay^i * (objective_i + ranking * top_k_i), plus what the kind adds while it is trained. None if no position of the batch has
    a label."""
    total = None
    heads.extra = None
    for head, hidden, place in heads.predictions(batch):
        arguments = hidden, heads.output(head), *heads.labels(batch, place)
        part = objective_loss(options.objective, *arguments)
        if options.ranking:
            part = part + options.ranking * objective_loss("top_k", *arguments)
        part = options.decay**head * part
        total = part if total is None else total + part
    return total if total is None or heads.extra is None else total + heads.extra


@torch.no_grad()
def held_out_loss(heads, states, options, enough):
    """loss_of() on held-out sequences, without what the kind adds. `enough`: positions after which to stop."""
    total, seen = 0.0, 0
    heads.eval()
    for batch in held_out(heads, states, options.device):
        loss = loss_of(heads, batch, options)
        if loss is not None:
            total, seen = total + batch.size * loss.item(), seen + batch.size
        if seen >= enough:
            break
    heads.train()
    return total / seen


def is_point(done, all_shards):
    """Whether the curve has a point after `done` shards."""
    return done * POINTS // all_shards > (done - 1) * POINTS // all_shards


def train(heads, states, args, path, watch=lambda at: None):
    """Trains until the epochs or minutes are over. Returns {step, tokens, seconds, done, curve}: steps, positions seen, seconds, finished
    shards over all epochs, and alpha by head and the loss on held-out text during the training. Saves to `path` after each shard, then calls watch(state).
    A training that goes on from `path` gives the same weights as one without a break, unless the limit of minutes decides about the rate."""
    device = args.device
    adam = torch.optim.AdamW(heads.groups(args.rate), betas=(0.9, 0.98), weight_decay=0.0)
    parameters = [p for group in adam.param_groups for p in group["params"]]
    at = dict(step=0, tokens=0, seconds=0.0, done=0, curve=[])
    if path.exists():
        saved = torch.load(path, weights_only=True, map_location=device)
        heads.load_state_dict(saved["heads"])
        adam.load_state_dict(saved["adam"])
        at = saved["at"]
        print(f"goes on after {at['done']} shards", flush=True)
    begin, shards = time.time() - at["seconds"], len(states.shards)
    whole = args.epochs * shards
    positions = args.epochs * sum(states.size(heads.reads_text, shard) for shard in range(shards))
    if not positions:
        raise SystemExit("no position of the text can be trained on; write more text")
    spent = lambda: (time.time() - begin) / (60 * args.minutes)
    progress = lambda: max(at["tokens"] / positions, spent())

    def point():
        alpha, _ = measure(heads, states, device, CURVE)
        loss = held_out_loss(heads, states, args, CURVE)
        at["curve"].append(
            dict(
                step=at["step"],
                tokens=at["tokens"],
                seconds=round(time.time() - begin, 1),
                alpha=alpha.tolist(),
                loss=loss,
            )
        )

    if not at["curve"]:
        point()
    bar = tqdm(total=100, disable=None, bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} {postfix}")
    while at["done"] < whole and progress() < 1:
        epoch, number = divmod(at["done"], shards)
        rng = random.Random(f"{args.seed}/{epoch}")
        order = list(range(shards))
        rng.shuffle(order)
        seed, losses = args.seed * 1_000_003 + at["done"] + 1, []
        for batch in states.batches(heads.reads_text, order[number], False, args.batch, seed, device):
            if spent() >= 1:
                break
            loss = loss_of(heads, batch, args)
            at["tokens"] += batch.size
            if loss is None:
                continue
            if not torch.isfinite(loss):
                raise SystemExit(
                    f"the loss is {loss.item()} at step {at['step']}: use a smaller --rate. The weights of the last finished shard stay in {path}."
                )
            heads.zero_grad()
            loss.backward()
            if heads.clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, heads.clip)
            now = min(1, progress())
            for group in adam.param_groups:
                group["lr"] = group["largest"] * min(1, (at["step"] + 1) / 20) * min(1, (1 - now) / 0.6)
            adam.step()
            losses.append(loss.item())
            at["step"] += 1
            bar.set_postfix_str(f"loss {losses[-1]:.3f}", refresh=False)
            bar.update(100 * now - bar.n)
        at["done"] += 1
        if is_point(at["done"], whole):
            point()
        at["seconds"] = time.time() - begin
        torch.save(dict(heads=heads.state_dict(), adam=adam.state_dict(), at=at), path.with_suffix(".partial"))
        os.replace(path.with_suffix(".partial"), path)
        loss = sum(losses) / max(1, len(losses))
        alpha = [round(a, 3) for a in at["curve"][-1]["alpha"]]
        bar.clear()
        print(
            f"shard {at['done']} of {whole}, {at['seconds']:.0f} s, {at['tokens']} tokens, loss {loss:.3f}, held-out alpha {alpha}",
            flush=True,
        )
        watch(at)
    bar.close()
    return at
