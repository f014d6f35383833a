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

for (const layer of layers) {
  const ids = Array.from(layer.querySelectorAll(".versions .id"), (cell) => cell.textContent);
  layer.dataset.text = [layer.querySelector(".row").textContent, ...ids].join(" ").toLowerCase();
  setOpen(layer, false);
  layer.querySelector(".toggle").addEventListener("click", () => setOpen(layer, !isOpen(layer)));
}
makeSortable(table, layers, (layer) => layer.querySelector(".row"));
document.getElementById("find").addEventListener("input", (event) => find(event.target.value));
for (const [id, open] of [["open-all", true], ["close-all", false]]) {
  document.getElementById(id).addEventListener("click", () => {
    for (const layer of layers) if (!layer.hidden) setOpen(layer, open);
  });
}
