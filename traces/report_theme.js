// Light and dark: as the system says, until the button says otherwise.
const lightColors = ["#0072b2", "#d55e00", "#009e73", "#a23b94", "#8a6d00", "#c2185b", "#4b5bd6", "#5f6b75"];
const darkColors = ["#56b4e9", "#ff9a4d", "#35c79b", "#e08fd3", "#e8cf4a", "#ff7fae", "#97a3ff", "#a9b4be"];
const dashes = ["solid", "dash", "dot", "dashdot"];
const scheme = window.matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : scheme.matches);
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const plainText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const color = (i) => (isDark() ? darkColors : lightColors)[i % lightColors.length];
const dash = (i) => dashes[Math.floor(i / lightColors.length) % dashes.length];
// Lines that lie on each other are all seen: the later ones are thinner.
const widthOf = (i, count) => 1.6 + (count > 1 ? (1.8 * (count - 1 - i)) / (count - 1) : 0);
const faint = (hex) => hex + "38";
const buttons = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];
const plotConfig = { displaylogo: false, responsive: true, modeBarButtons: [buttons] };

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

function swatch(i) {
  const mark = document.createElement("i");
  mark.style.borderTopColor = color(i);
  mark.style.borderTopStyle = dash(i) === "solid" ? "solid" : dash(i) === "dot" ? "dotted" : "dashed";
  return mark;
}

function offerThemes(redraw) {
  const button = document.getElementById("theme");
  const name = () => { button.textContent = isDark() ? "light" : "dark"; };
  button.hidden = false;
  button.title = "Show the page in these colours";
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
    redraw();
  });
  scheme.addEventListener("change", () => { name(); redraw(); });
  name();
}
