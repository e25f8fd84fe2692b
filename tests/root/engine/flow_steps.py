#!/usr/bin/env python3
"""Every step of every flow, as the sources have them: "container.slot", one a line.

usage: flow_steps.py ROOT. Called by test_engine_faults.c, so that a new step is tested without
anyone naming it.
"""
import re
import sys
from pathlib import Path

USE = re.compile(r'\bflow_init\([^;]*?"(\w+)",\s*(\w+),')
STEP = re.compile(r'\{ "(\w+)",')


def main():
    root = Path(sys.argv[1])
    sources = [*sorted(root.glob("engine/**/*.c")), *sorted(root.glob("backends/*/*.c"))]
    found = 0
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for table, name in USE.findall(text):
            steps = re.search(rf"struct flow_step {name}\[\] = {{(.*?)\n}};", text, re.DOTALL)
            if not steps:
                sys.exit(f"{source}: no table {name}")
            for step in STEP.findall(steps[1]):
                print(f"{table}.{step}")
                found += 1
    if not found:
        sys.exit("no flow was found")


if __name__ == "__main__":
    main()
