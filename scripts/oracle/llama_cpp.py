#!/usr/bin/env python3
"""Oracle of GGUF tokenizers as llama.cpp reads them: writes tests/golden/tokenizer/llama_cpp.json.

    python3 scripts/oracle/llama_cpp.py [--strings N] [--write FILE] [--check]

Writes small GGUF files without weights and asks llama.cpp's library (in the package xllamacpp) for ids, control
tokens, end tokens, BOS, EOS and add_bos. The files are:
- one for each name of tokenizer.ggml.pre that the project reads, and one for each name that llama.cpp knows and the
  project refuses, all with the vocabulary of pre_tokenizers.json (of the refused names, the script only checks that
  llama.cpp knows them);
- files that leave keys out or hold odd values ("files"; the C++ test writes the same files). Their token types, if any,
  agree with the names of the tokens, because llama.cpp overrides types by names and the project does not.
The strings are those of tokenizer.py that are in composed form (NFC) and have only characters of Unicode 3.2, because
llama.cpp never normalises and uses another version of Unicode than `tokenizers`. The golden file has their indices.
The names deepseek-llm and deepseek-coder are not compared, because llama.cpp keeps numbers together where `tokenizers`
separates digits. If a byte-level file has no key for BOS or EOS, llama.cpp takes token 11, which is Falcon's. The golden
file does not hold this token.
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import pathlib
import tempfile
import unicodedata

import gguf
import golden_strings
import numpy
import sentencepiece
from tokenizer import GOLDEN, pack

STRINGS = 150
READ = """
default gpt-2 phi-2 mpt olmo jais trillion gigachat a.x-4.0 mellum exaone4 granite-docling smollm starcoder refact
command-r codeshell exaone minerva-7b mellum2 smaug-bpe dbrx glm4 chatglm-bpe llama-bpe llama3 llama-v3 falcon3
falcon-h1 pixtral midm-2.0 lfm2 qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2 deepseek-v3
hunyuan-dense joyai-llm hy_v4
""".split()
REFUSED = """
falcon jais-2 jina-es jina-de jina-v2-es jina-v2-de modern-bert jina-v1-en jina-v2-code roberta-bpe whitespace qwen35
f2llmv2 poro-chat viking tekken bloom gpt3-finnish exaone-moe chameleon gpt-4o llama4 kanana2 talkie
granite-embed-multi-97m granite-embed-multi-311m tiny_aya cohere2moe superbpe bailingmoe bailingmoe2 llada-moe
seed-coder kimi-k2 ufakzeka afmoe laguna minimax-m2 minicpm5 spark2_5 youtu sarvam-moe gemma4 jina-v5-nano
""".split()


class Parameters(ctypes.Structure):
    """The struct llama_model_params of this version of llama.cpp."""

    _fields_ = (
        [("devices", ctypes.c_void_p), ("buffer_types", ctypes.c_void_p)]
        + [(name, ctypes.c_int32) for name in ("gpu_layers", "split_mode", "load_mode", "lazy_mode", "main_gpu")]
        + [(name, ctypes.c_void_p) for name in ("tensor_split", "progress", "progress_data", "overrides")]
        + [(name, ctypes.c_bool) for name in ("vocab_only", "check", "extra", "no_host", "no_alloc", "mtp")]
    )


def load_library():
    folder = pathlib.Path(importlib.util.find_spec("xllamacpp").submodule_search_locations[0])
    library = ctypes.CDLL(str(next(folder.glob("xllamacpp*.so"))))
    vocab, token, flag = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool
    library.llama_model_default_params.restype = Parameters
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Parameters]
    library.llama_model_get_vocab.restype = vocab
    library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    library.llama_model_free.argtypes = [ctypes.c_void_p]
    ids = ctypes.POINTER(ctypes.c_int32)
    library.llama_tokenize.argtypes = [vocab, ctypes.c_char_p, ctypes.c_int32, ids, ctypes.c_int32, flag, flag]
    for name in ("n_tokens", "bos", "eos", "get_add_bos"):
        function = getattr(library, f"llama_vocab_{name}")
        function.argtypes = [vocab]
        function.restype = flag if name == "get_add_bos" else ctypes.c_int32
    for name in ("is_control", "is_eog", "get_attr"):
        function = getattr(library, f"llama_vocab_{name}")
        function.argtypes = [vocab, token]
        function.restype = ctypes.c_int32 if name == "get_attr" else flag
    return library


LIBRARY = load_library()
LOG = []


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def keep_log(_level, text, _data):
    LOG.append(text.decode("utf-8", "replace"))


LIBRARY.llama_log_set(keep_log, None)
LIBRARY.llama_backend_init()


class UnknownPreTokenizer(Exception):
    pass


class Vocabulary:
    """A file that llama.cpp has loaded. Gives the ids of a text, and the control, unknown and end tokens."""

    def __init__(self, path):
        LOG.clear()
        parameters = LIBRARY.llama_model_default_params()
        parameters.vocab_only = True
        self.model = LIBRARY.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            text = "".join(LOG)
            raise UnknownPreTokenizer if "unknown pre-tokenizer" in text else RuntimeError(text[-500:])
        self.vocab = LIBRARY.llama_model_get_vocab(self.model)
        self.size = LIBRARY.llama_vocab_n_tokens(self.vocab)

    def close(self):
        LIBRARY.llama_model_free(self.model)

    def encode(self, text, add_special=False, parse_special=False):
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 8))()
        count = LIBRARY.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), add_special, parse_special)
        assert count >= 0, count
        return list(ids[:count])

    def tokens(self, question):
        return [i for i in range(self.size) if getattr(LIBRARY, f"llama_vocab_{question}")(self.vocab, i)]

    def special(self):
        """Control and unknown tokens."""
        return [i for i in range(self.size) if LIBRARY.llama_vocab_get_attr(self.vocab, i) & (1 | 8)]


def write(path, model, tokens, merges=None, pre=None, types=None, scores=None, keys=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    if merges is not None:
        writer.add_token_merges(merges)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    if types is not None:
        writer.add_token_types(types)
    if scores is not None:
        writer.add_token_scores(scores)
    for key, value in (keys or {}).items():
        (writer.add_bool if isinstance(value, bool) else writer.add_uint32)(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def digest(ids):
    return hashlib.sha256(numpy.array(ids, dtype="<u4").tobytes()).hexdigest()[:6]


def shared_vocabulary():
    model = json.loads((GOLDEN / "pre_tokenizers.json").read_text())["model"]
    tokens = [None] * len(model["vocab"])
    for token, i in model["vocab"].items():
        tokens[i] = token
    return tokens, [" ".join(merge) for merge in model["merges"]]


def is_stable(text):
    known = all(unicodedata.ucd_3_2_0.category(c) != "Cn" for c in text)
    return known and unicodedata.ucd_3_2_0.normalize("NFC", text) == unicodedata.normalize("NFC", text) == text


def pre_tokenizers(path, generator, count):
    tokens, merges = shared_vocabulary()
    indices, at = [], 0
    while len(indices) < count:
        if is_stable(generator.text(at).decode("utf-8", "replace")):
            indices.append(at)
        at += 1
    groups = {}
    for name in READ:
        write(path, "gpt2", tokens, merges, name, [1] * len(tokens))
        vocabulary = Vocabulary(path)
        hashes = [digest(vocabulary.encode(generator.text(i).decode("utf-8", "replace"))) for i in indices]
        add_bos = LIBRARY.llama_vocab_get_add_bos(vocabulary.vocab)
        groups.setdefault((add_bos, tuple(hashes)), []).append(name)
        vocabulary.close()
    for name in REFUSED:
        write(path, "gpt2", tokens, merges, name, [1] * len(tokens))
        try:
            Vocabulary(path).close()
        except UnknownPreTokenizer:
            raise SystemExit(f"llama.cpp does not know the pre-tokeniser {name}")
        except RuntimeError:
            pass  # the name is known, but needs other keys
    return {
        "indices": " ".join(map(str, indices)),
        "groups": [{"names": n, "add_bos": b, "strings": pack(list(h))} for (b, h), n in groups.items()],
        "refused": REFUSED,
    }


MARKS = ["<|user|>", "<|fim_pad|>", "<|fim_suffix|>", "<fim_prefix>", "[EOT]", "<s>", "</s>", "<mark>"]
CHAT = "<|user|><|im_start|>user it's 12345 <|fim_pad|><fim_prefix><mark></s> a-b<|im_end|>"
BYTES = {"model": "gpt2", "extra": MARKS, "text": CHAT}
NAMED = {token: 3 for token in [*MARKS[:-1], "<|im_start|>", "<|im_end|>", "<|endoftext|>"]} | {"<mark>": 4}
PIECES = {"model": "llama", "text": "Hello world, it's 42!  two   spaces<|im_start|> </s>"}
BOS = {"bos_token_id": "<s>"}
GEMMA = {
    "first": ["<pad>", "</s>", "<s>", "<unk>"],
    "types": {token: 3 for token in ("<pad>", "</s>", "<s>", "<unk>", "<|im_end|>", "<|endoftext|>")}
    | {token: 4 for token in ("<|im_start|>", "<mark>", "  ")},
    "keys": BOS
    | {"eos_token_id": "</s>", "unknown_token_id": "<unk>", "padding_token_id": "<pad>"}
    | {"add_bos_token": True, "add_space_prefix": False},
}
FILES = [
    {"name": "nothing is said"} | BYTES,
    {"name": "odd types", "pre": "smaug-bpe", "types": NAMED | {"a": 0, "b": 7, "\u0120the": 0}} | BYTES,
    {"name": "llama-bpe", "pre": "llama-bpe", "types": NAMED, "keys": BOS | {"eos_token_id": "</s>"}} | BYTES,
    {"name": "told not to", "pre": "llama-bpe", "types": NAMED, "keys": BOS | {"add_bos_token": False}} | BYTES,
    {"name": "told to", "pre": "gpt-2", "types": NAMED, "keys": BOS | {"add_bos_token": True}} | BYTES,
    {
        "name": "ids that are none",
        "pre": "gpt-2",
        "types": NAMED,
        "keys": BOS | {"eos_token_id": 99999, "padding_token_id": 4294967295},
    }
    | BYTES,
    {"name": "fim_pre is said", "pre": "gpt-2", "keys": {"fim_pre_token_id": "<mark>"}} | BYTES,
    {"name": "pieces, nothing is said"} | PIECES,
    {"name": "pieces as in Gemma 3"} | GEMMA | PIECES,
]


def contents(file):
    """Tokens, merges, types, scores and keys of a file; the C++ test builds the same."""
    if file["model"] == "gpt2":
        tokens, merges = shared_vocabulary()
        tokens = tokens + file["extra"]
        kinds, scores = [1] * len(tokens), None
    else:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(GOLDEN / "sp_bpe.model"))
        tokens = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
        tokens = file.get("first", tokens[:3]) + tokens[3:]
        if "first" in file:  # llama.cpp's converter writes user-defined pieces with spaces
            tokens = [" " * len(t) if set(t) == {"\u2581"} and len(t) > 1 else t for t in tokens]
        more = len(tokens) - processor.get_piece_size()
        merges, scores = None, [processor.get_score(max(0, i - more)) for i in range(len(tokens))]
        kinds = [6 if t.startswith("<0x") and len(t) == 6 else 1 for t in tokens]
    for token, kind in file.get("types", {}).items():
        kinds[tokens.index(token)] = kind
    keys = {k: tokens.index(v) if isinstance(v, str) else v for k, v in file.get("keys", {}).items()}
    return tokens, merges, kinds if "types" in file else None, scores, keys


def expected(path, file):
    tokens, merges, types, scores, keys = contents(file)
    write(path, file["model"], tokens, merges, file.get("pre"), types, scores, keys)
    vocabulary = Vocabulary(path)
    bos, eos = LIBRARY.llama_vocab_bos(vocabulary.vocab), LIBRARY.llama_vocab_eos(vocabulary.vocab)
    ends = vocabulary.tokens("is_eog")
    if file["model"] == "gpt2":  # without token 11, see above
        said = [keys.get(f"{name}_token_id", -1) for name in ("bos", "eos")]
        bos, eos = (i if 0 <= i < len(tokens) else -1 for i in said)
        ends = [i for i in ends if i != 11]
    text = file["text"]
    out = {
        "bos": bos,
        "eos": eos,
        "add_bos": LIBRARY.llama_vocab_get_add_bos(vocabulary.vocab),
        "special": vocabulary.special(),
        "ends": ends,
        "ids": vocabulary.encode(text),
        "ids_of_prompt": vocabulary.encode(text, parse_special=True),
    }
    vocabulary.close()
    return out


def main():
    options = golden_strings.parse(__doc__, "llama_cpp.json", STRINGS)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "v.gguf"
        golden = {
            "made_by": {"xllamacpp": importlib.metadata.version("xllamacpp")},
            "pre_tokenizers": pre_tokenizers(path, options.generator, options.strings),
            "files": [file | {"expected": expected(path, file)} for file in FILES],
        }
    golden_strings.finish(options, golden, f"{len(READ)} pre-tokenisers, {len(FILES)} files")


if __name__ == "__main__":
    main()
