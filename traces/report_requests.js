// The worst requests of the runs that are shown, and the story of each.
const measures = [
  ["e2e", "E2E"], ["ttft", "TTFT"], ["tpot", "TPOT"], ["gap", "longest gap between tokens"],
  ["preemptions", "preemptions"], ["left", "not finished"],
];
const requestColumns = [
  ["", (r, run) => run.name], ["request", (r) => r.id], ["prompt", (r) => whole(r.prompt_tokens)],
  ["cached", (r) => whole(r.cached_tokens)], ["output", (r) => whole(r.output_tokens)],
  ["recomputed", (r) => whole(r.recomputed_tokens)], ["preempted", (r) => whole(r.preemptions)],
  ["queued, ms", (r) => short(r.queue)], ["TTFT, ms", (r) => short(r.ttft)], ["TPOT, ms", (r) => short(r.tpot)],
  ["longest gap, ms", (r) => short(r.gap)], ["E2E, ms", (r) => short(r.e2e)], ["status", (r) => r.status],
];
const kinds = ["queued", "prefill", "preempted", "decode"], outside = ["waited", "decode"];
const mostRequests = 10;
const opened = new Set();

const whole = (value) => value.toLocaleString("en");
const short = (value) => (value === undefined ? "–" : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 4 }));
const badness = (request, by) => (by === "left" ? Number(request.status !== "finished") : request[by] || 0);

function element(tag, name, ...inside) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...inside);
  return made;
}

function drawRequests(runs) {
  const by = document.getElementById("measure").value;
  const all = runs.flatMap((run, i) => (hidden.has(run.name) ? [] : run.requests.map((request) => ({ run, i, request }))));
  const worst = all.filter((each) => badness(each.request, by) > 0);
  worst.sort((a, b) => badness(b.request, by) - badness(a.request, by));
  const head = element("thead", "", element("tr", "", ...requestColumns.map(([title]) => element("th", "", title))));
  const body = element("tbody", "", ...worst.slice(0, mostRequests).flatMap((each) => requestRows(each, runs)));
  if (!worst.length) body.append(element("tr", "", element("td", "", "No request of this kind.")));
  document.getElementById("worst").replaceChildren(head, body);
}

function requestRows({ run, i, request }, runs) {
  const key = JSON.stringify([chosen, run.name, request.id]);
  const cells = requestColumns.map(([, text]) => element("td", "", text(request, run)));
  const button = element("button", "open", "▸");
  button.setAttribute("aria-label", `what became of ${request.id}`);
  cells[0].replaceChildren(button, swatch(i), run.name);
  const row = element("tr", "request", ...cells), story = element("tr", "story");
  const show = () => {
    const open = opened.has(key);
    button.setAttribute("aria-expanded", String(open));
    story.hidden = !open;
    if (open && !story.firstChild) story.append(storyCell(request, runs));
  };
  row.addEventListener("click", () => { opened.has(key) ? opened.delete(key) : opened.add(key); show(); });
  show();
  return [row, story];
}

// The request in every run that is shown and tells of it, on one axis of seconds since its arrival.
function storyCell(request, runs) {
  const told = runs.flatMap((run, i) => {
    const same = hidden.has(run.name) ? undefined : run.requests.find((other) => other.id === request.id);
    return same && same.parts.length ? [{ run, i, same }] : [];
  });
  const span = Math.max(0, ...told.map(({ same }) => same.parts[same.parts.length - 1][2] - same.arrival));
  const cell = element("td", "", ...told.map((each) => storyLine(each, span)));
  cell.colSpan = requestColumns.length;
  if (told.length) cell.append(storyAxis(span), storyKey(told.every(({ same }) => same.parts[0][0] === "waited") ? outside : kinds));
  if (request.reason) cell.append(element("p", "hint", request.reason));
  return cell;
}

function storyLine({ run, i, same }, span) {
  const track = element("div", "track");
  const at = (time) => `${100 * (time - same.arrival) / span}%`;
  for (const [kind, start, end] of same.parts) {
    const part = element("div", "part " + kind);
    part.style.left = at(start);
    part.style.width = `${100 * (end - start) / span}%`;
    part.title = `${kind}: ${short(1e3 * (end - start))} ms, from ${short(start)} s to ${short(end)} s`;
    track.append(part);
  }
  for (const [name, times] of [["chunk", same.chunks], ["tick", same.ticks]]) {
    track.append(...times.map((time) => { const mark = element("div", name); mark.style.left = at(time); return mark; }));
  }
  return element("div", "line", element("div", "whose", swatch(i), run.name), track);
}

function storyAxis(span) {
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => element("span", "", `${short(share * span)} s`));
  return element("div", "line", element("div", "whose", "since arrival"), element("div", "marks", ...marks));
}

function storyKey(kinds) {
  const parts = kinds.map((kind) => element("span", "", element("b", "part " + kind), kind));
  const words = "strokes below: steps that prefilled; strokes above: tokens";
  return element("p", "hint key", ...parts, element("span", "", words));
}

function offerMeasures(redraw) {
  const choice = document.getElementById("measure");
  choice.append(...measures.map(([name, text]) => { const one = element("option", "", text); one.value = name; return one; }));
  choice.addEventListener("change", redraw);
}
