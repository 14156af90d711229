"""Golden hidden states of three tiny families, from Hugging Face transformers in float32 with eager attention.

    scripts/oracle/hidden_states.py [--check]     writes tests/golden/hidden_states.json

Reads the models and tokens that scripts/oracle/families.py wrote. Runs one forward over all tokens with
output_hidden_states and keeps, at a few positions, every entry: entry l is the residual stream after l decoder layers,
and the last entry has gone through the final norm. tests/model/net/hidden_oracle_test.cpp compares the engine with them.
--check writes nothing and exits 1 if the golden file differs by more than rounding.
"""

import argparse
import json
import pathlib
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/hidden_states.json"
# llama has RMS norms; gpt2 has layer norms and a position embedding; gemma2 has a scaled embedding and post norms.
FAMILIES = ["llama", "gpt2", "gemma2"]
ROUNDING = 1e-5  # share of the largest number of a state; a golden file that is this close to the new values is kept


def states_of(family):
    folder = ROOT / "tests/golden/families" / family
    tokens = json.loads((folder / "golden.json").read_text())["tokens"]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.inference_mode():
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    assert len(states) == model.config.num_hidden_layers + 1
    positions = sorted({0, len(tokens) // 2, len(tokens) - 1})
    return {
        "tokens": tokens,
        "states": {str(p): [[float(f"{value:.7g}") for value in state[0, p]] for state in states] for p in positions},
    }


def same(old, new):
    """Whether two files differ by rounding only, which depends on the machine that PyTorch runs on."""
    if old.keys() != new.keys():
        return False
    for family, case in new.items():
        if old[family]["tokens"] != case["tokens"] or old[family]["states"].keys() != case["states"].keys():
            return False
        for position, rows in case["states"].items():
            others = old[family]["states"][position]
            if [len(row) for row in rows] != [len(row) for row in others]:
                return False
            for row, other in zip(rows, others):
                largest = max(abs(value) for value in row)
                if max(abs(a - b) for a, b in zip(row, other)) > ROUNDING * largest:
                    return False
    return True


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    made = {family: states_of(family) for family in FAMILIES}
    if OUT.exists() and same(json.loads(OUT.read_text()), made):
        print(f"{OUT} stays: equal up to rounding")
        return
    if options.check:
        sys.exit(f"{OUT} differs from what transformers says; run scripts/oracle/hidden_states.py")
    lines = [f'"{family}":{json.dumps(case, separators=(",", ":"))}' for family, case in made.items()]
    OUT.write_text("{" + ",\n".join(lines) + "}\n")
    print(f"{OUT}: {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
