#!/usr/bin/env python3
"""The manual pages name what there is: every function of dsec.h, every verb and option of dsec.

usage: manuals.py ROOT DSEC DSECD
What is in a page and not there is found, too. groff must have nothing to say of any page.
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from symbols import declared, whole  # noqa: E402


def functions_named(page):
    """The functions that .Fn, .Ft's neighbours and their lists name."""
    named = set()
    for line in re.findall(r"^\.Fn (.*)$", page, re.M):
        named |= set(re.findall(r"\bdsec_\w+\b(?! *\*)", re.sub(r'"[^"]*"', "", line)))
    return named


def functions_described(page):
    return functions_named(page.partition(".Sh DESCRIPTION")[2].partition(".Sh OWNERSHIP")[0])


def missing_functions(header, page):
    there = declared(header)
    yield from (f"dsec.3: {name} has no synopsis"
                for name in sorted(there - functions_named(page.partition(".Sh DESCRIPTION")[0])))
    yield from (f"dsec.3: {name} is not described" for name in sorted(there - functions_described(page)))
    yield from (f"dsec.3: there is no {name}" for name in sorted(functions_named(page) - there))


def help_of(dsec, *words):
    return subprocess.run([dsec, *words, "--help"], capture_output=True, text=True, check=True).stdout


def missing_words(dsec, page):
    """Verbs without an entry, and long options that the page does not name."""
    plain = page.replace("\\", "")
    verbs = re.findall(r"^  ([a-z]\w+) ", help_of(dsec).partition("Options of every verb")[0], re.M)
    for verb in verbs:
        if not re.search(rf"^\.It Cm {verb}\b", plain, re.M):
            yield f"dsec.1: no entry for the verb {verb}"
        if not re.search(rf"^\.Cm (?:[\w| ]+ )?{verb}\b", plain.partition(".Sh DESCRIPTION")[0], re.M):
            yield f"dsec.1: no synopsis of the verb {verb}"
        for option in re.findall(r"^ +(?:-\w, )?--([\w-]+)", help_of(dsec, verb), re.M):
            if not re.search(rf"Fl -{option}\b(?!-)", plain):
                yield f"dsec.1: {verb} has --{option}"


def daemon_options(text):
    return set(re.findall(r"^ +(?:-\w, )?--([\w-]+)", text, re.M))


def extra_words(dsec, page):
    """Long options that the page names and no verb has."""
    verbs = re.findall(r"^  ([a-z]\w+) ", help_of(dsec).partition("Options of every verb")[0], re.M)
    there = set().union(*(daemon_options(help_of(dsec, verb)) for verb in verbs))
    named = set(re.findall(r"Fl -([a-z][\w-]*)", page.replace("\\", "")))
    # Those of dsecd, which the page speaks of.
    yield from (f"dsec.1: there is no --{option}" for option in sorted(named - there - {"journal", "egress"}))


def daemon_words(dsecd, page):
    """dsecd's options that its page does not name, and the other way round: but dsec's --network."""
    there = daemon_options(help_of(dsecd))
    named = set(re.findall(r"Fl -([a-z][\w-]*)", page.replace("\\", "")))
    yield from (f"dsecd.8: --{option} is not there" for option in sorted(there - named))
    yield from (f"dsecd.8: there is no --{option}" for option in sorted(named - there - {"network"}))


def groff_complaints(path):
    ran = subprocess.run(["groff", "-mdoc", "-Tutf8", "-ww", "-z", path], capture_output=True, text=True,
                         check=False)
    return ran.stderr.splitlines()


def main():
    root, dsec = Path(sys.argv[1]), sys.argv[2]
    pages = sorted((root / "docs/man").glob("dsec*.[1-8]"))
    text = {page.name: page.read_text(encoding="utf-8") for page in pages}
    wrong = list(missing_functions(whole(root / "sdk/include/dsec/dsec.h"), text["dsec.3"]))
    wrong += missing_words(dsec, text["dsec.1"])
    wrong += extra_words(dsec, text["dsec.1"])
    wrong += daemon_words(sys.argv[3], text["dsecd.8"])
    for page in pages:
        wrong += groff_complaints(page)
    for what in dict.fromkeys(wrong):
        print(what)
    print(f"Tested: {len(pages)} pages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
