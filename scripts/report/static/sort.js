// Tables whose headings sort them. A cell is sorted by its data-sort; a cell without it comes last.

function sortBy(header) {
  const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
  const rows = [...body.rows];
  rows.forEach((row, place) => { if (row.dataset.place === undefined) row.dataset.place = place; });
  const keys = new Map(rows.map(row => [row, row.cells[column].dataset.sort ?? null]));
  const known = [...keys.values()].filter(key => key !== null);
  const numeric = known.length > 0 && known.every(key => key !== "" && !Number.isNaN(Number(key)));
  const before = header.getAttribute("aria-sort");
  const order = before === "none" ? (numeric ? "descending" : "ascending") : before === "ascending" ? "descending" : "ascending";
  for (const other of table.tHead.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  rows.sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (a === null || b === null) return (a === null) - (b === null) || one.dataset.place - other.dataset.place;
    const difference = numeric ? a - b : a.localeCompare(b, "en", {numeric: true});
    return sign * difference || one.dataset.place - other.dataset.place;
  });
  body.append(...rows);
}
document.addEventListener("click", event => {
  const header = event.target.closest?.("th[aria-sort]");
  if (!header || !event.target.closest("button")) return;
  sortBy(header);
  if (header.closest("table.cases")) changed();
});
