#!/usr/bin/env python3
"""Runs speclab_bench and takes a few measurements outside its process. Writes a record and a page for this CPU.

    scripts/bench_cpu/bench_cpu.py [--model PATH] [--draft PATH] [--out DIR] [--repetitions N]     (see bench_cpu.sh)

The benchmarks of a process take turns in random order. Each has N repetitions, and the median counts. The script itself
measures `speclab generate` as a process: the time until the first token, and the peak memory. It also repeats the greedy
steps with one thread, and while another process keeps one core busy.
"""

import argparse
import contextlib
import datetime
import gzip
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import page

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH, SPECLAB = ROOT / "build/release/speclab_bench", ROOT / "build/release/speclab"


class Problem(Exception):
    """Something outside the program is missing or wrong; the text says what it is and, if possible, what to do."""


def bench(arguments, pattern, repetitions):
    """Runs speclab_bench. Returns the JSON of Google Benchmark, and the command."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [
            str(BENCH),
            "--backend",
            "cpu",
            *arguments,
            f"--benchmark_filter={pattern}",
            "--benchmark_min_time=0.1",
        ]
        command += [f"--benchmark_repetitions={repetitions}", "--benchmark_enable_random_interleaving=true"]
        shown = shlex.join(
            str(pathlib.Path(word).relative_to(ROOT)) if word.startswith(str(ROOT)) else word for word in command
        )
        print(f"+ {shown}", file=sys.stderr, flush=True)
        command += [f"--benchmark_out={out.name}", "--benchmark_out_format=json"]
        result = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
        if result.returncode != 0:
            raise Problem(f"{shown} failed with code {result.returncode}:\n{result.stderr[-2000:]}")
        return {"command": shown, **json.loads(pathlib.Path(out.name).read_text())}


@contextlib.contextmanager
def busy_core(core):
    """Runs another process that keeps one core busy."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def taken_core(model, repetitions):
    """Times greedy steps: with one thread, with all threads, and with all threads while one core is busy."""
    step, cores = ["--model", model], sorted(os.sched_getaffinity(0))
    runs = {"one_thread": bench([*step, "--threads", "1"], "greedy_step/context:128", repetitions)}
    runs["all_threads"] = bench(step, "greedy_step/context:128", repetitions)
    with busy_core(cores[-1]):
        runs["all_threads_one_core_taken"] = bench(step, "greedy_step/context:128", repetitions)
    return runs


def processes(model, repetitions):
    """Measures whole processes: the seconds until the first token, which are mostly loading, and the peak memory with 64 tokens."""

    def generate(tokens):
        command = [str(SPECLAB), "generate", "--backend", "cpu", "--model", model, "--prompt", "Why is the sky blue?"]
        command += ["--set", f"max_tokens={tokens}"]
        begin = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise Problem(f"{shlex.join(command)} failed with code {process.returncode}")
        return time.monotonic() - begin, usage.ru_maxrss << 10

    command = [str(SPECLAB), "model", model, "--json"]
    described = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return {
        "first_token_seconds": [generate(1)[0] for _ in range(repetitions + 1)][
            1:
        ],  # without the first call, which fills the page cache
        "peak_rss_bytes": generate(64)[1],
        "model": {key: described[key] for key in ("name", "weight_bytes_per_forward", "parameters")},
    }


# Keys of Google Benchmark's record that are not used here.
REPEATED = ("family_index", "per_family_instance_index", "repetitions", "threads", "aggregate_unit")


def slim(value):
    """Shortens a record: leaves out the keys in REPEATED, and means and standard deviations, which follow from the single
    times. Keeps seven digits of each number with a decimal point."""
    if isinstance(value, dict):
        return {key: slim(entry) for key, entry in value.items() if key not in REPEATED or "run_type" not in value}
    if isinstance(value, list):
        left_out = [isinstance(entry, dict) and entry.get("aggregate_name") in ("mean", "stddev") for entry in value]
        return [slim(entry) for entry, without in zip(value, left_out, strict=True) if not without]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def packed(record):
    """The compressed record. The same record gives the same bytes: they hold no time and no file name."""
    return gzip.compress(json.dumps(record, separators=(",", ":")).encode("utf-8"), 9, mtime=0)


def slug(cpu, flags):
    name = re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-")
    kind = "amx" if "amx_tile" in flags else "avx512" if "avx512f" in flags else "avx2"
    return f"{name}-{kind}-{len(os.sched_getaffinity(0))}cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--draft", default="models/draft/smollm2-135m-instruct")
    parser.add_argument("--out", default="results/cpu")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    for path in (BENCH, SPECLAB):
        if not path.exists():
            raise Problem(f"{path} is missing. Run scripts/bench_cpu.sh, which builds it.")
    if arguments.repetitions < 3:
        raise Problem(
            f"--repetitions {arguments.repetitions}: expected at least 3, because the page shows medians and spreads"
        )
    models = ["--model", arguments.model, "--draft", arguments.draft]
    record = {
        "schema_version": 1,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join([str(pathlib.Path(sys.argv[0]).name), *sys.argv[1:]]),
        "classes": {},
    }
    record["classes"]["auto"] = bench(models, ".", arguments.repetitions)
    other = "f32-kv16" if record["classes"]["auto"]["context"]["numerics"] == "f32" else "f32"
    record["classes"][other] = bench(
        [*models, "--numerics", other], "machine|attention|forward|greedy|prefill", arguments.repetitions
    )
    record["taken_core"] = (
        taken_core(arguments.model, arguments.repetitions) if len(os.sched_getaffinity(0)) > 1 else None
    )
    record["processes"] = processes(arguments.model, arguments.repetitions)
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    context = record["classes"]["auto"]["context"]
    stem = pathlib.Path(arguments.out) / slug(context["cpu"], flags.group(1).split() if flags else [])
    stem.parent.mkdir(parents=True, exist_ok=True)
    record = slim(page.without_paths(record))
    pathlib.Path(f"{stem}.json.gz").write_bytes(packed(record))
    pathlib.Path(f"{stem}.md").write_text(page.render(record, stem.name))
    print(f"{stem}.json.gz\n{stem}.md")


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"bench_cpu: {problem}")
