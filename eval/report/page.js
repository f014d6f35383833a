"use strict";
// Everything is open without a script; with one, layers open one by one, are found and sorted.
const table = document.getElementById("layers");
const layers = Array.from(table.querySelectorAll("tbody.layer"));

function setOpen(layer, open) {
  layer.querySelector(".detail").hidden = !open;
  layer.querySelector(".toggle").setAttribute("aria-expanded", String(open));
}

function isOpen(layer) {
  return !layer.querySelector(".detail").hidden;
}

function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const layer of layers) {
    layer.hidden = !words.every((word) => layer.dataset.text.includes(word));
    if (!layer.hidden) shown += 1;
  }
  document.getElementById("found").textContent =
    words.length ? `${shown} of ${layers.length} layers` : "";
}

function keyOf(layer, column, numeric) {
  const cell = layer.querySelector(".row").cells[column];
  return numeric ? Number(cell.dataset.value ?? cell.textContent) : cell.textContent.trim();
}

function sortBy(header) {
  const column = header.cellIndex;
  const numeric = header.dataset.kind === "number";
  const now = header.getAttribute("aria-sort");
  // Numbers are looked at for the largest, words and the order of running from the front.
  const first = numeric && column > 0 ? "descending" : "ascending";
  const order = now ? (now === "ascending" ? "descending" : "ascending") : first;
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const compare = (a, b) => (numeric ? a - b : a.localeCompare(b));
  const sorted = layers
    .map((layer) => [keyOf(layer, column, numeric), layer])
    .sort((a, b) => sign * compare(a[0], b[0]));
  table.append(...sorted.map((pair) => pair[1]));
}

for (const layer of layers) {
  const ids = Array.from(layer.querySelectorAll(".versions .id"), (cell) => cell.textContent);
  layer.dataset.text = [layer.querySelector(".row").textContent, ...ids].join(" ").toLowerCase();
  setOpen(layer, false);
  layer.querySelector(".toggle").addEventListener("click", () => setOpen(layer, !isOpen(layer)));
}
for (const header of table.tHead.rows[0].cells) {
  header.querySelector("button").addEventListener("click", () => sortBy(header));
}
document.getElementById("find").addEventListener("input", (event) => find(event.target.value));
for (const [id, open] of [["open-all", true], ["close-all", false]]) {
  document.getElementById(id).addEventListener("click", () => {
    for (const layer of layers) if (!layer.hidden) setOpen(layer, open);
  });
}
