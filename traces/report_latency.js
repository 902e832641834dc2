// How the latencies are spread over the requests.
const latencies = [["ttft", "TTFT"], ["tpot", "TPOT"], ["e2e", "E2E"]];

function drawLatency(runs, name, title) {
  const log = document.getElementById("log").checked;
  const traces = runs.map((run, i) => ({
    type: "scatter", mode: "lines", x: run.latencies[name].x, y: run.latencies[name].y, name: plainText(run.name),
    meta: run.name, visible: !hidden.has(run.name), line: { color: color(i), width: widthOf(i, runs.length), dash: dash(i), shape: "hv" },
    hovertemplate: "%{y:.1%} within %{x:.4~g} ms",
  }));
  const x = { type: log ? "log" : "linear", rangemode: log ? "normal" : "tozero", nticks: 6, tickangle: 0 };
  Plotly.react(name, traces, layout({
    height: 300, margin: { l: 50, r: 15, t: 35, b: 45 }, title: { text: `<b>${title}</b>`, font: { size: 13 }, x: 0.02 },
    hovermode: "closest", xaxis: axis({ title: { text: "ms" }, ...x }), yaxis: axis({ range: [0, 1.02], tickformat: ".0%" }),
  }), plotConfig);
}
