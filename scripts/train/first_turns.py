"""Chooses prompts by their ids from a file in Spec-Bench's form, with their first turns alone. Writes them for `speclab run`.

    scripts/train/first_turns.py QUESTIONS.jsonl --ids "91 111 131" --out FIRST.jsonl
    speclab run CONFIG --set 'prompts={"file": "FIRST.jsonl"}'

evaluate.py measures a stand-alone draft on these prompts without the engine. The engine measures heads (and anything else) on the same
prompts with the second command; CONFIG has a case of the head. The whole member "prompts" is replaced, because a selection in CONFIG, such
as "split", may choose none of these prompts.
"""

import argparse
import json
from pathlib import Path

KEPT = ("question_id", "id", "category", "split", "options", "renderer")  # what the engine reads, besides the turns


def choose(path, ids=()):
    """The prompts of the file with these ids (texts; none: all prompts), in the order of the file. Each has the members KEPT that the file
    gives, a category, which is "" by default, and one turn. Ends the program if a line is no prompt, or if an id is missing or occurs twice."""
    if not path.is_file():
        raise SystemExit(f"{path}: no such file; expected prompts in Spec-Bench's form, one JSON object a line")
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            prompt = json.loads(line)
            kept = {"category": ""} | {key: prompt[key] for key in KEPT if key in prompt}
            name, turn = str(prompt["question_id"] if "question_id" in prompt else prompt["id"]), prompt["turns"][0]
            if not isinstance(turn, str):
                raise TypeError("a turn is a text")
        except (ValueError, KeyError, TypeError, IndexError) as fault:
            raise SystemExit(f'{path}, line {number}: expected an object with "question_id" and "turns" ({fault!r})')
        if name in found:
            raise SystemExit(f"{path}, line {number}: the id {name} occurs twice; give each prompt an id of its own")
        found[name] = kept | {"turns": [turn]}
    missing = [name for name in ids if name not in found]
    if missing:
        raise SystemExit(f"--ids: {path} has no prompt {', '.join(missing)}; it has {len(found)} prompts")
    return [prompt for name, prompt in found.items() if not ids or name in ids]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path, metavar="QUESTIONS.jsonl")
    parser.add_argument("--ids", default="", help="question_ids to use, separated by blanks (default: all)")
    parser.add_argument("--out", type=Path, required=True, metavar="FIRST.jsonl")
    args = parser.parse_args(arguments)
    chosen = choose(args.prompts, args.ids.split())
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in chosen), encoding="utf-8")
    print(f"{args.out}: {len(chosen)} prompts, first turns alone")


if __name__ == "__main__":
    main()
