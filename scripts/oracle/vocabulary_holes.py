#!/usr/bin/env python3
"""Oracle of tokenizer.json files whose ids have holes: writes tests/golden/tokenizer/holes.json.

    python3 scripts/oracle/vocabulary_holes.py [--strings N] [--write FILE] [--check]

Each case moves tokens of tiny_bytes_tokenizer.json to other ids, or adds tokens and leaves out some ids. The golden file
stores three things: the ids that Hugging Face's `tokenizers` gives to added tokens, a hash of the ids of each string, and
the text of a list of ids in which some ids have no token. `tokenizers` ignores the file's ids of added tokens that the
vocabulary lacks, and numbers these tokens one after the other. transformers gets the same ids from such files.
"""

import copy
import hashlib
import json

import golden_strings
import numpy
import tokenizers
from tokenizer import GOLDEN, encode_all, pack
from tokenizers import Tokenizer

STRINGS = 100
CASES = {
    "a hole in the vocabulary": {"move": {"\u0120the": 609}},
    "many holes in the vocabulary": {"move": {"\u0120the": 700, "\u0120a": 650, "er": 4000}},
    "added tokens beyond": {"added": {"<|a|>": 608, "<|b|>": 620}},
    "added tokens after a hole": {"move": {"\u0120the": 609}, "added": {"<|a|>": 615}},
    "an added token that the vocabulary has": {"move": {"<mark>": 640}, "added": {"<|a|>": 700}},
}


def tokenizer_json(case):
    """The tokenizer.json of a case. The C++ test builds the same."""
    state = json.loads((GOLDEN / "tiny_bytes_tokenizer.json").read_text())
    vocabulary = state["model"]["vocab"]
    for token, number in case.get("move", {}).items():
        vocabulary[token] = number
        for added in state["added_tokens"]:
            if added["content"] == token:
                added["id"] = number
    for content, number in case.get("added", {}).items():
        token = copy.deepcopy(state["added_tokens"][0])
        state["added_tokens"].append(token | {"id": number, "content": content})
    return state


def main():
    options = golden_strings.parse(__doc__, "holes.json", STRINGS)
    golden = {"tokenizers": tokenizers.__version__, "cases": []}
    for name, case in CASES.items():
        state = tokenizer_json(case)
        tokenizer = Tokenizer.from_str(json.dumps(state))
        texts = [f"the {text}<|a|> a<|b|><mark>" for text in options.texts]
        ids = encode_all(tokenizer, texts, True)
        some = [tokenizer.token_to_id("<mark>"), 601, 605, 606, 649, tokenizer.token_to_id("\u0120the"), 3999, 9000, 97]
        golden["cases"].append(
            {
                "name": name,
                "case": case,
                "added": {token["content"]: tokenizer.token_to_id(token["content"]) for token in state["added_tokens"]},
                "strings": pack([hashlib.sha256(numpy.array(i, dtype="<u4").tobytes()).hexdigest()[:6] for i in ids]),
                "some": some,
                "decoded": tokenizer.decode(some, skip_special_tokens=False),
            }
        )
    golden_strings.finish(options, golden, f"{len(CASES)} vocabularies")


if __name__ == "__main__":
    main()
