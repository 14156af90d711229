// Charts as SVG: axes, marks with values on hover or under the arrow keys. A chart is drawn again when its width changes.

const tip = byId("tip");
function showTip(mark) {
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(4, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 4);
  const above = box.top - own.height - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 0 ? above : Math.min(box.bottom + 8, innerHeight - own.height - 4)}px`;
}
function hideTip() {
  tip.hidden = true;
  for (const mark of document.querySelectorAll(".mark.at")) mark.classList.remove("at");
}
document.addEventListener("pointerover", event => {
  const mark = event.target.closest?.("[data-tip]");
  if (mark) showTip(mark); else if (!tip.hidden) hideTip();
});
document.addEventListener("scroll", () => { tip.hidden = true; }, {passive: true});

function moveAmongMarks(event) {
  const marks = [...event.currentTarget.querySelectorAll(".mark")];
  const now = marks.findIndex(mark => mark.classList.contains("at"));
  const next = {ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: marks.length - 1}[event.key];
  if (event.key === "Escape") hideTip();
  if (next === undefined || marks.length === 0) return;
  event.preventDefault();
  hideTip();
  const mark = marks[(Math.max(-1, next) + marks.length) % marks.length];
  mark.classList.add("at");
  showTip(mark);
}

// A figure whose `draw(width)` returns a chart, or null if it has nothing to show. Returns a function that draws it again.
function figure(host, title, note, draw, {wide = false, legend = () => []} = {}) {
  const canvas = html("div"), keys = html("ul", {class: "legend"});
  const frame = html("figure", {class: wide ? "wide" : null}, html("h3", {}, title), keys, canvas, html("figcaption", {}, note));
  host.append(frame);
  let width = 0;
  function redraw() {
    frame.hidden = false;
    width = Math.floor(canvas.clientWidth || frame.clientWidth);
    const drawn = width > 0 ? draw(width) : null;
    frame.hidden = !drawn;
    canvas.replaceChildren(...(drawn ? [drawn] : []));
    keys.replaceChildren(...(drawn ? legend() : []));
    if (!drawn) return;
    drawn.setAttribute("tabindex", "0");
    drawn.setAttribute("role", "group");
    drawn.setAttribute("aria-label", `${title}: a plot. The arrow keys move from value to value.`);
    drawn.addEventListener("keydown", moveAmongMarks);
    drawn.addEventListener("blur", hideTip);
  }
  new ResizeObserver(() => { if (!frame.hidden && Math.abs(canvas.clientWidth - width) > 1 && canvas.clientWidth > 0) redraw(); }).observe(canvas);
  return redraw;
}

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(one => one * power >= raw) * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; ++at) found.push(Number((at * step).toPrecision(10)));
  return found;
}
function domain(values, {include = [], pad = .04} = {}) {
  const all = [...values, ...include].filter(Number.isFinite);
  let [low, high] = [Math.min(...all), Math.max(...all)];
  if (low === high) [low, high] = [low - .5, high + .5];
  const extra = pad * (high - low);
  return [include.includes(0) && low === 0 ? 0 : low - extra, high + extra];
}

// A plane with axes. x, y: {domain, label, ticks?: values, format?}; y may be null for a chart with rows.
function plane(width, height, {x, y = null, left = 46, right = 12, top = 8, bottom = 38}) {
  const root = svg("svg", {class: "chart", width, height, viewBox: `0 0 ${width} ${height}`});
  const inner = {left, right: width - right, top, bottom: height - bottom};
  const px = value => inner.left + (value - x.domain[0]) / (x.domain[1] - x.domain[0]) * (inner.right - inner.left);
  const py = y ? value => inner.bottom - (value - y.domain[0]) / (y.domain[1] - y.domain[0]) * (inner.bottom - inner.top) : null;
  const shown = axis => axis.format ?? (value => String(value));
  for (const at of x.ticks ?? ticks(...x.domain, (inner.right - inner.left) / 70)) {
    root.append(svg("line", {class: "grid", x1: px(at), x2: px(at), y1: inner.top, y2: inner.bottom}),
      svg("text", {class: "soft", x: px(at), y: inner.bottom + 15, "text-anchor": "middle"}, shown(x)(at)));
  }
  root.append(svg("text", {x: (inner.left + inner.right) / 2, y: height - 4, "text-anchor": "middle"}, x.label));
  if (y) {
    for (const at of y.ticks ?? ticks(...y.domain, (inner.bottom - inner.top) / 45)) {
      root.append(svg("line", {class: "grid", x1: inner.left, x2: inner.right, y1: py(at), y2: py(at)}),
        svg("text", {class: "soft", x: inner.left - 5, y: py(at) + 4, "text-anchor": "end"}, shown(y)(at)));
    }
    root.append(svg("text", {transform: `translate(12 ${(inner.top + inner.bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, y.label));
  }
  root.append(svg("line", {class: "axis", x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom}));
  return {root, px, py, inner};
}

// Rows with a label each: beside the plane, or above each row where the plane is narrow. Returns the place and height of the rows.
function rowsOf(labels, width, thickness = 16) {
  const narrow = width < 560, longest = Math.max(0, ...labels.map(label => label.length));
  const left = narrow ? 8 : Math.min(320, 14 + 6.4 * longest), room = Math.floor((narrow ? width - 12 : left - 10) / 6.4);
  const height = narrow ? thickness + 20 : thickness + 6;
  const cut = label => label.length > room ? `${label.slice(0, room - 1)}…` : label;
  return {
    left, height,
    middle: place => 8 + place * height + (narrow ? 17 + thickness / 2 : height / 2),
    label: place => narrow
      ? svg("text", {x: 8, y: 8 + place * height + 13}, cut(labels[place]))
      : svg("text", {x: left - 8, y: 8 + place * height + height / 2 + 4, "text-anchor": "end"}, cut(labels[place])),
  };
}

const colour = place => `var(--s${place % 8})`;
const DASHES = ["", "6 3", "2 2", "8 3 2 3", "1 3", "10 2", "4 1", "3 5"];
// The shape of a series, so that series also differ without colours.
function shape(place, x, y, size, attributes) {
  const paths = [
    null,
    `M${-size} ${-size}H${size}V${size}H${-size}Z`,
    `M0 ${-size * 1.2}L${size * 1.1} ${size}H${-size * 1.1}Z`,
    `M0 ${-size * 1.4}L${size * 1.4} 0L0 ${size * 1.4}L${-size * 1.4} 0Z`,
    `M${-size * 1.1} ${-size}H${size * 1.1}L0 ${size * 1.2}Z`,
  ];
  const path = paths[place % paths.length];
  return path === null ? svg("circle", {cx: x, cy: y, r: size, ...attributes})
    : svg("path", {d: path, transform: `translate(${x} ${y})`, ...attributes});
}
function mark(element, text) {
  element.classList.add("mark");
  element.dataset.tip = text;
  return element;
}
const keyItem = (place, text, attributes = {}) => html("li", {}, legendShape(place, attributes), text);
function legendShape(place, attributes) {
  return svg("svg", {width: 14, height: 14, "aria-hidden": "true"}, shape(place, 7, 7, 4.5, {fill: colour(place), ...attributes}));
}
const bar = (place, text) => html("li", {}, html("span", {class: "key", style: `background:${colour(place)}`}), text);

// The bars that lead from a first value over factors to a last one. terms: [name, running value, 100 ln of the factor, explanation].
function waterfallChart(width, terms, label) {
  const rows = rowsOf(terms.map(term => term[0]), width);
  const height = 8 + rows.height * terms.length + 40;
  const {root, px, inner} = plane(width, height, {
    x: {domain: domain(terms.map(term => term[1]), {include: [0, 1], pad: .1}), label}, left: rows.left, right: 60,
  });
  root.append(svg("line", {class: "one", x1: px(1), x2: px(1), y1: inner.top, y2: inner.bottom}));
  let before = null;
  terms.forEach(([name, value, logarithm, explanation], place) => {
    const whole = before === null || place === terms.length - 1;
    const [from, to] = whole ? [px(0), px(value)] : [px(before), px(value)];
    const change = whole ? "" : percent(Math.expm1(logarithm));
    const rect = svg("rect", {
      x: Math.min(from, to), width: Math.max(1.5, Math.abs(to - from)), y: rows.middle(place) - 7, height: 14,
      fill: whole ? colour(6) : colour(value >= before ? 2 : 1),
    });
    root.append(rows.label(place), mark(rect, [`${name}: ${value.toFixed(3)}`, change && `factor ${change}`, explanation].filter(Boolean).join("\n")),
      svg("text", {x: Math.max(from, to) + 5, y: rows.middle(place) + 4}, whole ? value.toFixed(3) : change));
    before = value;
  });
  return root;
}

// Lines with a colour and shape (kind) and a dash each, by default those of their place. lines: [{name, points: [[x, y, text]], kind?, dash?}]
function linePlot(width, lines, x, y) {
  const xs = lines.flatMap(line => line.points.map(point => point[0])), ys = lines.flatMap(line => line.points.map(point => point[1]));
  const {root, px, py, inner} = plane(width, Math.min(width, 340), {
    x: {...x, domain: domain(xs)}, y: {...y, domain: y.domain ?? domain(ys, {include: y.include ?? []})},
  });
  if (y.one) root.append(svg("line", {class: "one", x1: inner.left, x2: inner.right, y1: py(1), y2: py(1)}));
  lines.forEach(({name, points, kind, dash}, place) => {
    const look = kind ?? place;
    const path = points.map(([a, b], at) => `${at ? "L" : "M"}${px(a)} ${py(b)}`).join("");
    root.append(svg("path", {d: path, fill: "none", stroke: colour(look), "stroke-width": 2, "stroke-dasharray": DASHES[(dash ?? place) % 8]}));
    for (const [a, b, text] of points) root.append(mark(shape(look, px(a), py(b), 4, {fill: colour(look)}), `${name}\n${text}`));
  });
  return root;
}
const lineLegend = lines => lines.map(({name, kind}, place) => keyItem(kind ?? place, name));
