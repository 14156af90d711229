"""Writes the page of a CPU as Markdown from its benchmarks."""

import re
import statistics

UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def without_paths(value):
    """Leaves out the path of the executable, the host's name and its load: they only describe the author's machine."""
    if isinstance(value, dict):
        return {
            key: without_paths(each)
            for key, each in value.items()
            if key not in ("executable", "host_name", "load_avg")
        }
    return [without_paths(each) for each in value] if isinstance(value, list) else value


class Results:
    """Medians of one run of speclab_bench by name: "forward/context:512/rows:4"."""

    def __init__(self, run):
        self.context = run["context"]
        self.command = run["command"]
        self.median, self.spread = {}, {}
        for entry in run["benchmarks"]:
            name = re.sub(r"(/iterations:\d+|/manual_time|/real_time)", "", entry["run_name"])
            if entry.get("aggregate_name") == "median":
                self.median[name] = {**entry, "us": entry["real_time"] * UNITS_US[entry["time_unit"]]}
            elif entry.get("aggregate_name") == "cv":
                self.spread[name] = entry["real_time"]
        self.bandwidth = self.median.get("machine/read_bandwidth", {}).get("bytes_per_second")
        self.peak = self.median.get("machine/peak_flops", {}).get("flops_per_second")

    def us(self, name):
        return self.median[name]["us"] if name in self.median else None

    def floor_us(self, name):
        """Lower bound of a time: bytes / bandwidth or operations / peak, whichever is longer."""
        entry = self.median[name]
        seconds = entry["us"] * 1e-6
        return 1e6 * max(
            entry.get("bytes_per_second", 0) * seconds / self.bandwidth,
            entry.get("flops_per_second", 0) * seconds / self.peak,
        )

    def names(self, start):
        def order(name):
            return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

        return sorted((name for name in self.median if name.startswith(start)), key=order)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def number(value, digits=3):
    if value is None:
        return "-"
    text = f"{value:.{digits}g}"
    return f"{float(text):g}" if "e" in text else text


def time_rows(results, start, single=None):
    """Rows of a table: name, time, spread, time / time of the same forward over one row, shares of bandwidth and peak,
    time / floor."""
    rows = []
    for name in results.names(start):
        entry, us = results.median[name], results.us(name)
        one = results.us(re.sub(r"rows:\d+", "rows:1", name)) if single and "rows:" in name else None
        of = [
            f"{100 * entry[rate] / most:.0f} %" if entry.get(rate) and most else "-"
            for rate, most in (("bytes_per_second", results.bandwidth), ("flops_per_second", results.peak))
        ]
        floor = results.floor_us(name)
        times = [f"{number(us * 1e-3)}", f"{100 * results.spread.get(name, 0):.0f} %"]
        rows.append([name, *times, f"{us / one:.2f}" if one else "-", *of, f"{us / floor:.2f}" if floor else "-"])
    return rows


HEADER = ["benchmark", "ms", "spread", "t(n)/t(1)", "of read bandwidth", "of peak", "time / floor"]


def forwards(record):
    parts = []
    for run in record["classes"].values():
        results = Results(run)
        rows = [
            row
            for start in ("forward", "greedy_step", "prefill", "draft_step")
            for row in time_rows(results, start, single=True)
        ]
        parts.append(f"### Class `{results.context['numerics']}`\n\n    {results.command}\n\n{table(HEADER, rows)}")
    return "\n\n".join(parts)


def draft_from_cache(record):
    """Compares the time of a draft step with the time of reading as many bytes. A cache may hold the bytes of a draft
    step."""
    results = Results(record["classes"]["auto"])
    rows = [
        (
            "draft_step/later",
            "After a read of as many other bytes as a target forward reads, this many bytes are read twice. "
            "The second read takes",
            "machine/draft_bytes_second",
        ),
        ("draft_step/hot", "When this many bytes are read again and again, one read takes", "machine/draft_bytes"),
    ]
    lines = []
    for step, how, read in rows:
        floor = results.median.get(read)
        if results.us(step) and floor:
            megabytes = floor["bytes_per_second"] * floor["us"] * 1e-12
            lines.append(
                f"- `{step}` reads {megabytes:.1f} MB, which a cache may hold. {how} {number(floor['us'] * 1e-3)} ms\n"
                f"  ({floor['bytes_per_second'] / 1e9:.0f} GB/s, spread {100 * results.spread[read]:.0f} %). The step takes {results.us(step) / floor['us']:.2f} times as long."
            )
    return "\n\n" + "\n".join(lines) if lines else ""


def kernels(record):
    results = Results(record["classes"]["auto"])
    starts = ("matrices", "attention", "rms_norm", "silu", "standardise", "hash_row")
    return table(HEADER, [row for start in starts for row in time_rows(results, start, single=True)])


def microseconds(entry, *counters):
    """Counters of a benchmark in microseconds, as cells; "-" for a counter that it does not have."""
    return [number(entry[name]) if name in entry else "-" for name in counters]


def copies(record):
    """Three tables: steps along a given text, steps of real decoding, indexes."""
    results = Results(record["classes"]["auto"])

    def rows(start, cells):
        return [
            [name.removeprefix(start), number(results.us(name)), *cells(results.median[name])]
            for name in results.names(start)
        ]

    steps = rows("copies/step/", lambda entry: [*microseconds(entry, "p99_us", "slowest_us"), number(entry["drafted"])])
    decoding = rows(
        "copies/decoding/",
        lambda entry: [
            *microseconds(entry, "host_us"),
            number(entry["rows"]),
            f"{number(100 * entry['of_step'])} %",
        ],
    )
    indexes = rows(
        "copies/index/",
        lambda entry: [
            number(entry["bytes_per_token"]),
            *microseconds(entry, "path_us", "path_p99_us", "tree_us", "tree_p99_us"),
        ],
    )
    return "\n\n".join(
        [
            "Steps along a given text, CPU time in microseconds: drafting, and learning from the next token.",
            table(["step", "mean", "99th percentile", "slowest", "tokens drafted"], steps),
            "Real decoding, wall time in microseconds: drafting and observing; then all work of the host, which includes trees, masks, commit and record.",
            table(
                ["strategy", "draft and observe", "all on the host", "rows of a step", "share of the step's time"],
                decoding,
            ),
            "Indexes, CPU time in microseconds: appending a token; then looking up what followed the end of a text, as a path or as a tree.",
            table(["index", "append", "bytes a token", "path", "99th percentile", "tree", "99th percentile"], indexes),
        ]
    )


def trees(record):
    """A section with two tables: steps with trees, and the time of judging one node, each by rule. "" if the record has none."""
    results = Results(record["classes"]["auto"])

    def shown(name, start):
        name = name.removeprefix(start)
        return name if name.startswith("rule:") else f"rule:rejection/{name}"  # older records measure this rule only

    steps = [
        [
            shown(name, "trees/step/"),
            number(results.us(name) * 1e-3),
            *microseconds(results.median[name], "accept_us", "other_us"),
            f"{number(100 * results.median[name]['overhead'])} %",
        ]
        for name in results.names("trees/step/")
    ]
    judged = [
        [
            shown(name, "trees/judge/"),
            number(results.us(name)),
            number(results.median[name]["tested"]),
            number(results.median[name]["passes"]),
        ]
        for name in results.names("trees/judge/")
    ]
    if not steps and not judged:
        return ""
    parts = ["## What trees cost beside their forwards"]
    if steps:
        parts += [
            "The table shows real decoding with trees of 64 nodes, as medians over steps. Judging computes distributions from rows of logits and applies the rule. Other is the time for trees, masks, commit and record.",
            table(["step", "ms", "judging, us", "other, us", "both, share of the step"], steps),
        ]
    if judged:
        parts += [
            "Judging the children of one node. Nearly all of them are rejected.",
            table(["node", "us", "children tested", "passes over a row of logits"], judged),
        ]
    return "\n\n".join(parts) + "\n\n"


TAKEN_CORE = {  # run in the record -> its label
    "one_thread": "one thread",
    "all_threads": "all threads",
    "all_threads_one_core_taken": "all threads, one core busy with another process",
}


def beside_another_process(record):
    if not record["taken_core"]:
        return "This machine has one core."
    name = "greedy_step/context:128"
    us = {key: Results(run).us(name) for key, run in record["taken_core"].items()}
    alone = us["one_thread"]
    rows = [[TAKEN_CORE[key], number(value * 1e-3), f"{value / alone:.2f}"] for key, value in us.items()]
    return table(["greedy step, context 128", "ms", "time / time of one thread"], rows)


def whole_processes(record):
    of = record["processes"]
    weights = of["model"]["weight_bytes_per_forward"]
    return (
        f"`speclab generate` with one token takes {statistics.median(of['first_token_seconds']):.2f} s, most of it loading "
        f"(file in the system's cache, median of {len(of['first_token_seconds'])}). With 64 tokens it takes "
        f"{of['peak_rss_bytes'] / 1e6:.0f} MB of memory at its peak, {weights / 1e6:.0f} MB of them packed weights."
    )


def render(record, stem):
    results = Results(record["classes"]["auto"])
    context = results.context
    caches = ", ".join(f"L{c['level']} {c['type'].lower()} {c['size'] // 1024} KiB" for c in context.get("caches", []))
    machine = results.median["machine/read_bandwidth"], results.median["machine/peak_flops"]
    return f"""# The CPU engine on {context["cpu"]}

    scripts/bench_cpu.sh

Made by `{record["command"]}`, {record["date"]}, commit {context["speclab_commit"]}; {context["threads"]} threads; {caches}.
Model: {context["model"]}. Medians of repetitions that took turns in random order; spread is their coefficient of variation.

The machine itself, measured between the benchmarks of the same run: it reads {machine[0]["bytes_per_second"] / 1e9:.1f} GB/s
(spread {100 * results.spread["machine/read_bandwidth"]:.0f} %) and does {machine[1]["flops_per_second"] / 1e9:.0f} GFLOP/s (spread {100 * results.spread["machine/peak_flops"]:.0f} %).
The floor of a benchmark is the longer of its bytes / that bandwidth and its floating-point operations / that peak. A share of
the bandwidth above 100 % means that a cache held the data.

## Forwards, prefill, steps

`forward`: a causal chain with logits for every row. `draft_step`: a forward of the shipped draft. `first` feeds two tokens, directly after a forward of the target over 5 rows.
`later` feeds one token, directly after `first`. `hot` feeds one token, directly after another `hot`.

{forwards(record)}{draft_from_cache(record)}

## Kernels

`matrices/all`: every matrix of a forward once, from memory. A benchmark of one matrix repeats it, so a cache may hold the matrix. `attention`: the attention of all layers.

{kernels(record)}

## What copying costs

{copies(record)}

{trees(record)}## Beside another process

Greedy steps with one thread, with all threads, and with all threads while another process keeps one of the cores busy.

{beside_another_process(record)}

## Loading and memory

{whole_processes(record)}

Every single time: [{stem}.json.gz]({stem}.json.gz).
"""
