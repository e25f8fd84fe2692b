#!/usr/bin/env python3
"""Prints what dsec-loadgen wrote as a table: ours, the floor, the peers.

usage: report.py REPORT.json [PEERS.json]     one JSON object a line; what peers.sh wrote
"""
import json
import sys
from pathlib import Path

COLUMNS = ("scenario", "ours/s", "p50", "p99", "p99.9", "floor/s", "of floor", "best peer/s", "times")


def rows_read(path):
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    if not rows:
        sys.exit(f"{path}: no scenario was measured")
    return rows


def duration(us):
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.2f} ms" if us >= 1000 else f"{us:.0f} us"


def count(value):
    return f"{value / 1e6:.2f}\u00a0M" if value >= 1e6 else f"{value:,.0f}"


def machine_line(machine):
    return (
        f"{machine['processor']}, {machine['cpus']} CPUs, {machine['memory_bytes'] / 2**30:.0f} GiB,"
        f" {machine['kernel']}"
    )


def times_of_peers(row):
    """(peer, how many times its rate ours is), the fastest peer first. What is no sandbox (direct)
    is context, not a comparison."""
    rates = {
        name: rate for name, rate in row.get("peers", {}).items() if name != "direct" and rate > 0
    }
    return [
        (name, row["rate_per_s"] / rates[name])
        for name in sorted(rates, key=rates.get, reverse=True)
    ]


def cells(row):
    ours, floor = row["rate_per_s"], row.get("floor_rate_per_s")
    best, times = (times_of_peers(row) or [(None, 0)])[0]
    return (
        row["scenario"],
        f"{ours:,.0f}",
        *(duration(row[key]) for key in ("p50_us", "p99_us", "p999_us")),
        f"{floor:,.0f}" if floor else "",
        f"{ours / floor:.0%}" if floor else "",
        f"{best} {row['peers'][best]:,.0f}" if best else "",
        f"{times:.1f}x" if best else "",
    )


def table(rows):
    lines = [COLUMNS] + [cells(row) for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    for line in lines:
        first, *rest = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths))
        )
        print("  ".join([first, *rest]).rstrip())


def account_line(row):
    line = (
        f"asked {row['asked']:,} = done {row['done']:,} + refused {row['refused']:,} + failed"
        f" {row['failed']:,}"
    )
    if "residue" in row:
        line += (
            f"; live {row['live']}, residue {row['residue']}; isolation held in"
            f" {row['isolation_probes']} probes ({row['isolation_assertions']:,} assertions)"
        )
    return line


def details(row):
    loop = row.get("loop", "closed")
    print(f"{row['scenario']}: {loop} loop, {row['in_flight']} in flight", end="")
    if loop == "open":
        print(f" at most, {row['asked_rate_per_s']:,.0f}/s asked", end="")
    print(f", {row['duration_s']:.0f} s, median second {row['rate_median_per_s']:,}/s")
    print(f"  latency: {row['latency_of']}")
    print(f"  includes: {'; '.join(row['includes'])}")
    print(f"  {account_line(row)}")
    if "hold" in row:
        hold = row["hold"]
        print(
            f"  {hold['sandboxes']:,} idle at once: {hold['memory_bytes_each'] / 1024:.1f} KiB each"
            f" (slab {hold['slab_bytes_each'] / 1024:.1f}); create p99"
            f" {duration(hold['create_p99_first_tenth_us'])} in the first tenth,"
            f" {duration(hold['create_p99_last_tenth_us'])} in the last"
        )
    if not row["good"]:
        print(f"  NOT GOOD: {row['trouble']}")


def peer_details(path):
    for name, peer in json.loads(path.read_text(encoding="utf-8")).items():
        if "error" in peer:
            print(f"{name}: not measured: {peer['error']}")
            continue
        print(f"{name} {peer['version']}: {peer['rate_per_s']:,.0f}/s at {peer['parallel']} at once")
        print(f"  includes: {'; '.join(peer['includes'])}")
        print(f"  lacks: {'; '.join(peer['lacks'])}")


def main():
    rows = rows_read(sys.argv[1])
    print(machine_line(rows[0]["machine"]))
    table(rows)
    print("\nFloor: the launcher's kernel calls in a bare loop, no engine. What each row includes:\n")
    for row in rows:
        details(row)
    if len(sys.argv) > 2 and Path(sys.argv[2]).exists():
        print("\nPeers, the best of several degrees of parallelism:\n")
        peer_details(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
