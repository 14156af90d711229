// The texts of the run: tokens coloured by their origin, steps one by one, and the numbers of each prompt.
const textsElement = byId("texts-data");
const texts = textsElement ? JSON.parse(textsElement.textContent) : null;
const visible = word => word.replaceAll("\n", "↵").replaceAll("\t", "→").replaceAll(" ", "·") || "∅";

// [[word, look]] of each step of each turn, and the first token of the turn.
function turnsOf(text) {
  let word = 0, step = 0;
  return text.turns.map(count => {
    const turn = {first: texts.words[text.words[word++]], steps: []};
    for (const end = step + count; step < end; ++step) {
      const [drafted, accepted, emitted, ended] = text.steps[step];
      const last = drafted === 0 ? "plain" : ended === "rejection" ? "rejection" : "bonus";
      const tokens = [];
      for (let place = 0; place < emitted; ++place) tokens.push([texts.words[text.words[word++]], place < accepted ? "accepted" : last]);
      turn.steps.push({number: step, tokens, step: text.steps[step]});
    }
    return turn;
  });
}
const isChain = tokens => tokens.every(token => token[5] === undefined);
const token = (word, look, shown) => html("span", {class: `tok ${look}`, title: look}, shown ?? visible(word));
// A token in a flowing text; a newline in it breaks the line.
function flowToken(word, look) {
  const lines = word.split("\n");
  return lines.flatMap((line, place) => place < lines.length - 1 ? [token(word, look, `${line}↵`), "\n"] : line ? [token(word, look, line)] : []);
}

function detailOf(step, pending) {
  const [, , , , , , tokens, more] = step, nodes = nodesOf(step, texts.words, pending), chain = isChain(tokens);
  const cell = value => html("td", {}, value === undefined || value === null ? "" : String(value));
  const parts = [], table = () => html("div", {class: "scroll"}, html("table", {}, html("thead", {}, html("tr", {},
    ...["#", "token", ...(chain ? [] : ["below"]), "p", "q", "confidence", "outcome"].map(name => html("th", {scope: "col"}, name)))),
    html("tbody", {}, ...tokens.map(([word, state, p, q, confidence, parent], place) => html("tr", {}, cell(place + 1), html("td", {class: "words"}, visible(texts.words[word])),
      ...(chain ? [] : [cell(parent ?? place)]), cell(p), cell(q), cell(confidence), html("td", {class: "words"}, STATES[state]))))));
  const drawn = (!chain || more?.probes) && nodes.length <= MOST_NODES;
  if (drawn) parts.push(html("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "tree of the step"}, treeChart(nodes)));
  if (tokens.length > 0) parts.push(drawn ? html("details", {}, html("summary", {}, `${tokens.length} drafted tokens as a table`), table()) : table());
  if (parts.length === 0) parts.push("Nothing was drafted.");
  for (const [name, value] of Object.entries(more ?? {}))
    if (name !== "probes") parts.push(html("p", {class: "muted"}, `${name.replaceAll("_", " ")}: ${JSON.stringify(value)}`));
  return html("div", {class: "detail"}, ...parts);
}

function stepItem({number, tokens, step}, pending) {
  const [drafted, accepted, , ended, source, ms, draftedTokens] = step, lost = isChain(draftedTokens) ? draftedTokens.slice(accepted) : [];
  const item = html("li");
  const button = html("button", {type: "button", "aria-expanded": "false", "aria-label": `step ${number + 1}: details`, onclick: () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) item.lastChild.remove(); else item.append(detailOf(step, pending));
  }}, String(number + 1));
  item.append(html("div", {class: "row"}, button, ...tokens.map(([word, look]) => token(word, look)),
    ...lost.map(([word]) => token(texts.words[word], "lost")),
    html("span", {class: "meta muted"}, drafted === 0 ? `${ms} ms` : `${accepted} of ${drafted} from ${source || "the draft"}, ended by ${ended}, ${ms} ms`)));
  return item;
}

function showText() {
  const text = texts.texts[Number(byId("text-prompt").value)], prompt = texts.prompts[text.prompt], host = byId("text-area");
  host.replaceChildren();
  const question = place => prompt?.turns[place] === undefined ? [] : [html("details", {}, html("summary", {}, `Prompt ${text.prompt}${prompt.turns.length > 1 ? `, turn ${place + 1}` : ""}`), html("pre", {}, prompt.turns[place]))];
  if (!text.steps) {
    host.append(...question(0), html("p", {class: "flow"}, text.text));
    return;
  }
  turnsOf(text).forEach((turn, place) => {
    let pending = turn.first;
    const items = turn.steps.map(step => {
      const item = stepItem(step, pending);
      pending = step.tokens.at(-1)?.[0] ?? pending;
      return item;
    });
    host.append(...question(place),
      html("p", {class: "flow"}, ...flowToken(turn.first, "prefill"), ...turn.steps.flatMap(step => step.tokens.flatMap(one => flowToken(...one)))),
      html("details", {open: turn.steps.length <= 200}, html("summary", {}, `${turn.steps.length} steps; press a number for what the step drafted`), html("ol", {class: "steps"}, ...items)));
  });
}
function listPrompts() {
  const number = Number(byId("text-case").value), chooser = byId("text-prompt"), seeds = new Set(texts.texts.map(text => text.seed));
  const own = texts.texts.map((text, place) => [place, text]).filter(([, text]) => text.case === number);
  const kept = texts.texts[Number(chooser.value)]?.prompt;
  chooser.replaceChildren(...own.map(([place, text]) => {
    const category = texts.prompts[text.prompt]?.category;
    return html("option", {value: place}, `${text.prompt}${category ? ` (${category})` : ""}${seeds.size > 1 ? `, seed ${text.seed}` : ""}`);
  }));
  const same = own.find(([, text]) => text.prompt === kept);
  if (same) chooser.value = same[0];
  promptTable(number);
  showText();
}
function promptTable(number) {
  const host = byId("text-prompts"), rows = data.cases[number]?.prompts;
  host.replaceChildren();
  if (!rows) return;
  const shown = (value, digits) => html("td", Number.isFinite(value) ? {"data-sort": value} : {}, Number.isFinite(value) ? value.toFixed(digits) : "");
  const open = prompt => {
    const place = texts?.texts.findIndex(text => text.case === number && text.prompt === prompt) ?? -1;
    return place < 0 ? prompt : html("button", {type: "button", onclick: () => { byId("text-prompt").value = place; showText(); byId("text-area").scrollIntoView({block: "nearest"}); }}, prompt);
  };
  const sorter = name => html("th", {scope: "col", "aria-sort": "none"}, html("button", {type: "button"}, name));
  host.append(html("details", {open: rows.length <= 16}, html("summary", {}, `${labelOf(number)}: ${rows.length} prompts`), html("table", {},
    html("thead", {}, html("tr", {}, ...["prompt", "category", "τ", "speedup", "copied 4-grams"].map(sorter))),
    html("tbody", {}, ...rows.map(([prompt, category, tau, speedup, copied]) => html("tr", {}, html("td", {"data-sort": prompt, class: "words"}, open(prompt)),
      html("td", {"data-sort": category, class: "words"}, category), shown(tau, 2), shown(speedup, 2), shown(copied, 2)))))));
}
const textCase = byId("text-case");
if (texts) {
  const have = [...new Set(texts.texts.map(text => text.case))];
  textCase.append(...have.map(number => html("option", {value: number}, labelOf(number))));
  const drafting = have.filter(number => !data.cases[number].reference && data.cases[number].speedup && !data.cases[number].lossy);
  textCase.value = drafting.sort((a, b) => data.cases[b].speedup[0] - data.cases[a].speedup[0])[0] ?? have[0];
  textCase.addEventListener("change", listPrompts);
  byId("text-prompt").addEventListener("change", showText);
  listPrompts();
} else {
  const best = data.cases.map((entry, number) => [number, entry]).filter(([, entry]) => entry.prompts && entry.speedup && !entry.reference)
    .sort((a, b) => b[1].speedup[0] - a[1].speedup[0])[0];
  if (best) promptTable(best[0]);
}
