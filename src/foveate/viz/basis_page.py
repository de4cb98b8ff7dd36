"""What a check found, as one page of HTML with its pictures in it: nothing to install, nothing to fetch."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import FoveateError
from foveate.core.image import load_image
from foveate.store.basis_check import Checked
from foveate.store.shared_basis import FittedBasis

WIDTH, HEIGHT, EDGE = 440, 240, 44
CURVES = {"spearman": "#e8b04b", "overlap": "#5bb8a6", "variance": "#8c9bd9", "neighbours": "#c97b9b"}
STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;color:#222}
table{border-collapse:collapse}
td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}tr.own{background:#fff6e0;font-weight:600}
.no{color:#b3261e}figure{display:inline-block;margin:.5em;font-size:12px}svg text{font:11px system-ui,sans-serif}"""


def page(checked: Checked, basis: FittedBasis) -> str:
    """The page, as text."""
    own, names = checked.own, list(checked.rows[0].values)
    verdict = "passes" if checked.passed else "falls short in " + ", ".join(own.failed(checked.limits))
    if checked.passed or checked.enough is None:
        advice = "" if checked.passed else " No rank in the file passes."
    else:
        advice = f" Rank {checked.enough} would pass."
    rows = []
    for row in checked.rows:
        failed = row.failed(checked.limits)
        cells = "".join(f'<td class="{"no" if name in failed else ""}">{row.values[name]:.3f}</td>' for name in names)
        rows.append(f'<tr class="{"own" if row.rank == checked.rank else ""}"><td>{row.rank}</td>{cells}</tr>')
    limits = "".join(f"<td>{said}</td>" for said in checked.limits.texts(names))
    head = "".join(f"<th>{name}</th>" for name in names)
    ranks = [row.rank for row in checked.rows]
    kept = {name: [row.values[name] for row in checked.rows] for name in CURVES}
    shares = np.cumsum(basis.values) / max(float(basis.values.sum()), 1e-30)
    worst = "".join(_thumbnail(path, value) for path, value in checked.worst)
    return f"""<!doctype html><meta charset="utf-8"><title>foveate basis check</title><style>{STYLE}</style>
<h1>Rank {checked.rank} {verdict}.{advice}</h1>
<p>{checked.images} images, {checked.questions} questions, encoder {_text(basis.encoder.name)}
{_text(basis.encoder.revision)}; fitted to {_text(basis.made.get("samples"))} features
of {_text(basis.made.get("images"))} images.</p>
<table><tr><th>rank</th>{head}</tr>{"".join(rows)}<tr><td>limit</td>{limits}</tr></table>
{_chart("kept, by rank", ranks, kept, checked.rank)}
{_chart("squared scores kept, by directions", range(1, len(shares) + 1), {"share": shares.tolist()}, checked.rank)}
<h2>Images that lose most (spearman)</h2>{worst}
<h2>Images that could not be read</h2><p>{len(checked.bad)}</p>
<ul>{"".join(f"<li>{_text(path)}: {_text(why)}</li>" for path, why in checked.bad[:50])}</ul>
"""


def _text(said: object) -> str:
    """Anything, as text for HTML; bytes of a file name that are not UTF-8 as \\udcxx."""
    return html.escape(str(said).encode("utf-8", "backslashreplace").decode())


def _chart(title: str, ranks: Sequence[int], curves: dict[str, list[float]], mark: int) -> str:
    """Curves over ranks on a logarithmic axis, as SVG; values from 0 to 1."""
    span = np.log2(max(ranks)) or 1.0

    def x(rank: float) -> float:
        return EDGE + float(np.log2(rank) / span) * (WIDTH - 2 * EDGE)

    def y(value: float) -> float:
        return HEIGHT - EDGE - min(max(value, 0.0), 1.0) * (HEIGHT - 2 * EDGE)

    lines = [f'<text x="{EDGE}" y="20">{html.escape(title)}</text>']
    for tick in (0, 0.5, 1):
        lines += [
            f'<path d="M{EDGE} {y(tick)}H{WIDTH - EDGE}" stroke="#ddd"/>',
            f'<text x="12" y="{y(tick)}">{tick}</text>',
        ]
    shown = [2**n for n in range(12) if min(ranks) <= 2**n <= max(ranks)]
    lines += [f'<text x="{x(rank) - 6:.0f}" y="{HEIGHT - EDGE + 16}">{rank}</text>' for rank in shown]
    lines.append(f'<path d="M{x(mark):.1f} {y(0)}V{y(1)}" stroke="#222" stroke-dasharray="3 3"/>')
    for i, (name, values) in enumerate(curves.items()):
        colour = CURVES.get(name, "#444")
        points = " ".join(f"{x(rank):.1f},{y(value):.1f}" for rank, value in zip(ranks, values, strict=True))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{EDGE + 95 * i}" y="{HEIGHT - 8}" fill="{colour}">{name}</text>')
    return f'<svg width="{WIDTH}" height="{HEIGHT}">{"".join(lines)}</svg>'


def _thumbnail(path: str, value: float) -> str:
    try:
        rgb = load_image(path).rgb
    except FoveateError:
        return ""
    name = _text(Path(path).name)
    return f'<figure><img src="data:image/jpeg;base64,{_jpeg(rgb)}"><br>{value:.3f} {name}</figure>'


def _jpeg(rgb: NDArray[np.uint8]) -> str:
    ratio = 160 / max(rgb.shape[:2])
    size = max(1, round(rgb.shape[1] * ratio)), max(1, round(rgb.shape[0] * ratio))
    small = cv2.cvtColor(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR)
    return base64.b64encode(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()).decode("ascii")
