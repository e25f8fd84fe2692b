#!/usr/bin/env python3
"""House rules that a compiler does not check, one function a rule (docs/architecture.md, layers).

usage: tidy.py ROOT
A rule yields (line, what) for each offence; line 0 is the whole file.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from source import Source, arguments, c_files, tree_files  # noqa: E402

FILE_LINES, FUNCTION_LINES, COLUMNS, PARAMETERS, NESTING = 600, 70, 100, 5, 4
FORBIDDEN_NAMES = re.compile(r"^(util|utils|common|misc|helper|helpers)([._-].*)?$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
CONTROL = re.compile(r"(\t+)(?:\} *)?(?:if|for|while|do|switch|else|\w*for_each\w*)\b")


def read_layers(root):
    """The include table: {folder: prefixes}, from the rows below `| folder | may include |`."""
    layers, inside = {}, False
    for line in Path(root, "docs/architecture.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if [cell.lower() for cell in cells] == ["folder", "may include"]:
            inside = True
        elif not line.strip().startswith("|"):
            inside = False
        elif inside and len(cells) == 2 and not set(cells[0]) <= set("-: "):
            allowed = [entry.strip().strip("`") for entry in cells[1].split(",")]
            layers[cells[0].strip("`").rstrip("/")] = [entry for entry in allowed if entry]
    if not layers:
        raise SystemExit("docs/architecture.md has no table `| folder | may include |`")
    return layers


def rule_layers(source, layers):
    name = source.name
    rows = [folder for folder in layers if name.startswith(folder + "/")]
    if not rows:
        yield 0, "no row of the include table covers this folder"
        return
    folder = max(rows, key=len)
    own = "/".join(source.path.parts[:2])
    allowed = tuple(entry.replace("{own}", own) for entry in layers[folder])
    for match in INCLUDE.finditer(source.text):
        what = match[1] or match[2]
        line = source.line_of(match.start(match.lastindex))
        if match[1] or what.startswith("dsec/"):
            if not what.startswith(allowed):
                yield line, f"{folder} may not include {what}"
        elif re.match(r"(bpf|xdp)/|sys/apparmor\.h", what):
            if source.path.parts[0] not in ("bpf", "tests"):
                yield line, f"only bpf/ knows {what}"


def rule_file_lines(source, _):
    if len(source.lines) > FILE_LINES:
        yield 0, f"file has {len(source.lines)} lines, at most {FILE_LINES}"


def rule_function_lines(source, _):
    start = None
    for number, line in enumerate(source.lines, 1):
        if line == "{":
            start = number
        elif line.startswith("}") and start:
            if number - start - 1 > FUNCTION_LINES:
                yield start, f"function has {number - start - 1} lines, at most {FUNCTION_LINES}"
            start = None


def rule_columns(source, _):
    for number, line in enumerate(source.lines, 1):
        columns = len(line.expandtabs(8))
        if columns > COLUMNS:
            yield number, f"line has {columns} columns, at most {COLUMNS}"


def top_level(code):
    """Blank what stands in braces, so that only declarations and function heads are left."""
    out, depth = [], 0
    for char in code:
        if char == "}":
            depth -= 1
        out.append(char if depth == 0 or char == "\n" else " ")
        if char == "{":
            depth += 1
    return "".join(out)


def rule_parameters(source, _):
    """Names that begin with a capital are macros (Test, BPF_PROG), whose arguments are not ours."""
    code = top_level(source.statements)
    for match in re.finditer(r"\b([a-z_]\w*)[ \t\n]*(\()", code):
        if match[1] in ("__attribute__", "__typeof__", "typeof", "sizeof", "asm"):
            continue
        parts, end = arguments(code, match.start(2))
        if parts is None or not re.match(r"\s*(\{|;|__attribute__)", code[end + 1 :]):
            continue
        count = len([part for part in parts if part not in ("", "void", "...")])
        if count > PARAMETERS:
            yield source.line_of(match.start()), f"{match[1]} has {count} parameters"


def rule_nesting(source, _):
    """clang-format sees to the indentation, so the tabs before a control statement are its level."""
    for number, line in enumerate(source.statements.splitlines(), 1):
        match = CONTROL.match(line)
        if match and len(match[1]) > NESTING:
            yield number, f"nested {len(match[1])} levels deep, at most {NESTING}"


def rule_line_comment(source, _):
    for number, line in enumerate(source.code.splitlines(), 1):
        if "//" in line:
            yield number, "leftover // comment"


def rule_todo(source, _):
    for number, line in enumerate(source.lines, 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b(?!:? ?\(?#\d+)", line):
            yield number, "TODO without an issue number"


def rule_opening_comment(source, _):
    if source.path.suffix == ".c" and not source.text.lstrip().startswith("/*"):
        yield 1, "a .c file opens with a comment: what it owns, who calls it, what must hold"


def rule_pragma_once(source, _):
    if source.path.suffix == ".h" and not re.search(r"^#pragma once$", source.code, re.MULTILINE):
        yield 0, "header without #pragma once"


def rule_own_header(source, _):
    """A .c file with a header of its own includes it first."""
    own = source.path.with_suffix(".h").as_posix()
    names = [match[1] or match[2] for match in INCLUDE.finditer(source.text)]
    if source.path.suffix == ".c" and own in names and names[0] != own:
        yield 0, f"does not include its own header {own} first"


def rule_assert(source, _):
    for match in re.finditer(r"\b(assert|_Static_assert|static_assert)[ \t]*(\()", source.code):
        parts, _ = arguments(source.code, match.start(2))
        condition = re.sub(r"\([^()]*\)", "", parts[0]) if parts else ""
        while "(" in condition and re.search(r"\([^()]*\)", condition):
            condition = re.sub(r"\([^()]*\)", "", condition)
        if "&&" in condition:
            yield source.line_of(match.start()), "split it: one condition an assertion"


def rule_cleanup(source, _):
    """A variable with a cleanup attribute is initialised where it is declared."""
    for match in re.finditer(r"^[ \t]+auto_\w+[ \t]+([^;{}]*);", source.statements, re.MULTILINE):
        parts, _ = arguments("(" + match[1] + ")", 0)
        if not parts or any("=" not in part for part in parts):
            yield source.line_of(match.start()), "not initialised where it is declared"


RULES = {
    name[len("rule_") :]: value for name, value in globals().items() if name.startswith("rule_")
}


def name_findings(root):
    for path in tree_files(root):
        bad = [part for part in path.parts if FORBIDDEN_NAMES.match(part)]
        if bad:
            yield path, 0, "name", f"{bad[0]} says nothing of what is in it"


def page_lines(text):
    """The lines of a page with their numbers; what stands between fences is empty."""
    fenced = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        yield number, "" if fenced or fence else line
        fenced ^= fence


def page_findings(root):
    """Of pages: a heading stands once, a table has its head, and links lead to what is there."""
    for path in (path for path in tree_files(root) if path.suffix == ".md"):
        headings, above = set(), ""
        for number, line in page_lines(Path(root, path).read_text(encoding="utf-8")):
            if line.startswith("#"):
                if line in headings:
                    yield path, number, "page", f"{line}: stands twice"
                headings.add(line)
            if above == "head" and not re.fullmatch(r"[|: -]+", line):
                yield path, number - 1, "page", "rows of a table that has no head"
            above = ("row" if above else "head") if line.startswith("|") else ""
            for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", line)):
                if not Path(root, path.parent, link).exists():
                    yield path, number, "page", f"{link} is not there"


def findings(root):
    """(path, line, rule, what) for the whole tree."""
    layers = read_layers(root)
    yield from name_findings(root)
    yield from page_findings(root)
    for path in c_files(root):
        source = Source(root, path)
        for name, rule in RULES.items():
            for line, what in rule(source, layers):
                yield path, line, name, what


def main():
    root = Path(sys.argv[1])
    count = 0
    for path, line, name, what in findings(root):
        print(f"{path}:{line}: {what} [{name}]")
        count += 1
    print(f"Tested: {len(c_files(root))} files")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
