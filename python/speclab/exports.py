"""Writes a run in other programs' formats: `speclab.export`.

`speclab.foreign` names the sources of the formats "spec_bench", "vllm" and "prometheus", and its readers take the files that are
written here.
"""

import datetime
import importlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from .errors import Error
from .record import Case, NotApplicable
from .run import Run, load

PathLike = str | os.PathLike[str]
Format = Literal["spec_bench", "vllm", "prometheus", "csv", "parquet"]
Lines = list[dict[str, Any]]
TURNS = "\u241e"  # between the answers of a text's turns
FRAMES = (
    *("cases", "options", "categories", "prompts", "positions", "sources", "predictions", "waterfall", "calibration"),
    *("calibrated_steps", "calibration_rounds", "lines", "steps", "drafted"),
)


def export(
    run: Run | PathLike,
    to: PathLike,
    format: Format,
    *,
    cases: Sequence[str] | None = None,
    repeat: int = 0,
    categories: Mapping[str, str] | None = None,
) -> list[pathlib.Path]:
    """Writes a run into the folder `to`, which is made if needed, and returns the files.

    "spec_bench": an answer file for each case, as Spec-Bench's scripts read them. wall_time is the time of a turn with its prefills;
    accept_lengths has the tokens of each step, without the token that comes from prefill. Each seed of a prompt is
    one entry of the answer's list `choices`. `speclab report --export spec-bench` writes the same format from a run folder, for one case, but
    with median times over the repeats.
    "vllm": a file for each case that speculates, with a vLLM response for each turn (`metrics.speculative_decoding`, level detailed).
    "prometheus": a page of vLLM's counters for each case that speculates.
    "csv", "parquet": a file for each frame of the run, with units in units.json, or in the metadata of the Parquet fields.
    cases: ids of the cases; None for all. repeat: the repeat whose lines are written; "csv" and "parquet" write all
    repeats. categories: other names for categories in "spec_bench", such as {"maths": "math_reasoning"}.
    All but "csv" and "parquet" need the steps. Raises NotApplicable for a record without them, before anything is written.
    """
    writers: dict[str, Callable[[], dict[str, Any]]] = {
        "spec_bench": lambda: _per_case(
            of, chosen, repeat, ".jsonl", lambda case, lines: _spec_bench(of, case, lines, categories or {})
        ),
        "vllm": lambda: _per_case(of, _speculative(chosen, cases), repeat, ".jsonl", _vllm),
        "prometheus": lambda: _per_case(of, _speculative(chosen, cases), repeat, ".prom", _prometheus),
        "csv": lambda: _csv(_tables(of, cases)),
        "parquet": lambda: _parquet(_tables(of, cases)),
    }
    if format not in writers:
        raise Error(f"format {format!r}, expected one of {', '.join(writers)}")
    if format == "parquet":
        _pyarrow()
    of = run if isinstance(run, Run) else load(run)
    chosen = _chosen(of, cases)
    files = writers[format]()
    folder = pathlib.Path(to)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in files.items():
            write(folder / name) if callable(write) else (folder / name).write_text(write, encoding="utf-8")
    except OSError as error:
        raise Error(f"{error.filename or folder}: {error.strerror}. Name a folder that can be written.") from error
    return [folder / name for name in files]


def _chosen(run: Run, cases: Sequence[str] | None) -> list[Case]:
    known = {case.id: case for case in run.record.cases}
    for name in cases or ():
        if name not in known:
            raise Error(f"{run.folder}: no case {name!r}. `cases` of the run lists them.")
    return [known[name] for name in (known if cases is None else cases)]


def _speculative(chosen: list[Case], named: Sequence[str] | None) -> list[Case]:
    """The cases that draft. Raises Error if the caller named a case that does not draft."""
    plain = [case.id for case in chosen if case.autoregressive]
    if named and plain:
        raise Error(f"{plain[0]}: drafts nothing, so vLLM has no metrics of speculative decoding for it.")
    return [case for case in chosen if not case.autoregressive]


def _per_case(
    run: Run, cases: list[Case], repeat: int, ending: str, content: Callable[[Case, Lines], str]
) -> dict[str, str]:
    """{name: content} of a file for each case, made of the lines of one repeat."""
    if run.kept != "full":
        raise NotApplicable(f"{run.folder}: a {run.kept} record has no steps. Export it as csv or parquet.")
    files = {}
    for case in cases:
        if case.metric("matches_reference") is False:
            raise Error(
                f"{run.folder}: {case.id} does not equal its reference, so its counts and times belong to wrong texts. Find the bug first."
            )
        lines = [line for line in run.finished_lines(case.id) if line["repeat"] == repeat]
        if not lines:
            raise Error(f"{run.folder}: {case.id} has no lines of repeat {repeat}.")
        files[pathlib.PurePath(case.data["file"]).stem + ending] = content(case, lines)
    return files


def _steps_of_turns(line: dict[str, Any]) -> list[Lines]:
    steps = iter(line["steps"])
    return [[next(steps) for _ in range(turn["steps"])] for turn in line["turns"]]


def _spec_bench(run: Run, case: Case, lines: Lines, categories: Mapping[str, str]) -> str:
    date = datetime.datetime.fromisoformat(str(run.environment["date"]).replace("Z", "+00:00")).timestamp()
    texts = {line["output_hash"]: line["text"] for line in run.finished_lines(case.id) if "text" in line}
    out = []
    for prompt in dict.fromkeys(line["prompt"] for line in lines):
        own = [line for line in lines if line["prompt"] == prompt]
        category = own[0].get("category", "")
        choices = [
            {
                "index": place,
                "turns": texts.get(line["output_hash"], "").split(TURNS),
                "decoding_steps": [turn["steps"] for turn in line["turns"]],
                "new_tokens": [turn["tokens"] for turn in line["turns"]],
                "wall_time": [
                    (turn["prefill_ns"] + turn["draft_prefill_ns"] + turn["decode_ns"]) / 1e9 for turn in line["turns"]
                ],
                "accept_lengths": [step["emitted"] for step in line["steps"]],
            }
            for place, line in enumerate(own)
        ]
        answer = {
            "question_id": int(prompt) if prompt.isdecimal() else prompt,
            "category": categories.get(category, category),
            "answer_id": own[0]["output_hash"][:22],
            "model_id": case.id,
            "choices": choices,
            "tstamp": date,
        }
        out.append(json.dumps(answer) + "\n")
    return "".join(out)


def _vllm(case: Case, lines: Lines) -> str:
    steps_of = [(line, turns) for line in lines for turns in [_steps_of_turns(line)]]
    longest = max((_depth(step) for _, turns in steps_of for steps in turns for step in steps), default=0)
    out = []
    for line, turns in steps_of:
        for number, (turn, steps) in enumerate(zip(line["turns"], turns, strict=True)):
            drafted = [step for step in steps if step["drafted"] > 0]  # vLLM omits steps without a draft
            response = {
                "id": f"{line['prompt']}/seed={line['seed']}/turn={number}",
                "model": case.data["target"],
                "usage": {"prompt_tokens": turn["context_length"], "completion_tokens": turn["tokens"]},
                "metrics": {
                    "time_to_first_token_ms": turn["prefill_ns"] / 1e6,
                    "generation_time_ms": turn["decode_ns"] / 1e6,
                    "speculative_decoding": _acceptance(drafted, longest),
                },
            }
            out.append(json.dumps(response) + "\n")
    return "".join(out)


def _depth(step: dict[str, Any]) -> int:
    """How many drafted tokens the step could accept at most: the length of a chain, the depth of a tree."""
    depths = [0]
    for node, token in enumerate(step.get("tokens", [])):
        depths.append(depths[token.get("parent", node)] + 1)
    return max(*depths, int(step["accepted"]))


def _acceptance(steps: Lines, longest: int) -> dict[str, Any]:
    accepted, drafted = [step["accepted"] for step in steps], [step["drafted"] for step in steps]
    by_length = {
        str(k): [sum(step["drafted"] == k and step["accepted"] == j for step in steps) for j in range(k + 1)]
        for k in sorted(set(drafted))
    }
    return {
        "mean_acceptance_length": 1 + sum(accepted) / len(steps) if steps else 1.0,
        "draft_acceptance_rate": sum(accepted) / sum(drafted) if steps else 0.0,
        "acceptance_histogram": [accepted.count(j) for j in range(longest + 1)],
        "acceptance_histogram_by_draft_length": by_length,
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "num_spec_tokens": longest,
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }


def _prometheus(case: Case, lines: Lines) -> str:
    steps = [step for line in lines for step in line["steps"] if step["drafted"] > 0]
    labels = f'model_name="{case.data["target"]}",engine="0"'
    counters = {
        "vllm:spec_decode_num_drafts": len(steps),
        "vllm:spec_decode_num_draft_tokens": sum(step["drafted"] for step in steps),
        "vllm:spec_decode_num_accepted_tokens": sum(step["accepted"] for step in steps),
        "vllm:generation_tokens": sum(turn["tokens"] for line in lines for turn in line["turns"]),
    }
    out = []
    for name, value in counters.items():
        out += [f"# TYPE {name}_total counter", f"{name}_total{{{labels}}} {float(value)}"]
    name = "vllm:spec_decode_num_accepted_tokens_per_pos"
    out.append(f"# TYPE {name}_total counter")
    for position in range(max(map(_depth, steps), default=0)):
        value = float(sum(step["accepted"] > position for step in steps))
        out.append(f'{name}_total{{{labels},position="{position}"}} {value}')
    name = "vllm:request_decode_time_seconds"
    times = [turn["decode_ns"] / 1e9 for line in lines for turn in line["turns"]]
    out += [
        f"# TYPE {name} histogram",
        f"{name}_count{{{labels}}} {float(len(times))}",
        f"{name}_sum{{{labels}}} {sum(times)}",
    ]
    return "\n".join(out) + "\n"


def _tables(run: Run, cases: Iterable[str] | None) -> dict[str, pd.DataFrame]:
    """{name: frame} of the frames that the run has, with their index as columns."""
    found = {}
    for name in FRAMES:
        try:
            table: pd.DataFrame = getattr(run, name)
        except NotApplicable:
            continue
        units = table.attrs.get("units", {})
        table = table if list(table.index.names) == [None] else table.reset_index()
        if cases is not None and "case" in table:
            table = table[table["case"].isin(list(cases))]
        table = table.copy()
        table.attrs["units"] = units
        for column in table.columns:
            if table[column].dtype == object:
                table[column] = _plain(table[column])
        found[name] = table
    return found


def _plain(column: pd.Series) -> pd.Series:
    """A column of objects as one type. Values of one type stay as they are, except lists, dicts and tuples. A mix of int and float becomes floats.
    Everything else becomes JSON."""
    known = column[column.notna()]
    kinds = {type(value) for value in known}
    if len(kinds) <= 1 and not kinds & {list, dict, tuple}:
        return column
    if kinds <= {int, float}:
        return column.astype("float64")
    return column.map(json.dumps, na_action="ignore")


def _csv(tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    files: dict[str, Any] = {
        f"{name}.csv": table.to_csv(index=False, lineterminator="\n") for name, table in tables.items()
    }
    units = {name: table.attrs["units"] for name, table in tables.items()}
    return {**files, "units.json": json.dumps(units, indent=1) + "\n"}


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise Error("Parquet needs the package pyarrow. Install it (pip install pyarrow), or export as csv.") from None


def _parquet(tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    arrow, parquet = _pyarrow()
    files: dict[str, Any] = {}
    for name, table in tables.items():
        units = table.attrs["units"]
        plain = table.copy()
        plain.attrs = {}
        found = arrow.Table.from_pandas(plain, preserve_index=False)
        fields = [
            field.with_metadata({"unit": units[field.name]}) if field.name in units else field for field in found.schema
        ]
        found = found.cast(arrow.schema(fields, metadata=found.schema.metadata))
        files[f"{name}.parquet"] = lambda file, found=found: parquet.write_table(found, file)
    return files
