"""The first page: the cases of all committed records that have a speedup over autoregressive decoding, by machine, the fastest first."""

from report import values


def row_of(record, number, case):
    speedup = case.metric("speedup")
    return {
        "label": case.label(without=()),
        "id": case.id,
        "lossy": bool(case.lossy),
        "speedup": f"{speedup:.2f}" + values.span_text(case.metric("speedup_ci95"), "{:.2f}"),
        "sort": speedup,
        "other_texts": values.of_other_texts(case),
        "verdict": values.verdict(case),
        "predicted": values.predicted(case),
        "tau": case.metric("tau"),
        "tokens_per_second": case.metric("tokens_per_second"),
        "prompts": case.prompts,
        "config": record.run.summary["name"],
        "target": record.run.environment["models"]["target"]["name"],
        "record": record,
        "link": record.link(f"case-{number}"),
        "words": " ".join([case.label(without=()), case.id, record.name, values.verdict(case)]).lower(),
    }


def machines_of(records):
    """[(machine, [row])]: machines with the most cases first, and on each machine the fastest case first."""
    found = {}
    for record in records:
        for number, case in enumerate(record.run.cases):
            if case.metric("speedup") is not None and not case.autoregressive:
                found.setdefault(record.machine, []).append(row_of(record, number, case))
    for rows in found.values():
        rows.sort(key=lambda row: -row["sort"])
    return sorted(found.items(), key=lambda item: -len(item[1]))


def fastest(rows):
    """The fastest of a machine's lossless cases with the verdict "faster"; None without one."""
    return next((row for row in rows if not row["lossy"] and row["verdict"] == "faster"), None)


def content(records):
    machines = machines_of(records)
    return {"machines": [(name, rows, fastest(rows)) for name, rows in machines], "records": records}
