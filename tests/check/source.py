"""The C files of the tree, and their text without comments and strings."""
import functools
import os
import re
from pathlib import Path

SKIPPED_FOLDERS = re.compile(r"^(build.*|\..*|__pycache__)$")
TOKEN = re.compile(
    r"""(?P<comment>/\*.*?(?:\*/|\Z))|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<char>'(?:\\.|[^'\\\n])*')""",
    re.DOTALL,
)


def tree_files(root):
    """Every file of the tree, relative to root, but what is built or hidden."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not SKIPPED_FOLDERS.match(name))
        for name in sorted(names):
            yield Path(folder, name).relative_to(root)


def c_files(root, suffixes=(".c", ".h")):
    return [path for path in tree_files(root) if path.suffix in suffixes]


def blank(text):
    """Replace all but line ends with spaces: positions and lines stay as they are."""
    return re.sub(r"[^\n]", " ", text)


def code_only(text):
    """Comments become blanks; strings and characters become empty ones of the same length."""

    def replace(match):
        if match["comment"] is not None:
            return blank(match[0])
        return match[0][0] + blank(match[0][1:-1]) + match[0][-1]

    return TOKEN.sub(replace, text)


class Source:
    """One C file; what the rules ask of it is computed once."""

    def __init__(self, root, path):
        self.path = Path(path)
        self.name = self.path.as_posix()
        self.text = Path(root, path).read_text(encoding="utf-8")
        self.lines = self.text.splitlines()

    @functools.cached_property
    def code(self):
        return code_only(self.text)

    @functools.cached_property
    def statements(self):
        """The code without preprocessor lines."""
        return re.sub(
            r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n(?:[^\n\\]|\\.)*)*",
            lambda match: blank(match[0]),
            self.code,
            flags=re.MULTILINE,
        )

    def line_of(self, position):
        return self.text.count("\n", 0, position) + 1


def arguments(text, start):
    """Split what stands between the bracket at start and its partner; None if it never closes."""
    depth, begin, parts = 0, start + 1, []
    for at in range(start, len(text)):
        char = text[at]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                parts.append(text[begin:at])
                return [part.strip() for part in parts], at
        elif char == "," and depth == 1:
            parts.append(text[begin:at])
            begin = at + 1
    return None, len(text)
