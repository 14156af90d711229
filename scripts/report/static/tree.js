// The tree of a step: the pending token, the drafted tokens, and the probes and relays of lookahead decoding.
const STATES = ["not tested", "accepted", "rejected"];
const NODE = {width: 92, height: 20, gapX: 26, gapY: 5};
const MOST_NODES = 400;

// [{word, kind, parent, text}] of a step; node 0 is the pending token.
function nodesOf(step, words, pending) {
  const [, , , , , , tokens, more] = step;
  const nodes = [{word: pending, kind: "root", parent: -1, text: "pending token"}];
  tokens.forEach(([word, state, p, q, confidence, parent], place) => {
    const numbers = [["p", p], ["q", q], ["confidence", confidence]].filter(([, value]) => value !== undefined && value !== null);
    nodes.push({word: words[word], kind: ["untested", "accepted", "rejected"][state], parent: parent ?? place,
      text: [STATES[state], ...numbers.map(([name, value]) => `${name} ${value}`)].join(", ")});
  });
  for (const [word, parent, best] of more?.probes ?? [])
    nodes.push(best === null ? {word: words[word], kind: "relay", parent, text: "relay: fed so that the probes below it can see it"}
      : {word: words[word], kind: "probe", parent, text: `probe; the target's best token there: ${words[best]}`});
  return nodes;
}

function treeChart(nodes) {
  const children = nodes.map(() => []);
  nodes.forEach((node, place) => { if (place > 0 && children[node.parent]) children[node.parent].push(place); });
  const depth = [], y = [];
  let leaf = 0;
  function lay(place, level) {
    depth[place] = level;
    children[place].forEach(child => lay(child, level + 1));
    y[place] = children[place].length === 0 ? leaf++ : (y[children[place][0]] + y[children[place].at(-1)]) / 2;
  }
  lay(0, 0);
  const left = place => 2 + depth[place] * (NODE.width + NODE.gapX), top = place => 2 + y[place] * (NODE.height + NODE.gapY);
  const width = 4 + (Math.max(...depth.filter(Number.isFinite)) + 1) * (NODE.width + NODE.gapX) - NODE.gapX, height = 4 + leaf * (NODE.height + NODE.gapY);
  const root = svg("svg", {class: "chart tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", style: "max-width:none",
    "aria-label": `a tree of ${nodes.length} nodes; the table lists the drafted ones`});
  nodes.forEach((node, place) => {
    if (depth[place] === undefined) return;
    if (place > 0) {
      const [x1, y1, x2, y2] = [left(node.parent) + NODE.width, top(node.parent) + NODE.height / 2, left(place), top(place) + NODE.height / 2];
      root.append(svg("path", {class: "edge", d: `M${x1} ${y1}C${x1 + 13} ${y1} ${x2 - 13} ${y2} ${x2} ${y2}`}));
    }
    const shown = visible(node.word), group = svg("g", {class: node.kind, transform: `translate(${left(place)} ${top(place)})`},
      svg("rect", {width: NODE.width, height: NODE.height}),
      svg("text", {x: 5, y: 14}, shown.length > 12 ? `${shown.slice(0, 11)}…` : shown));
    root.append(mark(group, `${shown}\n${node.text}`));
  });
  return root;
}
