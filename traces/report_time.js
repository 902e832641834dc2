// What happens over time: the gauges of all runs in common panels, then the tokens of each run in its own.
const panels = [
  ["running", "running"], ["forward_width", "forward width"], ["waiting", "waiting"], ["kv_used", "KV units in use"],
];
const tokenKinds = [
  ["decode", "decode"], ["prefill", "prefill"], ["recomputed", "prefill, recomputed"], ["cached", "from the prefix cache"],
];
const panelHeight = 190, panelGap = 44, around = { l: 60, r: 15, t: 25, b: 45 };

// A value that holds until the next one: the last has to be drawn to the end of its bucket.
const held = (values) => values.concat(values.slice(-1));
const edges = (thinned, count) => Array.from({ length: count + 1 }, (_, i) => thinned.from + i * thinned.width);
const axisName = (letter, row) => letter + (row ? row + 1 : "");

function scaled(panel, factor) {
  if (factor === 1) return panel;
  const times = (values) => values && values.map((value) => value * factor);
  return { ...panel, y: times(panel.y), low: times(panel.low), high: times(panel.high), mean: times(panel.mean) };
}

function gaugeTraces(run, i, name, row, count, factor) {
  const panel = scaled(run.panels[name], factor);
  const label = plainText(run.name);
  const line = { color: color(i), width: widthOf(i, count), shape: "hv", dash: dash(i) };
  const base = {
    type: "scatter", mode: "lines", xaxis: "x", yaxis: axisName("y", row), visible: !hidden.has(run.name), meta: run.name,
  };
  if (panel.sampled && !panel.mean) {
    return [{ ...base, mode: "lines+markers", x: panel.x, y: panel.y, name: label, line: { ...line, shape: "linear", width: 1 },
      marker: { size: 5, color: color(i) } }];
  }
  if (!panel.mean) {
    return [{ ...base, x: panel.x, y: panel.y, name: label, line }];
  }
  const x = edges(panel, panel.mean.length), low = held(panel.low), high = held(panel.high);
  const none = { width: 0, shape: "hv" };
  return [
    { ...base, x, y: low, line: none, hoverinfo: "skip" },
    { ...base, x, y: high, line: none, hoverinfo: "skip", fill: "tonexty", fillcolor: faint(color(i)) },
    { ...base, x, y: held(panel.mean), name: label, line, customdata: x.map((_, k) => [low[k], high[k]]),
      hovertemplate: "%{y:.4~g} (%{customdata[0]:.4~g} to %{customdata[1]:.4~g})" },
  ];
}

function preemptionTrace(run, i) {
  return {
    type: "scatter", mode: "markers", x: run.marks.x, y: run.marks.y, customdata: run.marks.n, meta: run.name,
    xaxis: "x", yaxis: "y", name: plainText(run.name), visible: !hidden.has(run.name), cliponaxis: false,
    marker: { symbol: "triangle-down", size: 11, color: css("--preempted"), line: { color: color(i), width: 2 } },
    hovertemplate: "%{customdata} preempted",
  };
}

function tokenTraces(run, row) {
  const tokens = run.tokens, thinned = !tokens.x;
  const x = thinned ? edges(tokens, tokens.decode.length) : tokens.x;
  const base = { type: "scatter", mode: "lines", x, xaxis: "x", yaxis: axisName("y", row), meta: "tokens of " + run.name };
  const stacked = tokenKinds.filter(([kind]) => tokens[kind].some(Boolean)).map(([kind, name]) => ({
    ...base, y: thinned ? held(tokens[kind]) : tokens[kind], name, stackgroup: "tokens " + row,
    line: { width: 0, shape: "hv" }, fillcolor: css("--" + kind), hovertemplate: "%{y:.4~g}",
  }));
  const most = {
    ...base, y: thinned ? held(tokens.high) : [], name: "most in a step", hovertemplate: "%{y:.4~g}",
    line: { width: 1, shape: "hv", color: css("--soft") },
  };
  return thinned ? [...stacked, most] : stacked;
}

function panelTitle(text, row, top) {
  return {
    text: `<b>${text}</b>`, xref: "paper", yref: "paper", x: 0, y: top, xanchor: "left", yanchor: "bottom", showarrow: false,
  };
}

function kvTitle(runs, title, percent) {
  if (percent) return "KV in use, %";
  const totals = new Set(runs.map((run) => run.kv_total));
  const total = [...totals][0];
  return totals.size === 1 && total ? `${title} (of ${total.toLocaleString("en")})` : title;
}

function tokensTitle(run) {
  const kinds = tokenKinds.map(([kind, text]) => `<span style="color:${css("--" + kind)}">■</span> ${text}`);
  if (run.tokens.high) kinds.push("— most in a step");
  return `tokens per step: ${plainText(run.name)}</b>   ${kinds.join("  ")}<b>`;
}

function drawTime(runs) {
  const shown = runs.filter((run) => !hidden.has(run.name) && tokenKinds.some(([kind]) => run.tokens[kind].length));
  const percent = runs.some((run) => run.panels.kv_used.sampled);
  const titles = panels.map(([name, title]) => (name === "kv_used" ? kvTitle(runs, title, percent) : title));
  titles.push(...shown.map((run) => tokensTitle(run)));
  const inside = titles.length * panelHeight - panelGap, height = inside + around.t + around.b;
  const more = { height, margin: around, annotations: [], uirevision: "cell " + chosen };
  more.xaxis = axis({ title: { text: "time, s" }, anchor: axisName("y", titles.length - 1) });
  titles.forEach((title, row) => {
    const top = 1 - row * panelHeight / inside, low = Math.max(0, top - (panelHeight - panelGap) / inside);
    more[axisName("yaxis", row)] = axis({ domain: [low, top], rangemode: "tozero" });
    more.annotations.push(panelTitle(title, row, top));
  });
  const traces = panels.flatMap(([name], row) => runs.flatMap((run, i) => {
    const factor = name === "kv_used" && percent && !run.panels.kv_used.sampled ? 100 / (run.kv_total || 1) : 1;
    return gaugeTraces(run, i, name, row, runs.length, factor);
  }));
  traces.push(...runs.filter((run) => run.marks.x.length).map((run) => preemptionTrace(run, runs.indexOf(run))));
  traces.push(...shown.flatMap((run, i) => tokenTraces(run, panels.length + i)));
  document.getElementById("time").style.height = `${height}px`; // or it is lost when the window changes
  Plotly.react("time", traces, layout(more), plotConfig);
  noteBuckets(runs);
}

function noteBuckets(runs) {
  const widest = Math.max(0, ...runs.map((run) => run.panels.running.width).filter(Boolean));
  document.getElementById("buckets").textContent = widest
    ? `Long runs are cut into buckets (up to ${Number(widest.toPrecision(3))} s): the band spans the lowest to the `
      + "highest value in each, the line is the mean over time."
    : runs.every((run) => run.panels.running.sampled) ? "" : "Every step is drawn.";
  if (runs.some((run) => run.panels.running.sampled)) {
    document.getElementById("buckets").textContent += " Dots are the samples of a log; between them nothing is known.";
  }
}
