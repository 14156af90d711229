// Words filter the cases of all machines.
const caseRows = [...document.querySelectorAll(".board tbody tr")];
function filterCases() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of caseRows) row.hidden = !words.every(word => row.dataset.words.includes(word));
  byId("count").textContent = `${caseRows.filter(row => !row.hidden).length} of ${caseRows.length} cases`;
}
byId("filters").addEventListener("input", filterCases);
byId("filters").addEventListener("submit", event => event.preventDefault());
byId("filters").addEventListener("reset", () => setTimeout(filterCases));
filterCases();
