"""Asking a page about its timeline: what it shows, and what became of keys and pointers."""

from pathlib import Path
from typing import Any

from sublight.report.blocks import Document, Timeline
from sublight.report.html import render_html

from . import browser

TOOLS = """
const figure = document.querySelector("figure.timeline");
const canvas = figure.querySelector("canvas.lanes");
const overview = figure.querySelector("canvas.overview");
const tip = figure.querySelector(".tip");
const where = () => figure.querySelector(".where").textContent;
const at = () => [Number(figure.dataset.from), Number(figure.dataset.to)];
const press = (key, more) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, ...more }));
const point = (name, x, y, more, target = canvas) => {
  const box = target.getBoundingClientRect();
  const place = { clientX: box.left + x * box.width, clientY: box.top + y };
  const usual = { pointerId: 1, pointerType: "mouse", bubbles: true };
  target.dispatchEvent(new PointerEvent(name, { ...usual, ...place, ...more }));
};
const pixel = (x, y) => {
  const scale = canvas.width / canvas.clientWidth;
  const data = canvas.getContext("2d").getImageData(Math.floor(x * canvas.width), Math.floor(y * scale), 1, 1).data;
  return "#" + [...data.slice(0, 3)].map((part) => part.toString(16).padStart(2, "0")).join("");
};
const LANE = 24 + 18 + 20 + 40; // a height within the first lane, below the scale, the bands and its name
"""


def ask(block: Timeline, script: str, folder: Path, width: int = 1280, dark: bool = False) -> Any:
    return browser.ask(render_html(Document("t", (block,))), TOOLS + script, folder, width, dark)
