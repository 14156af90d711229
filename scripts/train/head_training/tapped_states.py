"""Hidden states of the target at all positions of the text, prompts included, for heads that read several layers or whole texts.

generate.py stores the last state of the positions that the target wrote. This file adds the states of any layers: the target
reads each shard once, and the states are kept beside the text as SHARD-states-KEY.npy, [positions of all sequences, taps * D].
"""

import hashlib
import json
import os

import numpy as np
import torch
from distillation.labels import hash_of
from tqdm import tqdm

BATCH = 4096  # tokens that the target reads at once, with padding


class TappedStates:
    """target: target.Target. sha256: the hash of the target's file. taps: as in Target.states()."""

    def __init__(self, target, sha256, taps, shards, sequences):
        """sequences: for each shard the tokens of its sequences, in the order of the text."""
        self.target, self.taps, self.shards, self.tokens = target, tuple(taps), shards, sequences
        self.width = len(self.taps) * target.D
        self.sha256, self._open = sha256, (None, None, None)

    def path(self, shard):
        what = [self.sha256, list(self.taps), hash_of(self.shards[shard])]
        key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]
        return self.shards[shard].with_name(f"{self.shards[shard].stem}-states-{key}.npy")

    def of(self, shard, sequence):
        """The states of the given sequence of a shard, [positions, width]."""
        if self._open[0] != shard:
            path = self.path(shard)
            if not path.exists() and not self.write(path, shard, np.float16):
                self.write(path, shard, np.float32)
            ends = np.cumsum([len(tokens) for tokens in self.tokens[shard]])
            self._open = shard, np.load(path, mmap_mode="r"), ends
        _, states, ends = self._open
        rows = states[ends[sequence] - len(self.tokens[shard][sequence]) : ends[sequence]]
        return torch.from_numpy(rows.astype(np.float32))

    @torch.no_grad()
    def write(self, path, shard, kind):
        """Returns False, and writes nothing, if a number is too large for this type."""
        tokens = self.tokens[shard]
        ends = np.cumsum([len(t) for t in tokens])
        partial = path.with_suffix(".partial")
        out = np.lib.format.open_memmap(partial, mode="w+", dtype=kind, shape=(int(ends[-1]), self.width))
        order, bar = sorted(range(len(tokens)), key=lambda i: len(tokens[i])), tqdm(total=int(ends[-1]), disable=None)
        bar.set_description(f"states of {self.shards[shard].stem}")
        while order:
            count = max(1, BATCH // max(1, len(tokens[order[-1]])))
            part, order = order[-count:], order[:-count]
            ids = torch.zeros(len(part), max(1, len(tokens[part[-1]])), dtype=torch.long)
            for row, i in enumerate(part):
                ids[row, : len(tokens[i])] = tokens[i]
            states = self.target.states(ids.to(self.target.device), self.taps).cpu()
            if states.abs().max() > np.finfo(kind).max:
                del out
                bar.close()
                partial.unlink()
                return False
            for row, i in enumerate(part):
                out[ends[i] - len(tokens[i]) : ends[i]] = states[row, : len(tokens[i])].numpy()
            bar.update(sum(len(tokens[i]) for i in part))
        bar.close()
        out.flush()
        os.replace(partial, path)
        return True
