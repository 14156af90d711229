"""The generated texts of a run, step by step, as JSON for static/texts.js.

A record with full lines has the steps of every text. A slim record has texts without steps. Texts go into the page in turns: first
the first text of every case, then the second one, until the page is full. So the page of a large run has texts of every case.

    {"words": [str], "prompts": {id: {"category", "turns": [str]}},
     "texts": [{"case": number, "prompt", "seed", "words": [place in "words"], "turns": [number of steps], "steps": [step]}]}

A text without steps has "text": str in place of "words", "turns" and "steps".
A step is [drafted, accepted, emitted, how it ended, source, ms, tokens, more]. A token is [word, state, p, q, confidence, parent];
missing values at its end are left out, and so is the parent of a token in a chain. State: 0 not tested, 1 accepted, 2
rejected. A word is a place in "words". A drafted token whose text is in no line of the run is written as "#id".
"""

import json
import math

import speclab
from speclab.record import BadRun

MOST_BYTES = 4_000_000  # of JSON on one page
SMALLEST_SHARE = 100_000  # bytes that every case may fill in any run
MORE = ("pool", "tree", "root_confidence", "sources", "reviews", "parts")  # fields of a step that are shown as they are
LONGEST_PROMPT = 2000  # characters of a turn; a passage to summarise is longer


class Words:
    """Each word once. Ids of tokens are known from the lines that hold both the ids and their texts."""

    def __init__(self):
        self.words, self.places, self.of_id = [], {}, {}

    def place(self, word):
        if word not in self.places:
            self.places[word] = len(self.words)
            self.words.append(word)
        return self.places[word]

    def learn(self, line):
        for number, piece in zip(line["tokens"], line.get("pieces") or ()):
            if piece:  # a token that ends inside of a character has none
                self.of_id.setdefault(number, piece)

    def of_token(self, number):
        return self.place(self.of_id.get(number, f"#{number}"))

    def put_into(self, text):
        """Replaces the ids of the drafted tokens and probes of a text by places. All lines must have been learned."""
        for step in text.get("steps", []):
            for token in step[6]:
                token[0] = self.of_token(token[0])
            for probe in step[7].get("probes", []) if len(step) > 7 else []:
                probe[0], probe[2] = self.of_token(probe[0]), None if probe[2] < 0 else self.of_token(probe[2])


def short(value):
    """Three digits of a probability; None for a value that does not exist."""
    if value is None or value < 0 or not math.isfinite(value):
        return None
    return round(value, 3)


def token_of(token, number):
    """`number`: place of the token among the drafted ones, from 0. In a chain this is also the number of its parent node."""
    state = (1 if token.get("accepted") else 2) if token.get("tested") else 0
    parent = token.get("parent", number)
    found = [
        token["id"],
        state,
        short(token.get("p")),
        short(token.get("q")),
        short(token.get("confidence")),
    ]
    found.append(None if parent == number else parent)
    while found[-1] is None:
        found.pop()
    return found


def step_of(step):
    more = {name: step[name] for name in MORE if step.get(name) is not None}
    if step.get("probes"):
        more["probes"] = [list(probe) for probe in step["probes"]]
    found = [step["drafted"], step["accepted"], step["emitted"], step["ended_by"], step.get("source", "")]
    found.append(round(sum(step["ns"]) / 1e6, 2))
    found.append([token_of(token, number) for number, token in enumerate(step.get("tokens") or [])])
    return [*found, more] if more else found


def text_of(line, number, words):
    """A line of repeat 0 for the page, with ids in place of drafted words; None for a line without its text."""
    entry = {"case": number, "prompt": line["prompt"], "seed": line["seed"]}
    if line.get("pieces") and "steps" in line:
        entry["words"] = [words.place(piece) for piece in line["pieces"]]
        entry["turns"] = [turn["steps"] for turn in line["turns"]]
        entry["steps"] = [step_of(step) for step in line["steps"]]
        return entry
    return {**entry, "text": line["text"]} if line.get("text") else None


def prompts_of(config):
    found = {}
    for prompt in config.get("prompts") or []:
        turns = [
            turn if len(turn) <= LONGEST_PROMPT else turn[:LONGEST_PROMPT] + " …" for turn in prompt.get("turns") or []
        ]
        found[prompt["id"]] = {"category": prompt.get("category", ""), "turns": turns}
    return found


def encoded_size(value):
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def texts_of_case(lines, number, words, most_bytes):
    """([text with its size], number of texts that are left out). One case alone may not fill the page."""
    kept, left = [], 0
    for line in lines:
        if line["repeat"] != 0:
            continue
        if "steps" in line:
            words.learn(line)
        entry = text_of(line, number, words) if most_bytes > 0 else None
        if entry is None:
            left += most_bytes <= 0
            continue
        size = encoded_size(entry)
        most_bytes -= size
        kept.append((entry, size))
    return kept, left


def fitting(record, by_case, room):
    """The texts that fit into `room` bytes. Turns go over the cases, the fastest case first."""
    order = sorted(by_case, key=lambda number: -(record.cases[number].metric("speedup") or 0))
    longest = max(map(len, by_case.values()), default=0)
    texts = []
    for turn in range(longest):
        for number in order:
            if turn < len(by_case[number]):
                entry, size = by_case[number][turn]
                room -= size
                if room < 0:
                    return texts
                texts.append(entry)
    return texts


def data_of(record, config, most_bytes=MOST_BYTES):
    """(data, note). `note` says what the page does not have, and why; "" if it has all texts. data is None if it has none."""
    packed = None if record.has_lines else speclab.load(record.folder)
    if packed and packed.kept == "none":
        return None, "This record was kept without its raw lines, so it has no texts."
    by_case, left, problems, words = {}, 0, [], Words()
    share = max(SMALLEST_SHARE, 2 * most_bytes // max(1, len(record.cases)))
    for number, case in enumerate(record.cases):
        try:
            lines = packed.finished_lines(case.id) if packed else case.lines()
        except BadRun as error:
            problems.append(str(error))
            continue
        by_case[number], more = texts_of_case(lines, number, words, min(share, most_bytes))
        left += more
    texts = fitting(record, by_case, most_bytes)
    left += sum(map(len, by_case.values())) - len(texts)
    if left:
        problems.append(
            f"The page holds {len(texts)} of {len(texts) + left} texts, the first prompts of every case. All of them would make it too large."
        )
    if packed and packed.kept == "slim":
        problems.append("This record was kept slim: it has texts, but not their steps.")
    if not texts:
        return None, " ".join(problems) or "No line of this run has a text."
    for text in texts:
        words.put_into(text)
    texts.sort(key=lambda text: text["case"])
    return {"words": words.words, "prompts": prompts_of(config), "texts": texts}, " ".join(problems)
