"""Reads a run folder as results/SCHEMA.md describes it. Nothing here computes a metric that summary.json already holds."""

import dataclasses
import functools
import hashlib
import json
import pathlib
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import Error

SCHEMA_VERSION = 1
STRATEGY_NAMES = {
    "autoregressive": "autoregressive",
    "speculative_sampling": "draft",
    "prompt_lookup": "lookup",
    "simulated": "simulated",
}
# The parameters of all acceptance rules. tests/python/scripts/test_rule_names.py compares them with the rules.
RULE_PARAMETERS = {
    *("lenience", "b", "beta", "gap", "epsilon", "delta", "theta"),
    *("threshold_top_k", "token_distance", "min_block", "streams"),
}
SYMBOLS = {"gamma": "γ", "temperature": "T"}


def hash_of(numbers: Sequence[int]) -> str:
    """SHA-256 of numbers as little-endian 32-bit words, as in the record."""
    return hashlib.sha256(struct.pack(f"<{len(numbers)}I", *(number & 0xFFFFFFFF for number in numbers))).hexdigest()


class BadRun(Error):
    """Raised for a folder that is not a readable run. The message says what to do."""


class NotApplicable(Error):
    """Raised if a run does not have what was asked for: a figure has nothing to show, or the lines for a frame were not kept.
    The message says why."""


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """An entry of "cases" in summary.json. Each field of the entry is an attribute of the same name."""

    data: dict[str, Any]
    run: "Run"

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def autoregressive(self) -> bool:
        return bool(self.data["strategy"] == "autoregressive")

    @property
    def gamma(self) -> int | None:
        """The largest number of tokens drafted per step, for strategies that have such a number."""
        options = self.data.get("options") or {}
        if self.data["strategy"] == "prompt_lookup":
            drafted: int | None = options.get("length")
        else:
            drafted = self.data.get("gamma")
        return drafted

    def settings(self) -> list[tuple[str, str]]:
        """The parts of the case id after the strategy as (name, value), in order."""
        parts = [part.partition("=") for part in self.data["id"].split("/")[1:]]
        return [(name, value) for name, _, value in parts]

    def family(self, without: Iterable[str] = ("gamma",)) -> tuple[Any, ...]:
        """The strategy and its settings, except those in `without`. This is the key of a curve that sweeps the settings in `without`."""
        return (self.data["strategy"], *(item for item in self.settings() if item[0] not in without))

    def label(self, without: Iterable[str] = ("gamma",)) -> str:
        """A label that is unambiguous within the run: the strategy and the settings in which the cases of the run differ."""
        strategy, *settings = self.family(without)
        names = {name for name, _ in settings}
        schedule = dict(settings).get("schedule")
        words = [STRATEGY_NAMES.get(strategy, strategy.replace("_", " "))]
        for name, value in settings:
            if name == "draft":
                words = [value] if strategy == "speculative_sampling" else [*words, "+", value]
            elif name == "fallback":
                continue  # the name of the draft says this already
            elif name not in self.run.varying:
                continue
            elif name in RULE_PARAMETERS and "rule" in self.run.varying and "rule" in names:
                words.append(value)  # follows the name of the rule
            elif name == f"{schedule}_threshold":
                words.append(f"≥ {value}")  # follows the name of the schedule
            elif name in ("rule", "schedule"):
                words.append(value.replace("_", " "))
            else:
                words.append(f"{SYMBOLS.get(name, name.replace('_', ' '))} {value}")
        return " ".join(words)

    def metric(self, name: str) -> Any:
        return (self.data.get("metrics") or {}).get(name)

    def interval(self, name: str) -> Any:
        """The 95 % interval [lo, hi] of a metric, or its value twice if it has no interval."""
        value = self.metric(name)
        return self.metric(f"{name}_ci95") or [value, value]

    def predicted(self, name: str) -> Any:
        entry = (self.data.get("predictions") or {}).get(name)
        return None if entry is None else entry.get("value")

    def lines(self) -> list[dict[str, Any]]:
        """The finished raw lines without errors; drops an incomplete last line."""
        if not self.run.has_lines:
            raise NotApplicable("the raw lines of this record were not kept")
        try:
            text = (self.run.folder / self.data["file"]).read_text(encoding="utf-8")
        except OSError as error:
            raise BadRun(
                f"{self.run.folder / self.data['file']}: {error.strerror}. The run folder is incomplete."
            ) from error
        whole = text[: text.rfind("\n") + 1]
        lines = [json.loads(line) for line in whole.split("\n") if line]
        for number, line in enumerate(lines, 1):
            self.check(line, f"{self.run.folder / self.data['file']}: line {number}")
        return [line for line in lines if "error" not in line]

    def check(self, line: dict[str, Any], where: str) -> None:
        """Checks that a line belongs to this case and that its hashes match its content."""
        if line["case"] != self.data["id"]:
            raise BadRun(f"{where}: case {line['case']}, expected {self.data['id']}. The line is in the wrong file.")
        for values, name in (("tokens", "output_hash"), ("row_hashes", "logits_hash")):
            if "error" not in line and line[name] != hash_of(line[values]):
                raise BadRun(f"{where}: {name} is not the hash of {values}. The line was changed after it was written.")


# Fields of a prediction whose value is the place of a text in the list "texts" of a committed summary.
SHARED_TEXTS = {"equation", "assumptions"}
# Metrics that a committed summary has once, in its calibration, for all cases that lack them.
SHARED_TIMES = {"t_n", "t_n_ci95"}


class Run:
    def __init__(self, folder: str | pathlib.Path, summary: dict[str, Any] | None = None) -> None:
        """summary: a summary to use instead of FOLDER/summary.json, in the form that `speclab report FOLDER --json` prints."""
        self.folder = pathlib.Path(folder)
        self.summary = summary or self._with_texts(self._read("summary.json"))
        self.environment = self._read("environment.json")
        version = self.summary.get("schema_version")
        if version != SCHEMA_VERSION:
            raise BadRun(
                f"{self.folder / 'summary.json'}: schema_version {version}, expected {SCHEMA_VERSION}. "
                "Use the scripts of the version that made the run."
            )
        self.cases = [Case(data, self) for data in self.summary["cases"]]
        self.varying = differing_settings(self.speculative)

    def _with_texts(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Puts what the cases share back into the cases. The predictions get their texts from the list "texts". The metrics get
        t(n) and its intervals from the calibration. Only a committed summary has the list "texts"; others are returned unchanged."""
        texts = summary.pop("texts", None)
        calibration = (summary.get("calibration") or {}) if texts is not None else {}
        shared_times = {name: calibration[name] for name in SHARED_TIMES & calibration.keys()}
        try:
            for case in summary.get("cases", []) if texts is not None else []:
                for name, times in shared_times.items():
                    case["metrics"].setdefault(name, times)
                for prediction in (case.get("predictions") or {}).values():
                    for name in SHARED_TEXTS & prediction.keys():
                        place = prediction[name]
                        if type(place) is not int or place < 0:  # of a list, -1 would be the last text
                            raise IndexError(f"{name}: {place!r}")
                        prediction[name] = texts[place]
        except (IndexError, TypeError) as error:
            raise BadRun(
                f'{self.folder / "summary.json"}: a prediction names a text that the list "texts" lacks ({error}). Check the file out again.'
            ) from error
        return summary

    def _read(self, name: str) -> Any:
        file = self.folder / name
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadRun(f"{file}: {error.strerror}. Give the folder that `speclab run` wrote.") from error
        except json.JSONDecodeError as error:
            raise BadRun(
                f"{file}: not JSON ({error}). The run was cut off; finish it with `speclab run --resume`."
            ) from error

    @property
    def has_lines(self) -> bool:
        """False for a record that was kept without its raw lines."""
        return (self.folder / "cases").is_dir()

    @property
    def speculative(self) -> list[Case]:
        return [case for case in self.cases if not case.autoregressive]

    @property
    def baselines(self) -> list[Case]:
        return [case for case in self.cases if case.autoregressive]

    def families(
        self, cases: Iterable[Case] | None = None, without: Iterable[str] = ("gamma",)
    ) -> dict[tuple[Any, ...], list[Case]]:
        """Cases grouped into curves, in order of appearance: {family: [cases by gamma]}."""
        groups: dict[tuple[Any, ...], list[Case]] = {}
        for case in self.speculative if cases is None else cases:
            groups.setdefault(case.family(without), []).append(case)
        for members in groups.values():
            members.sort(key=lambda case: case.gamma or 0)
        return groups

    def gamma_sweeps(self) -> dict[tuple[Any, ...], list[Case]]:
        """Families with a measured speedup at two or more draft lengths."""
        sweeps = {}
        for family, members in self.families().items():
            known = [case for case in members if case.gamma is not None and case.metric("speedup") is not None]
            if len({case.gamma for case in known}) > 1:
                sweeps[family] = known
        return sweeps

    def fastest_gamma_sweeps(self, most: int) -> dict[tuple[Any, ...], list[Case]]:
        """At most `most` families with the best speedups, in the order of the run."""
        sweeps = self.gamma_sweeps()
        best = {family: max(case.metric("speedup") for case in members) for family, members in sweeps.items()}
        kept = sorted(best, key=lambda family: best[family], reverse=True)[:most]
        return {family: members for family, members in sweeps.items() if family in kept}

    @functools.cached_property
    def machine(self) -> str:
        environment = self.environment
        return (
            f"{environment['cpu']['model']}, {environment['threads']} threads, {environment['numerics']}, "
            f"{str(environment['date'])[:10]}"
        )

    @functools.cached_property
    def busy(self) -> str:
        """The reason to doubt the times if something else used the machine. Empty for a quiet machine and for older records."""
        return str((self.summary.get("machine") or {}).get("text", ""))

    @functools.cached_property
    def twins(self) -> str:
        """The note on inflated models (embedded in a larger shape) that every figure and report shows; empty without them."""
        named = [
            (role, model["name"]) for role, model in self.environment.get("models", {}).items() if "inflated" in model
        ]
        return "; ".join(f"{role}: {name}" for role, name in named)

    def reference_of(self, case: Case) -> Case | None:
        return next((other for other in self.cases if other.id == case.reference), None)


class Ladder:
    """The runs of a config with several targets, the smallest target first. The folder holds targets.json and one run per target."""

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder)
        try:
            self.header = json.loads((self.folder / "targets.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise BadRun(
                f"{self.folder / 'targets.json'}: {error}. Give the folder that `speclab run` wrote."
            ) from error
        by_name = {name: Run(self.folder / name) for name in self.header["targets"]}
        bytes_of = lambda name: by_name[name].environment["models"]["target"]["weight_bytes"]
        self.runs = {name: by_name[name] for name in sorted(by_name, key=bytes_of)}

    @staticmethod
    def is_one(folder: str | pathlib.Path) -> bool:
        return (pathlib.Path(folder) / "targets.json").exists()

    @property
    def twins(self) -> str:
        names = [
            f"{name} = {run.environment['models']['target']['name']}" for name, run in self.runs.items() if run.twins
        ]
        return "; ".join(names)


def differing_settings(cases: Iterable[Case]) -> set[str]:
    """Names of the settings that have more than one value, or that only some cases of a strategy have."""
    seen = {}
    for case in cases:
        for name, value in case.settings():
            seen.setdefault(name, set()).add(value)
    partial = set()
    for strategy in {case.strategy for case in cases}:
        own = [{name for name, _ in case.settings()} for case in cases if case.strategy == strategy]
        partial |= set.union(*own) - set.intersection(*own)
    return {name for name, values in seen.items() if len(values) > 1} | partial
