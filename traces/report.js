"use strict";
(() => {
  const cells = JSON.parse(document.getElementById("data").textContent).cells;
  const light = ["#0072b2", "#d55e00", "#009e73", "#a23b94", "#8a6d00", "#c2185b", "#4b5bd6", "#5f6b75"];
  const dark = ["#56b4e9", "#ff9a4d", "#35c79b", "#e08fd3", "#e8cf4a", "#ff7fae", "#97a3ff", "#a9b4be"];
  const dashes = ["solid", "dash", "dot", "dashdot"];
  const panels = [
    ["running", "running"], ["forward_width", "forward width"], ["waiting", "waiting"], ["kv_used", "KV units in use"],
  ];
  const latencies = [["ttft", "TTFT"], ["tpot", "TPOT"], ["e2e", "E2E"]];
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const buttons = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];
  const config = { displaylogo: false, responsive: true, modeBarButtons: [buttons] };
  const hidden = new Set();
  let shown = 0;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plainText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const color = (i) => (scheme.matches ? dark : light)[i % light.length];
  const dash = (i) => dashes[Math.floor(i / light.length) % dashes.length];
  const faint = (hex) => hex + "38";

  function axis(more) {
    return { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), ...more };
  }

  function layout(more) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "x unified",
      font: { color: css("--text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { bgcolor: css("--shade"), bordercolor: css("--line"), font: { color: css("--text") }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--faint"), activecolor: css("--soft") },
      ...more,
    };
  }

  function edges(panel) {
    return Array.from({ length: panel.mean.length + 1 }, (_, i) => panel.from + i * panel.width);
  }

  // A value that holds until the next one: the last has to be drawn to the end of its bucket.
  const held = (values) => values.concat(values.slice(-1));

  function timeTraces(run, i, name, row) {
    const panel = run.panels[name];
    const axes = { xaxis: "x", yaxis: row ? "y" + (row + 1) : "y" };
    const visible = hidden.has(run.name) ? false : true;
    const label = plainText(run.name);
    const line = { color: color(i), width: 1.6, shape: "hv", dash: dash(i) };
    const base = { type: "scatter", mode: "lines", ...axes, visible, meta: run.name };
    if (!panel.mean) {
      return [{ ...base, x: panel.x, y: panel.y, name: label, line }];
    }
    const x = edges(panel), low = held(panel.low), high = held(panel.high), none = { width: 0, shape: "hv" };
    return [
      { ...base, x, y: low, line: none, hoverinfo: "skip" },
      { ...base, x, y: high, line: none, hoverinfo: "skip", fill: "tonexty", fillcolor: faint(color(i)) },
      { ...base, x, y: held(panel.mean), name: label, line, customdata: x.map((_, k) => [low[k], high[k]]),
        hovertemplate: "%{y:.4~g} (%{customdata[0]:.4~g} to %{customdata[1]:.4~g})" },
    ];
  }

  function drawTime(runs) {
    const gap = 0.05, height = (1 - gap * (panels.length - 1)) / panels.length;
    const more = { height: 820, margin: { l: 60, r: 15, t: 25, b: 45 }, annotations: [] };
    const bottom = panels.length === 1 ? "y" : "y" + panels.length;
    more.xaxis = axis({ title: { text: "time, s" }, anchor: bottom });
    panels.forEach(([, title], row) => {
      const top = 1 - row * (height + gap);
      more[row ? "yaxis" + (row + 1) : "yaxis"] = axis({ domain: [Math.max(0, top - height), top], rangemode: "tozero" });
      more.annotations.push({
        text: `<b>${title}</b>`, xref: "paper", yref: "paper", x: 0, y: top, xanchor: "left", yanchor: "bottom", showarrow: false,
      });
    });
    const traces = panels.flatMap(([name], row) => runs.flatMap((run, i) => timeTraces(run, i, name, row)));
    Plotly.react("time", traces, layout(more), config);
    noteBuckets(runs);
  }

  function noteBuckets(runs) {
    const widths = runs.map((run) => run.panels.running.width).filter(Boolean);
    const widest = Math.max(0, ...widths);
    document.getElementById("buckets").textContent = widest
      ? `Long runs are cut into buckets (up to ${Number(widest.toPrecision(3))} s): the band spans the lowest to the `
        + "highest value in each, the line is the mean over time."
      : "Every step is drawn.";
  }

  function drawLatency(runs, name, title) {
    const log = document.getElementById("log").checked;
    const traces = runs.map((run, i) => ({
      type: "scatter", mode: "lines", x: run.latencies[name].x, y: run.latencies[name].y, name: plainText(run.name),
      meta: run.name, visible: !hidden.has(run.name), line: { color: color(i), width: 1.8, dash: dash(i), shape: "hv" },
      hovertemplate: "%{y:.1%} within %{x:.4~g} ms",
    }));
    Plotly.react(name, traces, layout({
      height: 300, margin: { l: 50, r: 15, t: 35, b: 45 }, title: { text: `<b>${title}</b>`, font: { size: 13 }, x: 0.02 },
      hovermode: "closest",
      xaxis: axis({ title: { text: "ms" }, type: log ? "log" : "linear", rangemode: log ? "normal" : "tozero", nticks: 6, tickangle: 0 }),
      yaxis: axis({ range: [0, 1.02], tickformat: ".0%" }),
    }), config);
  }

  function drawLegend(runs) {
    for (const legend of document.querySelectorAll(".legend")) {
      legend.replaceChildren(...runs.map((run, i) => {
        const button = document.createElement("button"), swatch = document.createElement("i");
        swatch.style.borderTopColor = color(i);
        swatch.style.borderTopStyle = dash(i) === "solid" ? "solid" : dash(i) === "dot" ? "dotted" : "dashed";
        button.append(swatch, run.name);
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
    const runs = cells[shown].runs;
    drawLegend(runs);
    drawTime(runs);
    latencies.forEach(([name, title]) => drawLatency(runs, name, title));
  }

  function choose(place) {
    shown = place;
    document.querySelectorAll(".cell").forEach((cell) => { cell.hidden = Number(cell.dataset.cell) !== shown; });
    document.querySelectorAll("[data-choose]").forEach((row) => {
      row.classList.toggle("chosen", Number(row.dataset.choose) === shown);
    });
    if (picker) picker.value = String(shown);
    draw();
  }

  const picker = document.getElementById("cell");
  if (picker) picker.addEventListener("change", () => choose(Number(picker.value)));
  document.querySelectorAll("[data-choose]").forEach((row) => {
    row.addEventListener("click", () => choose(Number(row.dataset.choose)));
  });
  document.getElementById("log").addEventListener("change", draw);
  scheme.addEventListener("change", draw);
  if (cells.length) choose(0);
})();
