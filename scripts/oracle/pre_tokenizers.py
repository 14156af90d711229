#!/usr/bin/env python3
"""Oracle of the pre-tokenisers of byte-level BPE: writes tests/golden/tokenizer/pre_tokenizers.json.

    python3 scripts/oracle/pre_tokenizers.py [--strings N] [--write FILE] [--check]

The script combines one vocabulary of 1,000 tokens with several pre-tokenisers. The vocabulary was learnt without a
pre-tokeniser, so that its merges reach across words. The pre-tokenisers are those of GPT-2, Llama 3, Qwen 2, SmolLM and
DeepSeek (LLM, Coder, V3) as their tokenizer.json files write them, and llama.cpp's default one (llama_cpp.py compares
it with llama.cpp). The ids come from Hugging Face's `tokenizers`; the file stores one hash for each of the strings of
tokenizer.py. For DeepSeek and for llama.cpp's default it also covers every code point below U+40000 (tokenizer.py
covers the code points for SmolLM, Llama 3 and Qwen 2). For more strings: --strings 100000 --write FILE, and
SPECLAB_PRE_TOKENIZER_GOLDEN=FILE for the C++ test. --check writes nothing and exits 1 if the golden file would change.
"""

import hashlib
import json
import re

import golden_strings
import numpy
import tokenizers
from tokenizer import LLAMA3, QWEN2, ROOT, code_point_text, encode_all, pack
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

STRINGS = 2000


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def deepseek_letters():
    """Reads the expression of DeepSeek LLM from the C++ source, where it is written as code points. So this file needs
    no copy of it."""
    source = (ROOT / "core/model/text/tokenizer_split_patterns.cpp").read_text()
    literal = re.search(r"kLetterSet =\n(.*?);", source, re.S).group(1)
    text = "".join(re.findall(r'"(.*?)"', literal))
    code_point = lambda m: chr(int(m.group(0)[2:], 16))
    return r"\s?[" + re.sub(r"\\u[0-9A-F]{4}|\\U[0-9A-F]{8}", code_point, text) + "]+"


DIGITS = {"type": "Digits", "individual_digits": True}
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
CASES = {
    "gpt-2": byte_level(True),
    "smollm": sequence(DIGITS, byte_level(True)),
    "llama-bpe": sequence(split(LLAMA3), byte_level(False)),
    "qwen2": sequence(split(QWEN2), byte_level(False)),
    "deepseek-llm": sequence(
        split("[\r\n]"),
        split(deepseek_letters()),
        split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
        split("\\s+$"),
        split(EAST_ASIAN),
        DIGITS,
        byte_level(False),
    ),
    "deepseek-coder": sequence(
        split("[\r\n]"),
        split("\\s?\\p{L}+"),
        split("\\s?\\p{P}+"),
        split(EAST_ASIAN),
        DIGITS,
        byte_level(False),
    ),
    "deepseek-v3": sequence(
        split("\\p{N}{1,3}"),
        split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        split(
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
        ),
        byte_level(False),
    ),
    "default": sequence(
        split(r"[\p{P}\$\+<=>\^~\|]+"),
        split(GPT2),
        split(r"\p{N}+"),
        split("[0-9][0-9][0-9]"),
        byte_level(False),
    ),
}
CODE_POINTS = {"deepseek-llm", "deepseek-coder", "deepseek-v3", "default"}


def digest(ids):
    """Six hexadecimal digits of SHA-256 over the ids, each as four little-endian bytes."""
    return hashlib.sha256(numpy.array(ids, dtype="<u4").tobytes()).hexdigest()[:6]


def section(tokenizer, texts, code_points):
    blocks = []
    for block in code_points:
        ids = encode_all(tokenizer, block, False)
        blocks.append(digest([i for one in ids for i in one]))
    strings = pack([digest(ids) for ids in encode_all(tokenizer, texts, False)])
    return {"hash": "sha256", "strings": strings} | ({"code_points": pack(blocks)} if blocks else {})


def trained(generator):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = [generator.text(i).decode("utf-8", "replace") for i in range(4000)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=1000, show_progress=False, initial_alphabet=alphabet)
    )
    return json.loads(tokenizer.to_str())["model"]


def main():
    options = golden_strings.parse(__doc__, "pre_tokenizers.json", STRINGS)
    model = trained(options.generator)
    code_points = [[code_point_text(c) for c in range(at, at + 4096, 64)] for at in range(0, 0x40000, 4096)]
    golden = {"tokenizers": tokenizers.__version__, "model": model, "encode": []}
    for name, pre_tokenizer in CASES.items():
        settings = {
            "normalizer": {"type": "NFC"} if name == "qwen2" else None,
            "pre_tokenizer": pre_tokenizer,
            "ignore_merges": name == "llama-bpe",
        }
        state = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": settings["normalizer"],
            "pre_tokenizer": pre_tokenizer,
            "model": model | {"ignore_merges": settings["ignore_merges"]},
        }
        tokenizer = Tokenizer.from_str(json.dumps(state))
        blocks = code_points if name in CODE_POINTS else []
        golden["encode"].append({"pre_tokenizer_name": name} | settings | section(tokenizer, options.texts, blocks))
    golden_strings.finish(options, golden, f"{len(CASES)} pre-tokenisers")


if __name__ == "__main__":
    main()
