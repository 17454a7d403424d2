#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trifold calibrate where there is no GPU: fit, import, layers beside their prediction, bad files. calibrate_test.py TRIFOLD ROOT"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TRIFOLD = ""
ROOT = pathlib.Path()
RUN = pathlib.Path()  # our own run on 2x H200
DONE, USAGE, INPUT, ENVIRONMENT, CHECK = 0, 2, 3, 5, 6

GPU = "NVIDIA H200"
NIC = 50e9  # of dgx-h200, a GPU
RANK = "#  Rank {:2} Group  0 Pid  10{:02} on {:>10} device {:2} [0000:1b:00] NVIDIA H200"


def ring_us(size):
    """A made-up link: 20 us and 400 GB/s."""
    return 20 + size / 400e9 * 1e6


def text_log(hosts=1, gpus=8, us=ring_us, name="all_reduce", wrong=(), sizes=None):
    lines = ["# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809",
             f"# Collective test starting: {name}_perf" if name else "#", "# Using devices"]
    lines += [RANK.format(r, r, f"node{r // gpus}", r % gpus) for r in range(hosts * gpus)]
    lines.append("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong")
    for size in sizes or [2 ** e for e in range(10, 31, 2)]:
        t = us(size)
        lines.append(f"{size} {size // 4} float sum -1 {t:.3f} 1.0 1.0 {int(size in wrong)} {2 * t:.3f} 1.0 1.0 0")
    return "\n".join(lines) + "\n# Avg bus bandwidth    : 1.0\n"


def json_log(gpus=8):
    return {"version": 3, "args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "1K"], "nccl_version": "2.28.9",
            "devices": [{"rank": r, "host": "node0", "device": r, "device_name": GPU} for r in range(gpus)],
            "results": [{"size": 2 ** e, "out_of_place": {"time": round(ring_us(2 ** e), 3), "nwrong": 0},
                         "in_place": {"time": 1.0}} for e in range(10, 31, 2)]}


class Calibrate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def run_it(self, *words, code=DONE, environment=None):
        done = subprocess.run([TRIFOLD, "--data", str(ROOT), *map(str, words)], capture_output=True, text=True, timeout=200,
                              cwd=self.path, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout[-300:]}{done.stderr[-900:]}")
        return done

    def refused(self, says, *words, code=INPUT):
        done = self.run_it("calibrate", *words, code=code)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, says)
        self.assertNotRegex(done.stderr, r"terminate|what\(\)|std::|nlohmann|json\.exception")
        return done.stderr

    def write(self, name, content):
        (self.path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    def lines(self):
        return (RUN / "points.jsonl").read_text().splitlines()

    def points(self, keep, name="points.jsonl", **header):
        """The header (with other fields) and the points of our run that `keep` likes."""
        head, *rest = self.lines()
        first = json.loads(head)
        first["provenance"].update(header)
        chosen = [line for line in rest if keep(json.loads(line))]
        self.assertGreater(len(chosen), 3)
        return self.write(name, "\n".join([json.dumps(first), *chosen]) + "\n")

    def fit(self, points, *words, code=DONE):
        done = self.run_it("calibrate", "--fit", points, "-o", "out.json", *words, code=code)
        self.assertEqual(done.stdout, "")
        return json.loads((self.path / "out.json").read_text()), done.stderr

    # -- fit

    def test_a_fit_says_how_far_to_trust_it(self):
        points = self.points(lambda p: p["family"] in ("attention", "collective"))
        profile, said = self.fit(points, "--name", "mine")
        self.assertEqual((profile["schema"], profile["name"]), ("trifold.profile/1", "mine"))
        self.assertEqual(profile["provenance"]["driver"], json.loads(self.lines()[0])["provenance"]["driver"])
        for column in ("LOO med", "curve med", "largest med", "noise"):
            self.assertIn(column, said)
        for family in ("attention forward", "attention backward", "collectives"):
            self.assertRegex(said, rf"(?m)^{family}.* \d+\.\d%")
        self.assertEqual(profile["attention"]["forward"]["basis"], "measured")
        base = json.loads((ROOT / "hardware/profiles/h200.json").read_text())
        self.assertEqual(profile["gemm"], base["gemm"], "nothing measured, nothing changed")

    def test_the_same_points_give_the_same_bytes(self):
        points = self.points(lambda p: p["family"] in ("attention", "collective", "host"))
        outputs = {self.run_it("calibrate", "--fit", points).stdout for _ in range(2)}
        self.assertEqual(len(outputs), 1)
        self.assertEqual(json.loads(outputs.pop())["name"], "h200-measured")

    def test_a_measured_curve_gives_its_points_back(self):
        points = self.points(lambda p: p["family"] == "collective")
        profile, _ = self.fit(points)
        curve = next(c for c in profile["collectives"]["all_gather"] if c["ranks"] == 2)
        self.assertEqual(curve["basis"], "measured")
        wanted = [json.loads(line) for line in self.lines()[1:]]
        wanted = [p["us"] for p in wanted if p["family"] == "collective" and p["op"] == "all_gather"
                  and p["variant"] == "stream" and p["shape"]["bytes"] == 2 ** 28 and p["shape"]["ctas"] == 0]
        seconds = curve["seconds"][curve["bytes"].index(2 ** 28)]
        self.assertAlmostEqual(seconds * 1e6 / (sum(wanted) / len(wanted)), 1, delta=0.02)

    def test_plan_takes_it_and_says_on_what_its_time_rests(self):
        shares = self.plan_shares("--profile", "h200-measured")
        self.assertGreater(shares["measured"] + shares["interpolated"], 0.2)
        self.assertAlmostEqual(sum(shares.values()), 1, delta=1e-6)
        text = self.run_it(*self.PLAN, "--profile", "h200-measured").stdout
        self.assertRegex(text, r"costs known as: .*\d+ %")

    PLAN = ("plan qwen3-235b-a22b --cluster dgx-h200 --gpus 64 --global-batch-size 256 --tp 1 --cp 1 --etp 1 --pp 8 --ep 8 --vpp 1 "
            "--dispatcher alltoall --recompute full,none --no-fsdp --no-offload").split()

    def plan_shares(self, *words):
        plan = json.loads(self.run_it(*self.PLAN, "--json", *words).stdout)["plans"][0]
        return self.find(plan, "basis_share")

    def find(self, node, key):
        if isinstance(node, dict):
            if key in node:
                return node[key]
            node = list(node.values())
        for child in node if isinstance(node, list) else []:
            found = self.find(child, key)
            if found is not None:
                return found
        return None

    def test_a_fit_that_misses_fails_its_gate_and_is_written(self):
        head, *rest = self.lines()
        broken = []
        for i, line in enumerate(l for l in rest if json.loads(l)["family"] == "attention"):
            p = json.loads(line)
            p["us"] *= 3 if i % 2 else 1
            broken.append(json.dumps(p))
        points = self.write("points.jsonl", "\n".join([head, *broken]) + "\n")
        profile, said = self.fit(points, code=CHECK)
        self.assertRegex(said, r"warning: attention (forward|backward): .*% > ")
        self.assertEqual(profile["schema"], "trifold.profile/1")

    # -- layers

    def test_layers_beside_their_prediction(self):
        done = self.run_it("calibrate", "--fit", RUN / "points.jsonl", "-o", "out.json", "--compare-layer", RUN / "layer.jsonl")
        rows = [line for line in done.stderr.splitlines() if " % " in line and "forward" in line or "backward" in line]
        rows = [line for line in rows if line.split()[0] in ("mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v3")]
        self.assertEqual(len(rows), 48)
        committed = json.loads((ROOT / "hardware/profiles/h200-measured.json").read_text())
        self.assertEqual(json.loads((self.path / "out.json").read_text())["attention"], committed["attention"])

    def test_layers_of_another_machine(self):
        points = self.points(lambda p: p["family"] == "attention")
        head, *rest = (RUN / "layer.jsonl").read_text().splitlines()
        for field, value in (("gpu", "NVIDIA B200"), ("driver", "999.1")):
            first = json.loads(head)
            first[field] = value
            self.write("layer.jsonl", "\n".join([json.dumps(first), *rest]) + "\n")
            words = ("--fit", points, "-o", "out.json", "--compare-layer", "layer.jsonl")
            if field == "gpu":
                self.refused("layers ran on 'NVIDIA B200'", *words)
            else:
                said = self.run_it("calibrate", *words).stderr
                self.assertIn("note: the layer test has driver 999.1, the points", said)
        self.write("layer.jsonl", head + "\n" + rest[0][:40] + "\n")
        self.refused("layer.jsonl:2", "--fit", points, "-o", "out.json", "--compare-layer", "layer.jsonl")

    # -- other machines

    def test_points_or_base_of_another_gpu_are_refused(self):
        keep = lambda p: p["family"] == "attention"
        self.refused("measured on 'NVIDIA B200', not on H200", "--fit", self.points(keep, gpu="NVIDIA B200"), "-o", "x.json")
        self.refused("not on H100", "--fit", self.points(keep), "--cluster", "dgx-h100", "-o", "x.json")
        self.refused("profile 'h100' was made on", "--fit", self.points(keep), "--base", "h100", "-o", "x.json")
        self.assertFalse((self.path / "x.json").exists())

    def test_a_base_of_another_driver_is_flagged(self):
        keep = lambda p: p["family"] == "attention"
        _, said = self.fit(self.points(keep, driver="1.2"), "--base", ROOT / "hardware/profiles/h200-measured.json")
        self.assertRegex(said, r"note: base profile 'h200-measured' has driver [\d.]+, the points 1.2")
        _, said = self.fit(self.points(keep), "--base", ROOT / "hardware/profiles/h200-measured.json")
        self.assertNotIn("note:", said)

    def test_plan_flags_a_profile_of_another_gpu(self):
        words = [w if w != "dgx-h200" else "dgx-h100" for w in self.PLAN]
        done = self.run_it(*words, "--recompute", "full", "--profile", "h200-measured", "--json")
        self.assertRegex(done.stderr, "note: profile 'h200-measured' was made on 'NVIDIA H200', not on H100")
        json.loads(done.stdout)
        self.assertNotIn("made on", self.run_it(*self.PLAN, "--profile", "h200-measured").stderr)

    # -- files

    def test_a_killed_run_leaves_points_that_fit(self):
        points = self.points(lambda p: p["family"] == "collective")
        whole, _ = self.fit(points)
        with open(self.path / points, "a") as file:
            file.write('{"family":"collective","op":"all_ga')
        torn, said = self.fit(points)
        self.assertIn("note: points.jsonl: the torn last line was dropped", said)
        self.assertEqual(torn, whole)

    def test_bad_files(self):
        head, *rest = self.lines()
        for name, content, says in (
                ("empty", "", "empty|no points|header"),
                ("other", '{"schema":"trifold.plan/1"}\n', "schema|trifold.points"),
                ("middle", "\n".join([head, rest[0][:50], rest[1]]) + "\n", "middle:2"),
                ("family", "\n".join([head, rest[0].replace('"gemm"', '"gem"', 1), rest[1]]) + "\n", 'family.*2|2.*family|did you mean'),
                ("headless", "\n".join(rest[:5]) + "\n", "headless")):
            self.refused(says, "--fit", self.write(name, content), "-o", "x.json")
        self.refused("absent", "--fit", "absent", "-o", "x.json")
        self.assertFalse((self.path / "x.json").exists())

    # -- nccl-tests

    def curve(self, *logs, op="all_reduce", ranks=8, words=()):
        self.run_it("calibrate", "--import", *logs, "--cluster", "dgx-h200", "-o", "out.json", *words)
        profile = json.loads((self.path / "out.json").read_text())
        return next(c for c in profile["collectives"][op] if c["ranks"] == ranks), profile

    def test_text_and_json_logs_give_the_same_curve(self):
        text, profile = self.curve(self.write("text.log", text_log()))
        other, _ = self.curve(self.write("j.json", json_log()))
        self.assertEqual(text, other)
        self.assertEqual(text["basis"], "measured")
        self.assertAlmostEqual(text["seconds"][text["bytes"].index(2 ** 20)] * 1e6, ring_us(2 ** 20), delta=0.01)
        self.assertEqual(profile["provenance"]["source"], "nccl-tests")

    def test_several_logs_make_one_profile(self):
        logs = [self.write("a.log", text_log()), self.write("b.log", text_log(name="alltoall"))]
        curve, profile = self.curve(*logs, op="all_to_all")
        self.assertEqual(curve["basis"], "measured")
        self.assertEqual(next(c for c in profile["collectives"]["all_reduce"] if c["ranks"] == 8)["basis"], "measured")

    def test_two_sizes_are_no_curve(self):
        log = self.write("two.log", text_log(sizes=[2 ** 20, 2 ** 30]))
        done = self.run_it("calibrate", "--import", log, "--cluster", "dgx-h200", "-o", "out.json")
        self.assertIn("note: too few points", done.stderr)
        base = json.loads((ROOT / "hardware/profiles/h200.json").read_text())
        curves = json.loads((self.path / "out.json").read_text())["collectives"]["all_reduce"]
        self.assertEqual([c["seconds"] for c in curves], [c["seconds"] for c in base["collectives"]["all_reduce"]])

    def test_rows_that_failed_their_check_are_left_out(self):
        curve, _ = self.curve(self.write("wrong.log", text_log(wrong=(2 ** 20,))))
        self.assertNotIn(2 ** 20, curve["bytes"])
        self.assertIn(2 ** 18, curve["bytes"])

    def test_logs_across_nodes_calibrate_the_fabric(self):
        # t = S / (0.8 NIC) + 25 us for the all-to-all of two nodes of eight: half of S leaves each.
        efficiency, latency = 0.8, 25e-6
        us = lambda size: 1e6 * (size * (1 - 1 / 2) / (NIC * efficiency) + latency)
        log = self.write("two.log", text_log(hosts=2, name="alltoall", us=us))
        self.run_it("calibrate", "--import", log, "--cluster", "dgx-h200", "-o", "out.json")
        profile = json.loads((self.path / "out.json").read_text())
        constants = profile["constants"]
        self.assertAlmostEqual(constants["scaleout_efficiency"]["value"], efficiency, delta=0.005)
        self.assertAlmostEqual(constants["scaleout_latency_s"]["value"], latency, delta=0.2e-6)
        self.assertEqual(constants["scaleout_latency_s"]["basis"], "measured")
        base = json.loads((ROOT / "hardware/profiles/h200.json").read_text())
        self.assertEqual([c["ranks"] for c in profile["collectives"]["all_to_all"]],
                         [c["ranks"] for c in base["collectives"]["all_to_all"]], "two nodes are not one domain of 16")

    def test_old_logs_need_to_be_told(self):
        log = self.write("old.log", text_log(name=""))
        self.assertIn("all_gather", self.refused("which collective", "--import", log, "-o", "x.json"))
        curve, _ = self.curve(log, op="reduce_scatter", words=("--collective", "reduce_scatter"))
        self.assertEqual(curve["basis"], "measured")

    def test_bad_logs(self):
        for name, content, says in (("empty.log", "", "empty"), ("none.log", text_log(sizes=[0]), "no result rows"),
                                    ("no.json", "{}", "results"), ("cut.json", '{"results": [', "cut.json"),
                                    ("b200.log", text_log().replace("H200", "B200"), "not on H200")):
            self.refused(says, "--import", self.write(name, content), "-o", "x.json")
        other = self.write("b.log", text_log(name="alltoall").replace("H200", "H100"))
        self.refused("b.log.*one cluster|log of 'NVIDIA H100'", "--import", self.write("a.log", text_log()), other, "-o", "x.json")

    # -- without a GPU

    @unittest.skipIf(shutil.which("nvidia-smi"), "this machine has a GPU")
    def test_without_a_gpu_one_line_and_exit_5(self):
        for words in (("-o", "p.json"), ("--quick", "-o", "p.json"), ("--layer", "-o", "l.jsonl"), ("--lab",),
                      ("--check-kernels",)):
            said = self.refused(r"built without CUDA|no usable NVIDIA GPU", *words, code=ENVIRONMENT)
            self.assertEqual(len(said.splitlines()), 1, said)
            self.assertEqual(list(self.path.iterdir()), [])
        self.refused("no output", code=USAGE)

    def test_four_ranks_find_each_other(self):
        port = str(21000 + os.getpid() % 9000)
        ranks = [subprocess.Popen([TRIFOLD, "calibrate", "--bootstrap"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "RANK": str(r), "WORLD_SIZE": "4", "LOCAL_RANK": str(r),
                                       "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                 for r in range(4)]
        for r, process in enumerate(ranks):
            output, errors = process.communicate(timeout=100)
            self.assertEqual(process.returncode, DONE, errors)
            self.assertIn(f"rank {r} of 4 by torchrun: id agreed, highest rank 3", output + errors)


if __name__ == "__main__":
    TRIFOLD, ROOT = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    RUN = ROOT / "tests/observations/h200x2-2026-11-30"
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
