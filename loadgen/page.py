#!/usr/bin/env python3
"""Writes what dsec-loadgen measured as one HTML page that needs nothing else: no script, no
network.

usage: page.py REPORT.json [PEERS.json] >PAGE.html     one JSON object a line; what peers.sh wrote
"""
import html
import json
import math
import sys
from pathlib import Path

from report import (
    COLUMNS,
    account_line,
    count,
    duration,
    machine_line,
    rows_read,
    times_of_peers,
)

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfb; --ink: #1b1d21; --quiet: #5c626c;
  --line: #dcdee2; --band: #f1f2f4; --bar: #1f6fb4; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --ink: #e8e9eb; --quiet: #a2a8b2;
  --line: #34383e; --band: #1e2125; --bar: #68b0ee; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .25rem 0 .75rem; }
ul { margin: .25rem 0; padding-left: 1.2rem; }
li { margin: .15rem 0; }
.quiet, figcaption { color: var(--quiet); font-size: .9rem; }
.bad { color: var(--bad); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .75rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.charts { display: grid; gap: 1.25rem;
  grid-template-columns: repeat(auto-fill, minmax(17.5rem, 1fr)); }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--quiet); font: 11px system-ui, sans-serif; }
svg line { stroke: var(--line); }
svg polyline { fill: none; stroke: var(--bar); stroke-width: 2; stroke-linejoin: round; }
.bar { display: grid; grid-template-columns: 10rem 1fr 12rem; gap: 0 .75rem; align-items: center;
  margin: .4rem 0; }
.bar b { font-size: .9rem; font-variant-numeric: tabular-nums; }
.track { position: relative; background: var(--band); height: 1.1rem; }
.track i { position: absolute; inset: 0 auto 0 0; background: var(--bar); }
.track em { position: absolute; top: -.2rem; bottom: -.2rem; border-left: 2px solid var(--ink); }
@media (max-width: 40rem) { .bar { grid-template-columns: 1fr auto; }
  .track { grid-row: 2; grid-column: 1 / 3; } }
"""

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 320, 190, 52, 26, 10, 12


def text(value):
    return html.escape(str(value), quote=True)


def short_duration(us):
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if us >= unit:
            return f"{us / unit:g} {name}"
    return f"{us:g} us"


# ---- charts ----


class Frame:
    """Places in a chart: x and y from 0 to 1, of the room inside its margins."""

    def __init__(self):
        self.parts = []

    def x(self, share):
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, share):
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    def across(self, share, label):
        y = self.y(share)
        self.parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text(label)}</text>'
        )

    def below(self, share, label):
        self.parts.append(
            f'<text x="{self.x(share):.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
            f"{text(label)}</text>"
        )

    def curve(self, points):
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}"/>')

    def figure(self, name, caption, label):
        return (
            f'<figure><h3>{text(name)}</h3><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
            f' aria-label="{text(label)}">{"".join(self.parts)}</svg>'
            f"<figcaption>{text(caption)}</figcaption></figure>"
        )


def steps_of(most):
    """A round step, so that four at most reach `most`."""
    step = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 1
    return next(step * times for times in (1, 2, 5, 10) if step * times * 4 >= most)


def rate_chart(row):
    rates = row["rates_per_s"]
    frame = Frame()
    step = steps_of(max(rates) or 1)
    most = step * max(1, math.ceil(max(rates) / step))
    for at in range(round(most / step) + 1):
        frame.across(at * step / most, count(at * step))
    frame.below(0, "1 s")
    frame.below(1, f"{len(rates)} s")
    frame.curve([(at / (len(rates) - 1), rate / most) for at, rate in enumerate(rates)])
    low, high = min(rates), max(rates)
    median = count(row["rate_median_per_s"])
    caption = f"{count(low)} to {count(high)} a second, median {median}"
    return frame.figure(row["scenario"], caption, f"rate of {row['scenario']} by second: {caption}")


def latency_chart(row):
    """Log scales on both axes: latency upwards, and to the right what is left above a share."""
    points = [(share, us) for share, us in row["latency_us"] if us > 0]
    frame = Frame()
    bottom = math.floor(math.log10(points[0][1]))
    top = max(bottom + 1, math.ceil(math.log10(points[-1][1])))
    for decade in range(bottom, top + 1):
        frame.across((decade - bottom) / (top - bottom), short_duration(10**decade))
    last = max((share for share, _ in points if share < 1), default=0.9)
    nines = max(1, -math.log10(1 - last))
    for nine in range(math.floor(nines) + 1):
        frame.below(nine / nines, f"{100 - 100 / 10**nine:.{max(0, nine - 2)}f} %")
    frame.curve(
        (
            min(1, -math.log10(1 - share) / nines) if share < 1 else 1,
            (math.log10(us) - bottom) / (top - bottom),
        )
        for share, us in points
    )
    caption = (
        f"{row['latency_of']}: p50 {duration(row['p50_us'])}, p99 {duration(row['p99_us'])},"
        f" p99.9 {duration(row['p999_us'])}, most {duration(points[-1][1])}"
    )
    return frame.figure(row["scenario"], caption, f"latency of {row['scenario']}: {caption}")


def bar(name, share, label, mark=None):
    """Shares are of the whole width; `mark` is a line across it."""
    line = f'<em style="left:{100 * mark:.1f}%"></em>' if mark else ""
    return (
        f'<div class="bar"><span>{text(name)}</span><span class="track">'
        f'<i style="width:{100 * share:.1f}%"></i>{line}</span><b>{text(label)}</b></div>'
    )


# ---- sections ----


def head(rows):
    bad = [row for row in rows if not row["good"]]
    verdict = "<p>Everything that was asked is accounted for, and nothing was left behind.</p>"
    if bad:
        told = "; ".join(f"{row['scenario']}: {row['trouble'] or account_line(row)}" for row in bad)
        verdict = f'<p class="bad">Not good: {text(told)}</p>'
    machine = f"{machine_line(rows[0]['machine'])}, {rows[0]['date']}"
    return f'<h1>DSec under load</h1><p class="quiet">{text(machine)}</p>{verdict}'


def table(rows):
    names = (*COLUMNS[:5], "of the floor", "of the best peer", "seconds")
    lines = []
    for row in rows:
        best = [f"{times:.1f} × {peer}" for peer, times in times_of_peers(row)[:1]]
        lines.append(
            (
                row["scenario"],
                count(row["rate_per_s"]),
                *(duration(row[key]) for key in ("p50_us", "p99_us", "p999_us")),
                f"{of_floor(row):.0%}" if of_floor(row) else "",
                "".join(best),
                f"{row['duration_s']:.0f}",
            )
        )
    heads = "".join(f"<th>{text(name)}</th>" for name in names)
    cells = "".join(
        f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in line)}</tr>" for line in lines
    )
    return (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>'
        "</div>"
    )


def of_floor(row):
    return row["rate_per_s"] / row["floor_rate_per_s"] if row.get("floor_rate_per_s") else None


def floors(rows):
    shares = [(row, of_floor(row)) for row in rows if of_floor(row)]
    most = max((share for _, share in shares), default=1)
    width = max(1, most)
    bars = "".join(
        bar(row["scenario"], share / width,
            f"{share:.0%} of {count(row['floor_rate_per_s'])} a second", mark=1 / width)
        for row, share in shares
    )
    words = (
        "The floor, the line across each bar, is the launcher's kernel calls in a bare loop"
        " without an engine, measured just before."
    )
    return f"<h2>Ours ÷ floor</h2><p class='quiet'>{words}</p>{bars}" if bars else ""


def peer_line(name, peer):
    if "error" in peer:
        return f"<li>{text(name)}: not measured: {text(peer['error'])}</li>"
    whole = f"{name} {peer['version']}".strip()
    return (
        f"<li>{text(whole)}, {peer['parallel']} at once: includes"
        f" {text('; '.join(peer['includes']))}; lacks {text('; '.join(peer['lacks']) or 'nothing')}"
        "</li>"
    )


def peers(rows, told):
    pairs = [(row, peer, times) for row in rows for peer, times in times_of_peers(row)]
    most = max((times for _, _, times in pairs), default=1)
    bars = "".join(
        bar(f"{row['scenario']}: {peer}", times / most,
            f"{times:.1f} × {count(row['peers'][peer])} a second")
        for row, peer, times in pairs
    )
    lines = "".join(peer_line(name, peer) for name, peer in told.items())
    words = (
        "Each at the best of several degrees of parallelism, in the same run, with the same root"
        " and program."
    )
    if not bars and not lines:
        return ""
    return f"<h2>Ours ÷ peers</h2><p class='quiet'>{words}</p>{bars}<ul class='quiet'>{lines}</ul>"


def charts(title, words, drawn):
    if not drawn:
        return ""
    return f"<h2>{title}</h2><p class='quiet'>{words}</p><div class='charts'>{''.join(drawn)}</div>"


def includes(rows):
    lines = []
    for row in rows:
        account = account_line(row)
        if row.get("hold"):
            account += f"; {row['hold']['memory_bytes_each'] / 1024:.0f} KiB of memory each"
        what = "".join(f"<li>{text(line)}</li>" for line in row["includes"])
        lines.append(
            f"<h3>{text(row['scenario'])}</h3><p class='quiet'>{text(account)}</p><ul>{what}</ul>"
        )
    return "<h2>What each row includes</h2>" + "".join(lines)


def page(rows, told):
    rates = [rate_chart(row) for row in rows if len(row["rates_per_s"]) > 1]
    latencies = [latency_chart(row) for row in rows if any(us > 0 for _, us in row["latency_us"])]
    words = (
        "To the right: the share that was at most so slow, each mark a tenth of what the last one"
        " left. Both axes are logarithmic."
    )
    return "".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            "<title>DSec under load</title><link rel='icon' href='data:,'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<style>{STYLE}</style></head><body>",
            head(rows),
            table(rows),
            floors(rows),
            peers(rows, told),
            charts("Rate over time", "Units that ended in each second.", rates),
            charts("Latency", words, latencies),
            includes(rows),
            "</body></html>\n",
        )
    )


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    rows = rows_read(sys.argv[1])
    told = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    told = json.loads(told.read_text(encoding="utf-8")) if told and told.exists() else {}
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(page(rows, told))


if __name__ == "__main__":
    main()
