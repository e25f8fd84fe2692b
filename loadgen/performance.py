#!/usr/bin/env python3
"""Writes docs/performance.md from a recorded run.

usage: performance.py REPORT.json >PERFORMANCE.md     one JSON object a line (run.sh --json)
"""
import sys

from report import account_line, count, duration, machine_line, rows_read, times_of_peers

HEAD = """# Performance

Generated from [a recorded run](performance.json) by `loadgen/performance.py`; do not edit. Make one
on your machine with `./loadgen/run.sh --only load --json FILE`, and see it as a page in
`report.html`, which the same command writes beside its images.

The *floor* is the launcher's kernel calls in a bare loop without an engine, the *peers* are other
sandboxes with the same root and program; both are measured in the same run. Ratios carry over to
other machines, rates do not.
"""


def table(rows):
    lines = [
        "| scenario | a second | p50 | p99 | p99.9 | of the floor | of the best peer |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        floor = row.get("floor_rate_per_s")
        best = [f"{times:.1f} × {peer}" for peer, times in times_of_peers(row)[:1]]
        cells = (
            f"`{row['scenario']}`",
            count(row["rate_per_s"]),
            *(duration(row[key]) for key in ("p50_us", "p99_us", "p999_us")),
            f"{row['rate_per_s'] / floor:.0%}" if floor else "",
            "".join(best),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def details(row):
    lines = [f"**`{row['scenario']}`**: {row['latency_of']}; {row['in_flight']} in flight, "
             f"{row['duration_s']:.0f} s.", ""]
    lines += [f"* {line}" for line in row["includes"]]
    if row.get("hold"):
        hold = row["hold"]
        lines.append(f"* {hold['sandboxes']:,} idle at once, {hold['memory_bytes_each'] / 1024:.0f}"
                     " KiB of memory each")
    lines.append(f"* {account_line(row)}")
    return "\n".join(lines)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = rows_read(sys.argv[1])
    if not all(row["good"] for row in rows):
        sys.exit(f"{sys.argv[1]}: a run that was not good is no record")
    sys.stdout.reconfigure(encoding="utf-8")
    print(HEAD)
    print(f"On {rows[0]['date']}: {machine_line(rows[0]['machine'])}.\n")
    print(table(rows))
    print("\n## What each row includes\n")
    print("\n\n".join(details(row) for row in rows))


if __name__ == "__main__":
    main()
