// The plots of a run.
const area = byId("plot-area");
const shownCategories = new Set(["all"]);
let metric = "speedup";
const METRICS = {speedup: "speedup over autoregressive decoding", tau: "τ, tokens per step", alpha: "α"};
const MOST_LINES = 8;  // lines in one plot; more cannot be told apart

const seriesOf = entry => ["all", ...data.categories].filter(name => shownCategories.has(name)).map(name => [
  name, ["all", ...data.categories].indexOf(name), name === "all" ? entry[metric] : entry.categories?.[name]?.[metric],
]);

function dotPlot(width) {
  const cases = drawnCases().filter(number => seriesOf(data.cases[number]).some(([, , value]) => value));
  if (cases.length === 0) return null;
  const many = shownCategories.size, rows = rowsOf(cases.map(labelOf), width, Math.max(14, 9 * many));
  const values = cases.flatMap(number => seriesOf(data.cases[number]).flatMap(([, , value]) => value ?? []));
  if (metric === "speedup") values.push(...cases.map(number => data.cases[number].predicted ?? NaN));
  const height = 8 + rows.height * cases.length + 40;
  const {root, px, inner} = plane(width, height, {x: {domain: domain(values, {include: metric === "speedup" ? [1] : []}), label: METRICS[metric]}, left: rows.left});
  if (metric === "speedup") root.append(svg("line", {class: "one", x1: px(1), x2: px(1), y1: inner.top, y2: inner.bottom}));
  cases.forEach((number, place) => {
    const entry = data.cases[number];
    root.append(rows.label(place));
    seriesOf(entry).forEach(([name, kind, value], position) => {
      if (!value) return;
      const y = rows.middle(place) + 9 * (position - (many - 1) / 2), [middle, low, high] = value;
      if (Number.isFinite(low)) root.append(svg("line", {x1: px(low), x2: px(high), y1: y, y2: y, stroke: colour(kind), "stroke-width": 2}));
      const verdict = name === "all" && metric === "speedup" && entry.verdict ? `\n${entry.verdict}` : "";
      root.append(mark(shape(kind, px(middle), y, 4.5, {fill: colour(kind)}), `${entry.label}, ${name === "all" ? "all prompts" : name}\n${metric} ${spanText(value)}${verdict}`));
    });
    if (metric === "speedup" && Number.isFinite(entry.predicted)) {
      const diamond = shape(3, px(entry.predicted), rows.middle(place), 4, {fill: "none", stroke: colour(7), "stroke-width": 1.5, "pointer-events": "all"});
      root.append(mark(diamond, `${entry.label}\npredicted ${entry.predicted.toFixed(2)}`));
    }
  });
  return root;
}
const dotLegend = () => [
  ...["all", ...data.categories].map((name, kind) => [name, kind]).filter(([name]) => shownCategories.has(name)).map(([name, kind]) => keyItem(kind, name === "all" ? "all prompts" : name)),
  ...(metric === "speedup" ? [keyItem(3, "predicted", {fill: "none", stroke: colour(7)})] : []),
];

function agreementPlot(width) {
  const cases = drawnCases().filter(number => Number.isFinite(data.cases[number].predicted) && data.cases[number].speedup);
  if (cases.length === 0) return null;
  const side = domain(cases.flatMap(number => [data.cases[number].predicted, ...data.cases[number].speedup]), {include: [1]});
  const {root, px, py} = plane(width, Math.min(width, 380), {x: {domain: side, label: "predicted speedup"}, y: {domain: side, label: "measured speedup"}});
  root.append(svg("line", {class: "one", x1: px(side[0]), x2: px(side[1]), y1: py(side[0]), y2: py(side[1])}));
  for (const number of cases) {
    const {label, predicted, speedup: [value, low, high], lossy} = data.cases[number];
    if (Number.isFinite(low)) root.append(svg("line", {x1: px(predicted), x2: px(predicted), y1: py(low), y2: py(high), stroke: colour(lossy ? 5 : 0), "stroke-width": 1.5}));
    root.append(mark(shape(lossy ? 2 : 0, px(predicted), py(value), 4.5, {fill: colour(lossy ? 5 : 0)}),
      `${label}\npredicted ${predicted.toFixed(2)}, measured ${spanText([value, low, high])}\nerror of the prediction ${percent(predicted / value - 1)}`));
  }
  return root;
}
const agreementLegend = () => drawnCases().some(number => data.cases[number].lossy)
  ? [keyItem(0, "lossless"), keyItem(2, "lossy", {fill: colour(5)})] : [];

function positionLines() {
  return drawnCases().filter(number => data.cases[number].at).slice(0, MOST_LINES).map(number => {
    const {label, at, atSpans} = data.cases[number];
    const points = at.map((value, place) => [place + 1, value, `position ${place + 1}: accepted ${spanText([value, ...(atSpans?.[place] ?? [])], 3)}`]);
    return {name: label, points: points.filter(point => Number.isFinite(point[1]))};
  }).filter(line => line.points.length > 0);
}
const positionPlot = width => positionLines().length === 0 ? null : linePlot(width, positionLines(),
  {label: "position in the draft", format: at => Number.isInteger(at) ? String(at) : ""}, {label: "accepted, given tested", domain: [0, 1]});

function gammaLines() {
  const drawn = new Set(drawnCases());
  return data.families.filter(([, members]) => members.some(number => drawn.has(number))).slice(0, MOST_LINES).map(([name, members]) => ({
    name,
    points: members.map(number => data.cases[number]).map(entry => [entry.gamma, entry.speedup[0],
      `γ ${entry.gamma}: speedup ${spanText(entry.speedup)}${Number.isFinite(entry.predicted) ? `, predicted ${entry.predicted.toFixed(2)}` : ""}`]),
  }));
}
const gammaPlot = width => gammaLines().length === 0 ? null : linePlot(width, gammaLines(),
  {label: "draft length γ", format: at => Number.isInteger(at) ? String(at) : ""}, {label: "speedup", include: [1], one: true});

const PHASES = ["draft", "target", "acceptance rule", "other"];
function timePlot(width) {
  const cases = drawnCases().filter(number => data.cases[number].time?.some(Number.isFinite));
  if (cases.length === 0) return null;
  const rows = rowsOf(cases.map(labelOf), width), total = number => data.cases[number].time.reduce((sum, one) => sum + (one ?? 0), 0);
  const {root, px} = plane(width, 8 + rows.height * cases.length + 40,
    {x: {domain: [0, 1.05 * Math.max(...cases.map(total))], label: "ms per step"}, left: rows.left});
  cases.forEach((number, place) => {
    let at = 0;
    root.append(rows.label(place));
    data.cases[number].time.forEach((ms, phase) => {
      if (!ms) return;
      root.append(mark(svg("rect", {x: px(at), width: Math.max(.5, px(at + ms) - px(at)), y: rows.middle(place) - 7, height: 14, fill: colour(phase)}),
        `${labelOf(number)}\n${PHASES[phase]} ${ms.toPrecision(3)} ms of ${total(number).toPrecision(3)} ms per step`));
      at += ms;
    });
  });
  return root;
}

const rowLines = () => [{name: "t(n)", points: data.t.map(([rows, ratio]) => [rows, ratio, `${rows} rows: ${ratio.toFixed(2)} x the time of one row`])}];
const rowPlot = width => !data.t?.length ? null : linePlot(width, rowLines(), {label: "rows n of a target forward"}, {label: "t(n), time / time of one row", include: [1], one: true});

const redraws = [
  figure(area, "Each case", "Lines: 95 % intervals over prompts. The dashed line is the autoregressive reference.", dotPlot, {wide: true, legend: dotLegend}),
  figure(area, "Predicted and measured speedup", "On the dashed line they are equal.", agreementPlot, {legend: agreementLegend}),
  figure(area, "Speedup against draft length", "Families of cases that differ in γ alone.", gammaPlot, {legend: () => lineLegend(gammaLines())}),
  figure(area, "Acceptance by position", `Of the tested tokens at each position, the share that was accepted. At most ${MOST_LINES} cases.`, positionPlot, {legend: () => lineLegend(positionLines())}),
  figure(area, "Time of more rows", "Calibrated time of a target forward over n rows. Theory often assumes the dashed line.", rowPlot),
  figure(area, "Where the time of a step goes", "Means over the steps of a case.", timePlot, {wide: true, legend: () => PHASES.map((name, phase) => bar(phase, name))}),
];

// The bar of categories also chooses what the first plot shows.
const categories = byId("categories");
categories.hidden = false;
categories.before(html("div", {class: "bar noprint"}, html("label", {}, "First plot shows ", html("select", {id: "metric", onchange: event => { metric = event.target.value; redraws[0](); }},
  ...Object.entries(METRICS).map(([name, text]) => html("option", {value: name}, text))))));
for (const name of ["all", ...data.categories]) {
  categories.append(html("button", {type: "button", "aria-pressed": String(shownCategories.has(name)), "data-category": name, onclick: event => {
    if (shownCategories.has(name)) shownCategories.delete(name); else shownCategories.add(name);
    event.currentTarget.setAttribute("aria-pressed", String(shownCategories.has(name)));
    redraws[0]();
  }}, name === "all" ? "all prompts" : name));
}
if (data.categories.length === 0) categories.hidden = true;

const chooser = byId("waterfall-case");
if (chooser) {
  const withTerms = data.cases.map((entry, number) => [number, entry]).filter(([, entry]) => entry.waterfall);
  chooser.append(...withTerms.map(([number, entry]) => html("option", {value: number}, entry.label)));
  const lossless = withTerms.filter(([, entry]) => !entry.lossy && entry.speedup);
  const best = lossless.sort((a, b) => b[1].speedup[0] - a[1].speedup[0])[0] ?? withTerms[0];
  chooser.value = best[0];
  const redraw = figure(byId("waterfall-plot"), "Waterfall", "Grey: whole speedups. Each other bar is a factor; green raises the speedup, orange lowers it.",
    width => waterfallChart(width, data.cases[Number(chooser.value)].waterfall, "speedup"));
  chooser.addEventListener("change", redraw);
  redraw();
}
function redrawAll() { for (const redraw of redraws) redraw(); }
listeners.push(redrawAll);
redrawAll();
