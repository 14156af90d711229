"""Turns the samples of scripts/compare/compare_llama_cpp.py into medians, ratios with their spread, and the printed table."""

import random
import statistics

OURS = "speclab"
RESAMPLES = 2000


def lines_of(contexts):
    """The samples of one process for every line of the table: (context, what) -> samples."""
    lines = {}
    for entry in contexts:
        lines[entry["context"], "prefill"] = entry["prefill_ns"]
        lines[entry["context"], "greedy step"] = entry["step_ns"]
        for rows in sorted(entry["rows_ns"], key=int):
            lines[entry["context"], f"forward of {rows}"] = entry["rows_ns"][rows]
    return lines


def interval(theirs, ours, seed):
    """95 % interval of the ratio of medians, by a bootstrap over repeats. A drawn repeat contributes the times of both
    programs. None for fewer than 3 repeats."""
    if len(ours) < 3:
        return None
    draw, count, ratios = random.Random(seed), len(ours), []
    for _ in range(RESAMPLES):
        picked = [draw.randrange(count) for _ in range(count)]
        ratios.append(statistics.median(theirs[i] for i in picked) / statistics.median(ours[i] for i in picked))
    ratios.sort()
    return [ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES) - 1]]


def summarise(outputs, peers, seed):
    """Returns one entry for each line of the table (medians over repeats in ms, ratios and spreads), and the read
    bandwidth. The time of a program in a repeat is the median of its process's samples."""
    per_repeat = {
        name: [
            {line: statistics.median(samples) * 1e-6 for line, samples in lines_of(got["contexts"]).items()}
            for got in found
        ]
        for name, found in outputs.items()
    }
    bandwidth = statistics.median(got["read_bandwidth_bytes_per_second"] for got in outputs[OURS])
    summary = []
    for line in per_repeat[OURS][0]:
        series = {name: [times[line] for times in found] for name, found in per_repeat.items()}

        def described(name):
            median = statistics.median(series[name])
            return {
                "ms": median,
                "min_ms": min(series[name]),
                "max_ms": max(series[name]),
                "bandwidth_share": outputs[name][0]["weight_bytes"] / (median * 1e-3) / bandwidth,
            }

        entry = {"context": line[0], "what": line[1], OURS: described(OURS)}
        for peer in peers:
            fastest = min(
                (name for name in series if name.startswith(peer + ",")),
                key=lambda name: statistics.median(series[name]),
            )
            entry[peer] = {
                **described(fastest),
                "program": fastest,
                "ratio": statistics.median(series[fastest]) / entry[OURS]["ms"],
                "interval": interval(series[fastest], series[OURS], seed),
            }
            entry[peer]["other_flash_attention_ms"] = max(
                statistics.median(times) for name, times in series.items() if name.startswith(peer + ",")
            )
        summary.append(entry)
    return summary, bandwidth


def table(summary, peers):
    header = ["context", "what", "SpecLab ms", "BW"] + [
        text for peer in peers for text in (f"{peer} ms", "BW", "ratio [95 %]")
    ]
    rows = [header]
    for entry in summary:
        decode = entry["what"] != "prefill"

        def share(name):
            return f"{100 * entry[name]['bandwidth_share']:.0f} %" if decode else ""

        row = [str(entry["context"]), entry["what"], f"{entry[OURS]['ms']:.2f}", share(OURS)]
        for peer in peers:
            found = entry[peer]
            spread = f" [{found['interval'][0]:.2f}, {found['interval'][1]:.2f}]" if found["interval"] else ""
            row += [
                f"{found['ms']:.2f}{'+' if found['program'].endswith('on') else ' '}",
                share(peer),
                f"{found['ratio']:.2f}{spread}",
            ]
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 1 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    )


def growth(summary, peers):
    """t(n)/t(1) of each program at each context."""
    out = []
    for context in sorted({entry["context"] for entry in summary}):
        forwards = {
            int(entry["what"].split()[-1]): entry
            for entry in summary
            if entry["context"] == context and entry["what"].startswith("forward")
        }
        if 1 in forwards:
            out += [
                f"t(n)/t(1) at context {context}, {name}: "
                + ", ".join(f"{n}: {entry[name]['ms'] / forwards[1][name]['ms']:.2f}" for n, entry in forwards.items())
                for name in (OURS, *peers)
            ]
    return "\n".join(out)


def where_they_win(summary, peers):
    """Lists the lines in which another program is faster: the interval of the ratio lies below 1. Then lists the other
    lines with a ratio below 1: it is unclear which program is faster there."""
    faster, unclear = [], []
    for peer in peers:
        for entry in summary:
            ratio, span = entry[peer]["ratio"], entry[peer]["interval"]
            if ratio < 1:
                shown = f"{ratio:.2f} [{span[0]:.2f}, {span[1]:.2f}]" if span else f"{ratio:.2f}, no interval"
                line = f"  {peer}, {entry['what']} at context {entry['context']}: {shown}"
                (faster if span and span[1] < 1 else unclear).append(line)
    return "\n".join(
        [
            "Lines in which another program is faster (the interval of the ratio lies below 1):",
            *(faster or ["  none"]),
            "Lines in which it is unclear which program is faster (the ratio is below 1, but its interval contains 1):",
            *(unclear or ["  none"]),
        ]
    )


def same_tokens(agreement, contexts, length):
    """Text that says at how many positions a program's greedy text has the same token as SpecLab's. agreement: name ->
    number for each context."""
    return "\n".join(
        [
            f"Number of positions, of {length}, at which a greedy text has the same token as SpecLab's, "
            "also after a difference:",
            *(
                f"  {name}: " + ", ".join(f"{n} at context {at}" for n, at in zip(counts, contexts, strict=True))
                for name, counts in agreement.items()
            ),
        ]
    )
