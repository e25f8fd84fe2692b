#!/usr/bin/env python3
"""What `dsecd --check` ($DSECD) and the static dsecd-check ($DSECD_CHECK) say, and leave."""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

DSECD, DSECD_CHECK = os.environ["DSECD"], os.environ["DSECD_CHECK"]
COMMANDS = {"dsecd --check": [DSECD, "--check"], "dsecd-check": [DSECD_CHECK]}
LIMIT_S = 60


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def answer(command, *prefix):
    told = run(*prefix, *command, "--json")
    return told, json.loads(told.stdout)


def states(document):
    return {probe["name"]: probe["state"] for probe in document["probes"]}


def host():
    """What a probe could leave behind, or change."""
    settings = {
        str(path): path.read_text()
        for folder in ("/proc/sys/user", "/proc/sys/kernel/pty", "/proc/sys/kernel")
        for path in sorted(Path(folder).glob("[cimp]*"))
        if path.is_file() and os.access(path, os.R_OK) and path.name not in ("nr", "random")
    }
    mounts = Path("/proc/self/mountinfo").read_text()
    return {"settings": settings, "mounts": mounts, "name": os.uname().nodename}


def cgroups_of(pid, mounts):
    """Those of one run of probes: others may be at work here."""
    lines = [line.split() for line in mounts.splitlines() if " - cgroup2 " in line]
    return [path for line in lines for path in Path(line[4]).glob(f"dsec.check.{pid}")]


class Answer(unittest.TestCase):
    def test_json_and_text_name_the_same_probes_with_the_same_states(self):
        for name, command in COMMANDS.items():
            with self.subTest(name):
                _, document = answer(command)
                lines = run(*command).stdout.splitlines()
                told = {line.split()[1]: line.split()[0] for line in lines[:-1]}
                self.assertEqual(told, states(document))
                self.assertIn(f"of which {document['required_missing']} required", lines[-1])

    def test_what_is_not_ok_says_what_degrades_and_the_remedy(self):
        for name, command in COMMANDS.items():
            with self.subTest(name):
                _, document = answer(command)
                for probe in document["probes"]:
                    self.assertTrue(probe["detail"])
                    self.assertEqual("remedy" in probe, probe["state"] != "ok", probe)
                    self.assertEqual("degrades" in probe, probe["state"] != "ok", probe)

    def test_guard_and_direct_loading_see_the_same_host(self):
        """Two implementations of the BPF probes, one through libbpf and one without."""
        documents = [answer(command)[1] for command in COMMANDS.values()]
        self.assertEqual(states(documents[0]), states(documents[1]))

    def test_exit_status_follows_what_is_required_and_missing(self):
        for name, command in COMMANDS.items():
            with self.subTest(name):
                told, document = answer(command)
                missing = [
                    probe["name"]
                    for probe in document["probes"]
                    if probe["required"] and probe["state"] == "missing"
                ]
                self.assertEqual(document["required_missing"], len(missing))
                self.assertEqual(told.returncode, 1 if missing else 0)

    def test_everything_an_engine_needs_is_here(self):
        """The other root tests rest on it."""
        _, document = answer(COMMANDS["dsecd-check"])
        self.assertEqual(document["required_missing"], 0, states(document))


class Host(unittest.TestCase):
    def test_nothing_is_left_or_changed(self):
        before = host()
        for command in COMMANDS.values():
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                self.assertIn("cgroup-kill", process.communicate(timeout=LIMIT_S)[0])
            self.assertEqual(cgroups_of(process.pid, before["mounts"]), [])
        self.assertEqual(host(), before)

    def test_two_at_once_do_not_disturb_each_other(self):
        _, alone = answer(COMMANDS["dsecd-check"])
        both = [
            subprocess.Popen([DSECD_CHECK, "--json"], stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        for process in both:
            document = json.loads(process.communicate(timeout=LIMIT_S)[0])
            self.assertEqual(states(document), states(alone))


class Missing(unittest.TestCase):
    """Hosts that lack something, made by taking it away from the program alone."""

    def without(self, *prefix):
        told, document = answer(COMMANDS["dsecd-check"], *prefix)
        return told.returncode, states(document), document

    def test_other_user_than_root(self):
        status, seen, _ = self.without("setpriv", "--reuid=65534", "--clear-groups")
        self.assertEqual(status, 1)
        for name in ("root", "cgroup2", "tmpfs", "overlay", "user-namespaces"):
            self.assertEqual(seen[name], "missing", name)
        for name in ("kernel", "pidfd", "memfd", "io_uring", "io_uring-waitid"):
            self.assertEqual(seen[name], "ok", name)

    def test_old_kernel(self):
        status, seen, _ = self.without("setarch", "--uname-2.6")
        self.assertEqual((status, seen["kernel"]), (1, "missing"))

    def test_no_cgroup2(self):
        script = 'mount --make-rprivate / && umount -a -t cgroup2 && exec "$0" "$@"'
        status, seen, _ = self.without("unshare", "-m", "sh", "-c", script)
        self.assertEqual(status, 1)
        for name in ("cgroup2", "controllers", "clone-into-cgroup", "cgroup-kill"):
            self.assertEqual(seen[name], "missing", name)
        self.assertEqual(seen["overlay"], "ok")

    def test_no_capability_for_bpf(self):
        dropped = "-bpf,-perfmon,-sys_admin"
        _, seen, _ = self.without("setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}")
        for name in ("root", "bpf-tp_btf", "bpf-sock_create", "bpf-shared", "bpf-egress",
                     "bpf-xdp", "tmpfs"):
            self.assertEqual(seen[name], "missing", name)

    def test_root_without_one_capability_is_told_which(self):
        _, _, document = self.without("setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod")
        root = next(probe for probe in document["probes"] if probe["name"] == "root")
        self.assertEqual((root["state"], root["detail"]), ("missing", "root without capabilities mknod"))

    def test_low_limit_of_descriptors(self):
        _, seen, _ = self.without("prlimit", "--nofile=1024:1024")
        self.assertEqual(seen["descriptors"], "degraded")

    def test_images_on_tmpfs(self):
        told = run("unshare", "-m", "sh", "-c",
                   'mount -t tmpfs none /mnt && exec "$0" --json --images /mnt', DSECD_CHECK)
        self.assertEqual(states(json.loads(told.stdout))["images"], "degraded")
        told = run(DSECD_CHECK, "--json", "--images", "/usr")
        self.assertEqual(states(json.loads(told.stdout))["images"], "ok")


class Usage(unittest.TestCase):
    def test_unknown_option_is_refused(self):
        self.assertEqual(run(DSECD_CHECK, "--jason").returncode, 2)
        self.assertEqual(run(DSECD, "--check", "--jason").returncode, 2)

    def test_answer_that_cannot_be_written_is_a_failure(self):
        for command in COMMANDS.values():
            with open("/dev/full", "w", encoding="ascii") as full:
                told = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual(told.returncode, 1)

    def test_static_program_needs_no_library(self):
        headers = run("readelf", "-lW", DSECD_CHECK).stdout
        self.assertIn("LOAD", headers)
        self.assertNotIn("INTERP", headers)


if __name__ == "__main__":
    # In a mount namespace of our own: what others mount meanwhile is not ours to count.
    if "CHECK_TEST_PRIVATE" not in os.environ:
        os.environ["CHECK_TEST_PRIVATE"] = "1"
        command = ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv]
        os.execvp(command[0], command)
    unittest.main(argv=[sys.argv[0], "-v"])
