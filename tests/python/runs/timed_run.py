"""A made-up run in which every case takes a given time for each token, for tests of pages that compare times."""

import json
import random

import synthetic_run

PLAIN = "autoregressive"
TOKENS = 5  # of each line


def write_run(folder, times, prompts, noise=0.02, target="t", draft="d", options=None, metrics=None):
    """A run in which a token of a case takes `times` ns in each category. times: {case: {category: ns}}; prompts: {id: category}.
    options: {case: its options}; a case without them has the budget that its id names. metrics: {case: its metrics}."""
    (folder / "cases").mkdir(parents=True)
    cases = []
    for number, (case, by_category) in enumerate(times.items()):
        lines = []
        for prompt, category in prompts.items():
            for repeat in range(2):
                step = {"emitted": TOKENS, "ns": [0, by_category[category] * TOKENS, 0, 0]}
                rng = random.Random(number)
                lines.append(synthetic_run.line(rng, case, prompt, category, repeat, 0, [step]))
        (folder / f"cases/{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        own = (options or {}).get(case)
        if own is None:
            own = {"budget": case.rsplit("=", 1)[-1]} if "budget" in case else {}
        cases.append(
            {"id": case, "file": f"cases/{number}.jsonl", "strategy": case.split("/")[0], "options": own}
            | {"draft": "d" if "draft=" in case else None, "gamma": own.get("gamma"), "reference": PLAIN}
            | {"metrics": (metrics or {}).get(case, {})}
        )
    environment = {
        "models": {"target": {"sha256": target, "name": "tiny"}, "d": {"sha256": draft}},
        "cpu": {"model": "a processor"},
        "threads": 2,
        "numerics": "f32",
        "date": "2026-01-01T00:00:00Z",
    }
    config = {"prompts": [{"id": prompt, "turns": [f"the text of {prompt}"]} for prompt in prompts]}
    summary = {"schema_version": 1, "cases": cases, "ratio_noise": noise}
    for name, content in (("environment", environment), ("config", config), ("summary", summary)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
