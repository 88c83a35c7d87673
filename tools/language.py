#!/usr/bin/env python3
"""Measures the language of the code and the documents: names of types, words of comments, comments inside functions.

usage: language.py [ROOT ...]        default: crates unikernel lab, and the documents
       language.py --names           also lists type names that are defined more than once
       language.py --words           also lists the comment lines with a word of the four groups

Tests, fixtures, examples, benches and target/ are left out. It reads text, not syntax: figures are good to a per cent.
"""
import collections
import os
import re
import sys

SKIP = re.compile(r"(^|/)(tests?|benches|examples|fixtures|target|\.git|generated)(/|$)|(^|/)(tests?|test_[^/]*|[^/]*_tests?)\.rs$")
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)\s+([A-Z]\w*)")
ALIAS = re.compile(r"^(?:pub(?:\([^)]*\))?\s+)?type\s+([A-Z]\w*)[^=]*=")
SIGNATURE = re.compile(r"\bfn\s+\w+[^{;]*")
TUPLE = re.compile(r"[(,]\s*(?:mut\s+)?(?:\w+|\([^()]*\))\s*:\s*&?(?:mut\s+)?\((?=[^()]*,)")
WORDS = {
    "what": r"what(?:ever)?",
    "who": r"who(?:ever|m|se)?",
    "nobody": r"(?:no|some|any|every)body",
    "said": r"says?|said|told|tells?|hears?|heard",
}
GROUPS = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, words in WORDS.items()}
# (figure, at most or at least, bound): the rules of HACKING.md.
BOUNDS = [
    ("one word", "most", 30),
    ("shared names", "most", 25),
    ("words in comments", "most", 15),
    ("inner comments", "least", 3.0),
    ("tuple parameters", "most", 3),
    ("words in documents", "most", 10),
]


def word_count(name):
    return len(re.findall(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])", name))


def sources(roots):
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in ("target", ".git")]
            for file in sorted(files):
                path = os.path.join(folder, file)
                if file.endswith(".rs") and not SKIP.search(path):
                    with open(path, errors="replace") as source:
                        yield path, source.read().split("#[cfg(test)]\nmod ")[0]


def documents():
    for folder, folders, files in os.walk("docs"):
        folders[:] = [name for name in folders if name != "configuration"]
        for file in files:
            if file.endswith(".md"):
                yield os.path.join(folder, file)
    yield from ("README.md", "ARCHITECTURE.md", "HACKING.md")


def groups_of(lines):
    """Words of each group in 1,000 lines."""
    text = "\n".join(lines)
    return {name: 1000 * len(group.findall(text)) / max(1, len(lines)) for name, group in GROUPS.items()}


def code_figures(roots, options):
    types, comments = collections.defaultdict(list), []
    inner = code = functions = tuples = 0
    for path, text in sources(roots):
        for signature in SIGNATURE.findall(text):
            functions += 1
            tuples += bool(TUPLE.search(signature.split("->")[0]))
        for number, line in enumerate(text.split("\n"), 1):
            stripped = line.strip()
            if stripped.startswith("//"):
                comments.append(stripped)
                inner += line[:1] == " " and not stripped.startswith(("///", "//!"))
                if "--words" in options and any(group.search(stripped) for group in GROUPS.values()):
                    print(f"{path}:{number}: {stripped}")
            elif stripped:
                code += 1
            match = TYPE.match(line) or ALIAS.match(line)
            if match:
                types[match.group(1)].append(f"{path}:{number}")
    if "--names" in options:
        for name, places in sorted(types.items()):
            if len(places) > 1:
                print(name, *places)
    definitions = sum(len(places) for places in types.values())
    shared = sum(len(places) for places in types.values() if len(places) > 1)
    one = sum(word_count(name) == 1 for name in types)
    groups = groups_of(comments)
    print(f"{definitions} types; {functions} functions; {len(comments)} comment lines: "
          + ", ".join(f"{name} {count:.0f}" for name, count in groups.items()) + " in 1,000")
    return {
        "one word": 100 * one / max(1, len(types)),
        "shared names": 100 * shared / max(1, definitions),
        "words in comments": sum(groups.values()),
        "inner comments": 100 * inner / max(1, inner + code + len(comments)),
        "tuple parameters": tuples,
    }


def document_figure():
    lines = []
    for path in documents():
        with open(path) as document:
            lines += [line for line in document.read().split("\n") if line.strip()]
    return sum(groups_of(lines).values())


def main(arguments):
    options = [argument for argument in arguments if argument.startswith("-")]
    roots = [argument for argument in arguments if not argument.startswith("-")]
    figures = code_figures(roots or ["crates", "unikernel", "lab"], options)
    if not roots:
        figures["words in documents"] = document_figure()
    failed = False
    for name, kind, bound in BOUNDS:
        if name in figures:
            figure = figures[name]
            bad = figure > bound if kind == "most" else figure < bound
            failed = failed or bad
            print(f"{name:20} {figure:6.1f}  at {kind} {bound}{'  MISSED' if bad else ''}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
