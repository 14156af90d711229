#!/usr/bin/env python3
"""Golden values of variations of real files: writes tests/golden/variations.

    scripts/oracle/variations.py [--check]

Files of one model differ in ways that do not change the model: shards, alignment, a tied output head that is stored or
left out, old and new names of settings, the place of the chat template, the form of the tokenizer. variation_list.py
has a list of variations that SpecLab reads, and a list of those that it refuses, with words of the error.
Every variation is a folder with a tiny random model. golden.json has, for each that is read:
- the logits of some positions in float32. transformers reads the folder itself. From a GGUF file it reads the weights;
  the configuration is that of the model that was written.
- the ids of some texts with the special tokens that transformers adds, and these ids as text again, if the folder has a
  tokenizer;
- a conversation as text, if it has a chat template, and the end tokens, if it has a generation_config.json.
tests/model/files/variation_oracle_test.cpp compares the engine with all this.
--check writes nothing and exits 1 if a file would change. Logits may differ by rounding.
"""

import argparse
import json
import logging
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from families import ROUNDING, numbers
from transformers import modeling_gguf_pytorch_utils
from variation_list import READ, REFUSED

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/variations"
LENGTH, ROWS = 40, [7, 39]  # number of tokens, and the positions whose logits are kept
TEXTS = [
    "the rain",
    " the user  is in",
    "a\nb, the  user's rain ",
    "<|im_start|>the user<|im_end|> in",
    "rain \u00e9 0 in!",
]
MESSAGES = [
    {"role": "user", "content": "the rain"},
    {"role": "assistant", "content": "in a user"},
    {"role": "user", "content": " is it the user's? "},
]


def opened(folder):
    """What the reader opens: the folder, or the GGUF file in it."""
    return min(folder.glob("*.gguf"), default=folder)


def read(folder, written):
    """The model as transformers reads it."""
    path = opened(folder)
    if path == folder:
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    model = type(written)(written.config).eval()
    stored = modeling_gguf_pytorch_utils.load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    # The engine rounds weights to bf16.
    missing, unexpected = model.load_state_dict({n: t.bfloat16().float() for n, t in stored.items()}, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (path, missing, unexpected)
    return model


def expected(folder, what, written=None):
    """The golden values of a variation that is read. written: the model whose configuration a GGUF file has."""
    tokens = torch.randint(64, (LENGTH,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        model = read(folder, written)
        logits = model(tokens[None]).logits[0]
    golden = {"what": what, "tokens": tokens.tolist(), "rows": ROWS, "logits": [numbers(logits[row]) for row in ROWS]}
    if (folder / "generation_config.json").exists():
        golden["ends"] = sorted(model.generation_config.eos_token_id)
    if (folder / "tokenizer.json").exists():
        texts = transformers.AutoTokenizer.from_pretrained(folder)
        golden["texts"] = [
            {"text": text, "ids": ids, "decoded": texts.decode(ids, skip_special_tokens=True)}
            for text, ids in ((text, texts(text).input_ids) for text in TEXTS)
        ]
        if texts.chat_template:
            golden["messages"] = MESSAGES
            golden["chat"] = texts.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    return golden


def make(out):
    """Writes all folders and golden.json."""
    golden = {"made_by": "scripts/oracle/variations.py", "read": {}, "refused": {}}
    for name, (what, write, *written) in READ.items():
        (out / name).mkdir()
        write(out / name)
        golden["read"][name] = expected(out / name, what, *written)
    for name, (what, write, words) in REFUSED.items():
        (out / name).mkdir()
        write(out / name)
        golden["refused"][name] = {"what": what, "words": words}
    plain = torch.tensor(golden["read"]["plain"]["logits"])
    for name in ("rope_old_linear", "rope_old_llama3", "rope_old_yarn", "gguf_rope_factors", "gguf_yarn"):
        gap = (torch.tensor(golden["read"][name]["logits"]) - plain).abs().max()
        assert gap > 0.01 * plain.abs().max(), f"{name}: the logits are nearly those without the scaling"
    lines = [
        f"{json.dumps(part)}: {{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in cases.items()) + "\n}"
        for part, cases in golden.items()
        if isinstance(cases, dict)
    ]
    text = '{"made_by": "scripts/oracle/variations.py",\n' + ",\n".join(lines) + "}\n"
    (out / "golden.json").write_text(text)


def same_golden(old, new):
    """True if two golden files differ at most by rounding, which depends on the machine that runs PyTorch."""
    old, new = json.loads(old.read_text()), json.loads(new.read_text())
    for case in set(old["read"]) & set(new["read"]):
        before, after = (torch.tensor(values["read"][case].pop("logits")) for values in (old, new))
        if before.shape != after.shape or (before - after).abs().max() > ROUNDING * after.abs().max():
            return False
    return old == new


def contents(folder):
    """Every file of a folder: its bytes, or where it links to."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in files
        if path.name != "golden.json"
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a file would change")
    options = arguments.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    modeling_gguf_pytorch_utils.tqdm = lambda items, **_: items
    with tempfile.TemporaryDirectory() as temporary:
        new = pathlib.Path(temporary) / "variations"
        new.mkdir()
        make(new)
        before, after = (contents(folder) for folder in (OUT, new))
        differs = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        golden = OUT / "golden.json"
        if not golden.exists() or not same_golden(golden, new / "golden.json"):
            differs.append("golden.json")
        if options.check:
            print("\n".join(f"differs: {name}" for name in differs) or f"{OUT}: as before")
            sys.exit(1 if differs else 0)
        if golden.exists() and "golden.json" not in differs:
            shutil.copy(golden, new / "golden.json")
        shutil.rmtree(OUT, ignore_errors=True)
        shutil.copytree(new, OUT, symlinks=True)
    size = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{OUT}: {len(READ)} variations that are read, {len(REFUSED)} that are refused, {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
