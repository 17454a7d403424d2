#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often does simulation change the winner? Plans every combination below with --simulate, and compares the order of
the estimates with that of the simulation:

    tests/bench/planner/reranking.py [build/release/bin/trifold] [--simulate 4] [--threads N]

A row a query. A plan that the simulation does not finish (its order of units is cyclic) has no simulated time; where that
is the first, the row says so and stands apart in the sums. `ahead` is how much longer the simulated step of the estimate's
winner is than that of the simulation's. `offload` marks winners that move activations to the host."""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODELS = ["dbrx", "deepseek-moe-16b", "deepseek-v2", "deepseek-v3", "glm-4.5", "gpt-oss-120b", "kimi-k2", "llama3-70b",
          "llama4-scout", "minimax-m2", "mixtral-8x22b", "mixtral-8x7b", "qwen2-57b-a14b", "qwen3-235b-a22b",
          "qwen3-30b-a3b"]
MACHINES = [("dgx-h100", "bf16"), ("dgx-h200", "fp8_block"), ("gb200-nvl72", "mxfp8")]
GPUS = [64, 256]
NOTHING_FITS = 4  # exit code


def ask(options, words):
    begin = time.monotonic()
    done = subprocess.run([options.trifold, "plan", *words, "--json", "--threads", str(options.threads)],
                          capture_output=True, text=True, cwd=ROOT)
    if done.returncode not in (0, NOTHING_FITS):
        raise SystemExit(f"plan {' '.join(words)}: {done.stderr}")
    return (json.loads(done.stdout) if done.returncode == 0 else None), time.monotonic() - begin


def offloads(plan):
    return bool(plan["job"]["techniques"].get("offload", {}).get("activation_modules"))


def study(options, words):
    """The row of one query, or nothing where nothing fits."""
    plain, without = ask(options, [*words, "--simulate", "0"])
    if plain is None:
        return None
    simulated, with_it = ask(options, [*words, "--simulate", str(options.simulate)])
    first = plain["plans"][0]
    asked = [plan["id"] for plan in plain["plans"][:options.simulate]]
    seconds = {plan["id"]: plan["simulated_step_time_s"] for plan in simulated["plans"]
               if "simulated_step_time_s" in plan}
    row = {"query": " ".join(words), "hangs": sum(plan not in seconds for plan in asked), "cost_s": with_it - without,
           "offload": offloads(first), "ahead": None, "gap": simulated["simulation"]["largest_relative_gap"]}
    if first["id"] in seconds:
        row["ahead"] = seconds[first["id"]] / min(seconds.values()) - 1
    return row


def shown(row):
    ahead = "the first hangs" if row["ahead"] is None else f"ahead {100 * row['ahead']:6.2f} %"
    return (f"{ahead:16}  largest gap {100 * row['gap']:6.1f} %  {row['hangs']} hang  {row['cost_s']:5.2f} s  "
            f"{'offload ' if row['offload'] else '        '}{row['query']}")


def summary(name, rows):
    judged = [row["ahead"] for row in rows if row["ahead"] is not None]
    ahead = [a for a in judged if a > 0]
    text = f"{name}: {len(ahead)} of {len(judged)} winners change"
    if ahead:
        text += f"; the new one is ahead by {100 * statistics.median(ahead):.2f} % (median), {100 * max(ahead):.2f} % (most)"
    over = sum(a > 0.01 for a in ahead)
    print(f"{text}; {over} by more than 1 %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trifold", nargs="?", default=str(ROOT / "build/release/bin/trifold"))
    parser.add_argument("--simulate", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    options.trifold = str(pathlib.Path(options.trifold).resolve())
    rows = []
    for model in MODELS:
        for cluster, precision in MACHINES:
            for gpus in GPUS:
                row = study(options, [model, "--cluster", cluster, "--gpus", str(gpus), "--global-batch-size", str(8 * gpus),
                                      "--precision", precision])
                if row is not None:
                    rows.append(row)
                    print(shown(row), flush=True)
    print(f"\n{len(rows)} queries, the best {options.simulate} of each simulated; "
          f"{sum(row['ahead'] is None for row in rows)} winners and {sum(row['hangs'] for row in rows)} plans hang")
    summary("all", rows)
    summary("without activation offload in the winner", [row for row in rows if not row["offload"]])
    cost = [row["cost_s"] for row in rows]
    print(f"--simulate adds {statistics.median(cost):.2f} s (median), {max(cost):.2f} s (most)")


if __name__ == "__main__":
    main()
