"""The section of results/README.md about the goal of the calibration: on which machines the committed quickstarts do not show it yet."""

from report import values

RUNS = 3  # quickstarts of one machine
CASES = 27  # with a waterfall, in these runs
CASES_WITHIN = 25
LIMIT = 0.03  # of a step's time that the calibration leaves unexplained, in either direction
CPU_SHARE = 0.97  # of every case
HEADING = "## Goal of the calibration"


def quickstarts(runs):
    """{machine: its committed quickstarts}. The folder of a record is MACHINE/CONFIG."""
    found = {}
    for run in runs:
        if run.folder.name.startswith("quickstart"):
            found.setdefault(run.folder.parent.name, []).append(run)
    return found


def shares_of(runs):
    """The unexplained share of each case with a waterfall."""
    return [share[0] for run in runs for share in map(values.unexplained_share, run.cases) if share]


def cpu_shares_of(runs):
    return [case.metric("cpu_share") for run in runs for case in run.cases if case.metric("cpu_share") is not None]


def within(shares):
    return sum(abs(share) <= LIMIT for share in shares)


def shown(runs):
    """Whether these quickstarts of one machine show the goal."""
    shares, cpu = shares_of(runs), cpu_shares_of(runs)
    return (
        len(runs) >= RUNS
        and len(shares) >= CASES
        and within(shares) * CASES >= CASES_WITHIN * len(shares)
        and bool(cpu)
        and min(cpu) >= CPU_SHARE
    )


def section(runs):
    """The section with a heading, and an empty line after it; "" if no quickstart is kept, or if every machine with a quickstart shows the goal."""
    missing = {machine: own for machine, own in quickstarts(runs).items() if not shown(own)}
    if not missing:
        return ""
    lines = [
        f"{HEADING}\n",
        f"The goal is about {RUNS} quickstarts of one machine. At least {CASES_WITHIN} of their {CASES} cases with a waterfall leave at most {100 * LIMIT:.0f} % of a step's time unexplained "
        f"(in either direction), and every case has a `cpu_share` of at least {CPU_SHARE:.2f}. The committed records do not show it yet on these machines:\n",
        f"| machine | quickstarts | at most {100 * LIMIT:.0f} % unexplained | cpu_share |",
        "|---|---|---|---|",
    ]
    for machine, own in sorted(missing.items()):
        shares, cpu = shares_of(own), cpu_shares_of(own)
        ends = f"{min(cpu):.3f} to {max(cpu):.3f}" if cpu else "unknown"
        lines.append(f"| {machine} | {len(own)} of {RUNS} | {within(shares)} of {len(shares)} cases | {ends} |")
    lines.append(
        "\n`scripts/quickstart.sh` makes a quickstart, and so does `build/release/speclab run configs/quickstart.json --set repeats=3`, which measures each case three times. "
        "Nothing else may run on the machine. `scripts/baseline.py adopt RUN MACHINE/quickstart-2` keeps the second one.\n\n"
    )
    return "\n".join(lines)
