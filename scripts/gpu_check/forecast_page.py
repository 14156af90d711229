"""Writes the parts of gpu_page.py's page that need predictions (forecast.py): the forecast, and the ratios measured /
predicted."""

import forecast


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def forecast_of(folder):
    """The GPU of the forecast whose name is part of the name of the folder; None if there is none."""
    return next((gpu for name, gpu in forecast.DEVICES.items() if name.lower() in folder.lower()), None)


def over(measured, predicted):
    return f"{measured / predicted:.2f}" if measured and predicted else "-"


def comparison(name, forwards, linear_times):
    """A table of measured times and bandwidths that have a prediction, with the ratio measured / predicted.
    `forwards(name)` gives the Forwards of gpu_page.py for the stage forwards_<name>, and linear_times is the result of
    linear_times() there."""
    gpu, rows = forecast_of(name), []
    if gpu is None:
        return f"There is no forecast for this GPU; there is one for {', '.join(forecast.DEVICES)}."

    def add(what, unit, factor, measured, predicted):
        if measured:
            rows.append(
                [what, f"{predicted * factor:.3f} {unit}", f"{measured * factor:.3f} {unit}", over(measured, predicted)]
            )

    for key, shape in forecast.SHAPES.items():
        found = forwards(key)
        if found.bandwidth:
            copied = found.machine.get("copy_bandwidth_bytes_per_second")
            add(f"{shape.name}: read bandwidth", "TB/s", 1e-12, found.bandwidth, gpu.bandwidth)
            add(f"{shape.name}: copy bandwidth", "TB/s", 1e-12, copied, gpu.bandwidth)
        context = found.first()
        for n in (1, *forecast.GOAL_ROWS[key]):
            time, launched = found.seconds(n, context), found.launches(n)
            add(
                f"{shape.name}: forward, n = {n}",
                "ms",
                1e3,
                time,
                forecast.forward(gpu, shape, n, context, launched=launched) if context else 0,
            )
            whole = found.seconds(n, context, download=True)
            add(
                f"{shape.name}: download of the logits, n = {n}",
                "ms",
                1e3,
                whole and time and whole - time,
                forecast.download(gpu, shape, n),
            )
        whole = forwards(f"{key}_persistent")
        if whole.first():
            add(
                f"{shape.name}: forward, n = 1, persistent",
                "ms",
                1e3,
                whole.seconds(1, whole.first()),
                forecast.forward(gpu, shape, 1, whole.first(), "persistent"),
            )
        for form in ("off", "round", "loop"):
            if context:
                add(
                    f"{shape.name}: greedy step on the device, device_graph {form}",
                    "ms",
                    1e3,
                    found.step_seconds(form, context),
                    forecast.step(gpu, shape, context, form),
                )
    for (outputs, inputs), by_rows in linear_times.items():
        for n, times in by_rows.items():
            if n in (1, 16, 128) and "linear" in times:
                add(
                    f"linear {outputs} x {inputs}, n = {n}",
                    "µs",
                    1,
                    times["linear"],
                    1e6 * forecast.one_launch(gpu, forecast.linear("", 1, outputs, inputs, n)),
                )
    return (
        table(["what", "predicted", "measured", "measured / predicted"], rows)
        if rows
        else "Nothing that has a prediction was measured."
    )


def forecast_section(goals):
    gpus = list(forecast.DEVICES.values())
    names = [gpu.name for gpu in gpus]
    parts = [
        "## Forecast",
        "Predicted by `scripts/gpu_check/forecast.py`, not measured. The floor of a kernel is the largest of three "
        "times: bytes / attainable bandwidth, operations / attainable arithmetic, on-chip bytes / on-chip bandwidth. "
        "The predicted time of a kernel adds a ramp (its first bytes arrive, its last block ends) and accesses that "
        "wait for each other. A forward also has a gap after each launch. Launches are assumed not to overlap, as "
        "with `--kernels serial`; the default overlaps them on sm_90 and should be faster. The constants, their "
        f"sources and every number are in [forecast.json](forecast.json). The forwards follow {forecast.CONTEXT} "
        "committed tokens.",
    ]
    rows = []
    for what, goal, ((pattern, factor), _), _, _ in goals:
        values = [forecast.GOALS[what](gpu) if what in forecast.GOALS else None for gpu in gpus]
        rows.append([what, goal, *("-" if value is None else pattern.format(value * factor) for value in values)])
    parts += ["### Goals, predicted", table(["what", "goal", *(f"{name}, predicted" for name in names)], rows)]
    rows = []
    for shape in (*forecast.SHAPES.values(), forecast.DRAFT):
        for form, text in (("launches", "launches"), ("graph", "one graph"), ("persistent", "persistent kernel")):
            count = f"1 ({forecast.tasks(shape)} tasks)" if form == "persistent" else str(forecast.launches(shape, 1))
            times = [f"{1e3 * forecast.forward(gpu, shape, 1, forecast.CONTEXT, form):.3f}" for gpu in gpus]
            rows.append([shape.name, text, count, f"{shape.weight_bytes / 1e9:.3f}", *times])
    header = ["shape", "form", "launches", "GB of weights", *(f"{name}, ms" for name in names)]
    parts += ["### Forward of one row, predicted", table(header, rows)]
    rows = []
    for key, shape in forecast.SHAPES.items():
        for n in forecast.GOAL_ROWS[key]:
            ratios = [f"{forecast.ratio(gpu, shape, n):.3f}" for gpu in gpus]
            copies = [f"{1e3 * forecast.download(gpu, shape, n):.2f}" for gpu in gpus]
            rows.append([shape.name, str(n), str(forecast.launches(shape, n)), *ratios, *copies])
    header = [
        "shape",
        "n",
        "launches",
        *(f"{name}, t(n)/t(1)" for name in names),
        *(f"{name}, ms of the download" for name in names),
    ]
    parts += ["### Forwards of n rows, predicted", table(header, rows)]
    for key, shape in forecast.SHAPES.items():
        rows = []
        for n in (1, 16):
            for entry in forecast.kernel_rows(shape, n):
                floors, times = entry["floor_us"], entry["predicted_us"]
                cells = [f"{floors[name]:.2f} / {times[name]:.2f}" for name in names]
                rows.append([str(n), entry["kernel"], str(entry["launches"]), f"{entry['bytes'] / 1e6:.3f}", *cells])
        header = ["n", "kernel", "launches", "MB each", *(f"{name}, µs each: floor / predicted" for name in names)]
        parts += [f"### Kernels of the {shape.name}, predicted", table(header, rows)]
    return "\n\n".join(parts)
