// Everything is readable without a script; with one, tables are sorted, systems hidden, and blocks
// of a second under load told of and magnified.
for (const table of document.querySelectorAll("table.sortable")) {
  makeSortable(table, Array.from(table.tBodies[0].rows), (row) => row);
}

function showSystem(section, name, shown) {
  for (const group of section.querySelectorAll("[data-of]")) {
    if (group.dataset.of === name) group.style.display = shown ? "" : "none";
  }
}

for (const box of document.querySelectorAll("[data-shows]")) {
  const section = box.closest("section");
  box.checked = true; // a browser keeps boxes over a reload, and not what they hid
  box.addEventListener("change", () => showSystem(section, box.dataset.shows, box.checked));
}

function choose(second, block) {
  second.querySelector(".block.chosen")?.classList.remove("chosen");
  block.classList.add("chosen");
  second.querySelector(".told").textContent = block.querySelector("title").textContent;
}

function step(second, key) {
  const blocks = Array.from(second.querySelectorAll(".gantt .block"));
  const now = blocks.indexOf(second.querySelector(".gantt .block.chosen"));
  const next = { ArrowRight: now + 1, ArrowLeft: now < 0 ? 0 : now - 1, Home: 0, End: blocks.length - 1 }[key];
  const block = blocks[Math.min(Math.max(next, 0), blocks.length - 1)];
  if (block === undefined) return;
  choose(second, block);
  const frame = second.querySelector(".chart .scroll");
  const [inside, around] = [block.getBoundingClientRect(), frame.getBoundingClientRect()];
  if (inside.left < around.left || inside.right > around.right) {
    frame.scrollLeft += inside.left - around.left - around.width / 3;
  }
}

function magnify(second, button) {
  const frame = second.querySelector(".chart .scroll");
  const before = frame.scrollWidth;
  const middle = frame.scrollLeft + frame.clientWidth / 2;
  second.dataset.at = button.dataset.zoom;
  second.style.setProperty("--zoom", button.dataset.zoom);
  frame.scrollLeft = (middle * frame.scrollWidth) / before - frame.clientWidth / 2;
  for (const other of second.querySelectorAll("[data-zoom]")) {
    other.setAttribute("aria-pressed", String(other === button));
  }
}

for (const second of document.querySelectorAll(".second")) {
  const frame = second.querySelector(".chart .scroll");
  const tell = (event) => {
    const block = event.target.closest(".block");
    if (block) choose(second, block);
  };
  frame.addEventListener("pointerover", tell);
  frame.addEventListener("click", tell);
  frame.addEventListener("keydown", (event) => {
    if (!["ArrowRight", "ArrowLeft", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    step(second, event.key);
  });
  for (const button of second.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => magnify(second, button));
  }
}
