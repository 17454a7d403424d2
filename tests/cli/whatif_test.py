#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trifold whatif and explain from outside. whatif_test.py TRIFOLD ROOT"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIFOLD = ""
ROOT = pathlib.Path()
DONE, USAGE, INPUT, INFEASIBLE = 0, 2, 3, 4

JOB = {
    "schema": "trifold.job/1",
    "model": "qwen3-30b-a3b",
    "cluster": "dgx-h100",
    "gpus": 64,
    "training": {"sequence_length": 4096, "global_batch_size": 512, "micro_batch_size": 1, "precision": "bf16"},
    "layout": {"tp": 2, "pp": 4, "vpp": 2, "ep": 8},
    "techniques": {"dispatcher": "alltoall", "overlap": ["grad_reduce", "param_gather", "pipeline_p2p"]},
}


class WhatIf(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.job = self.file("job.json", JOB)

    def file(self, name, content):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def run_trifold(self, *words, code=DONE):
        done = subprocess.run([TRIFOLD, "--data", str(ROOT), *words], capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout[-500:]}{done.stderr[-500:]}")
        if code in (USAGE, INPUT):
            self.assertEqual(done.stdout, "")
            self.assertIn("error:", done.stderr)
        return done

    def points(self, *words, code=DONE):
        return json.loads(self.run_trifold("whatif", *words, "--json", code=code).stdout)

    def test_point_equals_estimate_set(self):
        answer = self.points(self.job, "--vary", "ep=8,16", "--vary", "scaleout_bandwidth=25,50")
        self.assertEqual(answer["schema"], "trifold.whatif/1")
        self.assertEqual([p["vary"] for p in answer["points"]][1],
                         {"layout.ep": "8", "cluster_overrides.scaleout_bytes_per_s": "50GB/s"})
        for point in answer["points"]:
            sets = [word for key, value in point["vary"].items() for word in ("--set", f"{key}={value}")]
            alone = json.loads(self.run_trifold("estimate", self.job, *sets, "--json").stdout)
            self.assertEqual(point["estimate"], alone)
            for kind in ("ep", "tp", "cp", "pp", "dp"):
                self.assertIn("exposed_share", point["estimate"]["communication"][kind])

    def test_table_and_verdicts(self):
        done = self.run_trifold("whatif", self.job, "--vary", "ep=8,12")
        self.assertIn("illegal: ", done.stdout)
        self.assertIn("ep exposed %", done.stdout)
        self.assertIn("headroom", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_nothing_priced_is_infeasible(self):
        self.run_trifold("whatif", self.job, "--vary", "ep=12,24", code=INFEASIBLE)

    def test_plan_file_is_a_base(self):
        plan = self.file("plan.json", {"schema": "trifold.plan/1", "id": "x", "job": JOB})
        self.assertEqual(self.points(plan, "--vary", "ep=16")["points"], self.points(self.job, "--vary", "ep=16")["points"])

    def test_mistakes(self):
        done = self.run_trifold("whatif", self.job, "--vary", "sequence_lenght=8", code=USAGE)
        self.assertIn("training.sequence_length", done.stderr)
        self.run_trifold("whatif", self.job, "--vary", "ep", code=USAGE)
        self.run_trifold("whatif", self.job, code=USAGE)
        self.run_trifold("whatif", "--vary", "ep=8", code=USAGE)
        self.run_trifold("whatif", self.job, "--vary", "ep=8,16", "--until", "headroom=1GiB", code=USAGE)
        self.run_trifold("whatif", self.job, "--vary", "ep=8..64", "--until", "headrom=1GiB", code=USAGE)
        self.run_trifold("whatif", self.job, "--vary", "ep=0", code=INPUT)
        self.run_trifold("whatif", self.job, "--vary", "hbm_bytes=-1GiB", code=INPUT)
        self.run_trifold("whatif", self.job, "--vary", "dispatcher=deepeep", code=INPUT)
        self.run_trifold("whatif", "/nonexistent.json", "--vary", "ep=8", code=INPUT)
        newer = self.file("newer.json", {**JOB, "schema": "trifold.job/2"})
        self.assertIn("trifold.job/1", self.run_trifold("whatif", newer, "--vary", "ep=8", code=INPUT).stderr)

    def test_unwritable_output_keeps_the_old_file(self):
        old = self.file("old.json", "old")
        self.run_trifold("whatif", self.job, "--vary", "ep=8", "-o", old + "/no.json", code=INPUT)
        self.assertEqual(pathlib.Path(old).read_text(), "old")
        self.run_trifold("whatif", self.job, "--vary", "ep=8", "--json", "-o", old)
        self.assertEqual(json.loads(pathlib.Path(old).read_text())["schema"], "trifold.whatif/1")

    def test_until(self):
        answer = self.points(self.job, "--vary", "sequence_length=4096..65536", "--until", "headroom=20GiB")["until"]
        self.assertTrue(answer["found"])
        gib = 2**30
        self.assertGreaterEqual(answer["before"]["estimate"]["memory"]["headroom_bytes"], 20 * gib)
        self.assertLess(answer["beyond"]["estimate"]["memory"]["headroom_bytes"], 20 * gib)
        self.points(self.job, "--vary", "sequence_length=4096..8192", "--until", "headroom=200GiB", code=INFEASIBLE)

    def test_sensitivity(self):
        bars = self.points(self.job, "--sensitivity")["sensitivity"]
        self.assertIn("NIC bandwidth", [b["name"] for b in bars if b["kind"] == "rate"])
        self.assertIn("technique", [b["kind"] for b in bars])

    def test_risk_with_a_histogram_file(self):
        shares = self.file("shares.txt", "\n".join(["2.0"] * 16 + ["0.9"] * 112))
        answer = self.points(self.job, "--set", "distribution=zipf", "--set", "parameters=0.5", "--risk", "--draws", "4")
        self.assertGreater(answer["risk"]["rows"][0]["slow_down"], 0)
        skewed = self.points(self.job, "--set", "distribution=histogram", "--set",
                             "parameters=" + ",".join(["2.0"] * 16 + ["0.9"] * 112), "--vary", "routing.seed=1,2")
        from_file = self.points(self.job, "--set", "distribution=histogram", "--vary", f"routing.parameters=@{shares}")
        even = self.points(self.job, "--vary", "routing.seed=1")
        self.assertGreater(from_file["points"][0]["estimate"]["step_time_s"]["value"],
                           even["points"][0]["estimate"]["step_time_s"]["value"])
        self.assertEqual(len(skewed["points"]), 2)
        dense = self.file("dense.json", {**JOB, "model": "llama3-8b", "layout": {"tp": 2}, "techniques": {}})
        self.run_trifold("whatif", dense, "--risk", code=INPUT)

    def test_hostile_name_is_data(self):
        name = "</script><script>alert(1)</script>"
        config = json.loads((ROOT / "models" / "qwen3-30b-a3b.json").read_text())
        config["name"] = name
        hostile = self.file("hostile.json", {**JOB, "model": config})
        self.points(hostile, "--vary", "ep=8")

    def test_explain(self):
        ladder = json.loads(self.run_trifold("explain", self.job, "--json").stdout)
        self.assertEqual(ladder["schema"], "trifold.explain/1")
        steps = ladder["steps"]
        self.assertEqual(steps[0]["attack"], "baseline")
        for key in ("name", "wall", "step_time_s", "peak_bytes", "wall_before", "gain_s", "freed_bytes"):
            self.assertIn(key, steps[-1])
        alone = json.loads(self.run_trifold("estimate", self.job, "--json").stdout)
        self.assertAlmostEqual(steps[-1]["step_time_s"], alone["step_time_s"]["value"])
        self.assertIn("Order of attack", self.run_trifold("explain", self.job).stdout)
        illegal = self.file("illegal.json", {**JOB, "layout": {"ep": 12}})
        self.run_trifold("explain", illegal, code=INFEASIBLE)

    def test_help_ends_with_examples(self):
        for verb in ("whatif", "explain"):
            self.assertIn(f"  trifold {verb} ", self.run_trifold(verb, "--help").stdout.split("Examples:")[1])


if __name__ == "__main__":
    TRIFOLD, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
