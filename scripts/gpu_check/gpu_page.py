#!/usr/bin/env python3
"""Writes results/gpu/README.md from the records that gpu_check.sh left under results/gpu/<device>/.

    gpu_page.py            writes the page
    gpu_page.py --check    exit status 1 if the page is not up to date
    gpu_page.py DIR        prints the page of one folder; a dry run is marked as one and is never part of the results

Uses the standard library only, because the machine may have nothing else. Every number comes from the JSON of a stage:

    forwards_<shape>     speclab bench --json: engine.contexts[].device_rows_ns {n: [ns]} by the device's clock, without the download of
                         the logits; rows_ns by the host's clock, with the download; kernels, device_step_ns, work; on a GPU also "device":
                         {read_bandwidth_bytes_per_second, copy_bandwidth_bytes_per_second, peak_flops}, measured in the same run.
                         Numbers with the same names outside "device" belong to the host. The page does not use them
                         for a GPU
    forwards_<shape>_<kernels>  the same with --kernels persistent, serial or graphs
    prefill_<shape>      speclab bench --prompts --prefill cublaslt --json: prompts[]: {tokens, own_ns, library_ns}
    speculation_<shape>  summary.json of speclab run configs/gpu_check.json
    kernels              Google Benchmark's JSON; each goal names its benchmark
    profile, gaps        results of ncu and nsys for a short decode

t(n), and the goals that are times or ratios of forwards, use times by the device's clock. Predicted numbers come from
forecast.py, and each is marked as predicted. Each measured number that has a prediction is also shown as the ratio
measured / predicted.
"""

import argparse
import operator
import pathlib
import re
import statistics
import sys

import forecast
from forecast_page import comparison, forecast_of, forecast_section, over, table
from stages import BadRecord, load_stages, record_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_YET = "Not run on a GPU yet."
SHAPES = {"135m": "SmolLM2-135M", "1b": "1B shape", "8b": "8B shape"}
FIRST = ["machine", "tests"]  # stages in the order of the page; others follow as they were measured


LINEAR = re.compile(r"cuda/(linear|linear_free|cublaslt)/rows:(\d+)/out:(\d+)/in:(\d+)")
RUN_OPTIONS = re.compile(
    r"(/(iterations:\d+|repeats:\d+|manual_time|real_time))+$"
)  # endings that Google Benchmark adds to a name


class Device:
    """The stages of one folder by name."""

    def __init__(self, folder, dry_run=False):
        self.name = folder.name
        self.stages = load_stages(folder, dry_run)

    def data(self, stage):
        return self.stages.get(stage, {}).get("data") or {}

    def why_not(self, stage):
        if stage not in self.stages:
            return f"stage `{stage}` was not run"
        found = self.stages[stage]
        return f"stage `{stage}`: {found['status']}" + (f", {one_line(found['reason'])}" if found["reason"] else "")


def one_line(text, most=160):
    text = " ".join(text.replace("|", "/").split())
    return text if len(text) <= most else text[: most - 3] + "..."


class Forwards:
    """Median times of forwards of one shape in seconds, by context and rows."""

    def __init__(self, device, shape):
        self.data = device.data(f"forwards_{shape}")
        self.contexts = {entry["context"]: entry for entry in self.data.get("engine", {}).get("contexts", [])}
        on_gpu = device.stages.get(f"forwards_{shape}", {}).get("backend") == "cuda"
        self.machine = self.data.get("device", {}) if on_gpu else self.data
        self.bandwidth = self.machine.get("read_bandwidth_bytes_per_second")

    def seconds(self, rows, context, download=False):
        """Median time by the device's clock, or, with `download`, by the host's clock until the logits are on the
        host. If the host computes, both are times by the host's clock."""
        entry = self.contexts.get(context, {})
        times = entry.get("rows_ns", {}) if download else entry.get("device_rows_ns", entry.get("rows_ns", {}))
        samples = times.get(str(rows))
        return statistics.median(samples) * 1e-9 if samples else None

    def step_seconds(self, form, context):
        """Median time of a greedy step that the device runs by itself. form is "off", "round" or "loop", as in the option
        device_graph."""
        samples = self.contexts.get(context, {}).get("device_step_ns", {}).get(form)
        return statistics.median(samples) * 1e-9 if samples else None

    def launches(self, rows):
        counts = self.contexts.get(self.first(), {}).get("kernels", {}).get(str(rows))
        return sum(count for name, count in counts.items() if name != "persistent task") if counts else None

    def first(self):
        return min(self.contexts, default=None)

    def ratio(self, rows):
        time, one = self.seconds(rows, self.first()), self.seconds(1, self.first())
        return time / one if time and one else None

    def share(self):
        """Share of the read bandwidth that a forward of one row reaches at the shortest context."""
        time = self.seconds(1, self.first())
        if not time or not self.bandwidth:
            return None
        return self.contexts[self.first()]["work"]["1"]["bytes"] / time / self.bandwidth


def benchmarks(device):
    """{name: microseconds}: the median of the repetitions, or the single time if there was no repetition."""
    units = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
    found = {}
    for entry in device.data("kernels").get("benchmarks", []):
        if entry.get("aggregate_name", "median") == "median" and not entry.get("error_occurred"):
            name = RUN_OPTIONS.sub("", entry["run_name"])
            found[name] = entry["real_time"] * units[entry["time_unit"]]
    return found


def linear_times(device):
    """{(out, in): {rows: {"linear", "linear_free", "cublaslt": microseconds}}}"""
    found = {}
    for name, time in benchmarks(device).items():
        if match := LINEAR.fullmatch(name):
            kind, (rows, out, inputs) = match.group(1), map(int, match.groups()[1:])
            found.setdefault((out, inputs), {}).setdefault(rows, {})[kind] = time
    return found


def worst_linear(device, other, most_rows):
    """The largest ratio of our time to that of `other` among the layers of the 8B shape and all measured numbers of rows
    up to `most_rows`; None if a time is missing."""
    ratios = [
        times["linear"] / times[other] if times.keys() >= {"linear", other} else None
        for shape, by_rows in linear_times(device).items()
        if 4096 in shape
        for rows, times in by_rows.items()
        if rows <= most_rows
    ]
    return max(ratios) if ratios and None not in ratios else None


def best_greedy(device, shape):
    """For the greedy case of the shipped draft with the largest speedup: its speedup divided by tau / (1 + gamma c),
    which is the speedup if verifying the draft took no longer than a forward of one row."""
    cases = [
        case
        for case in device.data(f"speculation_{shape}").get("cases", [])
        if case["draft"] == "distilled" and case["options"]["temperature"] == 0 and case["metrics"]["speedup"]
    ]
    best = max(cases, key=lambda case: case["metrics"]["speedup"], default=None)
    if best is None or best["metrics"]["c"] is None:
        return None
    metrics = best["metrics"]
    return metrics["speedup"] / (metrics["tau"] / (1 + best["gamma"] * metrics["c"]))


def idle_share(device, shape):
    """The share of the decode time that lies between the steps that the device runs by itself. Of the cases with a draft,
    the one with the largest share counts."""
    cases = device.data(f"speculation_{shape}").get("cases", [])
    busy = [case["metrics"].get("gpu_busy_share") for case in cases if case["draft"]]
    return max((1 - share for share in busy if share is not None), default=None)


def gaps_share(device):
    """Gaps of more than 5 us between kernels, as a share of the time of the steps that the device runs by itself."""
    found = device.data("gaps")
    return found["gaps_over_5us_ns"] / found["inside_ns"] if found.get("inside_ns") else None


def forward_goal(shape, read):
    return f"forwards_{shape}", lambda device: read(Forwards(device, shape))


def kernel_goal(name):
    return "kernels", lambda device: benchmarks(device).get(name)


def linear_goal(other, most_rows):
    return "kernels", lambda device: worst_linear(device, other, most_rows)


PERCENT, MS, RATIO, US = ("{:.0f} %", 100), ("{:.3f} ms", 1e3), ("{:.2f}", 1), ("{:.1f} µs", 1)
COMPARISONS = {"≥": operator.ge, "≤": operator.le, "<": operator.lt}
# Each goal: name; goal as text, beginning with a sign of COMPARISONS; (unit, bound); (stage, function that reads the
# value from the stage); what the stage must hold
GOALS = [
    (
        "8B shape, n = 1, share of read bandwidth",
        "≥ 92 %",
        (PERCENT, 0.92),
        forward_goal("8b", Forwards.share),
        "`device` in the output of `speclab bench`",
    ),
    (
        "1B shape, n = 1, share of read bandwidth",
        "≥ 80 %",
        (PERCENT, 0.80),
        forward_goal("1b", Forwards.share),
        "`device` in the output of `speclab bench`",
    ),
    (
        "1B shape, n = 1, persistent kernel, share of read bandwidth",
        "≥ 88 %",
        (PERCENT, 0.88),
        forward_goal("1b_persistent", Forwards.share),
        "`device` in the output of `speclab bench`",
    ),
    ("135M, n = 1", "≤ 0.33 ms", (MS, 0.33e-3), forward_goal("135m", lambda f: f.seconds(1, f.first())), ""),
    (
        "135M, n = 1, persistent kernel",
        "≤ 0.20 ms",
        (MS, 0.20e-3),
        forward_goal("135m_persistent", lambda f: f.seconds(1, f.first())),
        "",
    ),
    ("8B shape, t(16)/t(1)", "≤ 1.05", (RATIO, 1.05), forward_goal("8b", lambda f: f.ratio(16)), ""),
    ("8B shape, t(64)/t(1)", "≤ 1.15", (RATIO, 1.15), forward_goal("8b", lambda f: f.ratio(64)), ""),
    ("8B shape, t(128)/t(1)", "≤ 1.35", (RATIO, 1.35), forward_goal("8b", lambda f: f.ratio(128)), ""),
    (
        "linear layers of the 8B shape, time / time of cuBLASLt, largest ratio for n ≤ 32",
        "≤ 1.00",
        (RATIO, 1.0),
        linear_goal("cublaslt", 32),
        "benchmark `cuda/cublaslt/...` beside each `cuda/linear/...`",
    ),
    (
        "linear layers of the 8B shape, time / time of the best form without row invariance, largest ratio for n ≤ 128",
        "≤ 1.03",
        (RATIO, 1.03),
        linear_goal("linear_free", 128),
        "benchmark `cuda/linear_free/...` beside each `cuda/linear/...`",
    ),
    (
        "accept + sample + compact, vocabulary 128k, n = 32",
        "≤ 15 µs",
        (US, 15),
        kernel_goal("cuda/accept_sample_compact/vocab:128256/rows:32"),
        "benchmark `cuda/accept_sample_compact/vocab:128256/rows:32`",
    ),
    (
        "draft step, model ≤ 40 MB",
        "≤ 60 µs",
        (US, 60),
        kernel_goal("cuda/draft_step"),
        "benchmark `cuda/draft_step`",
    ),
    (
        "draft step, model ≤ 40 MB, persistent kernel",
        "≤ 60 µs",
        (US, 60),
        kernel_goal("cuda/draft_step_persistent"),
        "benchmark `cuda/draft_step_persistent`",
    ),
    (
        "speedup on the 8B shape, shipped draft, greedy, over tau / (1 + gamma c)",
        "≥ 0.90",
        (RATIO, 0.90),
        ("speculation_8b", lambda device: best_greedy(device, "8b")),
        "",
    ),
    (
        "8B shape, shipped draft: idle between the steps that the GPU runs by itself",
        "< 3 %",
        (PERCENT, 0.03),
        ("speculation_8b", lambda device: idle_share(device, "8b")),
        "`gpu_busy_share` of a case with device_loop",
    ),
    (
        "135M, shipped draft: gaps > 5 µs inside the steps that the GPU runs by itself, as nsys traces them",
        "< 3 %",
        (PERCENT, 0.03),
        ("gaps", gaps_share),
        "",
    ),
]


def goals(device):
    rows, gpu = [], forecast_of(device.name)
    for what, goal, ((pattern, factor), bound), (stage, read), needs in GOALS:
        value = read(device)
        predicted = forecast.GOALS[what](gpu) if gpu and what in forecast.GOALS else None
        shown = pattern.format(predicted * factor) if predicted is not None else "-"
        if value is None:
            reason = device.why_not(stage)
            if device.stages.get(stage, {}).get("status") == "ok":
                reason = f"there is no {needs} yet" if needs else f"stage `{stage}` has no such size or case"
            rows.append([what, goal, "not measured", reason, shown, "-"])
        else:
            reached = "reached" if COMPARISONS[goal.split()[0]](value, bound) else "**missed**"
            rows.append([what, goal, pattern.format(value * factor), reached, shown, over(value, predicted)])
    return table(["what", "goal", "measured", "verdict", "predicted", "measured / predicted"], rows)


def forward_table(device, shape):
    forwards = Forwards(device, shape)
    if not forwards.contexts:
        return f"Not measured: {device.why_not(f'forwards_{shape}')}."
    sizes = sorted({int(n) for entry in forwards.contexts.values() for n in entry.get("rows_ns", {})})
    rows = []
    for n in sizes:
        cells = [str(n)]
        for context in sorted(forwards.contexts):
            time, one = forwards.seconds(n, context), forwards.seconds(1, context)
            whole = forwards.seconds(n, context, download=True)
            cells.append(f"{time * 1e3:.3f} ({time / one:.2f})" if time and one else "-")
            cells.append(f"{whole * 1e3:.3f}" if whole else "-")
        rows.append(cells)
    header = ["rows n"]
    for context in sorted(forwards.contexts):
        header += [f"context {context}: ms (t(n)/t(1))", "ms with the download of the logits"]
    if not forwards.bandwidth or not forwards.share():
        return f"The bandwidth of the device was not measured in this run.\n\n{table(header, rows)}"
    copy, peak = forwards.machine.get("copy_bandwidth_bytes_per_second"), forwards.machine.get("peak_flops")
    machine = [f"read bandwidth {forwards.bandwidth / 1e9:.0f} GB/s"]
    machine += [f"copy bandwidth {copy / 1e9:.0f} GB/s"] if copy else []
    machine += [f"peak {peak / 1e12:.2f} TFLOP/s"] if peak else []
    return (
        f"In the same run: {', '.join(machine)}. One row reaches {100 * forwards.share():.0f} % of the read bandwidth.\n\n"
        + table(header, rows)
    )


def linear_table(device):
    layers = linear_times(device)
    if not layers:
        return f"Not measured: {device.why_not('kernels')}."
    sizes = sorted({rows for by_rows in layers.values() for rows in by_rows})

    def cell(times):
        ours = times.get("linear")
        if not ours:
            return "-"
        others = [f"{ours / times[name]:.2f}" if name in times else "-" for name in ("linear_free", "cublaslt")]
        return f"{ours:.1f} ({', '.join(others)})"

    header = ["outputs x inputs", *(f"n = {n}" for n in sizes)]
    rows = [
        [f"{out} x {inputs}", *(cell(by_rows.get(n, {})) for n in sizes)] for (out, inputs), by_rows in layers.items()
    ]
    return (
        "Microseconds of a layer whose weights come from memory, not from a cache. In parentheses: this time / time of "
        "the best form without row invariance (the benchmark's label names the form), this time / time of "
        "cuBLASLt.\n\n" + table(header, rows)
    )


def prompt_table(device):
    rows = []
    for shape, name in SHAPES.items():
        for entry in device.data(f"prefill_{shape}").get("prompts", []):
            own = statistics.median(entry["own_ns"]) * 1e-6
            by_library = statistics.median(entry["library_ns"]) * 1e-6 if entry.get("library_ns") else None
            cells = [f"{by_library:.2f}", f"{by_library / own:.2f}"] if by_library else ["-", "-"]
            rows.append([name, str(entry["tokens"]), f"{own:.2f}", *cells])
    missing = [
        f"{SHAPES[shape]} not measured: {device.why_not(f'prefill_{shape}')}."
        for shape in ("135m", "8b")
        if not device.data(f"prefill_{shape}").get("prompts")
    ]
    text = "Milliseconds until the last token's logits are on the host, with our kernels (which give the same bits as decoding) and with `--prefill cublaslt`."
    header = ["shape", "tokens", "ours, ms", "cuBLASLt, ms", "cuBLASLt / ours"]
    return "\n\n".join(([text, table(header, rows)] if rows else []) + missing)


def speculation_table(device, shape):
    cases = device.data(f"speculation_{shape}").get("cases")
    if not cases:
        return f"Not measured: {device.why_not(f'speculation_{shape}')}."

    def cell(value, pattern):
        return "" if value is None else pattern.format(value)

    rows = []
    for case in cases:
        metrics, predictions = case["metrics"], case["predictions"]
        low, high = metrics.get("speedup_ci95") or (None, None)
        equal = {True: "yes", False: "**no**", None: ""}[metrics["matches_reference"]]
        predicted = [(predictions.get(name) or {}).get("value") for name in ("leviathan_3_8", "measured_t_speedup")]
        speedup = cell(metrics["speedup"], "{:.2f}") if case["reference"] else ""
        rows.append(
            [
                case["id"],
                speedup + (f" [{low:.2f}, {high:.2f}]" if case["reference"] and low is not None else ""),
                cell(metrics["tokens_per_second"], "{:.0f}"),
                *(cell(metrics[name], "{:.2f}") for name in ("tau", "alpha")),
                cell(metrics["c"], "{:.3f}"),
                *(cell(value, "{:.2f}") for value in predicted),
                equal,
            ]
        )
    header = [
        "case",
        "speedup [95 %]",
        "tokens/s",
        "τ",
        "α",
        "c",
        "predicted speedup, Leviathan Theorem 3.8",
        "predicted speedup, measured t(n)",
        "equal to autoregressive",
    ]
    return table(header, rows)


def stage_table(device):
    order = [name for name in FIRST if name in device.stages]
    order += [name for name in device.stages if name not in FIRST]
    rows = [
        [f"`{name}`", stage["status"], f"{stage['seconds']} s of {stage['cap_seconds']}", one_line(stage["reason"])]
        for name, stage in ((name, device.stages[name]) for name in order)
    ]
    return table(["stage", "status", "time and limit", "why"], rows)


def machine(device):
    data = device.data("machine")
    gpu = data.get("gpu") or {}
    if not gpu:
        return f"No GPU was seen: {device.why_not('machine').rstrip('.')}."
    return (
        f"{gpu['name']}, {gpu['memory.total']}, driver {gpu['driver_version']}, compute capability {gpu['compute_cap']}, power limit "
        f"{gpu['power.limit']}; before the first stage {gpu['temperature.gpu']} °C, SM clock {gpu['clocks.sm']} of {gpu['clocks.max.sm']}, "
        f"memory clock {gpu['clocks.mem']} of {gpu['clocks.max.mem']}. Persistence mode {gpu.get('persistence_mode', 'unknown')}, ECC "
        f"{gpu.get('ecc.mode.current', 'unknown')}, compute mode {gpu.get('compute_mode', 'unknown')}; MPS: "
        f"{data.get('mps', {}).get('runs', 'unknown')} ({data.get('mps', {}).get('why', 'not asked')}). "
        f"Toolkit {data['toolkit'] or 'absent'}; {data['speclab']}; host {data['cpu']}."
    )


def tests(device):
    data = device.data("tests")
    if not data:
        return f"Tests: {device.why_not('tests').rstrip('.')}."
    return f"Tests on the device: {data['passed']} passed, {data['failed']} failed, {data['skipped']} skipped."


def profile_table(device):
    kernels = device.data("profile").get("kernels")
    if not kernels:
        return f"Not measured: {device.why_not('profile')}."
    rows = [
        [
            f"`{kernel['name']}`",
            str(kernel["launches"]),
            f"{kernel['total_ns'] / kernel['launches'] * 1e-3:.1f}",
            f"{kernel['dram_percent']:.0f} %",
            f"{kernel['tensor_percent']:.0f} %",
        ]
        for kernel in kernels
    ]
    return "The three kernels that take the most time in a short decode, by ncu.\n\n" + table(
        ["kernel", "launches", "µs each", "share of memory bandwidth", "share of the matrix unit"], rows
    )


OTHER_KERNELS = {
    "persistent": "Each forward as one persistent kernel",
    "graphs": "Each forward as one graph",
    "serial": "With launches that do not overlap",
}


def section(device):
    parts = [f"## {device.name}", machine(device), tests(device), "### Goals", goals(device)]
    for shape, name in SHAPES.items():
        parts += [f"### {name}: forwards", forward_table(device, shape)]
        for kernels, words in OTHER_KERNELS.items():
            if f"forwards_{shape}_{kernels}" in device.stages:
                parts += [words + ":", forward_table(device, f"{shape}_{kernels}")]
        parts += [f"### {name}: speculation", speculation_table(device, shape)]
    parts += ["### Forecast and measurement"]
    parts += [comparison(device.name, lambda stage: Forwards(device, stage), linear_times(device))]
    parts += ["### Linear layers", linear_table(device), "### Prompts", prompt_table(device)]
    parts += ["### Profile", profile_table(device)]
    parts += ["### Stages", stage_table(device), f"Records: `{device.name}/`."]
    return "\n\n".join(parts)


def page(folder):
    devices = [Device(each) for each in sorted(folder.iterdir()) if each.is_dir() and record_files(each)]
    head = "# Measured on GPUs\n\nWritten by `scripts/gpu_check/gpu_page.py` from the records that `scripts/gpu_check.sh` leaves here; do not edit."
    return "\n\n".join([head, *([section(device) for device in devices] or [NOT_YET]), forecast_section(GOALS)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.folder:
        device = Device(arguments.folder, dry_run=True)
        if any(stage["dry_run"] for stage in device.stages.values()):
            print("A dry run: nothing below was measured on a GPU.\n")
        print(section(device))
        return 0
    results = ROOT / "results/gpu"
    written = page(results)
    if arguments.check:
        return int((results / "README.md").read_text(encoding="utf-8") != written)
    (results / "README.md").write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadRecord as problem:
        sys.exit(f"gpu_page: {problem}")
