"""The style of the page: an accent colour and one for errors, light and dark."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

_LIGHT: Final = """
  color-scheme: light;
  --ink: #18242a; --muted: #5b6b73; --grid: #e2e8ea; --ground: #f4f7f7; --card: #ffffff;
  --accent: #0f766e; --soft: #9db9b6; --bad: #c2410c; --warm: #866800; --faint: #e7f2f0;
  --badfaint: #fdefe6; --warmfaint: #fbf3dc; --edge: rgb(20 40 45 / 18%);
  --shadow: 0 1px 2px rgb(20 40 45 / 6%), 0 6px 20px rgb(20 40 45 / 5%);
"""

_DARK: Final = """
  color-scheme: dark;
  --ink: #e4ebed; --muted: #94a5ac; --grid: #2b383d; --ground: #0f1619; --card: #172024;
  --accent: #2fbfae; --soft: #4d6f6b; --bad: #f08a4b; --warm: #e3b341; --faint: #17332f;
  --badfaint: #3a2417; --warmfaint: #33290f; --edge: rgb(0 0 0 / 60%); --shadow: none;
"""

_SCHEMES: Final = f"""
:root {{{_LIGHT}}}
@media (prefers-color-scheme: dark) {{ :root:not([data-scheme=light]) {{{_DARK}}} }}
:root[data-scheme=dark] {{{_DARK}}}
"""

_RULES: Final = """
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 3.5rem; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
.wrap { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
header { padding: 44px 0 20px; }
header p {
  display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center; margin-bottom: 16px;
}
.kind { color: var(--muted); letter-spacing: .08em; text-transform: uppercase; font-size: 12px; }
h1 { font-size: 34px; line-height: 1.15; margin: 4px 0 10px; font-weight: 650; }
h2 { font-size: 19px; margin: 0 0 2px; font-weight: 650; }
h3 { font-size: 14px; margin: 22px 0 6px; font-weight: 600; color: var(--muted); }
p { margin: 0 0 10px; }
.see { color: var(--muted); max-width: 76ch; }
.top { display: flex; gap: 16px; align-items: flex-start; justify-content: space-between; }
.verdict {
  display: inline-flex; gap: 8px; align-items: center; padding: 5px 13px; border-radius: 18px;
  background: var(--faint); color: var(--accent); font-weight: 600; font-size: 14px;
}
.verdict.bad { background: var(--badfaint); color: var(--bad); }
.verdict::before { content: "✓"; } .verdict.bad::before { content: "▲"; }
.verdict.note { background: var(--warmfaint); color: var(--warm); }
.verdict.note::before { content: "●"; }
.logs { color: var(--muted); font-size: 14px; }
button, select {
  font: inherit; font-size: 13px; color: var(--ink); background: var(--card);
  border: 1px solid var(--grid); border-radius: 8px; padding: 6px 11px; cursor: pointer;
  white-space: nowrap;
}
select { max-width: 100%; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; }
.tile, .card { background: var(--card); border-radius: 14px; box-shadow: var(--shadow); }
.tile { padding: 15px 18px; }
.tile b { display: block; font-size: 26px; line-height: 1.2; font-weight: 620; }
.tile span { color: var(--muted); font-size: 13px; }
.tile.bad b { color: var(--bad); }
nav {
  position: sticky; top: 0; z-index: 5; margin: 22px 0 0; background: var(--ground);
  border-bottom: 1px solid var(--grid);
}
nav div { display: flex; gap: 4px; overflow-x: auto; scrollbar-width: none; }
nav a {
  color: var(--muted); text-decoration: none; white-space: nowrap; padding: 10px 12px 9px;
  font-size: 14px;
}
nav a:first-child { padding-left: 0; }
nav a:hover { color: var(--accent); }
.card { padding: 24px 26px; margin: 20px 0; min-width: 0; }
.pair { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 20px 36px; }
.pair h3 { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; min-height: 34px; }
.plot { width: 100%; min-width: 0; }
.scroll + .scroll { margin-top: 14px; }
/* What can be scrolled has a shadow at the edge where there is more. */
.scroll {
  overflow-x: auto; background:
    linear-gradient(to right, var(--card) 50%, transparent) 0 0 / 40px 100% no-repeat local,
    linear-gradient(to left, var(--card) 50%, transparent) 100% 0 / 40px 100% no-repeat local,
    linear-gradient(to right, var(--edge), transparent) 0 0 / 10px 100% no-repeat scroll,
    linear-gradient(to left, var(--edge), transparent) 100% 0 / 10px 100% no-repeat scroll;
}
.wide > .plot { min-width: 520px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th {
  text-align: left; color: var(--muted); font-weight: 500; font-size: 12.5px;
  border-bottom: 1px solid var(--grid); padding: 5px 14px 5px 0; white-space: nowrap;
}
td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
td:last-child, th:last-child { padding-right: 0; }
td.t { overflow-wrap: anywhere; min-width: 150px; } td.t:has(> .tag) { min-width: 0; }
.isbad { color: var(--bad); font-weight: 600; }
.isopen { color: var(--warm); font-weight: 600; }
code { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
.more, .none { color: var(--muted); font-size: 13.5px; margin: 10px 0 0; }
.none { padding: 14px 0 2px; }
.way { display: flex; flex-wrap: wrap; gap: 4px 5px; align-items: center; }
.way span {
  background: var(--ground); border: 1px solid var(--grid); border-radius: 7px; padding: 1px 8px;
  font-size: 13px; overflow-wrap: anywhere;
}
.way span.again { background: var(--badfaint); border-color: var(--bad); color: var(--bad); }
.way i { color: var(--muted); font-style: normal; }
.way i.end { color: var(--bad); font-weight: 600; }
.tag { font-weight: 600; white-space: nowrap; color: var(--bad); }
footer { color: var(--muted); font-size: 13px; padding: 12px 0 60px; }
@media (max-width: 820px) { .pair { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 560px) {
  .wrap { padding: 0 14px; } header { padding-top: 26px; } h1 { font-size: 26px; }
  .card { padding: 18px 16px; border-radius: 12px; } .tiles { gap: 10px; }
  .tiles { grid-template-columns: 1fr 1fr; } .tile { padding: 12px 14px; }
  .tile b { font-size: 21px; }
}
@media print { nav, button { display: none; } .card { break-inside: avoid; box-shadow: none; } }
"""

STYLE: Final = _SCHEMES + _RULES
