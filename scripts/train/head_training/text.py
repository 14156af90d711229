"""The text of generate.py as batches for heads. It is read shard by shard, so it need not fit into memory.

A position of the text has a number ("place"). The label at a place is the target's law of the token after it.
"""

import random

import numpy as np
import torch


class Positions:
    """Positions of one shard with the states that heads read there. place [n]: their numbers; features [n, D]."""

    def __init__(self, states, shard, place, features):
        self.states, self.shard, self.place, self.features = states, shard, place, features
        self.size = len(place)

    def with_label(self, head):
        """The rows that have a label for this head, head + 1 positions later."""
        return (self.states.left[self.place] > head).nonzero()[:, 0]

    def after(self, rows, count):
        """The `count` tokens after each of these rows, [rows, count]."""
        at = self.place[rows]
        return self.states.ids[at[:, None] + 1 + torch.arange(count)].to(self.features.device)


class Sequences:
    """Whole sequences of one shard, padded on the right. ids [n, L]. Positions with a label are those from `start` to length - 1 of their
    sequence. states_of_taps [n, L, taps * D]: hidden states of all positions, or None."""

    def __init__(self, states, shard, numbers, tapped, seed, device):
        self.states, self.shard = states, shard
        sequences = [states.text.sequences[i] for i in numbers]
        lengths = [len(tokens) for tokens, _, _ in sequences]
        self.ids = torch.zeros(len(sequences), max(lengths), dtype=torch.long)
        for row, (tokens, _, _) in enumerate(sequences):
            self.ids[row, : len(tokens)] = tokens
        column = lambda values: torch.tensor(values, device=device)[:, None]
        self.length, self.start = column(lengths), column([start for _, start, _ in sequences])
        self.offset = column([offset for _, _, offset in sequences])
        self.ids = self.ids.to(device)
        self.states_of_taps = None
        if tapped is not None:
            self.states_of_taps = torch.zeros(*self.ids.shape, tapped.width)
            for row, i in enumerate(numbers):
                self.states_of_taps[row, : lengths[row]] = tapped.of(shard, i - states.numbers[shard][0])
            self.states_of_taps = self.states_of_taps.to(device)
        self.size = sum(lengths)
        self.coins = torch.Generator().manual_seed(seed)

    def over(self, values, position):
        """values [n, 1] in the form of position, which is [positions] or [n, ...]."""
        return values.view(-1, *[1] * max(1, position.dim() - 1))

    def has_label(self, position):
        start, length = (self.over(values, position) for values in (self.start, self.length))
        return (position >= start) & (position < length)

    def place(self, position):
        return self.over(self.offset - self.start, position) + position

    def anchors(self, count, first, last):
        """Random positions [n, count] from start + first to length - 1 + last of each sequence. If a sequence has none, the returned positions
        have no label."""
        low = (self.start + first).clamp(min=0)
        choices = (self.length + last - low).clamp(min=1)
        coins = torch.rand(len(self.ids), count, generator=self.coins).to(self.ids.device)
        return torch.minimum(low + (coins * choices).long(), self.length - 1)


class States:
    """The text and its states. left [M]: how many positions of the same sequence follow each position. ids [M]: the token at each position.
    numbers: the numbers of the sequences of each shard. tokens: positions of the sequences that are used. With `greedy`, only sequences that were written at temperature 0 are used."""

    def __init__(self, text, shards, greedy=False, tapped=None):
        self.text, self.shards, self.tapped = text, shards, tapped
        self.left, self.held_out = (
            torch.zeros(text.tokens, dtype=torch.long),
            torch.zeros(text.tokens, dtype=torch.bool),
        )
        self.ids = torch.zeros(text.tokens, dtype=torch.long)
        self.numbers, used = [], []
        for shard in shards:
            with np.load(shard) as z:
                first = len(used)
                used += (z["temperature"] == 0).tolist() if greedy else [True] * len(z["lengths"])
            self.numbers.append(range(first, len(used)))
        if not any(used):
            raise SystemExit("--text greedy: no sequence was written at temperature 0; write more text")
        self.used = used
        for i, (tokens, start, offset) in enumerate(text.sequences):
            n = len(tokens) - start
            self.ids[offset : offset + n] = tokens[start:]
            used[i] = used[i] and text.held_out(i) is not None
            if used[i]:
                self.left[offset : offset + n] = torch.arange(n - 1, -1, -1)
            self.held_out[offset : offset + n] = bool(text.held_out(i))
        self.tokens = sum(len(t) - start for use, (t, start, _) in zip(used, text.sequences) if use)

    def features_at(self, shard, place):
        return self.text.features(shard)[place.cpu() - self.text.begins[shard]].float()

    def labels_at(self, place, device):
        """(index [m, T] in the vocabulary, p [m, T]) of the labels at these places."""
        index, p = self.text.labels.at(place.cpu())
        return index.to(device), p.to(device)

    def rows(self, shard, held_out):
        """Numbers of the positions of a shard that can predict something, counted from the shard's first position."""
        begin = self.text.begins[shard]
        end = self.text.begins[shard + 1] if shard + 1 < len(self.shards) else self.text.tokens
        usable = (self.left[begin:end] > 0) & (self.held_out[begin:end] == held_out)
        return usable.nonzero()[:, 0]

    def sequences(self, shard, held_out):
        """Numbers of the sequences of a shard that have a label."""
        numbers = [i for i in self.numbers[shard] if self.used[i] and self.text.held_out(i) == held_out]
        return [i for i in numbers if len(self.text.sequences[i][0]) > self.text.sequences[i][1]]

    def size(self, whole, shard):
        """Positions of the training batches of a shard."""
        if not whole:
            return len(self.rows(shard, False))
        return sum(len(self.text.sequences[i][0]) for i in self.sequences(shard, False))

    def batches(self, whole, shard, held_out, size, seed, device):
        """Batches of one shard in random order: Sequences of about `size` tokens if `whole`, else Positions. The same seed gives the same
        batches, anchors included."""
        if whole:
            rng = random.Random(seed)
            numbers = self.sequences(shard, held_out)
            for n, batch in enumerate(self.text.batches(numbers, size, rng) if numbers else []):
                yield Sequences(self, shard, batch, self.tapped, 1_000_003 * (seed % 1_000_003) + n, device)
            return
        rows = self.rows(shard, held_out)
        rows = rows[torch.from_numpy(np.random.default_rng(seed).permutation(len(rows)))]
        for part in rows.split(size):
            if len(part):
                features = self.text.features(shard)[part].to(device).float()
                yield Positions(self, shard, self.text.begins[shard] + part, features)
