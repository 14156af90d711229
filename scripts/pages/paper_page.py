#!/usr/bin/env python3
"""Writes results/paper.md: published tables beside measurements of the same settings here, and beside simulated speedups.

    .venv/bin/python scripts/pages/paper_page.py [RUN...] [--out FILE]

RUN: folders that `speclab run` wrote for configs of configs/paper, and for the other configs in TABLES of paper_tables.py. Without RUN
the page is made from the committed records in results/baselines. Prints which configs have no run. Without any run it
writes nothing.

For each table the page has the published value, the value measured here, and the speedup with the times of the device of the
paper: `speclab simulate` takes the acceptance of the run and the times of a device file, so these columns say "simulated". The shape
of a table is the order of its numbers: each pair of numbers of one metric and one paper is compared. If a pair has the
opposite order here, the page says whether the times of one of the devices restore the published order. If so, the costs
of this machine are the reason; if not, the acceptance is. The page also shows the reasons that the config gives.
Speedups that differ by no more than the noise between repeats of the run have no order.

A run of another config, an unfinished run, a run that lacks a case with a published number, and a device without a file
are refused. Uses the binary SPECLAB_BINARY (default: build/release/speclab) and the standard library only.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts/pages", "scripts", "python")]

from paired import table as lines_of_table
from paper_tables import LEFT_OUT, TABLES
from validate_devices import call

from speclab import kept_lines
from speclab.record import BadRun, Run

PRICED = "speedup"  # the metric that depends on the device
SETTINGS = ("target", "drafts", "prompts", "seed", "repeats", "options", "cases")  # of a config: what a run measures
HEAD = """# Published tables and what is measured here

Written by `scripts/pages/paper_page.py` from finished runs; do not edit. **Columns that say "simulated" have the acceptance of the run here and the times of a [device file](../configs/devices/README.md): nothing was measured on those devices.** Values in brackets are 95 %
intervals over prompts. Models, texts and machines differ from those of the papers, so compare the shape of a table (which number is larger), not its numbers.
"""


def read_json(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRun(f"{file}: {error}. Give the folder that `speclab run` wrote.") from error


def read_run(folder, tables, root):
    """The table that a run repeats, and the run. Raises BadRun for a run that repeats no table."""
    run = Run(folder)
    name = run.summary.get("name")
    table = next((one for one in tables if one.name == name), None)
    if table is None:
        known = ", ".join(one.name for one in tables)
        raise BadRun(f"{folder}: a run of {name}, which repeats no published table. Configs that do: {known}.")
    if not run.summary.get("complete"):
        raise BadRun(f"{folder}: the run is not complete. Finish it with: speclab run --resume {folder}.")
    known = {case.id for case in run.cases}
    for row in read_json(root / table.config)["published"]:
        if row["case"] not in known:
            raise BadRun(
                f"{folder}: no case {row['case']}, for which {table.config} quotes numbers. Run this config again, without "
                "--filter."
            )
    return table, run


def changed_settings(run, config):
    """The settings in which a run differs from the config as it is now."""
    source = read_json(run.folder / "config.json").get("source") or {}
    return [name for name in SETTINGS if source.get(name) != config.get(name)]


def require_devices(table, root):
    for device in table.devices:
        if not (root / device).is_file() and not (root / "configs/devices" / f"{device}.json").is_file():
            raise BadRun(
                f"{table.config}: no file of the device {device}. Device files are in configs/devices and in "
                "configs/paper/devices; TABLES of scripts/pages/paper_tables.py names them."
            )


@contextlib.contextmanager
def with_lines(run):
    """Yields a folder of the run that has its raw lines, and "". If there is no such folder: None, and the reason."""
    if run.has_lines:
        yield run.folder, ""
        return
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "run"
        try:
            kept_lines.restore(run.folder, folder)
            found = folder, ""
        except BadRun as error:
            found = None, str(error)
        yield found


@dataclasses.dataclass
class Row:
    """A published number. simulated: {device: (value or None, interval or None)}."""

    case: str
    category: str
    paper: str
    reason: str
    metric: str
    published: float
    here: float | None
    interval: list | None
    simulated: dict = dataclasses.field(default_factory=dict)

    @property
    def what(self):
        """The case and the prompts."""
        return self.case + (f", {self.category}" if self.category else "")


def rows_of(published, run):
    """The numbers in `published` of a config, each with the number that a run of this config measured."""
    cases = {case.id: case for case in run.cases}
    rows = []
    for quote in published:
        case, category = cases[quote["case"]], quote.get("category") or ""
        measured = (case.data.get("categories") or {}).get(category) or {} if category else case.data
        metrics = measured.get("metrics") or {}
        about = (case.id, category, re.split(r"[,:]", quote["source"])[0], quote.get("reason") or "")
        for name, value in (quote.get("metrics") or {}).items():
            rows.append(Row(*about, name, value, metrics.get(name), metrics.get(f"{name}_ci95")))
        for name, value in (quote.get("predictions") or {}).items():
            rows.append(Row(*about, name, value, case.predicted(name), None))
    return rows


def pairs_of(rows):
    """The pairs of rows that are compared: one metric, one paper, different published numbers, different cases or prompts."""
    for a, b in itertools.combinations(rows, 2):
        same = (a.metric, a.paper) == (b.metric, b.paper)
        if same and a.published != b.published and a.what != b.what:
            yield a, b


def one_setting_apart(pair):
    """Whether the two rows differ in a single option, or in their prompts alone."""
    a, b = (
        {"prompts": row.category} | dict(part.split("=", 1) for part in row.case.split("/") if "=" in part)
        for row in pair
    )
    strategies = {row.case.split("/")[0] for row in pair}
    return len(strategies) == 1 and sum(a.get(name) != b.get(name) for name in a | b) == 1


def order(pair, value, noise=0.0):
    """1 if the two values have the published order, -1 if they have the opposite one, 0 if they are too close, None if
    one of them does not exist. noise: relative differences up to this one are too close."""
    a, b = pair
    values = value(a), value(b)
    if None in values:
        return None
    low, high = sorted(values)
    if high - low <= noise * abs(low):
        return 0
    return 1 if (values[0] < values[1]) == (a.published < b.published) else -1


def number(value):
    return "—" if value is None else f"{value:.2f}"


def with_interval(value, interval):
    if value is None or not interval or None in interval:
        return number(value)
    return f"{number(value)} [{number(interval[0])}, {number(interval[1])}]"


def count(pairs, value, noise=0.0):
    """In words, how many pairs have the published order."""
    found = [order(pair, value, noise) for pair in pairs]
    known = [one for one in found if one is not None]
    close = f" ({known.count(0)} too close)" if 0 in known else ""
    return f"{known.count(1)} of {len(known)}{close}" if known else "no pair"


class Page:
    """`simulate(RUN, *words)` returns what `speclab simulate RUN` prints with --json."""

    def __init__(self, simulate, root):
        self.simulate, self.root = simulate, root
        self.devices = {}  # name of a device: a simulation on it
        self.problems = []  # of the current run: why something was not simulated

    def text(self, found, without):
        """`found`: [(Table, Run)]. `without`: the tables without a run."""
        parts = [HEAD, *(self.section(table, run) for table, run in found)]
        if self.devices:
            rows = [[one["device"], one["source"], one["error"]] for one in self.devices.values()]
            header = ["simulated device", "where its times come from", "how far off they may be"]
            parts.append("\n".join(["## Devices", "", *lines_of_table(header, rows), ""]))
        if without:
            parts.append("\n".join(["## Tables without a run", "", *(f"- `{table.config}`" for table in without), ""]))
        parts.append("\n".join(["## Tables that are left out", "", *(f"- {reason}" for reason in LEFT_OUT), ""]))
        return "\n".join(parts)

    def section(self, table, run):
        config = read_json(self.root / table.config)
        rows = rows_of(config["published"], run)
        self.problems = []
        devices = self.price(table, run, rows)
        environment = run.environment
        lines = [f"## {table.name} ({table.pack})", "", f"Config: `{table.config}`. Published:", ""]
        lines += [f"- {setting}" for setting in table.settings()]
        lines += [
            "",
            f"Here: {environment['models']['target']['name']} on {run.machine}, "
            f"{max((case.prompts for case in run.cases), default=0)} prompts.",
            "",
        ]
        changed = changed_settings(run, config)
        lines += [f"**This run has other settings than the config: {', '.join(changed)}.**", ""] if changed else []
        lines += [f"**{run.busy}**", ""] if run.busy else []
        lines += [f"Inflated models: {run.twins}.", ""] if run.twins else []
        header = ["case", "metric", "published", "measured here"]
        batch = f", batch {table.batch}" if table.batch > 1 else ""
        header += [f"simulated: {self.devices[device]['device']}{batch}" for device in devices]
        cells = []
        for row in rows:
            cells.append([row.what, row.metric, f"{row.published:g}", with_interval(row.here, row.interval)])
            cells[-1] += [with_interval(*row.simulated[device]) if row.metric == PRICED else "" for device in devices]
        lines += [*lines_of_table(header, cells), "", *self.shape(run, rows, devices)]
        lines += [f"Not simulated: {problem}" for problem in dict.fromkeys(self.problems)]
        return "\n".join(lines) + "\n"

    def price(self, table, run, rows):
        """Sets the simulated speedups of the rows, and returns the simulated devices."""
        priced = [row for row in rows if row.metric == PRICED]
        if not priced:
            return ()
        if not table.devices:
            self.problems.append("the sources kept here do not name the device of these speedups.")
            return ()
        require_devices(table, self.root)
        with with_lines(run) as (folder, why):
            if folder is None:
                self.problems.append(why.replace(f"{self.root}/", ""))
                return ()
            for category in dict.fromkeys(row.category for row in priced):
                self.price_category(table, folder, category, [row for row in priced if row.category == category])
        return table.devices

    def price_category(self, table, folder, category, rows):
        words = [word for device in table.devices for word in ("--device", device)]
        words += ["--batch", str(table.batch)] if table.batch > 1 else []
        words += ["--category", category] if category else []
        for device, one in zip(table.devices, self.simulate(folder.resolve(), *words), strict=True):
            self.devices.setdefault(device, one)
            by_case = {found["case"]: found for found in one["cases"]}
            for row in rows:
                found = by_case.get(row.case, {"problem": "the case has no reference"})
                if found["problem"]:
                    self.problems.append(f"{row.case} on {one['device']}: {found['problem']}")
                row.simulated[device] = (found.get("speedup"), found.get("speedup_ci95"))

    def shape(self, run, rows, devices):
        """Lines that say whether the numbers here have the published order, and why not."""
        noise = run.summary.get("ratio_noise") or 0
        here, opposite, lines = lambda row: row.here, [], []
        for metric in dict.fromkeys(row.metric for row in rows):
            pairs = list(pairs_of([row for row in rows if row.metric == metric]))
            if not pairs:
                continue
            limit = noise if metric == PRICED else 0
            words = [f"{count(pairs, here, limit)} measured here"]
            close = [pair for pair in pairs if one_setting_apart(pair)]
            if 0 < len(close) < len(pairs):
                words.append(f"{count(close, here, limit)} of those that differ in one setting")
            if metric == PRICED:
                for device in devices:
                    words.append(f"{count(pairs, simulated_on(device))} simulated on {self.devices[device]['device']}")
            lines.append(f"- {metric}: pairs in the published order: {'; '.join(words)}.")
            opposite += [pair for pair in pairs if order(pair, here, limit) == -1]
        if not lines:
            return ["No two numbers of this table can be compared.", "", *reasons_of(rows)]
        lines = ["Shape:", "", *lines, ""]
        if not opposite:
            return [*lines, "No pair has the opposite order.", ""]
        return [*lines, *self.causes(opposite, devices), "", *reasons_of([row for pair in opposite for row in pair])]

    def causes(self, opposite, devices):
        """Sentences: how many of the pairs in the opposite order differ by cost, and how many by acceptance."""
        speedups = [pair for pair in opposite if pair[0].metric == PRICED]
        others = len(opposite) - len(speedups)
        words = [f"{pairs_have(others)} the opposite order in other metrics: acceptance differs."] if others else []
        if speedups:
            words.append(f"{pairs_have(len(speedups))} the opposite order in speedup.")
        if devices and speedups:
            restored = sum(any(order(pair, simulated_on(device)) == 1 for device in devices) for pair in speedups)
            if restored:
                words.append(
                    f"{pairs_have(restored)} the published order with the times of a device above: the costs of this "
                    "machine are the reason."
                )
            if restored < len(speedups):
                words.append(
                    f"{pairs_have(len(speedups) - restored)} the published order on no device above: acceptance differs."
                )
        return [" ".join(words)]


def pairs_have(many):
    return "1 pair has" if many == 1 else f"{many} pairs have"


def simulated_on(device):
    return lambda row: row.simulated.get(device, (None, None))[0]


def reasons_of(rows):
    """The reasons that the config gives for these rows, each once."""
    cases = {}
    for row in rows:
        if row.reason:
            cases.setdefault(row.reason, {})[row.what] = None
    lines = [f"- {'; '.join(f'`{what}`' for what in of)}: {reason}" for reason, of in cases.items()]
    return ["Reasons:", "", *lines, ""] if lines else []


def committed(tables, root):
    """The committed records of these tables, [(Table, Run)]. Says on stderr which records cannot be shown."""
    found = []
    for summary in sorted((root / "results/baselines").glob("**/summary.json")):
        if read_json(summary).get("name") not in {table.name for table in tables}:
            continue
        try:
            found.append(read_run(summary.parent, tables, root))
        except BadRun as error:
            print(f"paper_page: left out: {error}", file=sys.stderr)
    return found


def main(arguments=None, root=ROOT, tables=TABLES, simulate=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", nargs="*", type=pathlib.Path, metavar="RUN")
    parser.add_argument("--out", type=pathlib.Path, default=root / "results/paper.md", help="default: results/paper.md")
    options = parser.parse_args(arguments)
    try:
        found = [read_run(folder, tables, root) for folder in options.runs] or committed(tables, root)
        found.sort(key=lambda pair: tables.index(pair[0]))
        without = [table for table in tables if table not in [one for one, _ in found]]
        for table in without:
            print(f"no run of {table.config}")
        if not found:
            print("No run, so no page is written. configs/paper/README.md has the commands.")
            return 0
        page = Page(simulate or (lambda *words: call("simulate", *words, "--json")), root)
        options.out.write_text(page.text(found, without), encoding="utf-8")
        print(f"wrote {options.out}")
    except (BadRun, OSError) as error:
        print(f"paper_page: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
