#!/usr/bin/env python3
"""libdsec as a distribution has it: installed into an empty tree, found by pkg-config, used from there."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD, CMAKE, CC = os.environ["DSEC_BUILD"], os.environ["CMAKE"], os.environ["CC"]
STRICT = ["-Wall", "-Wextra", "-Wundef", "-pedantic", "-Werror"]


def out_of(*command, **options):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    if ran.returncode:
        raise AssertionError(f"{command}: {ran.stdout}{ran.stderr}")
    return ran.stdout


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = Path(tempfile.mkdtemp(prefix="dsec-install."))
        cls.addClassCleanup(shutil.rmtree, cls.root)
        out_of(CMAKE, "--install", BUILD, env=os.environ | {"DESTDIR": str(cls.root)})
        cls.pc = cls.one("libdsec.pc")
        cls.lib = cls.one("libdsec.so").parent
        # All but the program: it must not find a header of the tree beside it.
        cls.source = cls.root / "program.c"
        shutil.copy(HERE / "program.c", cls.source)

    @classmethod
    def one(cls, name):
        found = list(cls.root.rglob(name))
        assert len(found) == 1, (name, found)
        return found[0]

    def config(self, *words):
        """Of a tree that was moved, as a package's is while it is made."""
        prefix = self.pc.parents[2]
        return out_of("pkg-config", f"--define-variable=prefix={prefix}", *words, "libdsec",
                      env=os.environ | {"PKG_CONFIG_PATH": str(self.pc.parent)}).split()

    def test_every_header_compiles_alone_as_c11_and_as_cxx17(self):
        folder = self.one("dsec.h").parent
        headers = sorted(folder.iterdir())
        self.assertGreaterEqual({h.name for h in headers},
                                {"dsec.h", "exec.h", "images.h", "types.h", "ring.h"})
        for header in headers:
            for compiler in ([CC, "-std=c11"], ["g++", "-std=c++17"]):
                out_of(*compiler, *STRICT, *self.config("--cflags"), "-fsyntax-only", "-include",
                       header, "/dev/null", "-x", "c" if compiler[0] == CC else "c++", "/dev/null")

    def build_and_run(self, *compiler, libs, environment=()):
        program = self.root / "program"
        out_of(*compiler, *STRICT, *self.config("--cflags"), "-o", program, self.source, *libs)
        said = out_of(program, env=os.environ | dict(environment))
        self.assertRegex(said, r"^0123456789abcdefghjkmnpqrs -2 open: no engine at /nonesuch/socket")
        return program

    def test_a_program_built_with_pkg_config_runs(self):
        path = {"LD_LIBRARY_PATH": str(self.lib)}
        for compiler in ([CC, "-std=c11"], ["g++", "-std=c++17", "-x", "c++"]):
            libs = ["-x", "none", *self.config("--libs")]
            program = self.build_and_run(*compiler, libs=libs, environment=path)
            needed = re.findall(r"NEEDED.*\[(.*)\]", out_of("readelf", "-d", program))
            self.assertIn("libdsec.so.1", needed)

    def test_a_program_linked_statically_runs_alone(self):
        libs = self.config("--static", "--libs")
        program = self.build_and_run(CC, "-std=c11", "-static", libs=libs)
        self.assertNotIn("NEEDED", out_of("readelf", "-d", program))

    def test_the_shared_library_has_its_soname_and_needs_libc_alone(self):
        library = self.lib / "libdsec.so"
        self.assertTrue(library.is_symlink())
        self.assertEqual(os.readlink(library), "libdsec.so.1")
        dynamic = out_of("readelf", "-d", library)
        self.assertEqual(re.findall(r"SONAME.*\[(.*)\]", dynamic), ["libdsec.so.1"])
        # The loader is libc's own: it knows where a thread's data lie.
        self.assertLessEqual({name for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic)
                              if not name.startswith("ld-linux")}, {"libc.so.6"})
        self.assertNotRegex(dynamic, "R(UN)?PATH|TEXTREL")
        self.assertEqual(out_of("pkg-config", "--modversion", self.pc).strip(),
                         self.lib.joinpath(os.readlink(library)).resolve().name[len("libdsec.so."):])

    def test_pages_and_completions_are_there(self):
        for name in ("dsec.1", "dsec.3"):
            self.assertIn(name, {path.name for path in self.root.rglob("*")})
        script = self.root.rglob("bash-completion/completions/dsec")
        out_of("bash", "-n", next(script))
        self.assertTrue(self.one("_dsec").read_text().startswith("#compdef dsec\n"))


if __name__ == "__main__":
    unittest.main()
