#!/usr/bin/env python3
"""Times SpecLab's CPU engine and llama.cpp in one run, with the same model and the same number of threads.

    scripts/compare/compare_llama_cpp.py --llama-cpp DIR [--ik-llama-cpp DIR] [--threads 2] [--repeats 7] [--out FILE.json]

llama.cpp is not a dependency of this project. DIR is a checkout of it with a build in DIR/build. Without a build, the
script says what to clone and how to build it. ik_llama.cpp, which has its own kernels, can take part in the same run.
All programs get the same token ids and do the same work: prefill, greedy steps, and forwards of n rows of one sequence
with logits for each row, as a verification needs them (scripts/compare/verify_rows.cpp calls llama.cpp; SpecLab runs
`speclab bench --rows`). In each repeat every program runs once, as a separate process, in a seeded random order. A
process warms up first. Then it takes --forwards samples of a forward of each size, and --texts samples of the prefill
and of the greedy steps. The median of the samples counts. llama.cpp runs with bf16 weights as SpecLab does, with f16
(as many bytes) and with q8_0 (about half), each without and with flash attention. The table shows the faster of the two
for each format of the weights. A ratio is llama.cpp's time / SpecLab's time: above 1, SpecLab is faster.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import random
import re
import resource
import shlex
import subprocess
import sys
import time

import summary as report
from publish import Page, Problem, command_line, leave, publish

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = ROOT / "scripts/compare/verify_rows.cpp"
COMMIT = "c392e5094deaf2d1a7c18683214f007fad3fe42b"  # the commit that gave the numbers on the pages
HOW_TO_BUILD = f"""Clone and build it like this ({COMMIT[:9]} is the version that this script was written for):
    git clone https://github.com/ggml-org/llama.cpp DIR
    git -C DIR checkout {COMMIT}
    cmake -S DIR -B DIR/build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON
    cmake --build DIR/build --target llama llama-quantize llama-bench -j
ik_llama.cpp comes from https://github.com/ikawrakow/ik_llama.cpp and is built in the same way, with
    -DCMAKE_LIBRARY_OUTPUT_DIRECTORY=DIR/build/bin"""
# A peer is llama.cpp with weights of one format: name of the peer -> name of the format in llama-quantize
PEERS = {"bf16": "BF16", "f16": "F16", "q8_0": "Q8_0"}


def call(command, timeout=900):
    result = subprocess.run(
        [str(word) for word in command],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode != 0:
        raise Problem(
            f"{shlex.join(str(word) for word in command)} failed with code {result.returncode}:\n{(result.stderr or result.stdout)[-2000:]}"
        )
    return result.stdout


def cache_value(build, name):
    found = (
        re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
        if (build / "CMakeCache.txt").exists()
        else None
    )
    return found and found.group(1)


def git_state(folder):
    """The commit, its date, and the files *.c, *.h, *.cpp and *.txt that differ from it. "unknown" if git fails. Compares
    with a temporary index, because the checkout's index may be stale."""
    try:
        index = ROOT / ".cache/compare_llama_cpp/index"
        index.parent.mkdir(parents=True, exist_ok=True)
        index.unlink(missing_ok=True)
        git = ["git", "-C", folder]
        commit, date = call([*git, "log", "-1", "--format=%H %cs"]).split()
        environment = {**os.environ, "GIT_INDEX_FILE": str(index)}
        subprocess.run([*map(str, git), "read-tree", "HEAD"], check=True, env=environment)
        changed = subprocess.run(
            [*map(str, git), "diff", "--name-only", "HEAD", "--", "*.c", "*.h", "*.cpp", "*.txt"],
            check=True,
            env=environment,
            capture_output=True,
            text=True,
        ).stdout.split()
        index.unlink()
        return {"commit": commit, "date": date, "changed": changed}
    except (Problem, subprocess.CalledProcessError):
        return {"commit": "unknown", "date": "unknown", "changed": []}


class LlamaCpp:
    """A built checkout, the driver program that was compiled against its libllama, and the model files in each format
    (`files`, by peer)."""

    def __init__(self, folder, prefix=""):
        self.folder = folder
        self.prefix = prefix  # prefix of its peers' names
        self.build = folder / "build"
        needed = [self.build / "bin/llama-quantize", self.build / "bin/libllama.so", folder / "include/llama.h"]
        missing = [str(file) for file in needed if not file.exists()]
        if missing:
            raise Problem(f"no built llama.cpp in {folder}: {', '.join(missing)} missing.\n{HOW_TO_BUILD}")
        self.options = {
            name: cache_value(self.build, name)
            for name in (
                "CMAKE_BUILD_TYPE",
                "GGML_NATIVE",
                "GGML_OPENMP",
                "GGML_LLAMAFILE",
                "GGML_BLAS",
                "CMAKE_CXX_FLAGS_RELEASE",
            )
        }
        if self.options["CMAKE_BUILD_TYPE"] != "Release" or self.options["GGML_NATIVE"] != "ON":
            raise Problem(f"{self.build} is not a Release build for this machine: {self.options}.\n{HOW_TO_BUILD}")
        self.state = git_state(folder)
        self.cache = ROOT / ".cache/compare_llama_cpp" / self.state["commit"][:12]
        self.cache.mkdir(parents=True, exist_ok=True)
        self.driver = self.cache / "verify_rows"

    def compile_driver(self):
        library = self.build / "bin"
        if self.driver.exists() and self.driver.stat().st_mtime > max(
            DRIVER.stat().st_mtime, (library / "libllama.so").stat().st_mtime
        ):
            return
        header = (self.folder / "include/llama.h").read_text()
        new_api = ["-DLLAMA_HAS_MEMORY_API"] if "llama_memory_seq_rm" in header else []
        call(
            [
                os.environ.get("CXX", "g++"),
                "-std=c++17",
                "-O3",
                "-march=native",
                *new_api,
                "-I",
                self.folder / "include",
                "-I",
                self.folder / "ggml/include",
                DRIVER,
                "-o",
                self.driver,
                "-L",
                library,
                "-lllama",
                "-lggml",
                *(["-lggml-base"] if (library / "libggml-base.so").exists() else []),
                f"-Wl,-rpath,{library.resolve()}",
            ]
        )

    def quantized(self, model, peer):
        sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
        file = self.cache / f"{sha256[:12]}-{peer}.gguf"
        if not file.exists():
            part = file.with_suffix(".part")
            call([self.build / "bin/llama-quantize", "--allow-requantize", model, part, PEERS[peer]])
            part.rename(file)
        return file

    def prepare(self, model, peers):
        self.compile_driver()
        self.files = {self.prefix + peer: self.quantized(model, peer) for peer in peers}


def others_use(before, after, wall):
    """Mean number of cores that other processes kept busy between two readings. The children of this script
    do not count. Time that the hypervisor took away (steal) counts."""
    return max(0.0, (after[0] - before[0]) - (after[1] - before[1])) / wall


def cpu_reading():
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + softirq + steal) / os.sysconf(
        "SC_CLK_TCK"
    ), children.ru_utime + children.ru_stime


def run_once(command):
    before, begin = cpu_reading(), time.monotonic()
    text = call(command)
    return json.loads(text), others_use(before, cpu_reading(), time.monotonic() - begin)


def check(name, got, args, reference):
    """Checks that the process did the requested work, and the same work as SpecLab."""
    if got["threads"] != args.threads:
        raise Problem(f"{name} ran {got['threads']} threads instead of {args.threads}")
    for entry, ours in zip(got["contexts"], reference["contexts"], strict=True):
        if entry["context"] != ours["context"] or set(entry["rows_ns"]) != set(ours["rows_ns"]):
            raise Problem(
                f"{name} measured context {entry['context']} with forwards of {sorted(entry['rows_ns'], key=int)} rows, "
                f"SpecLab context {ours['context']} with {sorted(ours['rows_ns'], key=int)}. They must be the same."
            )
        counts = {"prefill_ns": args.texts, "step_ns": args.texts, **{rows: args.forwards for rows in entry["rows_ns"]}}
        if wrong := [
            what for what, count in counts.items() if len(entry["rows_ns"].get(what, entry.get(what))) != count
        ]:
            raise Problem(
                f"{name} gave another number of samples than asked for: {', '.join(wrong)} at context {entry['context']}"
            )
        same = sum(a == b for a, b in zip(entry["tokens"], ours["tokens"], strict=True))
        if same == 0 or ("bf16" in name and entry["tokens"][0] != ours["tokens"][0]):
            raise Problem(
                f"{name} writes another text than SpecLab at context {entry['context']}: {entry['tokens']} instead of {ours['tokens']}. "
                "The two do not run the same model on the same tokens."
            )
        if entry.get("verified", 1) < entry.get("drafted", 1) / 2:
            raise Problem(
                f"{name}: a forward over its own greedy text gives other best tokens than that text: "
                f"only {entry['verified']} of {entry['drafted']} rows agree"
            )
        entry["tokens_as_speclab"] = same


def homes(args):
    ik = {args.ik_llama_cpp: "IK_LLAMA_CPP"} if args.ik_llama_cpp else {}
    return {args.llama_cpp: "LLAMA_CPP", **ik, ROOT: "."}


def measure(args, engines):
    """Runs all processes of all repeats. Returns three things: name -> list of outputs, in the order of repeats; name -> command
    line; and for each repeat the names in the order in which they ran."""
    contexts, rows = args.context, args.rows
    commands = {
        report.OURS: [
            args.speclab,
            "bench",
            "--backend",
            "cpu",
            "--model",
            args.model,
            "--threads",
            args.threads,
            "--numerics",
            args.numerics,
            "--context",
            contexts,
            "--rows",
            rows,
            "--tokens",
            args.steps + 1,
            "--texts",
            args.texts,
            "--repeats",
            args.forwards,
            "--json",
        ]
    }
    for engine in engines:
        for peer, file in engine.files.items():
            for flash in (0, 1):
                commands[f"{peer}, flash attention {'on' if flash else 'off'}"] = [
                    engine.driver,
                    file,
                    args.threads,
                    flash,
                    contexts,
                    rows,
                    args.steps,
                    args.texts,
                    args.forwards,
                ]
    order, outputs, orders = random.Random(args.seed), {name: [] for name in commands}, []
    for repeat in range(args.repeats):
        names = list(commands)
        order.shuffle(names)
        orders.append(names)
        for i, name in enumerate(names):
            print(
                f"\rrepeat {repeat + 1}/{args.repeats}, {i + 1}/{len(names)}: {name:<30}",
                end="",
                file=sys.stderr,
                flush=True,
            )
            got, others = run_once(commands[name])
            outputs[name].append(
                {
                    **(got["engine"] if name == report.OURS else got),
                    "others_cores": others,
                    **({key: value for key, value in got.items() if key != "engine"} if name == report.OURS else {}),
                }
            )
    print(file=sys.stderr)
    for name, found in outputs.items():
        for got in found:
            check(name, got, args, outputs[report.OURS][0])
    return (
        outputs,
        {name: command_line(command, homes(args)) for name, command in commands.items()},
        orders,
    )


def cross_check(llama, args):
    """Times generation and prefill with llama-bench, to check the times of the driver program. Returns milliseconds (of
    generation: per token), or None if llama-bench was not built or no peer has bf16 weights."""
    program = llama.build / "bin/llama-bench"
    if "bf16" not in llama.files or not program.exists():
        return None
    found = json.loads(
        call(
            [
                program,
                "-m",
                llama.files["bf16"],
                "-t",
                args.threads,
                "-p",
                512,
                "-n",
                args.steps,
                "-r",
                3,
                "-fa",
                0,
                "-o",
                "json",
            ]
        )
    )
    return {
        ("prefill of 512" if test["n_prompt"] else "generation at context 0"): test["avg_ns"]
        * 1e-6
        / max(1, test["n_gen"])
        for test in found
    }


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set(re.search(r"^flags\s*:\s*(.*)$", cpuinfo, re.MULTILINE).group(1).split())
    return {
        "cpu": re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE).group(1),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "flags": sorted(
            flags & {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_tile"}
        ),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(("OMP_", "GOMP_"))},
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--llama-cpp", type=pathlib.Path, required=True, metavar="DIR", help="checkout with a build in build/"
    )
    parser.add_argument(
        "--ik-llama-cpp", type=pathlib.Path, metavar="DIR", help="checkout of ik_llama.cpp, to be timed as well"
    )
    parser.add_argument("--ik-peers", default="bf16,q8_0", help="weights of ik_llama.cpp, default %(default)s")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--speclab", type=pathlib.Path, default=ROOT / "build/release/speclab")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--numerics", default="auto", help="numerics class of SpecLab")
    parser.add_argument("--peers", default=",".join(PEERS), help="weights of llama.cpp, default %(default)s")
    parser.add_argument("--context", default="128,512", help="lengths of the prefill in tokens, ascending")
    parser.add_argument("--rows", default="1,2,4,5,8,16")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--forwards", type=int, default=4, help="forwards of each size in a process, after one that warms up"
    )
    parser.add_argument("--steps", type=int, default=16, help="greedy steps of a text")
    parser.add_argument(
        "--texts", type=int, default=1, help="texts in a process at each context, after one that warms up"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, help="file for all samples, commands, commits and the machine")
    args = parser.parse_args()
    args.peers, args.ik_peers = args.peers.split(","), args.ik_peers.split(",")
    if unknown := {*args.peers, *args.ik_peers} - set(PEERS):
        parser.error(f"--peers or --ik-peers: {', '.join(sorted(unknown))} unknown; there are {', '.join(PEERS)}")
    if min(args.threads, args.repeats, args.forwards, args.steps, args.texts) < 1:
        parser.error("--threads, --repeats, --forwards, --steps and --texts must be at least 1")
    return args


def main():
    args = arguments()
    llama = LlamaCpp(args.llama_cpp.resolve())
    ik = LlamaCpp(args.ik_llama_cpp.resolve(), "ik ") if args.ik_llama_cpp else None
    for file, how in (
        (args.model, "scripts/get_model.sh fetches it."),
        (args.speclab, "Build it: cmake --preset release && cmake --build --preset release --target speclab"),
    ):
        if not file.exists():
            raise Problem(f"{file} is missing. {how}")
    build_type = cache_value(args.speclab.resolve().parent, "CMAKE_BUILD_TYPE")
    if build_type not in (None, "Release"):
        raise Problem(f"{args.speclab} is a {build_type} build; times need Release.")
    llama.prepare(args.model, args.peers)
    if ik:
        ik.prepare(args.model, args.ik_peers)
    peers = [*llama.files, *(ik.files if ik else [])]
    version = call([args.speclab, "--version"]).strip()
    began, load = datetime.datetime.now(datetime.UTC), os.getloadavg()[0]
    outputs, commands, orders = measure(args, [llama, *([ik] if ik else [])])
    page = Page("SpecLab beside llama.cpp" + (" and ik_llama.cpp" if ik else ""))
    bench = cross_check(llama, args)
    summary, bandwidth = report.summarise(outputs, peers, args.seed)
    others = [got["others_cores"] for found in outputs.values() for got in found]
    agreement = {
        name: [entry["tokens_as_speclab"] for entry in found[0]["contexts"]]
        for name, found in outputs.items()
        if name != report.OURS
    }

    page.say(
        f"{machine()['cpu']}, {args.threads} threads, read bandwidth {bandwidth * 1e-9:.1f} GB/s; {args.model.name}\n"
        f"{version}, numerics class {outputs[report.OURS][0]['numerics']}, bf16 weights; "
        f"llama.cpp {llama.state['commit'][:9]} of {llama.state['date']}"
        f"{', ik_llama.cpp ' + ik.state['commit'][:9] + ' of ' + ik.state['date'] + ' (ik)' if ik else ''}, KV cache f16 (default)\n"
        f"{began:%Y-%m-%d %H:%M} UTC, medians of {args.repeats} interleaved repeats\n"
        f"{', '.join(args.peers)}: weights of llama.cpp; "
        "forward of n: n rows of one sequence, with logits for every row\n"
        "ratio = time of the other program / time of SpecLab; "
        "BW = bytes of the weights / time, as a share of the read bandwidth\n"
        "The faster of flash attention on and off is shown; + = on"
    )
    page.say(
        report.table(summary, peers)
        + "\n\n"
        + report.growth(summary, peers)
        + "\n\n"
        + report.where_they_win(summary, peers)
    )
    lengths = [entry["context"] for entry in outputs[report.OURS][0]["contexts"]]
    page.say(report.same_tokens(agreement, lengths, args.steps + 1))
    if bench:
        page.say(
            "llama-bench of llama.cpp, bf16, flash attention off, in ms (generation: per token): "
            + ", ".join(f"{what}: {ms:.2f}" for what, ms in bench.items())
        )
    if llama.state["commit"] != COMMIT or llama.state["changed"]:
        page.say(
            f"Note: llama.cpp is not the unchanged commit {COMMIT[:9]}. Changed files: {', '.join(llama.state['changed']) or 'none'}."
        )
    quiet = page.say_how_quiet(
        others,
        "measurements",
        "the times are not reliable, because other programs took a part of the processor; run the comparison again on a quiet machine.",
    )
    if args.out:
        record = {
            "what": "SpecLab against llama.cpp, scripts/compare/compare_llama_cpp.py",
            "date": began.isoformat(timespec="seconds"),
            "seconds": round((datetime.datetime.now(datetime.UTC) - began).total_seconds()),
            **quiet,
            "load_before": load,
            "machine": machine(),
            "commands": commands,
            "order": orders,
            "speclab": {"version": version, "git": git_state(ROOT), "numerics": outputs[report.OURS][0]["numerics"]},
            "llama_cpp": {
                **llama.state,
                "options": llama.options,
                "system": outputs[next(name for name in outputs if name != report.OURS)][0]["system"],
                "cache": "f16 (default)",
                "llama_bench_ms": bench,
            },
            **({"ik_llama_cpp": {**ik.state, "options": ik.options}} if ik else {}),
            "read_bandwidth_bytes_per_second": bandwidth,
            "summary": summary,
            "outputs": outputs,
        }
        publish(args.out, page, record, homes(args))


if __name__ == "__main__":
    leave(main, "compare_llama_cpp")
