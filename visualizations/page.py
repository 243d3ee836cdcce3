"""A picture as an HTML page that needs nothing else: pan, zoom, the figures as a table."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence

_STYLE = """
html, body { margin: 0; height: 100%; font: 14px/1.4 system-ui, sans-serif; color: #222; }
body { display: flex; flex-direction: column; }
header { padding: 8px 16px; border-bottom: 1px solid #ccc; display: flex; gap: 24px;
         align-items: center; flex-wrap: wrap; }
h1 { font-size: 16px; margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
td, th { padding: 1px 10px; text-align: right; }
td:first-child, th:first-child { text-align: left; }
#view { flex: 1; overflow: hidden; cursor: grab; touch-action: none; min-height: 200px; }
#view svg { transform-origin: 0 0; }
button { font: inherit; padding: 2px 10px; }
"""

# Wheel zooms at the pointer, dragging moves, + - 0 work from the keyboard.
_SCRIPT = """
const view = document.getElementById("view"), svg = view.querySelector("svg");
let x = 0, y = 0, scale = 1, held = null;
const draw = () => { svg.style.transform = `translate(${x}px,${y}px) scale(${scale})`; };
const zoom = (factor, px, py) => {
  const next = Math.min(8, Math.max(0.05, scale * factor));
  x = px - (px - x) * next / scale; y = py - (py - y) * next / scale; scale = next; draw();
};
const fit = whole => {
  const to = view.getBoundingClientRect(), now = svg.getBoundingClientRect();
  const width = now.width / scale, height = now.height / scale;
  scale = Math.min(to.width / width, whole ? to.height / height : 1.5);
  x = (to.width - width * scale) / 2; y = 0; draw();
};
view.addEventListener("wheel", event => {
  event.preventDefault();
  const at = view.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY / 500), event.clientX - at.left, event.clientY - at.top);
}, { passive: false });
view.addEventListener("pointerdown", event => {
  held = [event.clientX - x, event.clientY - y]; view.setPointerCapture(event.pointerId);
});
view.addEventListener("pointermove", event => {
  if (held) { x = event.clientX - held[0]; y = event.clientY - held[1]; draw(); }
});
view.addEventListener("pointerup", () => { held = null; });
const middle = factor => zoom(factor, view.clientWidth / 2, view.clientHeight / 2);
document.getElementById("in").onclick = () => middle(1.25);
document.getElementById("out").onclick = () => middle(0.8);
document.getElementById("width").onclick = () => fit(false);
document.getElementById("whole").onclick = () => fit(true);
addEventListener("keydown", event => {
  if (event.key === "+" || event.key === "=") middle(1.25);
  if (event.key === "-") middle(0.8);
  if (event.key === "0") fit(false);
});
fit(false);
"""


def page(svg: str, heading: str, counts: Sequence[Sequence[str]]) -> str:
    """The page.

    Only the script above may run, which a hash in the page's policy says: a name that gets past
    every escape would still be text.
    """
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = html.escape(heading)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
{_table(counts)}
<span><button id="in">+</button> <button id="out">-</button> <button id="width">width</button>
<button id="whole">whole</button> drag to move, wheel to zoom</span>
</header>
<div id="view">{svg[svg.index("<svg") :]}</div>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _table(counts: Sequence[Sequence[str]]) -> str:
    rows = []
    for index, cells in enumerate(counts):
        tag = "th" if index == 0 else "td"
        inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
        rows.append(f"<tr>{inner}</tr>")
    return f"<table>{''.join(rows)}</table>"
