#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden cases: golden_test.py TRIFOLD [--update] [CASE ...]

A case is a folder of cases/: `command` (arguments, a shell line; $OUT is an empty folder), what is expected on
`stdout` and `stderr`, in `code` (0 when absent) and in `files/` (those of $OUT that matter). `tolerance` is the
relative difference that numbers may have (0 when absent); "*" stands for any text. Commands run in data/, which holds its own small model,
cluster and profile: refitting hardware/profiles changes nothing here. After a deliberate change of a formula or of
the wording, run with --update and read the diff.
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
JOB_ID = re.compile(r"\b[0-9a-f]{16}\b")  # a hash of the whole Job
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def pieces(text):
    """Words without numbers, and the numbers with one unit of their last digit. Widths of columns follow the numbers,
    so blanks and rules shrink."""
    text = re.sub(r"[ ]+", " ", re.sub(r"([-─=])\1+", r"\1", text))
    numbers = []
    for word in NUMBER.findall(text):
        digits, _, exponent = word.replace(",", "").partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
        numbers.append((float(word.replace(",", "")), unit))
    return [line.strip() for line in NUMBER.sub("#", text).splitlines()], numbers


def differences(expected, found, tolerance):
    if expected in (found, "*\n"):
        return []
    if tolerance == 0:
        pairs = list(zip(expected.splitlines() + ["<end>"], found.splitlines() + ["<end>"]))
        return [f"expected: {e}\n   found: {f}" for e, f in pairs if e != f][:5] or ["ends of lines differ"]
    (words, numbers), (found_words, found_numbers) = pieces(expected), pieces(found)
    if words != found_words:
        pairs = list(zip(words + ["<end>"], found_words + ["<end>"]))
        return [f"expected: {e}\n   found: {f}" for e, f in pairs if e != f][:5]
    return [f"expected {e:g}, found {f:g} (number {i + 1})"
            for i, ((e, unit), (f, _)) in enumerate(zip(numbers, found_numbers))
            if abs(e - f) > tolerance * max(abs(e), abs(f)) + 1.01 * unit][:5]


def run(trifold, case, out):
    words = shlex.split((case / "command").read_text().replace("$OUT", out))
    result = subprocess.run([trifold, *words], cwd=HERE / "data", capture_output=True, text=True, timeout=100)
    found = {"stdout": result.stdout, "stderr": result.stderr, "code": f"{result.returncode}\n"}
    for path in sorted(pathlib.Path(out).rglob("*")):
        if path.is_file():
            found["files/" + path.relative_to(out).as_posix()] = path.read_text()
    return {name: JOB_ID.sub("<id>", text.replace(out, "$OUT")) for name, text in found.items()}


def expectations(case):
    files = [case / "stdout", case / "stderr", case / "code", *sorted((case / "files").rglob("*"))]
    expected = {p.relative_to(case).as_posix(): p.read_text() for p in files if p.is_file()}
    return {"stdout": "", "stderr": "", "code": "0\n", **expected}


def update(case, found):
    for name, text in found.items():
        path = case / name
        # A new file of $OUT is adopted by creating it (empty) under files/.
        if path.exists() and path.read_text() == "*\n":
            continue
        if path.exists() or (name in ("stdout", "stderr") and text) or (name == "code" and text != "0\n"):
            path.write_text(text)


def main():
    trifold = str(pathlib.Path(sys.argv[1]).resolve())
    words = [word for word in sys.argv[2:] if word != "--update"]
    cases = [HERE / "cases" / word for word in words] or sorted((HERE / "cases").iterdir())
    failures = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as out:
            found = run(trifold, case, out)
        if "--update" in sys.argv:
            update(case, found)
            continue
        tolerance_file = case / "tolerance"
        tolerance = float(tolerance_file.read_text()) if tolerance_file.exists() else 0.0
        for name, text in expectations(case).items():
            for difference in differences(text, found.get(name, "<no such file>\n"), tolerance):
                failures += 1
                print(f"{case.name}/{name}: {difference}")
    print(f"{len(cases)} cases, {failures} differences")
    sys.exit(1 if failures or not cases else 0)


main()
