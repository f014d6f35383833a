// A table is sorted by a click on a column's heading: `groups` move, each by the row that it shows.
function keyOf(row, column, numeric) {
  const cell = row.cells[column];
  if (!numeric) return cell.textContent.trim();
  const text = cell.dataset.value ?? cell.textContent;
  return text.trim() === "" ? NaN : Number(text);
}

function compare(a, b, numeric, sign) {
  if (!numeric) return sign * a.localeCompare(b);
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // at the end
  return sign * (a - b);
}

function sortBy(header, groups, rowOf) {
  const column = header.cellIndex;
  const numeric = header.dataset.kind === "number";
  const now = header.getAttribute("aria-sort");
  // Numbers are looked at for the largest, words and the order of running from the front.
  const first = numeric && column > 0 ? "descending" : "ascending";
  const order = now ? (now === "ascending" ? "descending" : "ascending") : first;
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const sorted = groups
    .map((group) => [keyOf(rowOf(group), column, numeric), group])
    .sort((a, b) => compare(a[0], b[0], numeric, sign));
  groups[0]?.parentElement.append(...sorted.map((pair) => pair[1]));
}

function makeSortable(table, groups, rowOf) {
  for (const header of table.tHead.rows[0].cells) {
    header.querySelector("button").addEventListener("click", () => sortBy(header, groups, rowOf));
  }
}
