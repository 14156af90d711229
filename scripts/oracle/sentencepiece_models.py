#!/usr/bin/env python3
"""Oracle of SentencePiece: writes tests/golden/tokenizer/{sp_*.model, sentencepiece.json}.

    python3 scripts/oracle/sentencepiece_models.py [--strings N] [--write FILE] [--train] [--check]

Covers four small models (BPE and unigram, with and without byte fallback, character map and dummy prefix), with the ids
that the package sentencepiece gives on the strings of tokenizer.py. In every second string, each control or unknown
symbol becomes its id, and the text between two symbols is encoded separately, as a chat template needs it. Also covers
tokenizer.json files of such models, with the ids of Hugging Face's `tokenizers`: Metaspace, Gemma's normalizer,
Unigram, the character map of sp_unigram.model as normalizer "Precompiled", and added tokens with lstrip, rstrip and
single_word. For each string, the file stores a hash of the ids and a hash of the decoded text. The package must
have version 0.1.99: the engine uses Debian's version 0.1.97, and both split texts alike with unigram models. Version
0.2.3 chooses other splits among equally good ones where user-defined symbols repeat.
For more strings: --strings 100000 --write FILE, and SPECLAB_SENTENCEPIECE_GOLDEN=FILE for the C++ test. --train makes
the models again. --check writes nothing and exits 1 if the golden file would change.
"""

import base64
import copy
import hashlib
import io
import json
import pathlib
import re

import golden_strings
import numpy
import sentencepiece
import tokenizers
from tokenizer import GOLDEN, encode_all, pack
from tokenizers import Tokenizer

STRINGS = 800
SPACE = "\u2581"
RULES = ["ﬁ\tfi", "①\t1", "Ａ\tA", "\u00a0\t ", "\u3000\t ", "é\te", "e\u0301\te", "\u200b\t", "½\t1/2", "™\tTM"]
MODELS = {
    "bpe": dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, split_digits=True),
    "bpe_plain": dict(model_type="bpe", add_dummy_prefix=False, remove_extra_whitespaces=False),
    "unigram": dict(model_type="unigram", byte_fallback=True, rules=True),
    "unigram_plain": dict(model_type="unigram", add_dummy_prefix=False, remove_extra_whitespaces=False),
}


def train(name, settings, generator):
    settings = dict(settings)
    if settings.pop("rules", False):
        path = pathlib.Path("/tmp/speclab_rules.tsv")
        code_points = lambda s: " ".join(f"{ord(c):x}" for c in s)
        path.write_text("".join("\t".join(map(code_points, r.split("\t"))) + "\n" for r in RULES))
        settings["normalization_rule_tsv"] = str(path)
    else:
        settings["normalization_rule_name"] = "identity"
    texts = [generator.text(i).decode("utf-8", "replace") for i in range(3000)]
    lines = [line for text in texts for line in re.split(r"[\r\n\0]+", text) if line and max(line) < "\u0500"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=700,
        character_coverage=0.99,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        user_defined_symbols=["<|im_start|>", "<mark>", SPACE * 2],
        control_symbols=["<|im_end|>", "<|endoftext|>"],
        **settings,
    )
    (GOLDEN / f"sp_{name}.model").write_bytes(model.getvalue())


def digest(content):
    return hashlib.sha256(content).hexdigest()[:6]


def sections(all_ids, all_texts):
    return {
        "ids": pack([digest(numpy.array(ids, dtype="<u4").tobytes()) for ids in all_ids]),
        "decoded": pack([digest(text.encode()) for text in all_texts]),
    }


def model_section(name, texts):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(GOLDEN / f"sp_{name}.model"))
    size = processor.get_piece_size()
    special = [i for i in range(size) if processor.is_control(i) or processor.is_unknown(i)]
    cut = re.compile("(" + "|".join(re.escape(processor.id_to_piece(i)) for i in special) + ")")
    all_ids = []
    for i, text in enumerate(texts):
        ids = []
        for part in cut.split(text) if i % 2 else [text]:
            is_special = i % 2 and processor.piece_to_id(part) in special and cut.fullmatch(part)
            ids += [processor.piece_to_id(part)] if is_special else processor.encode(part) if part else []
        all_ids.append(ids)
    unknown = processor.unk_id()
    decoded = [processor.decode([i for i in ids if i != unknown]) for ids in all_ids]
    return {"name": name, "model": f"sp_{name}.model"} | sections(all_ids, decoded)


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def decoder(strip):
    replace = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    steps = [replace, {"type": "ByteFallback"}, {"type": "Fuse"}]
    return {"type": "Sequence", "decoders": steps + [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * strip}


GEMMA = {
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
    "pre_tokenizer": {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    },
    "decoder": decoder(0),
}
MAP = {"type": "Precompiled", "precompiled_charsmap": "sp_unigram.model"}  # replaced by the map of this model


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def space_runs(content):
    return {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content}


JSON_CASES = {
    "bpe_first": {"pre_tokenizer": metaspace("first", False), "decoder": decoder(1)},
    "bpe_always_split": {"pre_tokenizer": metaspace("always", True), "decoder": decoder(1)},
    "bpe_never": {"pre_tokenizer": metaspace("never", False), "decoder": decoder(0)},
    "bpe_gemma": GEMMA,
    "unigram_bytes": {"unigram": True, "pre_tokenizer": metaspace("always", True), "decoder": decoder(1)},
    "unigram_unknown": {
        "unigram": False,
        "pre_tokenizer": metaspace("first", True),
        "decoder": metaspace("first", True),
    },
    # As in Phi-3: tokens that include the white space beside them, on the left or right side, in raw and in normalised text.
    "bpe_strip": {
        "normalizer": sequence({"type": "Prepend", "prepend": SPACE}, GEMMA["normalizer"]),
        "decoder": decoder(1),
        "strip": {
            "<s>": [True, True, False],
            "</s>": [True, False, False],
            "<|end_story|>": [False, True, False],
            "<unk>": [True, True, True],
        },
    },
    # The character map alone as normalizer, with two added tokens that the map changes.
    "unigram_map": {
        "unigram": True,
        "normalizer": MAP,
        "pre_tokenizer": metaspace("always", True),
        "decoder": decoder(1),
        "added": {"caf\u00e9": [False, False, True, False], "\ufb01": [True, False, True, True]},
    },
    "unigram_map_converted": {
        "unigram": False,
        "normalizer": sequence(MAP, {"type": "Strip", "strip_left": False, "strip_right": True}, space_runs(SPACE)),
        "pre_tokenizer": metaspace("always", True),
        "decoder": metaspace("always", True),
    },
    "unigram_map_white_space": {
        "unigram": True,
        "normalizer": sequence(MAP, space_runs(" ")),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("first", True)],
        },
        "decoder": decoder(1),
        "added": {"the": [False, True, False, True], "\u00bd": [False, False, False, True]},
    },
    "bpe_single_word": {
        "normalizer": sequence({"type": "Prepend", "prepend": SPACE}, GEMMA["normalizer"]),
        "decoder": decoder(1),
        "strip": {
            "<s>": [False, False, False, True],
            "</s>": [True, True, False, True],
            "<|end_story|>": [False, False, True, True],
        },
        "added": {"the": [False, False, False, True], "a": [False, False, True, True], "1": [False, True, True, True]},
    },
    "bpe_first_strip": {
        "pre_tokenizer": metaspace("first", False),
        "decoder": decoder(1),
        "strip": {"<s>": [True, True, False], "<|end_story|>": [True, True, False], "</s>": [True, True, True]},
    },
}


def flags(values):
    """The flags of an added token. values: [lstrip, rstrip, normalized] or [lstrip, rstrip, normalized, single_word]."""
    names = ("lstrip", "rstrip", "normalized", "single_word")
    return dict(zip(names, [*values, False][:4]))


def field(message, number):
    """The bytes of the last field with this number in a message of protocol buffers. None if there is no such field."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    found = None
    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            varint()
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or varint()
            found = message[at : at + size] if tag >> 3 == number else found
            at += size
    return found


def with_map(normalizer):
    """The normalizer with the character map (normalizer_spec.precompiled_charsmap) of the model that it names."""
    for step in normalizer.get("normalizers", [normalizer]):
        if step["type"] == "Precompiled":
            model = (GOLDEN / step["precompiled_charsmap"]).read_bytes()
            step["precompiled_charsmap"] = base64.b64encode(field(field(model, 3), 2)).decode()
    return normalizer


def tokenizer_json(settings):
    """A tokenizer.json. The C++ test builds the same: BPE from tiny_spaces_tokenizer.json, unigram from sp_unigram.model."""
    state = json.loads((GOLDEN / "tiny_spaces_tokenizer.json").read_text())
    for key in ("normalizer", "pre_tokenizer", "decoder"):
        state[key] = settings.get(key)
    for token in state["added_tokens"]:
        if token["content"] in settings.get("strip", {}):
            token |= flags(settings["strip"][token["content"]])
    if settings.get("normalizer"):
        state["normalizer"] = with_map(copy.deepcopy(settings["normalizer"]))
    if "unigram" in settings:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(GOLDEN / "sp_unigram.model"))
        pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
        special = [i for i in range(len(pieces)) if processor.is_control(i) or processor.is_unknown(i)]
        state["model"] = {
            "type": "Unigram",
            "unk_id": processor.unk_id(),
            "vocab": pieces,
            "byte_fallback": settings["unigram"],
        }
        state["added_tokens"] = [
            {"id": i, "content": pieces[i][0], "special": True} | flags([False, False, False]) for i in special
        ]
    vocabulary = state["model"]["vocab"]
    ids = vocabulary if isinstance(vocabulary, dict) else {piece: i for i, (piece, _) in enumerate(vocabulary)}
    size = len(ids) + sum(token["content"] not in ids for token in state["added_tokens"])
    for content, values in settings.get("added", {}).items():
        number = ids.get(content, size)
        size += number == size
        state["added_tokens"].append({"id": number, "content": content, "special": False} | flags(values))
    return state


def json_section(name, settings, texts):
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(settings)))
    ids = [None] * len(texts)
    ids[0::2] = encode_all(tokenizer, texts[0::2], False)
    ids[1::2] = encode_all(tokenizer, texts[1::2], True)
    decoded = [tokenizer.decode(i, skip_special_tokens=False) for i in ids]
    return {"name": name, "settings": settings} | sections(ids, decoded)


def main():
    options = golden_strings.parse(__doc__, "sentencepiece.json", STRINGS, train="make the models again")
    for name, settings in MODELS.items():
        if options.train:
            train(name, settings, options.generator)
    golden = {
        "made_by": {"sentencepiece": sentencepiece.__version__, "tokenizers": tokenizers.__version__},
        "models": [model_section(name, options.texts) for name in MODELS],
        "json": [json_section(name, settings, options.texts) for name, settings in JSON_CASES.items()],
    }
    golden_strings.finish(options, golden, f"{len(MODELS)} models, {len(JSON_CASES)} tokenizer.json")


if __name__ == "__main__":
    main()
