#!/usr/bin/env python3
"""Writes what is derived: _abi.py from the C headers, the blocking client from the asyncio one.

usage: generate.py [--check]     --check: changes nothing; exit 1 if a file is not as it would be
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
# asyncio source: the blocking file made of it.
BLOCKING = {"_client_aio.py": "_client.py", "_sandbox_aio.py": "_sandbox.py",
            "_process_aio.py": "_process.py", "_function_aio.py": "_function.py",
            "_subscription_aio.py": "_subscription.py"}

NUMBERS = {
    "uint8_t": "c_uint8", "uint16_t": "c_uint16", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
    "int32_t": "c_int32", "int64_t": "c_int64", "size_t": "c_size_t", "int": "c_int",
    "char": "c_char", "void": "c_void",
}
# Enums that Python shows as words. The others are options of requests: plain numbers.
SHOWN = ("code", "blame", "reason", "kind", "state", "cause", "file_type", "file_change",
         "file_reason", "limit", "feature", "network", "network_why", "network_scope",
         "transport", "on_timeout", "disconnect", "resource", "verdict", "isolation", "topic",
         "anomaly")

ABI_HEAD = '''"""libdsec as ctypes sees it. Written by generate.py from dsec.h: do not edit."""
from __future__ import annotations

import ctypes
import enum
from typing import Any, Callable

'''
LIBRARY_HEAD = '''

class Library:
    """The functions of a libdsec that was loaded; one that it lacks is in `missing`."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self.missing: set[str] = set()
        for name, (result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(loaded, name)
            except AttributeError:
                self.missing.add(name)
                continue
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

'''
BLOCKING_HEAD = '"""Written by generate.py from {source}: edit that."""\n'
# What makes a blocking client of the asyncio one; in this order.
WORDS = [(r"\basync def\b", "def"), (r"\basync (with|for)\b", r"\1"), (r"\bawait ", ""),
         (r"\bAsync(Iterator|Iterable|Generator)\b", r"\1"),
         (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
         (r"\bStopAsyncIteration\b", "StopIteration"), (r"\baclose\b", "close"),
         (r"\baclosing\b", "closing"), (r"\b_(\w+)_aio\b", r"_\1"), (r"\bdsec\.aio\b", "dsec")]


def header_text(name, seen):
    """A header, with what it includes of ours in its place, once; without comments."""
    if name in seen:
        return ""
    seen.add(name)
    text = re.sub(r"/\*.*?\*/", "", (INCLUDE / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"#include <(dsec/\w+\.h)>", lambda match: header_text(match[1], seen), text)


def camel(name):
    return "".join(word.capitalize() for word in name.removeprefix("dsec_").split("_"))


def declarations(text):
    """(type, pointers, name, array) of every member in `type a, *b, c[4];...`."""
    for statement in filter(None, (part.strip() for part in text.split(";"))):
        words = re.sub(r"\bconst\b", "", statement).strip()
        kind, rest = re.fullmatch(r"(struct \w+|\w+)\b(.*)", words, re.DOTALL).groups()
        for declarator in rest.split(","):
            stars, name, array = re.fullmatch(r"\s*([*\s]*)(\w+)(?:\[(\d*)\])?\s*",
                                              declarator).groups()
            yield kind, stars.count("*"), name, array


def ctype(kind, pointers, array, structs):
    """The ctypes type: pointers to pointers and to what is opaque are addresses."""
    if kind.startswith("struct "):
        name = kind.removeprefix("struct ")
        base = camel(name) if name in structs else "ctypes.c_void_p"
        if pointers == 1 and base not in ("ctypes.c_void_p", "Event"):
            base = f"ctypes.POINTER({base})"
        elif pointers == 1:
            base = "ctypes.c_void_p"
    elif pointers and kind == "char":
        base, pointers = "ctypes.c_char_p", pointers - 1
        base = f"ctypes.POINTER({base})" if pointers or array == "" else base
        return base
    elif pointers and kind == "void":
        base = "ctypes.c_void_p"
    else:
        base = "ctypes." + NUMBERS[kind]
        base = f"ctypes.POINTER({base})" if pointers else base
    if pointers == 2:
        base = "ctypes.POINTER(ctypes.c_void_p)"
    return f"{base} * {array}" if array else base


def annotation(kind, pointers, array, structs):
    if kind == "char" and array and not pointers:
        return "bytes"
    if pointers or array:
        return "Any"
    return camel(kind.removeprefix("struct ")) if kind.startswith("struct ") else "int"


def struct_write(name, body, structs):
    fields = list(declarations(body))
    lines = [f"\n\nclass {camel(name)}(ctypes.Structure):\n"]
    lines += [f"    {field}: {annotation(kind, pointers, array, structs)}\n"
              for kind, pointers, field, array in fields]
    lines.append("    _fields_ = [\n")
    lines += [f'        ("{field}", {ctype(kind, pointers, array, structs)}),\n'
              for kind, pointers, field, array in fields]
    return "".join(lines) + "    ]\n"


def enumerators(body):
    value = -1
    for item in filter(None, (part.strip() for part in body.split(","))):
        name, _, given = (word.strip() for word in item.partition("="))
        if given and not re.fullmatch(r"\w+( << \d+)?", given):
            raise SystemExit(f"{name}: what number is {given}?")
        shifted = given.split(" << ")
        value = int(shifted[0], 0) << int(shifted[1]) if len(shifted) == 2 else \
            int(given, 0) if given else value + 1
        yield name, value


def enum_write(name, body):
    members = list(enumerators(body))
    text = "\n" + "".join(f"{member} = {value}\n" for member, value in members)
    short = (name or "").removeprefix("dsec_")
    if short not in SHOWN:
        return text
    prefix = {"code": "DSEC_", "reason": "DSEC_", "kind": "DSEC_EV_"}.get(
        short, f"DSEC_{short.upper()}_")
    words = [(member.removeprefix(prefix), value) for member, value in members
             if member.startswith(prefix)]
    text += f"\n\nclass {camel(name)}(enum.StrEnum):\n"
    text += "".join(f'    {word} = "{word.lower().replace("_", "-")}"\n' for word, _ in words)
    text += f"\n\n{short.upper()}S: dict[int, {camel(name)}] = {{\n"
    return text + "".join(f"    {value}: {camel(name)}.{word},\n" for word, value in words) + "}\n"


def function_of(match, structs):
    """"name": (result, [arguments]), of a prototype."""
    result, stars, name, arguments = match.groups()
    parts = [] if arguments.strip() == "void" else arguments.split(",")
    types = []
    for part in parts:
        (kind, pointers, _, array), = declarations(part)
        if kind == "char" and array:
            kind, pointers, array = ("char", 1, None) if not pointers else (kind, pointers, "")
        types.append(ctype(kind, pointers, array, structs))
    returned = "None" if result.strip() == "void" and not stars else \
        ctype(result.replace("const", "").strip(), len(stars), None, structs)
    return f'    "{name}": ({returned}, [{", ".join(types)}]),\n'


def wrapped(line):
    """A line of the table of functions, within 100 columns."""
    if len(line) <= 101:
        return line
    head, _, rest = line.partition("[")
    items = rest.removesuffix("]),\n").split(", ")
    return head + "[\n" + "".join(f"        {item},\n" for item in items) + "    ]),\n"


def abi_text():
    text = header_text("dsec/dsec.h", set())
    out, structs = [ABI_HEAD.rstrip("\n") + "\n"], set()
    for match in re.finditer(r"\b(struct|enum)\s+(\w+)?\s*\{(.*?)\}\s*;", text, re.DOTALL):
        if match[1] == "enum":
            out.append(enum_write(match[2], match[3]))
        else:
            structs.add(match[2])
            out.append(struct_write(match[2], match[3], structs))
    functions = list(re.finditer(
        r"^((?:const )?(?:int64_t|int|void|char|struct \w+))\s+(\**)(dsec_\w+)\(([^;]*?)\);", text,
        re.MULTILINE))
    names = [f'    "{name}": {camel(name)},\n' for name in sorted(structs)]
    out.append("\n\nSTRUCTS: dict[str, type[ctypes.Structure]] = {\n" + "".join(names) + "}\n")
    out.append("\nFUNCTIONS: dict[str, tuple[Any, list[Any]]] = {\n")
    out += [wrapped(function_of(match, structs)) for match in functions]
    out.append("}\n" + LIBRARY_HEAD)
    for match in functions:
        returned = "bytes" if match[2] else {"void": "None"}.get(match[1], "int")
        out.append(f"    {match[3]}: Callable[..., {returned}]\n")
    return "".join(out)


def blocking_text(source):
    text = (HERE / "dsec" / source).read_text(encoding="utf-8")
    for word, instead in WORDS:
        text = re.sub(word, instead, text)
    return BLOCKING_HEAD.format(source=source) + text.split("\n", 1)[1]


def main():
    texts = {"_abi.py": abi_text()}
    texts |= {made: blocking_text(source) for source, made in BLOCKING.items()
              if (HERE / "dsec" / source).exists()}
    wrong = 0
    for name, text in texts.items():
        path = HERE / "dsec" / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv:
            print(f"{path}: not as its source says: run sdk/python/generate.py")
            wrong += 1
        else:
            path.write_text(text, encoding="utf-8")
    print(f"Tested: {len(texts)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
