"""The script of the page, which draws the plots in the colours of the scheme, light or dark."""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPT"]

SCRIPT: Final = """
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const root = document.documentElement;
const settings = { responsive: true, displayModeBar: false, showTips: false };
function colours() {
  const style = getComputedStyle(root);
  const found = {};
  for (const name of ["ink", "muted", "grid", "card", "accent", "soft", "bad", "warm", "faint"])
    found["$" + name] = style.getPropertyValue("--" + name).trim();
  found["$scale"] = [[0, found.$faint], [1, found.$accent]];
  return found;
}
function coloured(value, palette) {
  if (typeof value === "string") return Object.hasOwn(palette, value) ? palette[value] : value;
  if (Array.isArray(value)) return value.map(each => coloured(each, palette));
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, palette)]));
  return value;
}
function layout(own, palette) {
  const axis = {
    gridcolor: palette.$grid, linecolor: palette.$grid, zerolinecolor: palette.$grid,
    tickfont: { size: 12, color: palette.$muted }, fixedrange: true,
  };
  const titled = (given) => given && given.title
    ? { title: { standoff: 10, font: { size: 12, color: palette.$muted }, ...given.title } } : {};
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    margin: { l: 50, r: 12, t: 16, b: 44 }, showlegend: false, separators: ".\\u202f",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: palette.$ink },
    hoverlabel: {
      bgcolor: palette.$card, bordercolor: palette.$grid, font: { color: palette.$ink, size: 13 },
      align: "left", namelength: -1,
    },
    ...own,
    xaxis: { ...axis, ...own.xaxis, ...titled(own.xaxis) },
    yaxis: { ...axis, ...own.yaxis, ...titled(own.yaxis) },
  };
}
function draw() {
  const palette = colours();
  for (const [id, figure] of Object.entries(figures)) {
    const place = document.getElementById("plot-" + id);
    const chosen = coloured(figure, palette);
    const picker = document.querySelector(`select[data-plot="${id}"]`);
    if (picker)
      for (const trace of chosen.data) trace.visible = trace.meta === Number(picker.value);
    Plotly.react(place, chosen.data, layout(chosen.layout, palette), settings);
  }
}
for (const picker of document.querySelectorAll("select[data-plot]"))
  picker.addEventListener("change", draw);
document.getElementById("scheme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.scheme || (dark ? "dark" : "light");
  root.dataset.scheme = now === "dark" ? "light" : "dark";
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
"""
