#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trifold simulate from outside. simulate_test.py TRIFOLD ROOT"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIFOLD = ""
ROOT = pathlib.Path()
DONE, USAGE, INPUT = 0, 2, 3

JOB = {
    "schema": "trifold.job/1",
    "model": "deepseek-v3",
    "model_overrides": {"num_layers": 16, "dense_prefix_layers": 2},
    "cluster": "dgx-h100",
    "gpus": 64,
    "training": {"sequence_length": 4096, "global_batch_size": 256, "micro_batch_size": 1, "precision": "fp8_block"},
    "layout": {"tp": 1, "pp": 4, "pipeline_layout": "Ettt|(tt|)*6tmL"},
    "techniques": {
        "dispatcher": "deepep",
        "overlap": ["grad_reduce", "param_gather", "pipeline_p2p", "ep_a2a", "delay_wgrad"],
        "routing": {"balance": "natural"},
        "offload": {"activation_modules": ["expert_fc1"]},
    },
}
JOB["layout"]["ep"] = 16


def keys(tree, prefix=""):
    if not isinstance(tree, dict):
        return {prefix}
    return {k for key, value in tree.items() for k in keys(value, f"{prefix}.{key}")}


class Simulate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.job = pathlib.Path(self.folder.name) / "job.json"
        self.job.write_text(json.dumps(JOB))

    def run_trifold(self, *words, code=DONE):
        done = subprocess.run([TRIFOLD, "--data", str(ROOT), *words], capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done

    def simulate(self, *words):
        return json.loads(self.run_trifold("simulate", str(self.job), "--json", *words).stdout)

    def test_keys_are_an_estimates_and_more(self):
        estimate = json.loads(self.run_trifold("estimate", str(self.job), "--json").stdout)
        simulated = self.simulate()
        self.assertEqual(keys(estimate) - keys(simulated), set())
        self.assertEqual(simulated["method"], "simulation")
        self.assertIn("timeline", simulated)
        parts = simulated["time_s"]
        total = sum(v for k, v in parts.items() if k != "exposed") + sum(parts["exposed"].values())
        self.assertAlmostEqual(total, simulated["step_time_s"]["value"], places=6)
        closed = simulated["step_time_s"]["closed_form"]
        self.assertAlmostEqual(closed / estimate["step_time_s"]["value"], 1, places=9)

    def test_text(self):
        text = self.run_trifold("simulate", str(self.job)).stdout
        for word in ("Time (slowest stage)", "Critical path", "grouped_gemm", "hidden:", "peak GiB", "activations GiB"):
            self.assertIn(word, text)

    def test_load_is_seeded(self):
        step = lambda *words: self.simulate(*words)["step_time_s"]["value"]
        even, one, again, two = step(), step("--vary-load", "--seed", "1"), step("--vary-load", "--seed", "1"), step("--vary-load", "--seed", "2")
        self.assertEqual(one, again)
        self.assertNotEqual(one, two)
        self.assertNotEqual(one, even)

    def test_trace_is_one_that_perfetto_loads(self):
        """Complete events inside named threads, whole nanoseconds, no overlap, arrows with both ends on a slice."""
        path = pathlib.Path(self.folder.name) / "trace.json"
        self.run_trifold("simulate", str(self.job), "--trace", str(path))
        events = json.loads(path.read_text())["traceEvents"]
        named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        slices = {}
        for e in events:
            self.assertIn(e["ph"], "MXsfC")
            for key in ("ts", "dur"):
                if key in e:
                    self.assertGreaterEqual(e[key], 0)
                    self.assertAlmostEqual(e[key] * 1000, round(e[key] * 1000), places=3)
            if e["ph"] == "X":
                slices.setdefault((e["pid"], e["tid"]), []).append((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)))
        self.assertLessEqual(slices.keys(), named)
        for thread in slices.values():
            thread.sort()
            for (_, end), (begin, _) in zip(thread, thread[1:]):
                self.assertLessEqual(end, begin)
        inside = lambda e: any(b <= round(e["ts"] * 1000) <= f for b, f in slices[e["pid"], e["tid"]])
        arrows = {}
        for e in events:
            if e["ph"] in "sf":
                self.assertTrue(inside(e), e)
                arrows.setdefault(e["id"], []).append(e["ph"])
        self.assertGreater(len(arrows), 0)
        for ends in arrows.values():
            self.assertEqual(sorted(ends), ["f", "s"])

    def test_an_order_that_hangs_says_so(self):
        done = self.run_trifold("simulate", str(self.job), "--set", "training.global_batch_size=96", code=INPUT)
        self.assertEqual(done.stdout, "")
        self.assertIn("multiple of pp micro-batches", done.stderr)


if __name__ == "__main__":
    TRIFOLD, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
