#!/usr/bin/env python3
"""Each rule fires on a bad sample and is silent on a good one.

usage: test_checks.py CC CXX CLANG_FORMAT
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402
import format as formatting  # noqa: E402
import headers  # noqa: E402
import manuals  # noqa: E402
import objects  # noqa: E402
import symbols  # noqa: E402
import tidy  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CC, CXX, CLANG_FORMAT = "cc", "c++", "clang-format"
OPENING = "/* A sample. */\n"


def body(lines):
    return "void sample(void)\n{\n" + lines + "}\n"


# rule: (path, text of a file that breaks this rule and no other), ...
BAD = {
    "layers": [
        ("engine/base/a.c", OPENING + '#include "engine/shard.h"\n'),
        ("engine/a.c", OPENING + '#include "backends/container/launch.h"\n'),
        ("engine/a.c", OPENING + '#include "a.h"\n'),
        ("engine/a.c", OPENING + "#include <bpf/libbpf.h>\n"),
        ("engine/a.c", OPENING + "#include <dsec/dsec.h>\n"),
        ("backends/a/a.c", OPENING + '#include "backends/b/b.h"\n'),
        ("loadgen/a.c", OPENING + "#include <dsec/ring.h>\n"),
        ("nowhere/a.c", OPENING),
    ],
    "name": [
        ("engine/util.c", OPENING),
        ("sdk/common/a.c", OPENING),
        ("loadgen/helpers.py", ""),
        ("engine/misc.h", "#pragma once\n"),
    ],
    "page": [
        ("docs/a.md", "# A\n\n## B\n\ntext\n\n## B\n"),
        ("docs/a.md", "# A\n\n| a | b |\n|---|---|\n| c | d |\n\n| e | f |\n"),
        ("docs/a.md", "# A\n\n[there](nowhere.md)\n"),
    ],
    "file_lines": [("engine/a.c", OPENING + "\n" * 600)],
    "function_lines": [("engine/a.c", OPENING + body("\n" * 71))],
    "columns": [
        ("engine/a.c", OPENING + "/* " + "x" * 96 + " */\n"),
        ("engine/a.c", OPENING + body("\t" * 12 + "call();\n")),
    ],
    "parameters": [
        ("engine/a.c", OPENING + "int f(int a, int b, int c, int d, int e, int g);\n"),
        ("engine/a.c", OPENING + "int f(int a, int b, int c,\n      int d, int e, int g)\n{\n}\n"),
    ],
    "nesting": [("engine/a.c", OPENING + body("\t\t\t\t\tif (x)\n"))],
    "line_comment": [
        ("engine/a.c", OPENING + "// int x;\n"),
        ("engine/a.c", OPENING + body('\tcall("a"); // say\n')),
    ],
    "todo": [
        ("engine/a.c", OPENING + "/* TODO: later */\n"),
        ("engine/a.c", OPENING + "/* FIXME */\n"),
    ],
    "opening_comment": [("engine/a.c", "#include <stdio.h>\n")],
    "pragma_once": [("engine/a.h", "struct a;\n")],
    "own_header": [
        ("engine/a.c", OPENING + '#include <stdio.h>\n#include "engine/a.h"\n'),
    ],
    "assert": [
        ("engine/a.c", OPENING + body("\tassert(a && b);\n")),
        ("engine/a.c", OPENING + body("\tassert(f(a) == 1 &&\n\t       g((b)) == 2);\n")),
        ("engine/a.c", OPENING + '_Static_assert(A == 1 && B == 2, "both");\n'),
    ],
    "cleanup": [
        ("engine/a.c", OPENING + body("\tauto_close int fd;\n")),
        ("engine/a.c", OPENING + body("\tauto_free char *a = NULL, *b;\n")),
    ],
}

GOOD = [
    ("engine/base/a.h", "#pragma once\n#include <stdint.h>\n"),
    (
        "engine/base/a.c",
        OPENING
        + '#include "engine/base/a.h"\n#include <stdio.h>\n'
        + "#define LONG(a, b, c, d, e, f) \\\n\tcall(a, b, c, d, e, f)\n"
        + "/* TODO #12: see https://example.org/a */\n"
        + "int f(int a, int b, int c, int d, int e, ...);\n"
        + 'static const char *const url = "http://a.example";\n'
        + body(
            "\tauto_close int fd = open(a, b);\n\tassert(a);\n\tassert((a && b) || c);\n"
            + '\tcall(a, b, c, d, e, f);\n\t\t\t\tif (x)\n\tsay("assert(a && b); // b");\n'
            + "\n" * 60
        ),
    ),
    ("engine/b.c", OPENING + "#include <dsec/ring.h>\n" + '#include "backends/backend.h"\n'),
    ("backends/a/b.c", OPENING + '#include "backends/a/b.h"\n#include "bpf/guard.h"\n'),
    (
        "docs/a.md",
        "# A\n\n| a |\n|---|\n| b |\n\n[C](architecture.md#layers), `[D](no)`\n\n"
        + "```sh\n# E\n# E\n| sort\n```\n",
    ),
    ("tests/unit/test_a.c", OPENING + "Test(a, b, .init = c, .fini = d, .timeout = 1)\n{\n}\n"),
]


class Tree:
    """A tree of samples with the project's own include table, gone at the end of the scope."""

    def __init__(self, files):
        self.files = files

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dsec-check.")
        root = Path(self.folder.name)
        page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
        table = page[page.index("| folder | may include |") :]
        for name, text in [("docs/architecture.md", table), *self.files]:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    def __exit__(self, *_):
        self.folder.cleanup()


class TidyTest(unittest.TestCase):
    def test_every_rule_has_a_bad_sample(self):
        self.assertEqual(set(BAD), set(tidy.RULES) | {"name", "page"})

    def test_each_bad_sample_breaks_its_rule_and_no_other(self):
        for rule, samples in BAD.items():
            for sample in samples:
                with self.subTest(rule=rule, sample=sample[1][:80]), Tree([sample]) as root:
                    self.assertEqual({found[2] for found in tidy.findings(root)}, {rule})

    def test_good_samples_break_none(self):
        with Tree(GOOD) as root:
            self.assertEqual(list(tidy.findings(root)), [])

    def test_a_missing_table_is_refused(self):
        with Tree([("docs/architecture.md", "# Nothing\n")]) as root:
            with self.assertRaises(SystemExit):
                list(tidy.findings(root))

    def test_the_built_tree_is_not_looked_at(self):
        with Tree([("build/a.c", "// x\n"), ("build-dev/util.c", ""), (".git/a.c", "")]) as root:
            self.assertEqual(list(tidy.findings(root)), [])


class ObjectsTest(unittest.TestCase):
    def findings(self, check, files, flags=""):
        """Compile the .c files of a tree and run one check of objects.py on it."""
        with Tree(files) as root:
            build = root / "build"
            build.mkdir()
            commands = []
            for name, _ in files:
                if not name.endswith(".c") or "dead" in name:
                    continue
                command = f"{CC} -O2 -fPIE {flags} -c {root / name} -o {name.replace('/', '_')}.o"
                subprocess.run(command.split(), cwd=build, check=True)
                commands.append(
                    {"directory": str(build), "file": str(root / name), "command": command}
                )
            (build / "compile_commands.json").write_text(json.dumps(commands), encoding="utf-8")
            return check(root, build)[1]

    def test_mutable_data_is_found(self):
        for text in (
            "static int a; int f(void) { return a++; }",
            "int a = 1;",
            "int f(void) { static int a = 3; return a++; }",
            "static __thread int a; int f(void) { return a++; }",
            "const char *a = 0;",
        ):
            with self.subTest(text=text):
                found = self.findings(objects.check_statics, [("engine/a.c", text)])
                self.assertEqual(len(found), 1, found)

    def test_constant_tables_are_no_mutable_data(self):
        text = 'void g(void); const struct { const char *n; void (*f)(void); } a[] = {{"x", g}};'
        self.assertEqual(self.findings(objects.check_statics, [("engine/a.c", text)]), [])

    def test_the_log_and_the_tests_may_hold_state(self):
        files = [("engine/base/log.c", "int a;"), ("tests/unit/a.c", "int b;")]
        self.assertEqual(self.findings(objects.check_statics, files), [])

    def test_ndebug_is_found(self):
        found = self.findings(objects.check_statics, [("engine/a.c", "")], "-DNDEBUG")
        self.assertEqual(found, ["engine/a.c: compiled with NDEBUG"])

    def test_an_unbuilt_object_is_found(self):
        with Tree([("engine/a.c", ""), ("build/a", "")]) as root:
            command = {"directory": str(root), "file": "engine/a.c", "command": "cc -o a.o"}
            text = json.dumps([command])
            (root / "build/compile_commands.json").write_text(text, encoding="utf-8")
            _, found = objects.check_statics(root, root / "build")
            self.assertEqual(len(found), 1, found)

    def test_a_dead_source_is_found(self):
        files = [("engine/a.c", ""), ("engine/dead.c", ""), ("engine/b/dead.c", "")]
        found = self.findings(objects.check_sources, files)
        self.assertEqual(len(found), 2, found)
        script = [("engine/CMakeLists.txt", "if(X)\nadd_executable(x dead.c)\nendif()\n")]
        found = self.findings(objects.check_sources, files + script)
        self.assertEqual(found, ["engine/b/dead.c: nothing builds it"])


class HeadersTest(unittest.TestCase):
    def count(self, name, text):
        with Tree([(name, text)]) as root:
            return len(list(headers.findings(root, CC, CXX)))

    def test_a_header_that_needs_another_is_found(self):
        self.assertEqual(self.count("engine/a.h", "#pragma once\nuint32_t f(void);\n"), 1)
        self.assertEqual(self.count("engine/a.h", "#pragma once\nint f(void);\n"), 0)

    def test_a_public_header_is_c11_and_cxx17(self):
        gnu = "#pragma once\nstatic inline int f(int a) { return ({ a; }); }\n"
        self.assertEqual(self.count("engine/a.h", gnu), 0)
        self.assertEqual(self.count("sdk/include/dsec/a.h", gnu), 2)
        self.assertEqual(self.count("sdk/include/dsec/a.h", "#pragma once\nint f(int new);\n"), 1)


class SymbolsTest(unittest.TestCase):
    HEADER = "/* dsec_not(this) */ int dsec_a(void); struct dsec_t; int dsec_b(int dsec_c);"
    MAP = "V_1 { global: dsec_a; dsec_b; local: *; };"
    LISTING = "V_1 A 0\ndsec_a@@V_1 T 10 8\ndsec_b@@V_1 T 18 8\n"

    def wrong(self, header=HEADER, version_map=MAP, listing=LISTING):
        return symbols.differences(header, version_map, listing)[0]

    def test_what_agrees_is_fine(self):
        self.assertEqual(self.wrong(), [])

    def test_each_disagreement_is_found(self):
        more = self.HEADER + "int dsec_new(void);"
        self.assertEqual(self.wrong(header=more), ["dsec_new: declared, not in the map"])
        more = self.MAP.replace("dsec_a;", "dsec_a; dsec_old;")
        self.assertEqual(len(self.wrong(version_map=more)), 2)
        more = self.LISTING + "dsec__hidden T 20 8\n"
        self.assertEqual(self.wrong(listing=more), ["dsec__hidden@: exported, not in the map"])
        other = self.LISTING.replace("dsec_a@@V_1", "dsec_a@@V_2")
        self.assertEqual(len(self.wrong(listing=other)), 2)


class ManualsTest(unittest.TestCase):
    HEADER = "int dsec_a(int b); int dsec_b(void);"
    PAGE = """.Fn dsec_a "int dsec_x"
.Fn dsec_b
.Sh DESCRIPTION
.Fn dsec_a , dsec_b :
.Sh OWNERSHIP
"""

    def test_functions_that_a_page_lacks_or_makes_up_are_found(self):
        self.assertEqual(list(manuals.missing_functions(self.HEADER, self.PAGE)), [])
        less = self.PAGE.replace(".Fn dsec_a , dsec_b :", ".Fn dsec_a ")
        self.assertEqual(list(manuals.missing_functions(self.HEADER, less)),
                         ["dsec.3: dsec_b is not described"])
        less = self.PAGE.replace(".Fn dsec_b\n", "")
        self.assertEqual(list(manuals.missing_functions(self.HEADER, less)),
                         ["dsec.3: dsec_b has no synopsis"])
        self.assertEqual(list(manuals.missing_functions("int dsec_a(int b);", self.PAGE)),
                         ["dsec.3: there is no dsec_b"])


class CasesTest(unittest.TestCase):
    def problems(self, *rows):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in (("tests/a/test_x.c", "static void it_is(struct engine *e)\n"),
                               ("tests/b/test_y.py", "    def test_it(self):\n"),
                               ("docs/cases.md", "\n".join(rows))):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return cases.check(root)

    def test_rows_that_are_right_are_counted(self):
        rows = ("| id | what | tests |", "| U1 | a | `x: it_is`, `y: test_it` |",
                "| E2 | b | later: c |")
        self.assertEqual(self.problems(*rows), ([], 2))

    def test_each_row_that_names_nothing_is_found(self):
        for row in ("| U1 | a | `x: it_was` |", "| U1 | a | `z: it_is` |", "| U1 | a | b |",
                    "| U1 | a | `x: it_is`, `test_it` |"):
            self.assertEqual(len(self.problems(row)[0]), 1, row)
        self.assertEqual(len(self.problems("| U1 | a | later: b |", "| U1 | a | later: b |")[0]), 1)


class FormatTest(unittest.TestCase):
    def setUp(self):
        if formatting.version_of(CLANG_FORMAT) != formatting.VERSION:
            self.skipTest(f"needs clang-format {formatting.VERSION}")

    def test_a_badly_laid_out_file_is_found_and_fixed(self):
        style = (".clang-format", (ROOT / ".clang-format").read_text(encoding="utf-8"))
        with Tree([style, ("engine/a.c", "int f(void) {\n  return 1; }\n")]) as root:
            self.assertEqual(formatting.run("check", root, CLANG_FORMAT)[1], 1)
            self.assertEqual(formatting.run("fix", root, CLANG_FORMAT)[1], 0)
            self.assertEqual(formatting.run("check", root, CLANG_FORMAT)[1], 0)


if __name__ == "__main__":
    CC, CXX, CLANG_FORMAT = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
