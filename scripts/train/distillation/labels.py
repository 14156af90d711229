"""The labels of the training: the target's most probable tokens at each position of the text.

A label belongs to a vocabulary of K tokens. It has the TOP tokens of this vocabulary with the largest p, best first, and their p. A token
is stored as its index in the vocabulary. p is normalised over all tokens of the target. The labels of a shard are computed once and kept beside
it as SHARD-labels-KEY.npy, an array of LABEL. They are read from the files while the training runs, so they need not fit into memory.
KEY stands for the content of the shard and for the vocabulary. Label files can be deleted at any time.
"""

import functools
import hashlib
import json
import os

import numpy as np
import torch
from tqdm import tqdm

TOP = 64  # entries of p that are kept
LABEL = np.dtype([("index", "<i2", TOP), ("p", "<f2", TOP)])


@functools.cache
def hash_of(path):
    """SHA-256 of a file of text."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Labels:
    """The labels of all positions of the text."""

    def __init__(self, shards, begins, rows, device):
        """begins: the number of the first position of each shard. rows [K, D]: the target's output head at the tokens of the vocabulary.
        Computes the labels that have no file yet."""
        self.begins = np.array(begins)
        of_rows = hashlib.sha256(rows.contiguous().numpy().tobytes()).hexdigest()
        paths = [self.path(shard, of_rows) for shard in shards]
        missing = [(shard, path) for shard, path in zip(shards, paths) if not path.exists()]
        rows = rows.to(device)
        for shard, path in tqdm(missing, desc="labels", disable=None if missing else True):
            self.write(shard, path, rows)
        self.files = [np.load(path, mmap_mode="r") for path in paths]

    @staticmethod
    def path(shard, of_rows):
        key = hashlib.sha256(json.dumps([hash_of(shard), of_rows, TOP]).encode()).hexdigest()[:12]
        return shard.with_name(f"{shard.stem}-labels-{key}.npy")

    @staticmethod
    def write(shard, path, rows):
        with np.load(shard) as z:
            features, lse = torch.from_numpy(z["features"]), torch.from_numpy(z["lse"])
        labels = np.empty(len(lse), LABEL)
        begin = 0
        for f, l in zip(features.split(2048), lse.split(2048)):
            values, where = (f.to(rows.device).float() @ rows.T).topk(TOP)
            part = labels[begin : begin + len(f)]
            part["index"] = where.cpu().numpy()
            part["p"] = (values - l.to(rows.device)[:, None]).exp().cpu().numpy()
            begin += len(f)
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as out:
            np.save(out, labels)
        os.replace(partial, path)

    def at(self, place):
        """(index [n, TOP] int64, p [n, TOP] float32) at the positions place [n], on the CPU."""
        place = place.numpy()
        shard = np.searchsorted(self.begins, place, side="right") - 1
        found = np.empty(len(place), LABEL)
        for number in np.unique(shard):
            of_shard = shard == number
            found[of_shard] = self.files[number][place[of_shard] - self.begins[number]]
        return tuple(torch.from_numpy(found[name].astype(kind)) for name, kind in (("index", "i8"), ("p", "f4")))
