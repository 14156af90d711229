"""Golden values of an exported draft for loaders in other languages: float32 top-5 logits after a few short prompts."""

import argparse
import json
from pathlib import Path

import torch
from draft import load
from target import PREFIX, TO_ANSWER, Gguf

PROMPTS = [
    "What is the capital of France?",
    "Write a function that adds 12 and 345.",
    "Repeat: red green blue red green",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--draft", type=Path, default=Path("models/draft/smollm2-135m-instruct"))
    parser.add_argument("--out", type=Path, default=None, help="default: golden.json beside the draft")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    file = Gguf(args.target)
    tokenizer, draft = file.tokenizer(), load(args.draft, file)
    cases = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(PREFIX + prompt + TO_ANSWER).ids
        top = (draft(torch.tensor([ids]))[0, -1] @ draft.head.T).topk(5)
        cases.append(
            dict(prompt=prompt, ids=ids, top=[[int(draft.vocab[i]), v.item()] for i, v in zip(top.indices, top.values)])
        )
    out = args.out or args.draft / "golden.json"
    out.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
