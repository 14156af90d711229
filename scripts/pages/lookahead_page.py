#!/usr/bin/env python3
"""Writes a page from finished runs: measured and published numbers side by side, and the reasons for differences.

    scripts/pages/lookahead_page.py RUN... --out results/lookahead.md [--no-times]

RUN: folders that `speclab run` wrote. Either their config has "published" (such as lookahead_ablation and jacobi),
or their summary has a law of lookahead decoding (lookahead_wng, lookahead_scaling). A verdict that
`speclab lookahead RUN --measure` left in a run is shown too. --no-times leaves out everything that depends on the load of
the machine; counts such as tokens per step remain. Uses the standard library only.
"""

import argparse
import json
import pathlib
import sys

CELLS = 6  # a law is shown only if it was fitted to at least this many cases
VERDICT = "verdict/verdict.json"  # file in RUN that `speclab lookahead RUN --measure` writes
FEW_PROMPTS = 10  # an interval over fewer prompts than this shows the number of prompts
TIMED = ("speedup", "tokens_per_second", "ms_per_token")


def text(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def cell(words):
    return str(words).replace("|", "\\|").replace("\n", " ")


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]) + "\n"


def interval(metrics, name, prompts):
    ci = metrics.get(f"{name}_ci95")
    few = f" (n = {prompts})" if prompts < FEW_PROMPTS else ""
    return text(metrics.get(name)) + (f" [{text(ci[0])}, {text(ci[1])}]{few}" if ci else "")


class Page:
    def __init__(self, times):
        self.times = times
        self.prompts = 0  # number of prompts of the current run; its verdict has the same prompts
        self.parts = []

    def shown(self, name):
        return self.times or name not in TIMED

    def run(self, folder):
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        if not summary["complete"]:
            raise ValueError(f"{folder}: the run is not complete. Finish it with: speclab run ... --resume.")
        self.prompts = max((case["prompts"] for case in summary["cases"]), default=0)
        self.parts.append(f"## {summary['name']}\n\n{summary['description']}\n")
        self.parts.append(
            f"{environment['models']['target']['name']} on {environment['cpu']['model']}, {environment['threads']} threads, "
            f"{environment['numerics']}, {environment['date'][:10]}, commit {environment['commit'][:12]}; {self.prompts} prompts."
            + ("" if self.times else " Times are left out.")
            + "\n"
        )
        if self.times and (busy := (summary.get("machine") or {}).get("text")):
            self.parts.append(f"**{busy}**\n")
        self.cases(summary)
        self.published(summary)
        for fit in summary.get("lookahead", []):
            self.law(fit)
        self.devices(summary.get("lookahead_devices", []))
        verdict = folder / VERDICT
        if verdict.exists() and self.times:
            self.verdict(json.loads(verdict.read_text(encoding="utf-8")))

    def cases(self, summary):
        metrics = [name for name in ("tau", "rows_per_step", "speedup") if self.shown(name)]
        rows = []
        for case in summary["cases"]:
            equal = case["metrics"].get("matches_reference")
            rows.append(
                [case["id"]]
                + [interval(case["metrics"], name, case["prompts"]) for name in metrics]
                + ["" if equal is None else "yes" if equal else "NO"]
            )
        self.parts.append(table(["case", *metrics, "equal to autoregressive"], rows))

    def published(self, summary):
        rows = []
        for case in summary["cases"]:
            for quote in case.get("published") or []:
                for value in quote["values"]:
                    if not self.shown(value["name"]):
                        continue
                    name = case["id"] + (f", {quote['category']}" if quote.get("category") else "")
                    rows.append(
                        [
                            name,
                            value["name"],
                            text(value["published"]),
                            text(value["here"]),
                            quote["source"],
                            quote.get("reason", ""),
                        ]
                    )
        if rows:
            self.parts.append("Published numbers beside those measured here:\n")
            self.parts.append(table(["case", "metric", "published", "here", "source", "why they differ"], rows))

    def law(self, fit):
        if len(fit["cells"]) < CELLS:
            return
        words = []
        for name in ("alpha", "f", "share"):
            if fit.get(name) is not None:
                words.append(f"{name} {interval(fit, name, self.prompts)}")
        self.parts.append(
            f"Law of lookahead decoding (Fu et al. 2024, Eq. 7), fitted to {len(fit['cells'])} cases: "
            + ", ".join(words)
            + ".\n"
        )
        if isinstance(fit.get("held_out"), list) and fit["held_out"]:  # older records hold another test
            self.held_out(fit["held_out"])
        if self.times:
            rows = [
                [
                    m["machine"],
                    m["best"]["W"],
                    m["best"]["N"],
                    m["best"]["G"],
                    text(m["best"]["tau"]),
                    text(m["best"]["speedup"]),
                ]
                for m in fit["machines"]
            ]
            self.parts.append(
                table(["machine", "best W by the law", "N", "G", "predicted tau", "predicted speedup"], rows)
            )

    def held_out(self, tests):
        kinds = {"prompts": "no cell, half of the prompts", "cells": "half of the cells; similar cells stay in the fit"}
        self.parts.append(
            'Median error of the law\'s τ on cells (cases of the grid) or prompts that the fit has not seen; "by the mean" is the error if the mean of the fitted cells is the prediction. '
            "Interpolated cells lie in the convex hull of the fitted cells; the others are extrapolated.\n"
        )
        rows = []
        for test in tests:
            errors = [test[name] for name in ("error", "mean_error", "error_other_prompts", "mean_error_other_prompts")]
            rows.append(
                [
                    kinds.get(test["what"], f"all cells with the same {test['what']}"),
                    test["cells"],
                    test["interpolated"],
                ]
                + ["" if error is None else f"{100 * error:.1f} %" for error in errors]
            )
        header = [
            "left out of the fit",
            "cells",
            "interpolated",
            "same prompts",
            "by the mean",
            "other prompts",
            "by the mean",
        ]
        self.parts.append(table(header, rows))

    def devices(self, devices):
        if not devices:
            return
        header = ["devices", "rows of each device", "most rows of each device", "equal to autoregressive"]
        if self.times:
            header += ["slowest device, ms", "speedup", "predicted speedup"]
        rows = []
        for each in devices:
            row = [
                each["devices"],
                " ".join(text(n, 0) for n in each["rows"]),
                " ".join(str(n) for n in each["most_rows"] or []),
                "yes" if each["equal"] else "NO",
            ]
            if self.times:
                row += [text(each["slowest_ms"]), text(each["speedup"]), text(each["predicted_speedup"])]
            rows.append(row)
        self.parts.append(
            "Steps divided over devices. The devices ran one after the other on this machine; their exchange of "
            "tokens is counted as free:\n"
        )
        self.parts.append(table(header, rows))

    def verdict(self, verdict):
        judged = "ratio_noise" in verdict  # older verdicts used the noise of times instead of the noise of ratios
        noise = verdict.get("ratio_noise")
        best = verdict["best"]
        if best["W"] == 0:
            self.parts.append(
                "Recommended for this machine: autoregressive decoding. No setting is predicted to be faster.\n"
            )
        else:
            self.parts.append(
                f"Recommended for this machine: W = {best['W']}, N = {best['N']}, G = {best['G']}, predicted speedup "
                f"{text(best['speedup'])}"
                + (". Degenerate: a window of one column." if verdict["degenerate"] else ".")
                + "\n"
            )
        rows = [
            [
                row["role"],
                row["W"],
                row["N"],
                row["G"],
                text((row["predicted"] or {}).get("tau")),
                text(row["tau"]),
                text((row["predicted"] or {}).get("speedup")),
                interval(row, "speedup", self.prompts),
                row["verdict"] if judged else "not judged",
            ]
            for row in verdict["measured"]
        ]
        self.parts.append(
            table(
                [
                    "measured setting",
                    "W",
                    "N",
                    "G",
                    "tau predicted",
                    "tau",
                    "speedup predicted",
                    "speedup",
                    "against autoregressive",
                ],
                rows,
            )
        )
        if not judged:
            self.parts.append(
                "This record has no verdict. It was made before verdicts took the noise of speedups into account.\n"
            )
        elif noise is None:
            self.parts.append("There are no repeats, so a difference cannot be told from noise.\n")
        else:
            self.parts.append(
                f"The same speedup differs by up to {100 * noise:.1f} % between repeats. The intervals are widened by this before "
                'they are judged; "same" means within 5 % of 1.\n'
            )
        if judged:
            answer = {True: "Yes, or at most 5 % slower.", False: "NO, it is slower.", None: "Not decided."}[
                verdict["never_slower"]
            ]
            self.parts.append(f"Is the recommended setting as fast as autoregressive decoding? {answer}\n")
        self.parts.append(
            "The recommendation of the same law for a machine on which the first rows of a forward cost nothing:\n"
        )
        rows = [
            [row["rows"], row["W"], row["N"], row["G"], text(row["tau"]), text(row["speedup"])]
            for row in verdict["by_free_rows"]
        ]
        self.parts.append(table(["free rows", "W", "N", "G", "predicted tau", "predicted speedup"], rows))


def has_something_to_say(summary):
    """Whether a run belongs on this page: it has fitted laws, or cases without a draft model beside published numbers."""
    return bool(summary.get("lookahead")) or any(
        case.get("published") and not case["draft"] for case in summary["cases"]
    )


def page(folders, times=True):
    out = Page(times)
    for folder in folders:
        out.run(folder)
    title = "# Decoding without a draft model, beside what was published\n\nWritten by `scripts/pages/lookahead_page.py` from finished runs.\n"
    return "\n".join([title, *out.parts])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument(
        "--no-times", action="store_true", help="leave out everything that depends on the load of the machine"
    )
    options = parser.parse_args(arguments)
    try:
        options.out.write_text(page(options.runs, times=not options.no_times), encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        print(f"lookahead_page: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
