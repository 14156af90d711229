// The plots of a comparison of two runs.
const area = byId("plot-area");
const hundredths = value => `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)}`;
const withChange = () => drawnCases().filter(number => data.cases[number].parts);

function changePlot(width) {
  const cases = withChange();
  if (cases.length === 0) return null;
  const rows = rowsOf(cases.map(labelOf), width);
  const ends = cases.flatMap(number => {
    const {parts, change} = data.cases[number], sum = sign => parts.filter(part => sign * part > 0).reduce((all, part) => all + part, 0);
    return [100 * sum(1), 100 * sum(-1), ...change.filter(Number.isFinite).map(ratio => 100 * Math.log(ratio))];
  });
  const {root, px, inner} = plane(width, 8 + rows.height * cases.length + 40, {x: {domain: domain(ends, {include: [0]}), label: "100 ln (NEW / BASE); to the right NEW is faster"}, left: rows.left});
  root.append(svg("line", {class: "one", x1: px(0), x2: px(0), y1: inner.top, y2: inner.bottom}));
  cases.forEach((number, place) => {
    const {label, parts, change, verdict} = data.cases[number], at = {"1": 0, "-1": 0};
    root.append(rows.label(place));
    parts.forEach((part, kind) => {
      const sign = part < 0 ? -1 : 1, from = at[sign], to = from + 100 * part;
      at[sign] = to;
      if (Math.abs(px(to) - px(from)) < .3) return;
      root.append(mark(svg("rect", {x: Math.min(px(from), px(to)), width: Math.abs(px(to) - px(from)), y: rows.middle(place) - 7, height: 14, fill: colour(kind)}),
        `${label}\n${data.parts[kind]} ${hundredths(part)}`));
    });
    const [ratio, low, high] = change.map(one => Number.isFinite(one) ? 100 * Math.log(one) : null), y = rows.middle(place);
    if (low !== null) root.append(svg("line", {x1: px(low), x2: px(high), y1: y, y2: y, stroke: colour(7), "stroke-width": 2}));
    root.append(mark(shape(0, px(ratio), y, 4.5, {fill: colour(7)}), `${label}: ${verdict}\nNEW / BASE ${spanText(change, 3)}`));
  });
  return root;
}

function speedPlot(width) {
  const cases = withChange().filter(number => data.cases[number].speedup.every(Number.isFinite));
  if (cases.length === 0) return null;
  const rows = rowsOf(cases.map(labelOf), width), values = cases.flatMap(number => data.cases[number].speedup);
  const {root, px, inner} = plane(width, 8 + rows.height * cases.length + 40, {x: {domain: domain(values, {include: [1]}), label: "speedup over autoregressive decoding"}, left: rows.left});
  root.append(svg("line", {class: "one", x1: px(1), x2: px(1), y1: inner.top, y2: inner.bottom}));
  cases.forEach((number, place) => {
    const {label, speedup: [base, fresh]} = data.cases[number], y = rows.middle(place);
    const text = `${label}\nBASE ${base.toFixed(3)}, NEW ${fresh.toFixed(3)}`;
    root.append(rows.label(place), svg("line", {x1: px(base), x2: px(fresh), y1: y, y2: y, stroke: colour(6), "stroke-width": 2}),
      mark(shape(0, px(base), y, 4.5, {fill: "var(--paper)", stroke: colour(0), "stroke-width": 2}), text), mark(shape(0, px(fresh), y, 4.5, {fill: colour(0)}), text));
  });
  return root;
}

const redraws = [
  figure(area, "What changed", "Bars: parts of the change. Dot: the whole change of the speedup with its 95 % interval; without a reference, that of the speed.", changePlot,
    {wide: true, legend: () => data.parts.map((name, kind) => bar(kind, name))}),
  figure(area, "Speedup in both runs", "Hollow: BASE. Filled: NEW.", speedPlot, {wide: true}),
];
const chooser = byId("waterfall-case");
const whole = data.cases.map((entry, number) => [number, entry]).filter(([, entry]) => entry.parts && entry.speedup?.every(Number.isFinite));
byId("waterfall-bar").hidden = whole.length === 0;
if (whole.length > 0) {
  chooser.append(...whole.map(([number, entry]) => html("option", {value: number}, entry.label)));
  const largest = [...whole].sort((a, b) => Math.abs(Math.log(b[1].change[0])) - Math.abs(Math.log(a[1].change[0])))[0];
  chooser.value = largest[0];
  const terms = ({speedup: [base, fresh], parts}) => {
    let running = base;
    const steps = parts.map((part, kind) => [data.parts[kind], running *= Math.exp(part), part, ""]);
    return [["BASE", base, 0, ""], ...steps, ["NEW", fresh, 0, ""]];
  };
  const redraw = figure(byId("waterfall-plot"), "From BASE to NEW", "Grey: the speedup of each run. Each other bar is a factor; green makes NEW faster, orange slower.",
    width => waterfallChart(width, terms(data.cases[Number(chooser.value)]), "speedup"));
  chooser.addEventListener("change", redraw);
  redraw();
}
function redrawAll() { for (const redraw of redraws) redraw(); }
listeners.push(redrawAll);
redrawAll();
