#!/usr/bin/env python3
"""Writes the page of simulated devices, results/devices.md, from committed records.

    .venv/bin/python scripts/pages/devices_page.py write
    .venv/bin/python scripts/pages/devices_page.py check
    .venv/bin/python scripts/pages/devices_page.py figure SIMULATION.json FILE.svg

write   runs `speclab simulate` on the committed quickstart and on the committed grids of lookahead decoding, and writes the page and
        its figures (results/devices/*.svg)
check   exits with 1 if the page is not what `write` would write
figure  draws what `speclab simulate RUN --sweep AXIS --json` or `--timeline KIND --json` printed, for any run

Every number on the page comes from a committed record and a device file; the page shows the commands. The validations are those that
scripts/validate_devices.py --keep left in results/devices. Needs the target model of the quickstart
(scripts/get_model.sh), because the simulated times depend on its shape, and the binary SPECLAB_BINARY, by default
build/release/speclab.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "python")]

import validate_devices
from validate_devices import call

from speclab import kept_lines
from speclab.record import BadRun, Run

QUICKSTART = "epyc-avx512-2cores/quickstart"
GRIDS = ("lookahead-wng-epyc-avx512-2cores", "lookahead-wng-epyc-avx2-2cores")
GPUS = ("a100", "h100", "h200", "m1_max")  # the devices of the main tables
OTHERS = ("l40_offload", "h100_moe_2of8")
SWEPT = "h100"  # the device of sweeps and timelines
SHORT = {
    "a100": "A100",
    "h100": "H100",
    "h200": "H200",
    "m1_max": "M1 Max laptop",
    "l40_offload": "L40, offloaded",
    "h100_moe_2of8": "H100, 2 of 8 experts",
}
PAGE, FIGURES = pathlib.Path("results/devices.md"), pathlib.Path("results/devices")
HEAD = f"""# Simulated devices

Written by `scripts/pages/devices_page.py write` from committed records and [device files](../configs/devices/README.md); do not edit. **Every time, speedup and energy on this page is simulated, except in columns that say "measured".** Acceptance, τ and α
were measured in the records. No device on this page has run this project.

- The quickstart is the record `results/baselines/{QUICKSTART}/`. Its target has 135 million parameters, so on a large GPU the launches of kernels take most of a forward.
- In brackets: 95 % intervals, bootstrap over prompts of the record. They hold the noise of acceptance, not the error of the device file.
- **pays**: where a case is at least as fast as autoregressive decoding.
"""
SOURCES_TITLE = "## Devices"


def number(value, pattern="{:.2f}"):
    return "—" if value is None else pattern.format(value)


def with_interval(row, name, pattern="{:.2f}"):
    if row[name] is None:
        return "—"
    ends = row.get(f"{name}_ci95")
    return number(row[name], pattern) + (f" [{', '.join(number(end, pattern) for end in ends)}]" if ends else "")


def table(header, rows):
    cell = lambda value: str(value).replace("|", "\\|")
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows]) + "\n"


def command(words):
    return f"    build/release/speclab {words}\n"


class Page:
    """`simulate(*words)` returns what `speclab simulate` prints with --json. `record`: the committed record, a Run.
    `quickstart`: a run folder restored from this record."""

    def __init__(self, simulate, quickstart, record, root):
        self.simulate, self.quickstart, self.record, self.root = simulate, quickstart, record, root
        self.labels = {case.id: case.label(without=()) for case in record.cases}
        self.figures = {}  # name: (draw, arguments)

    def label(self, case):
        return self.labels.get(case, case)

    def on_devices(self, names, *more):
        words = [word for name in names for word in ("--device", name)]
        return dict(zip(names, self.simulate(self.quickstart, *words, *more)))

    def text(self):
        gpus, others = self.on_devices(GPUS), self.on_devices(OTHERS)
        problems = [row["problem"] for row in next(iter(gpus.values()))["cases"]]
        if all(problems):
            raise BadRun(f"no case can be simulated: {problems[0]}")
        parts = [
            HEAD,
            self.sources({**gpus, **others}),
            self.priced("## The quickstart on other devices", gpus),
            self.drafts(gpus),
            self.energy(gpus),
            self.priced("## Weights on the host, and mixtures of experts", others),
            self.stops_to_pay(),
            self.timelines(),
            *(self.grid(name) for name in GRIDS),
            self.validations(),
        ]
        return "\n".join(part for part in parts if part)

    def sources(self, simulations):
        rows = [[SHORT[name], one["device"], one["source"], one["error"]] for name, one in simulations.items()]
        return f"{SOURCES_TITLE}\n\n{table(['column', 'device', 'where its numbers come from', 'how far off they may be'], rows)}"

    def priced(self, title, simulations):
        first = next(iter(simulations.values()))
        rows = []
        for place, row in enumerate(first["cases"]):
            cells = [one["cases"][place] for one in simulations.values()]
            rows.append([self.label(row["case"]), number(row["tau"]), number(row["here"])])
            rows[-1] += [cell["problem"] or with_interval(cell, "speedup") for cell in cells]
        header = ["case", "τ, measured", "speedup, measured on the CPU"]
        header += [f"simulated speedup, {SHORT[name]} [95 %]" for name in simulations]
        devices = " ".join(f"--device {name}" for name in simulations)
        return f"{title}\n\n{command(f'simulate results/runs/quickstart {devices}')}\n{table(header, rows)}"

    def drafts(self, simulations):
        rows = []
        for name, one in simulations.items():
            for row in one["drafts"]:
                more = " or more" if row["at_limit"] else ""
                rows.append([row["draft"], number(row["alpha"]), SHORT[name], number(row["c"], "{:.3f}")])
                rows[-1] += [f"{row['best_gamma']}{more}", number(row["speedup"])]
                rows[-1].append(number(row["break_even_alpha"]) if row["break_even_alpha"] is not None else "none")
        header = ["draft", "α, measured", "device", "simulated c", "best γ, simulated", "simulated speedup there"]
        header.append("break-even α, simulated")
        return "The best draft length of each draft model, and the acceptance below which no length pays:\n\n" + table(
            header, rows
        )

    def energy(self, simulations):
        powered = {
            name: one
            for name, one in simulations.items()
            if any(row["joules_per_token"] is not None for row in one["cases"])
        }
        if not powered:
            return ""
        first = next(iter(powered.values()))
        rows = [
            [
                self.label(row["case"]),
                *(number(one["cases"][place]["joules_per_token"], "{:.3f}") for one in powered.values()),
            ]
            for place, row in enumerate(first["cases"])
        ]
        header = ["case", *(f"simulated J/token, {SHORT[name]}" for name in powered)]
        return "Energy, if a device draws its full power while it decodes:\n\n" + table(header, rows)

    def pays(self, case):
        if case["problem"]:
            return case["problem"]
        if case["pays"] in ("always", "never"):
            return case["pays"]
        return f"{'from' if case['pays'] == 'above' else 'up to'} {case['break_even']:.3g}"

    def paying_range(self, form):
        if form is None:
            return "—"
        if form[1] is None:
            return "every batch" if form[0] == 0 else f"from {form[0]:.3g}"
        return "never" if form[1] == 0 else f"{form[1]:.3g}"

    def stops_to_pay(self):
        ideal = self.simulate(self.quickstart, "--sweep", "ridge")[0]
        real = self.simulate(self.quickstart, "--sweep", "ridge", "--device", SWEPT)[0]
        free = self.simulate(self.quickstart, "--sweep", "rows")[0]
        batch = self.simulate(self.quickstart, "--sweep", "batch", "--device", SWEPT)[0]
        self.figures["ridge"] = ("sweep", ideal)
        self.figures["batch"] = ("sweep", batch)
        rows = []
        for cells in zip(ideal["cases"], real["cases"], free["cases"], batch["cases"]):
            form = cells[3]["closed_form"]
            rows.append([self.label(cells[0]["case"]), number(cells[0]["tau"]), *map(self.pays, cells)])
            rows[-1].append(self.paying_range(form))
        device = SHORT[SWEPT]
        header = ["case", "τ, measured", "pays from operations per byte, device without floors"]
        header += [
            f"the same with the bandwidth and floors of the {device}",
            "pays from free rows, other costs measured",
        ]
        header += [f"pays up to a batch, {device}", "the same by the closed form"]
        commands = "".join(
            command(f"simulate results/runs/quickstart --sweep {words}")
            for words in ("ridge", f"ridge --device {SWEPT}", "rows", f"batch --device {SWEPT}")
        )
        return (
            "## Where speculation stops to pay\n\n"
            "Speculation turns arithmetic that would idle into tokens. Where computation is the limit, speculation is not useful. The ridge of a device is its peak operations / its bandwidth; "
            "free rows are the rows of the largest forward that takes no longer than a forward of one row. All columns but τ are simulated.\n\n"
            f"{commands}\n{table(header, rows)}\n"
            "![simulated speedup by ridge](devices/ridge.svg)\n![simulated speedup by batch](devices/batch.svg)\n"
        )

    def timelines(self):
        rows, drawn = [], []
        for kind in ("overlap", "dsi"):
            found = self.simulate(self.quickstart, "--timeline", kind, "--device", SWEPT)[0]["timelines"]
            for row in found:
                if kind == "dsi" and row["timeline"] == "serial":
                    continue
                drawn.append(row)
                if row["problem"]:
                    rows.append([row["draft"], row["timeline"], row["problem"], *[""] * 5])
                    continue
                rows.append([row["draft"], row["timeline"], number(row["tokens"], "{}"), row["devices"]])
                rows[-1] += [number(row["alpha"]), number(row["c"], "{:.3f}"), number(row["speedup"])]
                rows[-1].append(number(row["played"]))
        first = next((row["draft"] for row in drawn if row["segments"]), None)
        chosen = [row for row in drawn if row["draft"] == first and row["segments"]]
        header = ["draft", "timeline", "γ or lookahead", "devices", "α, measured", "simulated c", "simulated speedup"]
        header.append("simulated speedup, played event by event")
        picture = ""
        if chosen:
            self.figures["timelines"] = ("timelines", {"timelines": chosen, "device": SHORT[SWEPT]})
            picture = "\n![simulated timelines](devices/timelines.svg)\n"
        return (
            "## Drafting while the target verifies\n\n"
            f"Each model on a {SHORT[SWEPT]} of its own. serial: one after the other. pearl: PEARL (Liu et al. 2024). amusd: AMUSD (McDanel 2024). dsi: distributed speculative inference with as many copies of the target as needed "
            "(Timor et al. 2024). Acceptance is taken as i.i.d. with the measured α; γ and lookahead are the fastest ones.\n\n"
            + command(f"simulate results/runs/quickstart --timeline overlap --device {SWEPT}")
            + command(f"simulate results/runs/quickstart --timeline dsi --device {SWEPT}")
            + f"\n{table(header, rows)}{picture}"
        )

    def grid(self, name):
        folder = self.root / "results/baselines" / name
        if not (folder / "summary.json").exists():
            return ""
        words = [word for device in GPUS for word in ("--device", device)]
        simulations = dict(zip(GPUS, self.simulate(folder, "--wng", *words)))
        measured = {case.id: case for case in Run(folder).cases}
        fits = next(iter(simulations.values()))["fits"]
        parts = [
            f"## Lookahead decoding on other devices: {name}\n\n"
            + command(f"simulate results/baselines/{name} --wng " + " ".join(f"--device {d}" for d in GPUS))
        ]
        for place, fit in enumerate(fits):
            rows = []
            for at, cell in enumerate(fit["cells"]):
                here = measured[cell["case"]].metric("speedup")
                rows.append([cell["W"], cell["N"], cell["G"], number(cell["tau"]), number(cell["rows"], "{:.1f}")])
                rows[-1].append(number(here))
                rows[-1] += [number(one["fits"][place]["cells"][at]["speedup"]) for one in simulations.values()]
            header = ["W", "N", "G", "τ, measured", "rows with logits, measured", "speedup, measured on the CPU"]
            header += [f"simulated speedup, {SHORT[device]}" for device in simulations]
            parts.append(table(header, rows))
            best = [
                [SHORT[device], *self.best_setting(one["fits"][place]["machine"])]
                for device, one in simulations.items()
            ]
            parts.append(
                f"Best setting by the law (Fu et al. 2024, Eq. 7) with the α of this record, {fit['alpha']:.2f}, and one good guess in {fit['f']:.2f} steps. The search has W = G up to 64 and N up to 8:\n\n"
                + table(["device", "W", "N", "G", "τ by the law", "simulated speedup"], best)
            )
        return "\n".join(parts)

    def best_setting(self, machine):
        best = machine["best"]
        if best["W"] == 0:
            return ["none is faster", "", "", "", ""]
        return [best["W"], best["N"], best["G"], number(best["tau"]), number(best["speedup"])]

    def validations(self):
        files = sorted((self.root / FIGURES).glob("*.json"))
        results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
        text = (
            "## Validation of exported tables\n\n"
            "One run exports a table of its times. The table and the acceptance that another run counted predict the speedups that the first run measured. The goal is that every case is within 5 %, in both directions. "
            "Frontier, a simulator of serving, states errors of less than 4 % in throughput, with acceptance as an input ([arXiv 2605.21312](https://arxiv.org/abs/2605.21312)).\n\n"
            f"{self.kinds(results)}\n"
        )
        if not results:
            return text + "No validation has been committed yet.\n"
        open_ways = [
            f"{result['runs'][way['times']]['machine']} from the acceptance of {result['runs'][way['counts']]['machine']}"
            for result in results.values()
            for way in result["ways"]
            if any(case["within"] != "yes" for case in validate_devices.compared(way))
        ]
        text += (
            f"Some case is off by more: {'; '.join(open_ways)}.\n\n"
            if open_ways
            else "No case below is off by more.\n\n"
        )
        return text + "\n".join(map(validate_devices.section, results.values()))

    def kinds(self, results):
        """A table of the kinds that shall be validated and of their validations, and the commands for the kinds without one. results: by name."""
        rows, commands = [], []
        for kind in validate_devices.KINDS:
            held = [name for name, one in results.items() if validate_devices.kind_of(one) == kind]
            verdicts = ["holds" if validate_devices.holds(results[name]) else "does not hold" for name in held]
            cell = ", ".join(f"{name} ({verdict})" for name, verdict in zip(held, verdicts))
            rows.append([*kind, cell or "**open**"])
            commands += [] if held else validate_devices.commands_of(kind)
        text = table(["arithmetic", "the two runs", "validation"], rows)
        if commands:
            lines = "".join(f"    {line}\n" for line in commands)
            text += f"\nOpen kinds have no committed validation. On a processor with the arithmetic, these commands make one:\n\n{lines}"
        return text


def page_of_record(root, draw=None):
    """The text of the page. `draw(name, kind, content)` is called for each of its figures."""
    folder = root / "results/baselines" / QUICKSTART
    with tempfile.TemporaryDirectory() as place:
        quickstart = pathlib.Path(place) / "quickstart"
        kept_lines.restore(folder, quickstart)
        page = Page(lambda *words: call("simulate", *words, "--json"), quickstart, Run(folder), root)
        text = page.text()
    if draw:
        for name, (kind, content) in page.figures.items():
            draw(name, kind, content, page.label)
    return text


def draw_figure(file, kind, content, label=lambda case: case):
    """Draws a sweep or timelines as SVG into `file`."""
    import matplotlib

    from figures import style
    from figures.simulated import devices

    with matplotlib.rc_context(style.RC):
        if kind == "sweep":
            figure = devices.sweep_figure(content, label)
        else:
            figure = devices.timeline_figure(content["timelines"], content["device"])
        style.save(figure, file.with_suffix(""), ("svg",))
        matplotlib.pyplot.close(figure)


def shrink(file):
    """Four digits per coordinate and no metadata: about half the bytes."""
    words = [
        "--set-precision=4",
        "--enable-id-stripping",
        "--enable-comment-stripping",
        "--shorten-ids",
        "--remove-metadata",
    ]
    small = file.with_suffix(".small.svg")
    try:
        subprocess.run(["scour", "-q", *words, "-i", file, "-o", small], check=True)
    except FileNotFoundError:
        raise BadRun("scour: the program was not found. Run scripts/setup.sh, which installs it.") from None
    small.rename(file)


def write(root):
    folder = root / FIGURES
    folder.mkdir(parents=True, exist_ok=True)

    def draw(name, kind, content, label):
        draw_figure(folder / f"{name}.svg", kind, content, label)
        shrink(folder / f"{name}.svg")

    (root / PAGE).write_text(page_of_record(root, draw), encoding="utf-8")


def draw_file(source, target):
    try:
        content = json.loads(source.read_text(encoding="utf-8"))[0]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise BadRun(f"{source}: {error}. Give what `speclab simulate RUN --sweep AXIS --json` printed.") from error
    if "sweep" not in content and "timelines" not in content:
        raise BadRun(f"{source}: neither a sweep nor timelines. Print it with --sweep or --timeline, and --json.")
    if "timelines" in content:  # the figure shows one draft
        shown = [row for row in content["timelines"] if row["segments"]]
        content["timelines"] = [row for row in shown if row["draft"] == shown[0]["draft"]]
        if not shown:
            raise BadRun(f"{source}: no timeline that could be simulated on the device.")
    draw_figure(target, "sweep" if "sweep" in content else "timelines", content)


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write")
    commands.add_parser("check")
    figure = commands.add_parser("figure")
    figure.add_argument("simulation", type=pathlib.Path)
    figure.add_argument("file", type=pathlib.Path)
    options = parser.parse_args(arguments)
    try:
        if options.command == "write":
            write(root)
        elif options.command == "figure":
            draw_file(options.simulation, options.file)
        elif not (root / PAGE).exists() or (root / PAGE).read_text(encoding="utf-8") != page_of_record(root):
            print(
                f"devices_page: {PAGE} does not match its records. Run scripts/pages/devices_page.py write.",
                file=sys.stderr,
            )
            return 1
    except BadRun as error:
        print(f"devices_page: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
