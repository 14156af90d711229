"""Made-up output of `speclab simulate --json`, for the tests of the page of devices and of its figures."""

POINTS = [0.25, 1, 4, 16, 64, 256, 1024]


def repriced(cases, device, factor, watts=0):
    """`cases`: {id: (tau, measured speedup)}. Each simulated speedup is the measured one times `factor`."""
    rows = []
    for case, (tau, speedup) in cases.items():
        rows.append(
            {"case": case, "batch": 1, "tau": tau, "here": speedup, "speedup": factor * speedup, "step_ms": 1.0}
            | {"speedup_ci95": [factor * speedup - 0.1, factor * speedup + 0.1], "ms_per_token": 0.5}
            | {"joules_per_token": watts / 1000 if watts else None, "there": None, "error": None, "problem": None}
        )
    draft = {"draft": "distilled", "batch": 1, "case": next(iter(cases)), "alpha": 0.42, "c": 0.0625 * factor}
    draft |= {"best_gamma": 3, "at_limit": True, "speedup": 1.5 * factor, "break_even_alpha": 0.11}
    return {"device": device, "kind": "roofline", "source": f"sheet of {device}", "error": "Not validated."} | {
        "simulation": True,
        "cases": rows,
        "drafts": [draft],
    }


def sweep(cases, axis, device):
    rows = []
    for place, (case, (tau, _)) in enumerate(cases.items()):
        values = [tau * x / (x + 1 + place) for x in POINTS]
        if axis == "batch":
            values.reverse()
        row = {"case": case, "tau": tau, "speedup": values, "closed_form": [0, 12.5] if axis == "batch" else None}
        pays = "never" if max(values) < 1 else "above" if axis != "batch" else "below"
        row |= {"break_even": None if pays == "never" else 2.5, "pays": pays, "problem": None}
        rows.append(row)
    rows.append({"case": "broken", "tau": None, "speedup": None, "break_even": None, "pays": None})
    rows[-1] |= {"closed_form": None, "problem": "no shape of the target"}
    out = {"sweep": axis, "unit": "x", "device": device, "source": "s", "simulation": True, "points": POINTS}
    return out | {"cases": rows}


def timelines(kinds):
    rows = []
    for kind in kinds:
        row = {"timeline": kind, "draft": "distilled", "case": "c", "alpha": 0.5, "c": 0.1, "tokens": 4, "devices": 2}
        row |= {"us_per_token": 5.0, "speedup": 1.75, "played": 1.76, "horizon_us": 80.0, "problem": None}
        row["segments"] = [
            {"device": device, "start_us": start, "end_us": start + 8, "rows": 1, "wasted": start > 30}
            for device in (0, 1)
            for start in range(0, 72, 8)
        ]
        rows.append(row)
    rows.append(rows[0] | {"draft": "slow", "speedup": None, "segments": [], "problem": "the draft is slower"})
    return {"device": "H100 SXM 80 GB", "timelines": rows}


def grid(cells, factor):
    """`cells`: [(case, W, N, G, tau, rows)]."""
    rows = [
        {"case": case, "W": W, "N": N, "G": G, "tau": tau, "rows": count, "speedup": factor * tau / 2}
        for case, W, N, G, tau, count in cells
    ]
    machine = {"best": {"W": 4, "N": 5, "G": 4, "tau": 1.31, "speedup": 1.21 * factor}}
    return {"device": "d", "fits": [{"alpha": 0.16, "f": 2.36, "share": None, "machine": machine, "cells": rows}]}
