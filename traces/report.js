// The page: which cell is shown, which runs are hidden, and the drawing of all of it.
const { cells, first } = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const picker = document.getElementById("cell");
let chosen = first;

function drawLegend(runs) {
  for (const legend of document.querySelectorAll(".legend")) {
    legend.replaceChildren(...runs.map((run, i) => {
      const button = element("button", "", swatch(i), run.name);
      button.setAttribute("aria-pressed", String(!hidden.has(run.name)));
      button.addEventListener("click", () => toggle(run.name));
      return button;
    }));
  }
}

function toggle(name) {
  hidden.has(name) ? hidden.delete(name) : hidden.add(name);
  draw();
}

function draw() {
  const runs = cells[chosen].runs;
  drawLegend(runs);
  drawTime(runs);
  latencies.forEach(([name, title]) => drawLatency(runs, name, title));
  drawRequests(runs);
}

function choose(place) {
  chosen = place;
  document.querySelectorAll(".cell").forEach((cell) => { cell.hidden = Number(cell.dataset.cell) !== chosen; });
  document.querySelectorAll("[data-choose]").forEach((row) => {
    row.classList.toggle("chosen", Number(row.dataset.choose) === chosen);
  });
  if (picker) picker.value = String(chosen);
  draw();
}

if (cells.length) {
  if (picker) picker.addEventListener("change", () => choose(Number(picker.value)));
  document.querySelectorAll("[data-choose]").forEach((row) => {
    row.addEventListener("click", () => choose(Number(row.dataset.choose)));
  });
  document.getElementById("log").addEventListener("change", draw);
  offerMeasures(draw);
  offerThemes(draw);
  choose(first);
}
