// A plot for each workload with two records or more: the speedup of the ticked cases, one line for each machine.
for (const host of document.querySelectorAll("[data-group]")) {
  const {machines, cases} = data.groups[Number(host.dataset.group)];
  const ticked = () => [...document.querySelectorAll(`[data-plot="${host.dataset.group}"]:checked`)].map(box => box.value);
  const names = [...new Set(machines)];
  const lines = () => ticked().slice(0, 8).flatMap((id, kind) => names.map((machine, dash) => ({
    name: names.length > 1 ? `${id}, machine ${machine}` : id, kind, dash,
    points: cases[id].map((value, at) => [at + 1, value]).filter(([at, value]) => machines[at - 1] === machine && Number.isFinite(value[0]))
      .map(([at, value]) => [at, value[0], `record ${at}, machine ${machine}: speedup ${spanText(value)}`]),
  }))).filter(line => line.points.length > 0);
  const redraw = figure(host, "Speedup of each record", "At most eight ticked cases. Records of one machine are joined; times of different machines are not comparable.",
    width => lines().length === 0 ? null : linePlot(width, lines(), {label: "record", format: at => Number.isInteger(at) ? String(at) : ""}, {label: "speedup", include: [1], one: true}),
    {legend: () => lineLegend(lines())});
  for (const box of document.querySelectorAll(`[data-plot="${host.dataset.group}"]`)) box.addEventListener("change", redraw);
  redraw();
}
