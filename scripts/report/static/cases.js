// The table of cases can be filtered, and its ticks select the cases of the plots.
const caseRows = [...document.querySelectorAll("table.cases tbody tr")];
const numberOf = row => Number(row.id.slice("case-".length));
const boxOf = row => row.querySelector("input[type=checkbox]");
// The numbers of the cases that the table shows, in its order.
function shownCases() {
  return [...document.querySelectorAll("table.cases tbody tr")].filter(row => !row.hidden).map(numberOf);
}
const drawnCases = () => shownCases().filter(number => selected.has(number));

function filterCases() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const verdict = byId("of-verdict")?.value ?? "", strategy = byId("of-strategy")?.value ?? "";
  for (const row of caseRows) {
    const judged = data.cases[numberOf(row)].verdict ?? "";
    row.hidden = !(words.every(word => row.dataset.words.includes(word)) && (!verdict || judged.split(":")[0] === verdict) &&
      (!strategy || row.dataset.strategy === strategy));
  }
  const shown = shownCases().length;
  byId("count").textContent = `${shown} of ${caseRows.length} cases`;
  changed();
}
function showSelection() {
  for (const row of caseRows) boxOf(row).checked = selected.has(numberOf(row));
  const chips = [...selected].sort((a, b) => a - b).map(number => html("li", {}, html("button", {
    type: "button", "aria-label": `take ${labelOf(number)} out of the plots`,
    onclick: () => { selected.delete(number); showSelection(); changed(); byId("chips").querySelector("button")?.focus(); },
  }, `${labelOf(number)} ✕`)));
  byId("chips").replaceChildren(...chips.slice(0, 30), ...(chips.length > 30 ? [html("li", {class: "muted"}, `and ${chips.length - 30} more`)] : []));
}
function select(numbers) {
  selected.clear();
  for (const number of numbers) selected.add(number);
  showSelection();
  changed();
}
const speedOf = entry => Array.isArray(entry.speedup) ? entry.speedup[entry.parts ? 1 : 0] ?? 0 : 0;
const selections = {
  shown: shownCases,
  none: () => [],
  fastest: () => shownCases().sort((a, b) => speedOf(data.cases[b]) - speedOf(data.cases[a])).slice(0, 8),
};
for (const button of document.querySelectorAll("[data-select]"))
  button.addEventListener("click", () => select(selections[button.dataset.select]()));
for (const row of caseRows) boxOf(row).addEventListener("change", event => {
  if (event.target.checked) selected.add(numberOf(row)); else selected.delete(numberOf(row));
  showSelection();
  changed();
});
const filters = byId("filters");
filters.addEventListener("input", filterCases);
filters.addEventListener("submit", event => event.preventDefault());
filters.addEventListener("reset", () => setTimeout(filterCases));
showSelection();
byId("count").textContent = `${caseRows.length} of ${caseRows.length} cases`;

const onlySelected = byId("ledger-selected");
function filterLedger() {
  for (const row of document.querySelectorAll("#ledger tbody tr"))
    row.hidden = onlySelected.checked && !selected.has(Number(row.dataset.case));
}
if (onlySelected) {
  onlySelected.addEventListener("change", filterLedger);
  listeners.push(() => { if (onlySelected.checked) filterLedger(); });
}
