#!/usr/bin/env python3
"""dsec-loadgen on a real engine: every scenario ends well, and what is not well is told."""
import json
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from engine import RUN_S, Engine  # noqa: E402

FIELDS = (
    "scenario duration_s asked done refused failed live residue rate_per_s p50_us p99_us p999_us"
    " includes floor_rate_per_s peers"
).split()


class Loadgen(Engine):
    def drive(self, *options, status=0):
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        run = subprocess.run(
            self.loadgen("--json", str(report), *options),
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        self.assertNotIn("\r", run.stdout + run.stderr, "progress off a terminal")
        lines = report.read_text().splitlines()
        self.assertEqual(len(lines), 1)
        row = json.loads(lines[0])
        self.assertEqual([field for field in FIELDS if field not in row], [])
        self.assertEqual(row["asked"], row["done"] + row["refused"] + row["failed"])
        self.assertEqual(row["good"], status == 0, run.stdout)
        return row

    def assert_clean(self, row):
        self.assertEqual((row["failed"], row["live"], row["residue"]), (0, 0, 0), row)
        self.assertGreater(row["done"], 0)
        self.assertGreater(row["rate_per_s"], 0)
        self.assertLessEqual(row["p50_us"], row["p99_us"])
        self.assertLessEqual(row["p99_us"], row["p999_us"])
        self.assert_distribution(row)
        self.assertGreater(row["residue_seen"]["alive_seen"], 0)

    def test_ready_is_clean_and_probed(self):
        row = self.drive("--scenario", "ready", "--seconds", "1", "--probe-every", "50")
        self.assert_clean(row)
        self.assertGreater(row["isolation_probes"], 2)
        self.assertGreater(row["isolation_assertions"], 50 * row["isolation_probes"])

    def test_exec_is_clean(self):
        self.assert_clean(self.drive("--scenario", "exec", "--seconds", "1"))

    def test_live_exec_is_clean(self):
        row = self.drive("--scenario", "live-exec", "--seconds", "1", "--in-flight", "3")
        self.assert_clean(row)
        self.assertEqual(row["residue_seen"]["alive_seen"], 3)

    def test_hold_has_all_alive_and_measures_them(self):
        row = self.drive("--scenario", "hold", "--count", "100", "--hold", "0.5")
        self.assert_clean(row)
        self.assertEqual(row["done"], 100)
        self.assertEqual(row["residue_seen"]["alive_seen"], 100)
        self.assertEqual(row["hold"]["sandboxes"], 100)

    def test_network_private_is_clean_and_probed(self):
        row = self.drive("--scenario", "ready", "--seconds", "1", "--network", "private")
        self.assert_clean(row)

    def test_fresh_roots_are_never_reused(self):
        row = self.drive("--scenario", "ready", "--seconds", "1", "--fresh-root")
        self.assert_clean(row)
        self.assertEqual(row["reused"], 0)

    def test_storms_are_measured_and_leave_nothing(self):
        report = self.folder / "storms.json"
        kinds = ["death", "inodes", "sync", "output"]
        storms = [self.build / "loadgen/dsec-storms", "--program",
                  self.build / "loadgen/dsec-storm", "--image", "tiny", "--pids", "32",
                  "--rate", "20", "--seconds", "0.3", "--rounds", "2", "--json", report]
        run = subprocess.run([*storms, *kinds], capture_output=True, text=True, timeout=RUN_S,
                             env={**os.environ, "DSEC_ADDRESS": self.address})
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        rows = [json.loads(line) for line in report.read_text().splitlines()]
        self.assertEqual([row["scenario"] for row in rows], [f"storm-{kind}" for kind in kinds])
        for row in rows:
            self.assertGreater(row["alone_p50_us"], 0)
            self.assertGreaterEqual(row["beside_p99_us"], row["beside_p50_us"])
            self.assertAlmostEqual(row["ratio_p99"], row["beside_p99_us"] / row["alone_p99_us"])
        self.assert_clean(self.drive("--scenario", "ready", "--seconds", "0.5"))
        run = subprocess.run([*storms, "none"], capture_output=True, text=True, timeout=RUN_S)
        self.assertEqual((run.returncode, "what is none?" in run.stderr), (2, True))

    def calls(self, *options):
        """Scenarios that are no sandbox's life have an account of their own."""
        report = self.folder / "calls.json"
        report.unlink(missing_ok=True)
        run = subprocess.run(self.loadgen("--json", str(report), *options), capture_output=True,
                             text=True, timeout=RUN_S)
        row = json.loads(report.read_text())
        self.assertEqual((run.returncode == 0, row["scenario"] in run.stdout), (row["good"], True))
        self.assertEqual(row["asked"], row["done"] + row["refused"] + row["failed"])
        self.assert_distribution(row)
        return row

    def assert_distribution(self, row):
        """Rising shares and values that agree with the percentiles, and a rate for each second."""
        points = row["latency_us"]
        self.assertEqual(points, sorted(points))
        self.assertEqual([value for _, value in points], sorted(value for _, value in points))
        self.assertEqual(dict(points).get(0.5, 0), row["p50_us"])
        self.assertEqual(bool(points), row["measured"] > 0)
        self.assertLessEqual(sum(row["rates_per_s"]), row["measured"])
        self.assertEqual(len(row["rates_per_s"]), int(row["duration_s"]) if row["rates_per_s"] else 0)

    def test_calls_no_ops_and_bursts_are_accounted_for_and_leave_nothing(self):
        for scenario in ("call-fresh", "call-domain", "mixed", "no-op"):
            row = self.calls("--scenario", scenario, "--seconds", "0.5", "--warmup", "0")
            self.assertTrue(row["good"], row)
            self.assertGreater(row["p99_us"], 0)
        row = self.calls("--scenario", "burst", "--count", "300")
        self.assertEqual((row["asked"], row["done"], row["refused"]), (300, 300, 0))
        row = self.calls("--scenario", "call-domain", "--seconds", "0.2", "--echo", "/nosuch")
        self.assertEqual((row["good"], row["done"]), (False, 0))
        self.assertIn("argv0", row["trouble"])
        self.assert_clean(self.drive("--scenario", "ready", "--seconds", "0.5"))

    def test_open_loop_asks_at_the_rate(self):
        row = self.drive("--scenario", "exec", "--seconds", "2", "--warmup", "0", "--rate", "100")
        self.assert_clean(row)
        self.assertIn(row["asked"], (200, 201))
        self.assertEqual(row["loop"], "open")

    def test_floor_and_peers_stand_in_the_report(self):
        row = self.drive(
            *("--scenario", "exec", "--seconds", "0.5", "--name", "row"),
            *("--floor-rate", "5000.5", "--peer", "bubblewrap=300", "--peer", "runc=80"),
        )
        self.assertEqual(row["scenario"], "row")
        self.assertEqual(row["floor_rate_per_s"], 5000.5)
        self.assertEqual(row["peers"], {"bubblewrap": 300, "runc": 80})

    def test_a_program_that_is_not_there_fails_the_run(self):
        row = self.drive(
            *("--scenario", "exec", "--seconds", "0.3", "--warmup", "0", "--program", "/none"),
            status=1,
        )
        self.assertGreater(row["failed"], 0)
        self.assertEqual((row["live"], row["residue"]), (0, 0))

    def test_a_probe_that_asserts_nothing_fails_the_run(self):
        row = self.drive(
            *("--scenario", "ready", "--seconds", "0.3", "--warmup", "0"),
            *("--probe", "/usr/libexec/dsec/tiny-exit"),
            status=1,
        )
        self.assertGreater(row["failed"], 0)
        self.assertIn("isolation", row["trouble"])

    def test_a_process_left_in_a_slot_is_residue(self):
        """Put there by hand while load runs: the engine knows nothing of it."""
        self.drive("--scenario", "ready", "--seconds", "0.3", "--warmup", "0")
        slot = self.slots()[-1] / "left"
        stray = subprocess.Popen(["sleep", "60"])
        self.addCleanup(self.stray_end, stray, slot)
        command = self.loadgen("--json", str(self.folder / "stray.json"), "--seconds", "2")
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        slot.mkdir()
        (slot / "cgroup.procs").write_text(str(stray.pid))
        self.assertEqual(run.wait(RUN_S), 1)
        row = json.loads((self.folder / "stray.json").read_text())
        self.assertGreaterEqual(row["residue"], 1)
        self.assertEqual(row["live"], 0)

    @staticmethod
    def stray_end(stray, slot):
        stray.kill()
        stray.wait()
        for _ in range(100):
            try:
                slot.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)

    def test_no_engine_is_an_error(self):
        run = subprocess.run(
            [str(self.build / "loadgen/dsec-loadgen"), "--address", "unix:/nowhere.sock"],
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        self.assertEqual(run.returncode, 1)
        self.assertIn("dsec-loadgen:", run.stderr)


if __name__ == "__main__":
    if os.environ.get("DSEC_BUILD") is None:
        sys.exit("DSEC_BUILD: the folder of the build")
    unittest.main()
