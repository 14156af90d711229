"""A measured run as frames: `speclab.load`."""

import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from . import frames, kept_lines
from . import record as records
from .record import BadRun, Case, Ladder, NotApplicable

if TYPE_CHECKING:
    from .theory import Round

Rows = list[dict[str, Any]]


class Run:
    """A measured run. Each property is a frame that is made when it is first used.

    Every frame has the units of its columns in `frame.attrs["units"]`, such as {"tau": "tokens/step", "wall_ns": "ns"}. Columns that are
    not listed there have no unit. Frames of metrics have the names of their estimators in `frame.attrs["estimators"]`. X_lo and X_hi are the ends of the 95 % interval of X. A number that does not exist is NaN or None.
    results/SCHEMA.md describes every metric and field.

    `kept` tells which frames of lines (`lines`, `steps`, `drafted`, `calibration_rounds`) the record has: "full" has all of them, "slim" has
    only `lines` and `calibration_rounds`, and "none" has none of them. A frame that the record does not have raises NotApplicable.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = pathlib.Path(folder)
        if Ladder.is_one(self.folder):
            names = ", ".join(json.loads((self.folder / "targets.json").read_text(encoding="utf-8"))["targets"])
            raise BadRun(f"{self.folder}: holds a run for each of several targets. Load one of its folders: {names}.")
        self.record = records.Run(self.folder)

    def __repr__(self) -> str:
        return f"<speclab.Run {self.name}: {len(self.record.cases)} cases, lines: {self.kept}, {self.record.machine}>"

    @property
    def name(self) -> str:
        return str(self.record.summary["name"])

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json, with the texts of a committed record put back into its predictions."""
        return self.record.summary

    @property
    def environment(self) -> dict[str, Any]:
        """environment.json as it is: machine, binary, models."""
        return dict(self.record.environment)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """config.json as it is."""
        file = self.folder / "config.json"
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise BadRun(f"{file}: {error}. Give the folder that `speclab run` wrote.") from error

    @functools.cached_property
    def _kept_lines(self) -> tuple[str, dict[str, list[str]]]:
        return kept_lines.read(self.folder / kept_lines.NAME)

    @functools.cached_property
    def kept(self) -> Literal["full", "slim", "none"]:
        """Which raw lines the record has. "slim" has totals in place of steps and tokens."""
        if self.record.has_lines:
            return "full"
        if not (self.folder / kept_lines.NAME).exists():
            return "none"
        return "full" if self._kept_lines[0] == "full" else "slim"

    def _lines_of(self, case: Case) -> Rows:
        """The finished lines of a case without errors, checked against their case and hashes."""
        if self.record.has_lines:
            return case.lines()
        if self.kept == "none":
            raise NotApplicable(
                f"{self.folder}: this record was kept without its raw lines. It has no frames of lines."
            )
        form, parts = self._kept_lines
        texts = {one["output_hash"]: one["text"] for one in map(json.loads, parts.get("texts", []))}
        lines = [json.loads(line) for line in parts.get(case.data["file"], [])]
        for number, line in enumerate(lines, 1):
            if form == "full":
                case.check(line, f"{self.folder / kept_lines.NAME}: {case.data['file']}: line {number}")
            elif "error" not in line:
                line.setdefault("text", texts.get(line["output_hash"]))
        return [line for line in lines if "error" not in line]

    def _steps(self, case: Case) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
        if self.kept == "slim":
            raise NotApplicable(f"{self.folder}: a slim record has totals in place of steps. `lines` has these totals.")
        for line in self._lines_of(case):
            yield from frames.steps_of(line)

    def _rows(self, rows_of: Callable[[Case], Rows]) -> Rows:
        return [row for case in self.record.cases for row in rows_of(case)]

    @functools.cached_property
    def cases(self) -> pd.DataFrame:
        """A row for each case: its settings, sampling and every metric that is one number. Index: case.

        `label` is a short name that is unique within the run. `gamma` is in tokens per step.
        """
        return frames.frame(self._rows(lambda case: [frames.case_row(case)])).set_index("case")

    @functools.cached_property
    def options(self) -> pd.DataFrame:
        """Every option of the strategy and the rule of each case, as resolved. Index: case."""
        return frames.frame(self._rows(lambda case: [{"case": case.id, **(case.options or {})}])).set_index("case")

    @functools.cached_property
    def categories(self) -> pd.DataFrame:
        """The metrics of each case on the prompts of each category. Index: case, category."""
        rows = self._rows(frames.category_rows)
        return frames.frame(rows, None if rows else ("case", "category")).set_index(["case", "category"])

    @functools.cached_property
    def prompts(self) -> pd.DataFrame:
        """tau, alpha and speedup of each case on each prompt. Index: case, prompt."""
        columns = ("case", "prompt", "category", "copied_4grams", "tau", "speedup", "alpha")
        return frames.frame(self._rows(frames.prompt_rows), columns).set_index(["case", "prompt"])

    @functools.cached_property
    def positions(self) -> pd.DataFrame:
        """Acceptance by position in the draft. Index: case, position.

        acceptance_at, joint_at and path_gain_at at position i >= 1 belong to drafted token i. accepted_histogram at
        position n >= 0 is the number of steps with n accepted tokens.
        """
        rows = self._rows(frames.position_rows)
        return frames.frame(rows, None if rows else ("case", "position")).set_index(["case", "position"])

    @functools.cached_property
    def sources(self) -> pd.DataFrame:
        """How often each source drafted, and how often its drafts had an accepted token. Index: case, source.

        source_share: share of the steps for which the source drafted. hit_rate: share of its drafts with at least one
        accepted token of its own.
        """
        columns = ("case", "source", "source_share", "hit_rate")
        return frames.frame(self._rows(frames.source_rows), columns).set_index(["case", "source"])

    @functools.cached_property
    def predictions(self) -> pd.DataFrame:
        """Every closed form whose inputs are known, with the measured value beside it. error = value / measured - 1.

        A what-if (kind "what_if") has no measurement. Its `change` is value / the prediction `measured_costs` - 1.
        """
        return frames.frame(self._rows(frames.prediction_rows), frames.PREDICTIONS)

    @functools.cached_property
    def waterfall(self) -> pd.DataFrame:
        """The terms that lead from the predicted to the measured speedup of each case, in order.

        `speedup` is the value after this term and all terms before it. The log_ratios of a case add up to log(measured / predicted).
        The first and the last row have the interval of `speedup`, the other rows the interval of `log_ratio`.
        """
        table = frames.frame(self._rows(frames.waterfall_rows), frames.WATERFALL)
        table.attrs["estimators"] = {}  # "speedup" is a running value here, not the metric
        return table

    @functools.cached_property
    def calibration(self) -> pd.DataFrame:
        """Times of forwards, measured apart from the cases: model ("target" or the name of a draft), rows n, ns, and t = t(n) / t(1)."""
        return frames.frame(frames.calibration_rows(self.summary.get("calibration")), frames.CALIBRATION, metrics=False)

    @functools.cached_property
    def calibrated_steps(self) -> pd.DataFrame:
        """The calibrated costs of a step of each case: draft = constant + slope x drafted tokens, accept = constant + slope x (accepted + 1)."""
        rows = frames.calibrated_step_rows(self.summary.get("calibration"))
        return frames.frame(rows, frames.CALIBRATED_STEPS, metrics=False).set_index("case")

    @functools.cached_property
    def calibration_rounds(self) -> pd.DataFrame:
        """The times that each round of the calibration measured: round, context_length, model, rows, ns."""
        name = "calibration.jsonl"
        if self.record.has_lines:
            file = self.folder / name
            lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
        elif self.kept == "none":
            raise NotApplicable(f"{self.folder}: this record was kept without the rounds of its calibration.")
        else:
            lines = self._kept_lines[1].get(name, [])
        return frames.frame(
            [row for line in lines for row in frames.round_rows(json.loads(line))], frames.ROUNDS, metrics=False
        )

    @functools.cached_property
    def lines(self) -> pd.DataFrame:
        """A row for each text: (case, prompt, seed, repeat), its totals, times and output. `tokens` leaves out
        the first token of each turn, which comes from prefill."""
        return frames.frame(
            self._rows(lambda case: [frames.line_row(one) for one in self._lines_of(case)]), frames.LINES, metrics=False
        )

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """A row for each step, in order. `step` counts from 0 in each turn of a text."""
        rows = self._rows(lambda case: [frames.step_row(*one) for one in self._steps(case)])
        return frames.frame(rows, frames.STEPS, metrics=False)

    @functools.cached_property
    def drafted(self) -> pd.DataFrame:
        """A row for each drafted token. `parent` is the node before it; node 0 is the pending token. p and q are known for tested tokens, and in
        a trace for all drafted tokens; `expected` is known for tested tokens only."""
        rows = self._rows(lambda case: [row for one in self._steps(case) for row in frames.drafted_rows(*one)])
        table = frames.frame(rows, frames.DRAFTED, metrics=False)
        for name in ("p", "q", "confidence", "entropy", "expected", "distance", "kl"):
            table[name] = table[name].astype("float64")
        table["rank"] = table["rank"].astype("Int64")
        table.attrs["units"] = {}  # "accepted" is a verdict here, not a number of tokens
        return table

    def finished_lines(self, case: str) -> Rows:
        """The raw lines of a case without errors, as results/SCHEMA.md describes them. A slim record has totals in place of steps."""
        return self._lines_of(self._case(case))

    def _case(self, case: str) -> Case:
        known = {one.id: one for one in self.record.cases}
        if case not in known:
            raise BadRun(f"{self.folder}: no case {case!r}. `cases` lists them.")
        return known[case]

    def rounds(self, case: str) -> "list[list[Round]]":
        """The acceptance data of a case for the estimators of `speclab.theory`: rounds of repeat 0, [prompts][rounds], in the order of the config.

        Raises NotApplicable if a draft of the case is a branching tree, and for a record without steps.
        """
        from . import theory

        own = self._case(case)
        by_prompt: dict[str, list[Round]] = {prompt["id"]: [] for prompt in self.config["prompts"]}
        for key, step in self._steps(own):
            if key["repeat"] != 0:
                continue
            tokens = step.get("tokens", [])
            if any(token.get("parent", place) != place for place, token in enumerate(tokens)):
                raise NotApplicable(f"{case}: drafts trees. Rounds exist only for chains.")
            by_prompt[key["prompt"]].append(
                theory.chain_round(
                    accepted=step["accepted"],
                    emitted=step["emitted"],
                    tested=[token["tested"] for token in tokens],
                    passed=[token["accepted"] for token in tokens],
                    expected=[token.get("expected", -1) for token in tokens],
                )
            )
        return [rounds for rounds in by_prompt.values() if rounds]


def load(run: str | os.PathLike[str]) -> Run:
    """Reads a run folder that `speclab run` wrote, or a committed record such as results/baselines/epyc-avx512-2cores/quickstart.

    Raises BadRun (a speclab.Error) if the folder is not a readable run. The message says what to do.
    """
    return Run(run)
