"""The icon of each kind of node: the outline of a shape in a square of 16 by 16."""

from __future__ import annotations

_STACK = "M3 2.5h10v3h-10zM3 6.5h10v3h-10zM3 10.5h10v3h-10z"

ICONS = {
    "task": "M2.5 3.5h11v9h-11zM5 6.5l2 1.5-2 1.5M8.5 10h3",
    "switch": "M8 1.5l6.5 6.5-6.5 6.5-6.5-6.5zM5.5 8h5M8.5 6l2 2-2 2",
    "wait": "M8 8v.01M5 5a4 4 0 0 0 0 6M11 5a4 4 0 0 1 0 6M2.6 3a7 7 0 0 0 0 10M13.4 3a7 7 0 0 1 0 10",
    "delay": "M8 2a6 6 0 1 0 .01 0zM8 4.8v3.4l2.4 1.4",
    "workflow": "M1.5 2.5h5v4h-5zM9.5 9.5h5v4h-5zM4 6.5v5h5.5",
    "fan": "M2 8h3.5l4-5h4.5M5.5 8h8.5M5.5 8l4 5h4.5",
    "chain": "M1.5 6h3.5v4h-3.5zM11 6h3.5v4h-3.5zM5 8h6M9 6l2 2-2 2",
    "alike": _STACK,
    "layer": _STACK,
    "band": _STACK,
    "part": _STACK,
}
