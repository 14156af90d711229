"""Runs the `speclab` binary. `compare` and `simulate` return what it prints as frames, `call` as the parsed JSON."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from .errors import Error
from .frames import frame, with_ends

PathLike = str | os.PathLike[str]
CHANGE_PARTS = ("reference", "acceptance", "draft", "verification", "overhead")


def find_binary() -> pathlib.Path:
    """The binary: SPECLAB_BINARY, `speclab` on the PATH, or build/release/speclab below the working directory or the source tree."""
    named = os.environ.get("SPECLAB_BINARY")
    if named:
        if not pathlib.Path(named).is_file():
            raise Error(f"SPECLAB_BINARY: {named} does not exist. Name the file of the binary.")
        return pathlib.Path(named)
    on_path = shutil.which("speclab")
    places = [pathlib.Path(on_path)] if on_path else []
    for root in (pathlib.Path.cwd(), pathlib.Path(__file__).resolve().parents[2]):
        places.append(root / "build/release/speclab")
    for place in places:
        if place.is_file():
            return place
    raise Error(
        "speclab: the binary was not found. Build it (cmake --preset release && cmake --build --preset release), "
        "and set SPECLAB_BINARY to its path, or add it to the PATH."
    )


def call(*arguments: PathLike) -> Any:
    """Runs a command of the binary with --json and returns what it prints: `call("theory", "--alpha", ".8", "--gamma", "5")`.

    A command that ends with exit code 1 has found a failure and printed it, so its output is returned as well. If
    the exit code is neither 0 nor 1, or if the output is not JSON, raises Error with the message of the command.
    """
    command = [str(find_binary()), *(os.fspath(word) for word in arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode in (0, 1):
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            pass
    message = done.stderr.strip().removeprefix("error: ") or f"{' '.join(command)}: exit code {done.returncode}"
    raise Error(message)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What `speclab compare` found.

    cases: a row for each case (index: case), with these columns.
    verdict: "faster", "slower", "same", "unclear" or "unclear: REASON"; with gates "equal" or "differs". If a case
    cannot be compared, the verdict is another outcome, such as "missing". ratio: time per emitted token, BASE / NEW. ratio_lo, ratio_hi: the
    ends of its interval. texts_compared, texts_changed: numbers of texts. texts_promised: True if a changed text is a
    failure. failures: a list of reasons. speedup_base, speedup_new: the speedups of the case. reference, acceptance,
    draft, verification, overhead: the parts of the change of the speedup, as logarithms that add up to
    log(speedup_new / speedup_base). A case without a reference has no speedups; its parts add up to log(ratio), and
    its part `reference` is 0.
    gates: a row for each (case, gate): metric, base, new, change ("equal", "better", "worse" or "changed").
    """

    base: str
    new: str
    failed: bool  #: a case has a failure
    noise: float | None  #: the noise floor of times
    nothing_compared: str | None  #: the reason, if no case could be compared
    workload_differences: list[str]
    cases: pd.DataFrame
    gates: pd.DataFrame


def compare(
    base: PathLike,
    new: PathLike,
    *,
    gates: Sequence[str] = (),
    aa: Sequence[PathLike] = (),
    allow_other_workload: bool = False,
) -> Comparison:
    """Compares two runs: texts, times with intervals, and counts.

    gates: names of counts that must be equal, out of "tau", "alpha", "rows" and "calls". With gates, times are ignored,
    so a committed record without raw lines can be compared too. aa: second runs of the same config with the binary of
    `base` or `new`; their differences from the first run are noise. Raises Error if the models or the
    numerics class differ. Without gates it also raises Error if the machine differs, and without allow_other_workload
    if the workload differs. A run of aa must not be `base` or `new` itself, and must not be from a busy machine.
    """
    options = ["--gate", ",".join(gates)] if gates else []
    options += [word for run in aa for word in ("--aa", os.fspath(run))]
    options += ["--allow-other-workload"] if allow_other_workload else []
    found = call("compare", base, new, *options)
    rows: list[dict[str, Any]] = []
    gate_rows: list[dict[str, Any]] = []
    for case in found["cases"]:
        texts = {f"texts_{name}": case["texts"][name] for name in ("compared", "changed", "promised")}
        change = case["change"] or {"speedup": {}, "parts": {}}
        speedups = {f"speedup_{name}": change["speedup"].get(name) for name in ("base", "new")}
        parts = {name: change["parts"].get(name, {}).get("log_ratio") for name in CHANGE_PARTS}
        rows.append(
            {
                "case": case["id"],
                "verdict": case["verdict"],
                "ratio": case["ratio"],
                **{"ratio_lo": None, "ratio_hi": None, **with_ends("ratio", case["ratio_ci95"])},
                **speedups,
                **parts,
                **texts,
                "failures": case["failures"],
            }
        )
        gate_rows += [{"case": case["id"], **gate} for gate in case["gates"]]
    columns = [
        "verdict",
        "ratio",
        "ratio_lo",
        "ratio_hi",
        "speedup_base",
        "speedup_new",
        *CHANGE_PARTS,
        "texts_compared",
        "texts_changed",
        "texts_promised",
        "failures",
    ]
    return Comparison(
        base=found["base"],
        new=found["new"],
        failed=found["failed"],
        noise=found["noise"],
        nothing_compared=found["nothing_compared"],
        workload_differences=found["workload_differences"],
        cases=frame(rows, ["case", *columns]).set_index("case"),
        gates=frame(gate_rows, ["case", "gate", "metric", "base", "new", "change"]),
    )


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What `speclab simulate` computed: a run on devices that are not here.

    devices: a row for each device. cases, drafts: the rows of all devices; the column `device` names the device.
    """

    devices: pd.DataFrame
    cases: pd.DataFrame
    drafts: pd.DataFrame


def simulate(run: PathLike, device: str | Iterable[str], *, batch: int | Iterable[int] = 1) -> Simulation:
    """Simulates what a run would have cost on other devices, from the acceptance of the run and the times of the device.

    device: the name or file of a device, or the folder of a run on that device; or a list of these. batch: numbers of sequences that are decoded at
    the same time. Raises Error if the binary does not have the command `simulate`.
    """
    names = [device] if isinstance(device, str) else list(device)
    batches = [batch] if isinstance(batch, int) else list(batch)
    options = [word for name in names for word in ("--device", name)]
    found = call("simulate", run, *options, "--batch", ",".join(map(str, batches)))
    devices: list[dict[str, Any]] = []
    rows: dict[str, list[dict[str, Any]]] = {"cases": [], "drafts": []}
    for one in found:
        devices.append({name: value for name, value in one.items() if not isinstance(value, list | dict)})
        for part, of_part in rows.items():
            of_part += [
                {"device": one["device"], **row, **with_ends("speedup", row.get("speedup_ci95"))} for row in one[part]
            ]
    parts = {name: frame(of_part).drop(columns="speedup_ci95", errors="ignore") for name, of_part in rows.items()}
    return Simulation(devices=frame(devices), **parts)
