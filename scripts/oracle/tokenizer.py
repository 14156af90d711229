#!/usr/bin/env python3
"""Oracle of the tokenizer and the chat template: writes the golden files of tests/golden/tokenizer.

    python3 scripts/oracle/tokenizer.py [--model models/SmolLM2-135M-Instruct.Q4_1.gguf] [--check]
    python3 scripts/oracle/tokenizer.py --tokenizer-json FILE --write GOLDEN [--strings N]

The ids are those of Hugging Face's `tokenizers`. This script and the C++ test make the strings with the same generator
from tests/golden/tokenizer/generator.json. The golden files store a hash of the ids of each string. The tokenizer of the
model is built from the GGUF's vocabulary and merges, with each of four pre-tokenisers (those of SmolLM, GPT-2, Llama 3
and Qwen 2). The chat template of the GGUF is rendered by jinja2. --check writes nothing and exits 1 if a golden file
would change. The second form makes a golden file for any tokenizer.json; run it through the C++ test with
SPECLAB_TOKENIZER_GOLDEN=GOLDEN.
Needs the packages tokenizers, gguf and jinja2.
"""

import argparse
import json
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/tokenizer"
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
MASK = (1 << 64) - 1
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


class Random:
    """SplitMix64 (Steele, Lea, Flood 2014), seeded by the index of the string."""

    def __init__(self, index):
        self.state = (index + 1) * 0xD1342543DE82EF95 & MASK

    def below(self, n):
        self.state = self.state + 0x9E3779B97F4A7C15 & MASK
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return (z ^ z >> 31) % n


KINDS = ["words", "ranges", "spaces", "code", "numbers", "marks", "bytes", "special"]


class Generator:
    """String i: 1..12 pieces. About half of them are of the kind i % 8, the others of any kind. A space follows about
    half of the pieces."""

    def __init__(self, parts):
        self.parts = parts
        self.lists = {k: [s.encode() for s in parts[k]] for k in KINDS if k not in ("ranges", "bytes")}
        self.lists["bytes"] = [bytes.fromhex(s) for s in parts["bytes"]]

    def text(self, index):
        random = Random(index)
        out = b""
        for _ in range(1 + random.below(12)):
            kind = KINDS[index % 8] if random.below(2) == 0 else KINDS[random.below(8)]
            if kind == "ranges":
                first, last = self.parts["ranges"][random.below(len(self.parts["ranges"]))]
                for _ in range(1 + random.below(8)):
                    out += chr(first + random.below(last - first + 1)).encode()
            else:
                atoms = self.lists[kind]
                repeats = 1 if kind in ("words", "special") else 1 + random.below(4)
                for _ in range(repeats):
                    out += atoms[random.below(len(atoms))]
            if random.below(2) == 0:
                out += b" "
        return out


def code_point_text(first):
    """A text of the 64 code points from `first` on, without surrogates. Each occurs three times: between a letter and a
    space, between a space and a digit, and between a quote and a line end."""
    out = ""
    for c in range(first, first + 64):
        if not 0xD800 <= c <= 0xDFFF:
            out += f"a{chr(c)} {chr(c)}1'{chr(c)}\n"
    return out


def fnv(ids, state=0xCBF29CE484222325):
    """FNV-1a over the ids, each as four little-endian bytes."""
    for token in ids:
        for byte in token.to_bytes(4, "little"):
            state = (state ^ byte) * 0x100000001B3 & MASK
    return state


def short(state):
    return f"{(state ^ state >> 24 ^ state >> 48) & 0xFFFFFF:06x}"


def encode_all(tokenizer, texts, parse_special):
    tokenizer.encode_special_tokens = not parse_special
    ids = []
    for at in range(0, len(texts), 512):
        ids += [e.ids for e in tokenizer.encode_batch(texts[at : at + 512], add_special_tokens=False)]
    return ids


def golden_section(tokenizer, generator, name, count, code_points):
    """Golden values of one pre-tokeniser. If i is odd, the special tokens that string i spells are recognised."""
    texts = [generator.text(i).decode("utf-8", "replace") for i in range(count)]
    ids = [None] * count
    ids[0::2] = encode_all(tokenizer, texts[0::2], False)
    ids[1::2] = encode_all(tokenizer, texts[1::2], True)
    section = {"pre_tokenizer": name, "strings": pack([short(fnv(i)) for i in ids])}
    if code_points:
        blocks = []
        for plane in range(0, 0x110000, 4096):
            state = fnv([])
            for tokens in encode_all(tokenizer, [code_point_text(c) for c in range(plane, plane + 4096, 64)], False):
                state = fnv(tokens, state)
            blocks.append(short(state))
        section["code_points"] = pack(blocks)
    return section, ids


def decoding_section(tokenizer, count):
    """Decodes lists of 1..24 random ids. Stores hashes of the text, and of the text without special tokens.

    Special tokens are removed here, because skip_special_tokens overlooks those with a normalised spelling. Tokens
    <0x..> are removed too. If a run of them is not UTF-8 as a whole, the decoder "ByteFallback" replaces every byte of
    the run, and the engine keeps the bytes.
    """
    size = tokenizer.get_vocab_size()
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    whole, without = [], []
    for i in range(count):
        random = Random(1_000_000 + i)
        ids = [
            random.below(size) if random.below(8) else random.below(min(size, 24)) for _ in range(1 + random.below(24))
        ]
        ids = [i for i in ids if not tokenizer.id_to_token(i).startswith("<0x")]
        whole.append(short(fnv(list(tokenizer.decode(ids, skip_special_tokens=False).encode()))))
        ids = [i for i in ids if i not in special]
        without.append(short(fnv(list(tokenizer.decode(ids, skip_special_tokens=False).encode()))))
    return {"whole": pack(whole), "without_special": pack(without)}


def pack(hashes):
    return [" ".join(hashes[i : i + 16]) for i in range(0, len(hashes), 16)]


def vocabulary_of(model_file):
    import gguf

    fields = gguf.GGUFReader(model_file).fields
    names = {
        "tokens": "tokenizer.ggml.tokens",
        "merges": "tokenizer.ggml.merges",
        "types": "tokenizer.ggml.token_type",
        "template": "tokenizer.chat_template",
    }
    return {key: fields[name].contents() for key, name in names.items()}


def build(parts, pre_tokenizer):
    vocabulary = {token: i for i, token in enumerate(parts["tokens"])}
    merges = [tuple(m.split(" ")) for m in parts["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre_tokenizer == "llama-bpe"))
    byte_level = lambda use_regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    steps = {
        "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
        "gpt-2": [byte_level(True)],
        "llama-bpe": [split(LLAMA3), byte_level(False)],
        "qwen2": [split(QWEN2), byte_level(False)],
    }
    if pre_tokenizer == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps[pre_tokenizer])
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(parts["tokens"], parts["types"]):
        if kind in (2, 3, 4):
            tokenizer.add_tokens([AddedToken(token, special=kind != 4, normalized=False)])
    return tokenizer


def model_golden(model_file, generator, extra):
    parts = vocabulary_of(model_file)
    golden = {"tokenizers": tokenizers.__version__, "model": pathlib.Path(model_file).name, "encode": []}
    for name, count in (("smollm", 12000), ("gpt-2", 4000), ("llama-bpe", 4000), ("qwen2", 4000)):
        tokenizer = build(parts, name)
        section, _ = golden_section(tokenizer, generator, name, count + extra, name in ("smollm", "llama-bpe"))
        golden["encode"].append(section)
    golden["decode"] = decoding_section(build(parts, "smollm"), 2000)
    tokenizer = build(parts, "smollm")
    examples = []
    for text in EXAMPLES:
        for parse_special in (False, True) if "<" in text else (False,):
            ids = encode_all(tokenizer, [text], parse_special)[0]
            examples.append({"text": text, "parse_special": parse_special, "ids": ids})
    golden["examples"] = examples
    return golden, parts


EXAMPLES = [
    "",
    " ",
    "a  1",
    "1. First\n2. Second\n10. Tenth",
    "The answer is 42.",
    "  two  spaces  ",
    "tab\tand\nline\r\nends\n\n\n",
    "Don't, won't, DON'T, it's 5 o'clock.",
    "naïve café Å",
    "你好,世界",
    "ⅷ ½ ² ٣ १२३",
    "👨‍👩‍👧‍👦 ❤️ 🇩🇪",
    "def f(x):\n    return x ** 2\n",
    "<|im_start|>user\nHi<|im_end|>\n",
    "x<|im_end|",
    "<|endoftext|>",
    "\u3000\u00a0\u0085x",
    "\u180ex",
    "\U00031350\U00010d50",
    "\U00011de0a",
    "\u0004\u0006\u0013dropped",
    "a" * 200,
    "3.14159e-10",
    "https://example.org/?q=1&r=2",
]


def tiny_texts(generator):
    return [generator.text(i).decode("utf-8", "replace") for i in range(0, 1600) if i % 8 in (0, 3, 4)]


def tiny_bytes(generator):
    """A byte-level tokenizer.json with NFC, a split pattern, ignore_merges, added tokens (special or not, normalised or not)
    and BOS."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
    )
    tokenizer.train_from_iterator(tiny_texts(generator), trainer)
    tokenizer.add_tokens([AddedToken("<mark>", special=False, normalized=False), AddedToken("<marker>", special=False)])
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def tiny_spaces(generator):
    """A tokenizer.json with spaces as U+2581, bytes as fallback, fused unknown tokens, special tokens that are normalised."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    special = [AddedToken(t, special=True, normalized=True) for t in ("<unk>", "<s>", "</s>", "<|end_story|>")]
    # The bytes 00 to EF. Without the bytes from F0 up, characters past U+FFFF are unknown.
    fallback = [f"<0x{b:02X}>" for b in range(0xF0)]
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, limit_alphabet=80, special_tokens=special)
    tokenizer.train_from_iterator(tiny_texts(generator), trainer)
    state = json.loads(tokenizer.to_str())
    for token in fallback:
        state["model"]["vocab"][token] = len(state["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def file_golden(tokenizer, path, generator, count):
    section, _ = golden_section(tokenizer, generator, "", count, True)
    return {
        "tokenizers": tokenizers.__version__,
        "tokenizer_json": path,
        "encode": [section],
        "decode": decoding_section(tokenizer, 1000),
    }


def chat_golden(source):
    import jinja2

    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    user, assistant, system = (
        {"role": r, "content": c}
        for r, c in (("user", "What is 2+2?"), ("assistant", "4."), ("system", "Answer in one word."))
    )
    conversations = [
        [],
        [user],
        [system, user],
        [user, assistant],
        [user, assistant, dict(user, content="And 3+3?")],
        [system, user, assistant, dict(user, content="")],
        [dict(system, content=""), user],
        [user, system],
        [assistant],
        [system],
        [dict(user, content="  spaces \n\n and \"quotes\" 'single' {{ braces }} {% if %} <|im_end|>\n")],
        [dict(user, content="日本語 \U0001f600 \\n é\t\r\n")],
    ]
    cases = [
        {
            "messages": messages,
            "add_generation_prompt": flag,
            "text": template.render(messages=messages, add_generation_prompt=flag),
        }
        for messages in conversations
        for flag in (False, True)
    ]
    return {"source": source, "cases": cases}


def dump(value):
    return json.dumps(value, ensure_ascii=True, indent=1) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a golden file would change")
    parser.add_argument("--tokenizer-json", help="make a golden file for this tokenizer instead")
    parser.add_argument(
        "--write", help="golden file to write: for --tokenizer-json, or for the model if that option is absent"
    )
    parser.add_argument(
        "--strings", type=int, default=0, help="number of additional strings for the model or for --tokenizer-json"
    )
    options = parser.parse_args()
    other = options.tokenizer_json or options.strings or pathlib.Path(options.model).name != MODEL.name
    if other and not options.write and (options.tokenizer_json or not options.check):
        parser.error(
            "--tokenizer-json, --strings and another --model need --write FILE. "
            "The golden files hold only what the defaults give."
        )
    generator = Generator(json.loads((GOLDEN / "generator.json").read_text()))
    if options.tokenizer_json:
        path = str(pathlib.Path(options.tokenizer_json).resolve())
        golden = file_golden(Tokenizer.from_file(path), path, generator, 4000 + options.strings)
        pathlib.Path(options.write).write_text(dump(golden))
        return
    golden, parts = model_golden(options.model, generator, options.strings)
    if options.write:
        pathlib.Path(options.write).write_text(dump(golden))
        return
    files = {"smollm2.json": dump(golden), "chat.json": dump(chat_golden(parts["template"]))}
    for name, tokenizer in (("tiny_bytes", tiny_bytes(generator)), ("tiny_spaces", tiny_spaces(generator))):
        files[f"{name}_tokenizer.json"] = (
            json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=0) + "\n"
        )
        again = Tokenizer.from_str(files[f"{name}_tokenizer.json"])
        files[f"{name}.json"] = dump(file_golden(again, f"{name}_tokenizer.json", generator, 2000))
    changed = [n for n, text in files.items() if not (GOLDEN / n).exists() or (GOLDEN / n).read_text() != text]
    if not options.check:
        for name in changed:
            (GOLDEN / name).write_text(files[name])
    print(
        f"{len(files) - len(changed)} golden files as before; "
        + ("different: " + ", ".join(changed) if changed else "none different")
    )
    sys.exit(1 if options.check and changed else 0)


if __name__ == "__main__":
    main()
