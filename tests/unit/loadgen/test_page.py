#!/usr/bin/env python3
"""The page of figures: whole without anything else, legible in both schemes and on a phone, and
what was measured is told as it is. What it looks like is asked of a headless Chromium."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from browser import Browser, program  # noqa: E402

TOP = Path(__file__).parents[3]
SCHEMES, WIDTHS = ("light", "dark"), (1100, 390, 320)

# Each with what it found, so that a failure names it.
WIDER_THAN_THE_WINDOW = """
document.documentElement.scrollWidth > innerWidth
  ? [...document.querySelectorAll('body *')].filter(e => !e.closest('.wide')
      && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)) : []
"""
FAINT = """
(() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => (v /= 255)
    <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126*r + .7152*g + .0722*b; };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  for (let node; node = walker.nextNode();) {
    if (!node.data.trim()) continue;
    const style = getComputedStyle(node.parentElement);
    const ink = light(node.parentElement.closest('svg') ? style.fill : style.color);
    const ratio = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    if (ratio < 4.5) faint.push([node.data.slice(0, 40), ratio]);
  }
  return faint;
})()
"""
OVERLAPPING = """
[...document.querySelectorAll('svg, .bar')].flatMap(whole => {
  const boxes = [...whole.querySelectorAll('text, b, span:not(.track)')]
    .map(e => [e.textContent, e.getBoundingClientRect()]);
  return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b, y]) => x.left < y.right - 1
    && y.left < x.right - 1 && x.top < y.bottom - 1 && y.top < x.bottom - 1).map(([b]) => [a, b]));
})
"""
CURVES_OUTSIDE = """
[...document.querySelectorAll('polyline')].filter(e => { const a = e.getBoundingClientRect(),
  b = e.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1
  || a.top < b.top - 1 || a.bottom > b.bottom + 1; }).map(e => e.closest('figure').innerText)
"""


def row(name="ready", **fields):
    return {
        "scenario": name,
        "date": "2026-11-30",
        "good": True,
        "duration_s": 20.0,
        "asked": 90001,
        "done": 90001,
        "refused": 0,
        "failed": 0,
        "measured": 90000,
        "rate_per_s": 4500.0,
        "rate_median_per_s": 4510,
        "p50_us": 740.0,
        "p99_us": 5820.0,
        "p999_us": 12345.0,
        "latency_of": "create, from asking to CREATED",
        "in_flight": 32,
        "rates_per_s": [4400 + 30 * (i % 5) for i in range(20)],
        "latency_us": [[0, 310.0], [0.5, 740.0], [0.9, 2100.0], [0.99, 5820.0], [0.999, 12345.0],
                       [0.99999, 40100.0], [1, 51000.0]],
        "includes": ["a root of its own", "destroy"],
        "machine": {"kernel": "Linux 6.18.0", "processor": "a processor", "cpus": 2,
                    "memory_bytes": 25 << 30},
        "trouble": "",
        **fields,
    }


PEERS = {
    "bubblewrap": {"version": "0.8.0", "parallel": 4, "rate_per_s": 984.0,
                   "includes": ["namespaces"], "lacks": ["a cgroup"]},
    "runc": {"error": "not installed"},
}
ROWS = [
    row(floor_rate_per_s=9000.0, peers={}),
    row("exec", floor_rate_per_s=3000.0, peers={"bubblewrap": 984.0, "runc": 80.5}),
    row("a-scenario-with-a-long-name", rate_per_s=1754321.0, rate_median_per_s=1754000,
        rates_per_s=[1750000, 1754000, 1760000], p50_us=6.9,
        latency_us=[[0, 0.9], [0.5, 6.9], [1, 7.2]]),
    row("burst", rates_per_s=[], latency_us=[], duration_s=0.4,
        hold={"sandboxes": 5000, "memory_bytes_each": 113000}),
]


def make(rows, peers=None):
    """Its output, or what it said where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        report, told = Path(folder, "report.json"), Path(folder, "peers.json")
        report.write_text("".join(json.dumps(one) + "\n" for one in rows))
        arguments = [report]
        if peers is not None:
            told.write_text(json.dumps(peers))
            arguments.append(told)
        run = subprocess.run([TOP / "loadgen/page.py", *arguments], capture_output=True,
                             text=True, encoding="utf-8")
    if run.returncode:
        assert not run.stdout
        return run.stderr
    return run.stdout


class Page(unittest.TestCase):
    def test_it_needs_nothing_else(self):
        page = make(ROWS, PEERS)
        for reaching_out in ("http:", "https:", "src=", "<script", "@import", "url("):
            self.assertNotIn(reaching_out, page)

    def test_what_was_measured_is_told(self):
        page = make(ROWS, PEERS)
        for told in ("4,500", "740 us", "5.82 ms", "12.35 ms", "50% of 9,000", "150% of 3,000",
                     "4.6 × 984", "55.9 × 80", "1.75\u00a0M", "a processor, 2 CPUs, 25 GiB",
                     "2026-11-30", "runc: not measured: not installed", "bubblewrap 0.8.0, 4 at",
                     "lacks a cgroup", "destroy", "110 KiB of memory each", "most 51.00 ms"):
            self.assertIn(told, page)
        self.assertEqual(page.count("<polyline"), 2 * 3)

    def test_a_bad_run_says_so_first(self):
        page = make([row(good=False, trouble="create: no room"), row("exec", good=False)])
        self.assertIn("Not good: ready: create: no room; exec: asked 90,001", page)
        self.assertNotIn("accounted for", page)

    def test_texts_are_texts(self):
        nasty = "<img src=x onerror=alert(1)>'\"&"
        page = make([row(nasty, trouble=nasty, good=False, includes=[nasty],
                              latency_of=nasty, peers={nasty: 1.0}, floor_rate_per_s=1.0)],
                         {nasty: {"error": nasty}})
        self.assertNotIn("<img", page)
        self.assertNotIn("onerror=alert(1)>", page)

    def test_nothing_measured_is_an_error(self):
        self.assertIn("no scenario was measured", make([]))

    def test_rates_of_nothing_are_drawn(self):
        page = make([row(rates_per_s=[0, 0], rate_median_per_s=0, rate_per_s=0.0)])
        self.assertEqual(page.count("<polyline"), 2)


class Looks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def test_it_is_legible_in_both_schemes_at_any_width(self):
        page = make(ROWS, PEERS)
        for scheme in SCHEMES:
            for width in WIDTHS:
                self.browser.show(page, width, scheme)
                for name in ("WIDER_THAN_THE_WINDOW", "FAINT", "OVERLAPPING", "CURVES_OUTSIDE"):
                    with self.subTest(scheme=scheme, width=width, what=name):
                        self.assertEqual(self.browser.run(globals()[name]), [])

    def test_these_questions_find_what_is_wrong(self):
        plain = make(ROWS, PEERS)
        wrong = {
            "WIDER_THAN_THE_WINDOW": ("h1 {", "h1 { width: 2000px;"),
            "FAINT": ("--quiet: #5c626c", "--quiet: #b0b4ba"),
            "OVERLAPPING": ("font: 11px", "font: 60px"),
            "CURVES_OUTSIDE": ("svg polyline {", "svg polyline { transform: translateY(90px);"),
        }
        for name, (text, instead) in wrong.items():
            self.assertIn(text, plain)
            self.browser.show(plain.replace(text, instead, 1), 390, "light")
            self.assertNotEqual(self.browser.run(globals()[name]), [], name)

    def test_screenshots_show_it_on_the_schemes_paper(self):
        page, papers = make(ROWS, PEERS), []
        for scheme in SCHEMES:
            self.browser.show(page, 1100, scheme)
            lines = self.browser.screenshot()
            self.assertGreater(len(lines), 900)
            self.assertGreater(len(set(lines)), 200, "a blank page")
            papers.append(self.browser.run("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(papers, ["rgb(252, 252, 251)", "rgb(21, 23, 26)"])


if __name__ == "__main__":
    if "Looks" in sys.argv and not program():
        print("skipped: no headless Chromium; apt-get install chromium-headless-shell")
        sys.exit(77)
    unittest.main(verbosity=2)
