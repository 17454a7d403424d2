#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes flag_table.inc from a dump of Megatron's argparse parsers.

    make_flag_table.py flags_by_version.json > flag_table.inc

The dump maps each option string to its argparse action, nargs, default, choices and the list of
Megatron branches whose parser has it.
"""
import json
import sys

BRANCHES = ["core_r0.16.0", "core_r0.17.0", "core_r0.18.0", "core_r0.19.0", "main", "dev"]
KINDS = {
    "Store": "value",
    "StoreTrue": "set_true",
    "StoreFalse": "set_false",
    "BooleanOptional": "boolean",
    "Help": "set_true",
}


def text(value):
    value = "" if value is None else str(value).strip("'")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def arity(flag):
    if flag["kind"] != "Store":
        return 0
    return {None: 1, "+": -1, "*": -2}.get(flag["nargs"], flag["nargs"])


def main():
    dump = json.load(open(sys.argv[1]))
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Written by make_flag_table.py: every option of Megatron's pretrain_gpt.py parser.")
    for branch in BRANCHES:
        print("// " + branch + ": " + dump["versions"][branch])
    print("// Versions are bits: 1 = 0.16, 2 = 0.17, 4 = 0.18, 8 = 0.19, 16 = main, 32 = dev.")
    print("// Arity: 0 none, n that many, -1 one or more, -2 any number.")
    for name in sorted(dump["flags"]):
        if not name.startswith("--"):
            continue
        flag = dump["flags"][name]
        versions = sum(1 << i for i, b in enumerate(BRANCHES) if b in flag["in_"])
        choices = "|".join(str(c) for c in flag["choices"] or [])
        default = flag["default"] if flag["default"] not in ("None", None) else ""
        if default and default.startswith("<"):  # an enum: <AttnBackend.auto: 5>
            default = default.split(".")[1].split(":")[0]
        print(f'{{"{name}", {text(flag["dest"])}, FlagKind::{KINDS[flag["kind"]]}, '
              f'{arity(flag)}, {versions}, {text(choices)}, {text(default)}}},')


main()
