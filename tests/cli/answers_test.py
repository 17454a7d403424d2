#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The questions beside a plan: --half, --pareto, --tokens-per-second, --compare, --simulate. answers_test.py TRIFOLD ROOT"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIFOLD = ""
ROOT = pathlib.Path()
DONE, INPUT = 0, 3
PLAN = "plan qwen3-30b-a3b --cluster dgx-h200 --gpus 16 --global-batch-size 64 --tp 1,2 --cp 1 --etp 1 --dispatcher alltoall"


class Answers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def run_plan(self, *words, code=DONE):
        done = subprocess.run([TRIFOLD, "--data", str(ROOT), *PLAN.split(), *words], capture_output=True, text=True,
                              timeout=200, cwd=self.path)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done

    def plan(self, *words):
        return json.loads(self.run_plan("--json", *words).stdout)

    def rate(self, plan, gpus):
        return plan["estimate"]["tokens_per_s_per_gpu"] * gpus

    def test_half_is_the_plan_of_half_the_cluster(self):
        half = self.plan("--half")["half"]
        self.assertEqual(half["gpus"], 8)
        alone = subprocess.run([TRIFOLD, "--data", str(ROOT), *PLAN.replace("--gpus 16", "--gpus 8").split(), "--json"],
                               capture_output=True, text=True, timeout=200, check=True)
        self.assertEqual(half["plan"]["id"], json.loads(alone.stdout)["plans"][0]["id"])
        self.assertIn("On 8 GPUs", self.run_plan("--half").stdout)

    def test_pareto_front_holds_nothing_dominated(self):
        front = self.plan("--pareto")["pareto"]
        self.assertGreater(len(front), 1)
        keys = [(p["gpus"], p["estimate"]["step_time_s"]["value"], -p["estimate"]["memory"]["headroom_bytes"])
                for p in front]
        for a in keys:
            for b in keys:
                self.assertFalse(a != b and all(x <= y for x, y in zip(a, b)), f"{a} dominates {b}")

    def test_smallest_cluster_reaches_the_rate_and_half_of_it_does_not(self):
        best = self.plan()["plans"][0]
        asked = 0.9 * self.rate(best, 16)
        found = self.plan("--tokens-per-second", str(asked))["smallest_cluster"]
        self.assertLessEqual(found["gpus"], 16)
        self.assertGreaterEqual(self.rate(found["plan"], found["gpus"]), asked)
        half = self.plan("--half")["half"]
        self.assertLess(self.rate(half["plan"], half["gpus"]), asked)

    def test_a_named_layout_is_compared_term_by_term(self):
        self.run_plan("-o", "best")
        job = json.loads((self.path / "best/plan.json").read_text())["job"]
        job["layout"].update(tp=2, ep=8, pp=1, vpp=1)
        job["layout"].pop("pipeline_layout", None)
        job["techniques"]["sequence_parallel"] = True
        (self.path / "mine.json").write_text(json.dumps(job))
        answer = self.plan("--compare", "mine.json")
        self.assertEqual(answer["compared"]["job"]["layout"]["tp"], 2)
        self.assertGreaterEqual(answer["compared"]["estimate"]["step_time_s"]["value"],
                                answer["fastest_step_time_s"] * (1 - 1e-9))
        self.assertIn("lost s", self.run_plan("--compare", "mine.json").stdout)

    def test_simulation_reorders_and_says_so(self):
        answer = self.plan("--simulate", "3")
        times = [p["simulated_step_time_s"] for p in answer["plans"][:3]]
        self.assertEqual(times, sorted(times))
        self.assertEqual(answer["simulation"]["plans"], 3)
        self.assertRegex(self.run_plan("--simulate", "3").stdout, r"Simulated 3 of the plans: (the same|another) one")

    def test_headroom_is_kept(self):
        for plan in self.plan("--min-headroom", "40")["plans"]:
            self.assertGreaterEqual(plan["estimate"]["memory"]["headroom_bytes"], 40 * 2**30)

    def test_the_space_is_printed(self):
        self.assertRegex(self.run_plan().stdout, r"(?m)^space: [\d,]+ points: tp 2 x")

    def test_bad_words(self):
        for words in (["--compare", "absent.json"], ["--compare", str(ROOT / "README.md")]):
            done = self.run_plan(*words, code=INPUT)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    TRIFOLD, ROOT = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
