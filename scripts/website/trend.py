"""The page of trends: how the speedups of each workload change from record to record, from results/history.jsonl."""

import history
import history_page
from report import values

T_ROWS = ("2", "4", "8", "16", "32")
MOST_LINES = 6  # most cases that the plot of a workload shows first


def command_of(line, configs):
    """The command that measured a line of the history whose record is not committed any more."""
    file = configs.get(line["config"])
    run = (
        f"build/release/speclab run {file}"
        if file
        else f"build/release/speclab run CONFIG (the config named {line['config']})"
    )
    return f"git checkout {line['commit']} && {run}"


def entry_of(number, line, letter, record, configs):
    return {
        "number": number,
        "line": line,
        "machine": f"{letter}: {history_page.machine_of(line)}",
        "times": [line["t"].get(rows) for rows in T_ROWS],
        "record": record,
        "command": record.command if record else command_of(line, configs),
    }


def number_in(record, case_id):
    """The number of a case on the page of a record."""
    return next((number for number, case in enumerate(record.run.cases) if case.id == case_id), None)


def plain(changes):
    """The changes without the marks of Markdown."""
    return [(number, text.replace("*", "")) for number, text in changes]


def case_row(case_id, lines, numbers, records):
    """The row of a case: its values in the last line of the history that has it, and all its changes. `link`: the case on the page of
    that line's record, None if the record is not committed. `number`: the place of the line on this page."""
    place = max(place for place, line in enumerate(lines) if case_id in line["cases"])
    own, record = lines[place]["cases"][case_id], records[place]
    forward, flops = history_page.forward_of(lines[place], own), own.get("flops")
    number = number_in(record, case_id) if record else None
    return {
        "id": case_id,
        "speedup": history_page.interval(*history_page.speedup_of(own)),
        "sort": own.get("speedup"),
        "values": {
            **{name: own.get(name) for name in ("tau", "alpha", "c", "rows", "calls", "drafts")},
            "t": forward[1] if forward else None,
            "operations": flops / 1e9 if flops else None,
        },
        "link": record.link(f"case-{number}") if number is not None else None,
        "number": numbers[place],
        "changes": plain(history_page.changes(lines, numbers, case_id)),
    }


def group_of(lines, record_of, configs):
    """What the page shows of one workload; its lines are in the order of their dates."""
    numbers = list(range(1, len(lines) + 1))
    machines = list(dict.fromkeys(map(history_page.machine_of, lines)))
    letters = [chr(ord("A") + machines.index(history_page.machine_of(line)) % 26) for line in lines]
    records = [record_of(line) for line in lines]
    ids = list(dict.fromkeys(case for line in reversed(lines) for case in line["cases"]))
    rows = [case_row(case, lines, numbers, records) for case in ids]
    first = sorted((row for row in rows if row["sort"]), key=lambda row: -row["sort"])[:MOST_LINES]
    last = lines[-1]
    return {
        "title": f"{last['config']}, {last['target']}",
        "prompts": last["prompts"],
        "workload": last["workload"],
        "entries": [entry_of(*one, configs) for one in zip(numbers, lines, letters, records)],
        "changes": plain(history_page.table_changes(lines, numbers)),
        "rows": rows,
        "shown": {row["id"] for row in first},
        "data": {
            "machines": letters,
            "cases": {case: [history_page.speedup_of(line["cases"].get(case) or {}) for line in lines] for case in ids},
        },
    }


def content(root, records, configs):
    groups = {}
    for line in history.read(root / history.HISTORY):
        groups.setdefault((line["config"], line["workload"]), []).append(line)
    record_of = lambda line: next((record for record in records if history.same_run(record.line, line)), None)
    found = [group_of(groups[key], record_of, configs) for key in sorted(groups)]
    return {"groups": found, "t_rows": T_ROWS, "data": values.rounded({"groups": [group["data"] for group in found]})}
