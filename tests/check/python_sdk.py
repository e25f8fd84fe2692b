#!/usr/bin/env python3
"""sdk/python is what its sources and dsec.h say, compiles, and has types that hold.

usage: python_sdk.py ROOT CC BUILD CLASS
"""
import ctypes
import inspect
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT, CC, BUILD = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
sys.path.insert(0, str(ROOT / "sdk/python"))
import dsec  # noqa: E402
from dsec import _abi  # noqa: E402


def layout():
    """{name: (offset or 0, size)} of each struct and each field, as the C compiler has them."""
    lines = ["#include <stdio.h>", "#include <dsec/dsec.h>", "int main(void) {"]
    for name, kind in _abi.STRUCTS.items():
        lines.append(f'printf("{name} 0 %zu\\n", sizeof(struct {name}));')
        lines += [f'printf("{name}.{field[0]} %zu %zu\\n", offsetof(struct {name}, {field[0]}), '
                  f"sizeof(((struct {name} *)0)->{field[0]}));" for field in kind._fields_]
    for name in constants():
        lines.append(f'printf("{name} 0 %lld\\n", (long long){name});')
    source = BUILD / "python_abi.c"
    source.write_text("\n".join([*lines, "}"]))
    program = BUILD / "python_abi"
    subprocess.run([CC, "-std=c11", f"-I{ROOT}/sdk/include", "-o", program, source], check=True)
    rows = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split("\n")
    return {name: (int(at), int(size)) for name, at, size in (row.split() for row in rows if row)}


def constants():
    return [name for name in vars(_abi) if re.match(r"DSEC_[A-Z0-9_]+$", name)]


class SdkTest(unittest.TestCase):
    def test_what_is_generated_is_as_its_sources_say(self):
        ran = subprocess.run([sys.executable, "-B", ROOT / "sdk/python/generate.py", "--check"],
                             capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_structs_and_constants_are_the_compilers(self):
        told = layout()
        for name, kind in _abi.STRUCTS.items():
            self.assertEqual(told.pop(name), (0, ctypes.sizeof(kind)), name)
            for field in kind._fields_:
                member = getattr(kind, field[0])
                self.assertEqual(told.pop(f"{name}.{field[0]}"), (member.offset, member.size),
                                 f"{name}.{field[0]}")
        for name in constants():
            self.assertEqual(told.pop(name)[1], getattr(_abi, name), name)
        self.assertEqual(told, {})

    def test_every_function_of_the_library_is_declared(self):
        exported = set(re.findall(r"\b(dsec_\w+);", (ROOT / "sdk/dsec.map").read_text()))
        self.assertEqual(exported, set(_abi.FUNCTIONS))

    def test_every_public_class_and_method_says_what_it_is(self):
        classes = [getattr(module, name) for module in (dsec, dsec.aio) for name in module.__all__]
        classes += [getattr(dsec.options, name) for name in vars(dsec.options) if name.endswith("Options")]
        silent = []
        for kind in filter(inspect.isclass, classes):
            if kind.__module__ == _abi.__name__:
                continue  # enums of dsec.h, which explains them
            own = {f"{kind.__name__}.{name}": member for name, member in vars(kind).items()
                   if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))}
            for name, member in {kind.__name__: kind, **own}.items():
                # A dataclass without words of its own has its signature there.
                if (member.__doc__ or f"{name}(").startswith(f"{name}("):
                    silent.append(f"{kind.__module__}.{name}")
        self.assertEqual(silent, [])
        for module in (dsec, dsec.aio):
            self.assertTrue(module.__doc__)
        shared = set(dsec.aio.__all__) - {"connect"}
        for name in shared:  # the same names, blocking and for asyncio
            public = [{member for member in vars(getattr(module, name)) if not member.startswith("_")}
                      for module in (dsec, dsec.aio)]
            self.assertEqual(*public, name)

    def test_it_compiles(self):
        """As python3 -m compileall, without leaving anything in the sources."""
        for path in sorted(ROOT.glob("sdk/python/**/*.py")):
            compile(path.read_bytes(), str(path), "exec")

    def test_lines_and_files_are_not_too_long(self):
        for path in sorted(ROOT.glob("sdk/python/**/*.py")):
            lines = path.read_text().splitlines()
            if path.name != "_abi.py":
                self.assertLessEqual(len(lines), 600, path)
            self.assertLessEqual(max(map(len, lines), default=0), 100, path)


class TypesTest(unittest.TestCase):
    def test_types_hold(self):
        if not shutil.which("mypy"):
            self.skipTest("no mypy here: apt-get install mypy")
        ran = subprocess.run(["mypy", "--cache-dir", BUILD / "mypy"], cwd=ROOT / "sdk/python",
                             capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
