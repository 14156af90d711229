"""A made-up run in the format of results/SCHEMA.md, for the tests of figures and report. Its numbers are invented, not measured.

The chains accept with a constant alpha, so its closed forms are exact in expectation; times follow assumed costs with noise.
    python tests/python/runs/synthetic_run.py DIR
"""

import hashlib
import json
import pathlib
import random
import struct
import sys

T_TARGET_MS, T_ACCEPT_MS, T_OTHER_MS = 11.0, 0.08, 0.05
WIDTH = lambda rows: 1 + 0.02 * (rows - 1)
DRAFTS = {"distilled": (0.42, 0.045), "layers-12": (0.25, 0.45)}
GAMMAS = [1, 2, 3, 4, 6, 8]
CATEGORIES = ["chat", "code", "maths"]
WORDS = "The rolls were baked in the morning and sold before noon , so that only a few of them were left .\n".split(" ")
LOSSY = {"lenience": [1, 0.5, 0.25], "b": [0.8, 0.4]}


def tau(alpha, gamma):
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def decode(rng, alpha, gamma, c, tokens=48, expected_acceptance=None):
    """One line's steps and times."""
    steps, emitted = [], 0
    while emitted < tokens:
        accepted = 0
        drafted = []
        for position in range(gamma):
            tested = accepted == position
            good = tested and rng.random() < alpha
            confidence = min(1, max(0, rng.betavariate(4, 2) if good else rng.betavariate(2, 3)))
            drafted.append(
                {
                    "id": rng.randrange(49152),
                    "p": round(confidence, 6) if tested else -1,
                    "q": round(confidence, 6),
                    "rank": 0 if good else 3,
                    "tested": tested,
                    "accepted": good,
                    "confidence": round(confidence, 6),
                    "expected": alpha if tested else -1,
                }
            )
            accepted += good
        got = min(accepted + 1, tokens - emitted)
        noise = rng.uniform(0.95, 1.1)
        ns = [
            int(1e6 * ms * noise)
            for ms in (gamma * c * T_TARGET_MS, T_TARGET_MS * WIDTH(gamma + 1), T_ACCEPT_MS * (gamma + 1), T_OTHER_MS)
        ]
        steps.append(
            {
                "source": "draft" if gamma else "",
                "drafted": gamma,
                "accepted": min(accepted, got),
                "emitted": got,
                "ended_by": "length"
                if emitted + got >= tokens
                else "none"
                if gamma == 0
                else "bonus"
                if accepted == gamma
                else "rejection",
                "nodes": gamma + 1,
                "rows": gamma + 1,
                "draft_calls": gamma,
                "ns": ns,
                "tokens": drafted,
            }
        )
        emitted += got
    return steps


def line(rng, case, prompt, category, repeat, order, steps):
    count = 1 + sum(step["emitted"] for step in steps)
    ids = [rng.randrange(49152) for _ in range(count)]
    ns = [sum(step["ns"][k] for step in steps) for k in range(4)]
    record = {
        "schema_version": 1,
        "case": case,
        "prompt": prompt,
        "category": category,
        "seed": 1,
        "repeat": repeat,
        "order": order,
        "context_length": 60,
        "tokens": ids,
        "turns": [
            {
                "context_length": 60,
                "tokens": count,
                "steps": len(steps),
                "prefill_ns": 90_000_000,
                "draft_prefill_ns": 0,
                "decode_ns": sum(ns),
                "finish": "length",
            }
        ],
        "output_hash": hashlib.sha256(struct.pack(f"<{count}i", *ids)).hexdigest(),
        "logits_hash": hashlib.sha256(b"").hexdigest(),
        "row_hashes": [],
        "wall_ns": sum(ns),
        "cpu_ns": 2 * sum(ns),
        "prefill_ns": 90_000_000,
        "draft_prefill_ns": 0,
        "phase_ns": dict(zip(("draft", "target", "accept", "other"), ns)),
        "work": {},
        "matches_reference": None,
        "first_divergence": None,
        "steps": steps,
    }
    if repeat == 0:
        record["pieces"] = [("" if i == 0 else " ") + WORDS[i % len(WORDS)] for i in range(count)]
        record["text"] = "".join(record["pieces"])
    return record


def around(value, share=0.04):
    return [value * (1 - share), value * (1 + share)]


def case_entry(
    name,
    strategy,
    lines,
    draft=None,
    gamma=None,
    alpha=None,
    c=None,
    base_ms=None,
    rule="rejection",
    lossy=False,
    distance=None,
    options=None,
):
    steps = [step for record in lines for step in record["steps"]]
    tokens = sum(step["emitted"] for step in steps)
    split = [sum(step["ns"][k] for step in steps) / len(steps) / 1e6 for k in range(4)]
    measured_tau = tokens / len(steps)
    per_token = sum(split) / measured_tau
    tested = [token for step in steps for token in step["tokens"] if token["tested"]]
    own_alpha = sum(token["accepted"] for token in tested) / len(tested) if tested else None
    at = []
    for position in range(gamma or 0):
        reached = [
            step["tokens"][position]["accepted"]
            for step in steps
            if len(step["tokens"]) > position and step["tokens"][position]["tested"]
        ]
        at.append(sum(reached) / len(reached) if reached else None)
    joint, product = [], 1.0
    for value in at:
        product = None if value is None or product is None else product * value
        joint.append(product)
    speedup = base_ms / per_token if base_ms else None
    metrics = {
        "tokens": tokens,
        "steps": len(steps),
        "tau": measured_tau,
        "tau_ci95": around(measured_tau),
        "tokens_per_second": 1000 / per_token,
        "ms_per_token": per_token,
        "ms_per_token_sd": 0.3 * per_token,
        "ms_per_step": sum(split),
        "speedup": speedup,
        "speedup_ci95": around(speedup) if speedup else None,
        "alpha": own_alpha,
        "alpha_ci95": around(own_alpha, 0.08) if own_alpha else None,
        "alpha_min": own_alpha,
        "acceptance_at": at or None,
        "acceptance_at_ci95": [None if v is None else around(v, 0.1) for v in at] or None,
        "joint_at": joint or None,
        "c": c,
        "c_hat": c,
        "ops_factor": ((gamma * c + gamma + 1) / measured_tau if gamma else None),
        "time_draft": split[0],
        "time_target": split[1],
        "time_accept": split[2],
        "time_other": split[3],
        "distance": distance,
        "kl": None if distance is None else 2 * distance**2,
        "kl_infinite": None if distance is None else 0,
        "matches_reference": None if lossy else True,
        "texts_equal": not lossy if base_ms else None,
        "draft_utilization": (measured_tau - 1) / gamma if gamma else None,
    }
    predictions, waterfall = {}, []
    if gamma and base_ms:

        def put(key, value, measured, quantity, equation, kind="prediction"):
            predictions[key] = {
                "value": value,
                "kind": kind,
                "measured": measured,
                "error": value / measured - 1 if kind == "prediction" else None,
                "quantity": quantity,
                "equation": equation,
                "assumptions": "made up",
            }

        ideal = tau(own_alpha, gamma) / (gamma * c + 1)
        costs = measured_tau / (gamma * c + WIDTH(gamma + 1) + (T_ACCEPT_MS * (gamma + 1) + T_OTHER_MS) / T_TARGET_MS)
        kind = "identity" if gamma == 1 else "prediction"
        put("leviathan_eq_1", tau(own_alpha, gamma), measured_tau, "tau", "(1-a^{g+1})/(1-a)", kind)
        put("leviathan_3_8", ideal, speedup, "speedup", "(1-a^{g+1})/((1-a)(gc+1))")
        put(
            "leviathan_3_11_ops",
            (gamma * c + gamma + 1) / tau(own_alpha, gamma),
            metrics["ops_factor"],
            "ops_factor",
            "(1-a)(g c_hat+g+1)/(1-a^{g+1})",
        )
        put("measured_costs", costs, speedup, "speedup", "tau t_1/(g t_d + t(g+1) + t_accept + t_other)")
        put("chen_ratio", measured_tau / (gamma * c + 1), speedup, "speedup", "r'(K+1)t_t/(K t_d+t_t)")
        put("chen_limit", measured_tau, speedup, "speedup", "r'(K+1)", "bound")
        put("optimal_gamma_measured_t", 5, None, "gamma", "argmax E[tau]/(gc+t(g+1))", "optimum")
        predictions["optimal_gamma_measured_t"]["value_ci95"] = [4, 7]
        from math import log

        running, previous = (
            [
                ideal,
                measured_tau / (gamma * c + 1),
                measured_tau / (gamma * c + 1),
                measured_tau / (gamma * c + WIDTH(gamma + 1)),
                costs,
                0.99 * costs,
                speedup,
                speedup,
            ],
            None,
        )
        for step, value in zip(
            (
                "leviathan_3_8",
                "iid",
                "draft_cost",
                "verification_width",
                "sampling_and_bookkeeping",
                "machine_drift",
                "residual",
                "measured",
            ),
            running,
        ):
            waterfall.append(
                {"step": step, "speedup": value, "log_ratio": 0.0 if previous is None else log(value / previous)}
            )
            previous = value
        waterfall[-1].update(
            unexplained_share=0.0222,
            unexplained_share_ci95=[0.0011, 0.0456],
            residual_share=-0.0125,
            residual_share_ci95=[-0.0431, 0.0172],
        )
    categories = {}
    for category in CATEGORIES:
        own = [step for record in lines if record["category"] == category for step in record["steps"]]
        ms = sum(sum(step["ns"]) for step in own) / 1e6
        count = sum(step["emitted"] for step in own)
        categories[category] = {
            "prompts": 1,
            "metrics": {"tau": count / len(own), "ms_per_token": ms / count, "ms_per_step": ms / len(own)},
        }
    return {
        "id": name,
        "file": f"cases/{name.replace('/', '__')}.jsonl",
        "strategy": strategy,
        "draft": draft,
        "gamma": gamma,
        "rule": rule if gamma else None,
        "coins": "independent",
        "schedule": None,
        "verify": "one_pass",
        "loss_class": "L3" if lossy else "L2",
        "lossy": lossy,
        "target": "target",
        "sampling": {"temperature": 0, "top_k": 0, "top_p": 1},
        "draft_sampling": None,
        "options": options or {},
        "axes": {},
        "reference": None if strategy == "autoregressive" else "autoregressive",
        "prompts": len(CATEGORIES),
        "seeds": 1,
        "repeats": 2,
        "lines": len(lines),
        "errors": 0,
        "metrics": metrics,
        "predictions": predictions,
        "waterfall": waterfall,
        "published": [],
        "categories": categories,
        "alpha_by_prompt": {},
    }


def write_ladder(folder):
    """Runs of three targets, two of them inflated; the relative cost of the draft falls as the target grows."""
    folder = pathlib.Path(folder)
    names = {"135M": 1.0, "500M": 3.5, "1B": 9.0}
    for name, cost in names.items():
        write(folder / name, cost=cost)
        file = folder / name / "environment.json"
        environment = json.loads(file.read_text(encoding="utf-8"))
        target = environment["models"]["target"]
        target["weight_bytes"] = int(270e6 * cost)
        if cost > 1:
            target["name"] = f"{name} inflated from made-up"
            target["inflated"] = {"from": {"name": "made-up"}, "to": {}}
        file.write_text(json.dumps(environment, indent=1), encoding="utf-8")
    header = {"schema_version": 1, "name": "synthetic", "description": "made-up numbers", "targets": sorted(names)}
    (folder / "targets.json").write_text(json.dumps(header), encoding="utf-8")


def write(folder, lossy=True, cost=1.0):
    """cost: cost of the target, relative to the target for which DRAFTS holds c."""
    folder = pathlib.Path(folder)
    (folder / "cases").mkdir(parents=True, exist_ok=True)
    rng = random.Random(20)
    plan = [("autoregressive", dict(strategy="autoregressive"), 0.0, 0, 0.0)]
    for draft, (alpha, c) in DRAFTS.items():
        c = c if draft.startswith("layers") else c / cost  # layers of the target grow with it
        plan += [
            (
                f"speculative_sampling/draft={draft}/gamma={gamma}",
                dict(strategy="speculative_sampling", draft=draft, gamma=gamma, c=c),
                alpha,
                gamma,
                c,
            )
            for gamma in GAMMAS
        ]
    plan.append(
        (
            "prompt_lookup/n=3/length=5",
            dict(strategy="prompt_lookup", gamma=5, c=0.0005, options={"n": 3, "length": 5}),
            0.3,
            5,
            0.0005,
        )
    )
    if lossy:
        for name, values in LOSSY.items():
            for value in values:
                alpha, c = min(0.97, DRAFTS["distilled"][0] / value**0.5), DRAFTS["distilled"][1]
                plan.append(
                    (
                        f"speculative_sampling/draft=distilled/gamma=4/rule={name}/{name}={value}",
                        dict(
                            strategy="speculative_sampling",
                            draft="distilled",
                            gamma=4,
                            c=c,
                            rule=name,
                            lossy=value < 1,
                            distance=0.3 * (1 - value),
                        ),
                        alpha,
                        4,
                        c,
                    )
                )
    cases, base, order = [], None, 0
    for name, entry, alpha, gamma, c in plan:
        lines = []
        for index, category in enumerate(CATEGORIES):
            steps = decode(rng, alpha, gamma, c)
            for repeat in range(2):
                lines.append(line(rng, name, str(index + 1), category, repeat, order, steps))
                order += 1
        file = folder / "cases" / f"{name.replace('/', '__')}.jsonl"
        file.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in lines), encoding="utf-8")
        cases.append(case_entry(name, lines=lines, alpha=alpha or None, base_ms=base, **entry))
        if base is None:
            base = cases[0]["metrics"]["ms_per_token"]
            cases[0]["metrics"].update(speedup=1.0, speedup_ci95=[1.0, 1.0])
    summary = {
        "schema_version": 1,
        "name": "synthetic",
        "description": "made-up numbers for tests",
        "complete": True,
        "errors": [],
        "noise_floor": 0.01,
        "calibration": {},
        "cases": cases,
    }
    environment = {
        "schema_version": 1,
        "version": "0.1.0",
        "commit": "0" * 40,
        "dirty": False,
        "build_type": "Release",
        "compiler": "none",
        "binary_sha256": "0" * 64,
        "date": "2000-01-01T00:00:00Z",
        "command_line": ["speclab", "run"],
        "cpu": {
            "model": "no machine (made-up numbers)",
            "flags": [],
            "cores_online": 2,
            "cores_allowed": 2,
            "cgroup_cpus": None,
            "cache": {"L2_bytes": 1, "L3_bytes": 1},
        },
        "memory_bytes": 1,
        "os": "none",
        "backend": "cpu",
        "device": "none",
        "numerics": "f32",
        "threads": 2,
        "read_bandwidth_bytes_per_second": 1e9,
        "peak_flops": 1e9,
        "models": {
            "target": {
                "path": "none",
                "name": "made up",
                "sha256": "0",
                "parameters": 1,
                "weight_bytes": 1,
                "layers": 1,
            }
        },
        "load_average": [0, 0, 0],
    }
    config = {
        "name": "synthetic",
        "prompts": [{"id": str(i), "turns": ["text"], "options": {}} for i in range(len(CATEGORIES))],
        "chat_template": True,
        "system": "",
        "seeds": [0],
        "cases": [{"options": {"max_tokens": 48}}],
    }
    for name, content in (
        ("summary.json", summary),
        ("environment.json", environment),
        ("config.json", config),
    ):
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
