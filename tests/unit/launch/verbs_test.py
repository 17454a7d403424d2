#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""emit, check, import and compare of the built program, from outside.

    verbs_test.py TRIFOLD REPOSITORY [unittest arguments]
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TRIFOLD, ROOT = "", pathlib.Path()
DONE, USAGE, INPUT, INFEASIBLE, CHECK = 0, 2, 3, 4, 6

JOB = {
    "schema": "trifold.job/1", "model": "qwen3-30b-a3b", "cluster": "dgx-h100", "gpus": 64,
    "training": {"global_batch_size": 512, "micro_batch_size": 1},
    "layout": {"tp": 2, "pp": 4, "vpp": 2, "ep": 8},
    "techniques": {"dispatcher": "deepep", "overlap": ["grad_reduce", "param_gather", "pipeline_p2p"],
                   "fusions": ["router", "permute", "cross_entropy"], "routing": {"balance": "forced"}}}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.job = self.write("job.json", json.dumps(JOB))

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        (self.path / name).write_text(text)
        return name

    def run_it(self, *words, stdin=""):
        return subprocess.run([TRIFOLD, *map(str, words)], cwd=self.path, input=stdin, capture_output=True, text=True,
                              timeout=120)

    def good(self, *words, **more):
        result = self.run_it(*words, **more)
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
        return result.stdout

    def bad(self, code, says, *words, **more):
        result = self.run_it(*words, **more)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertRegex(result.stderr, says)


class Emit(Case):
    def test_directory(self):
        self.good("emit", self.job, "-o", "run")
        names = {p.name for p in (self.path / "run").iterdir()}
        self.assertEqual(names, {"megatron.args", "launch.sh", "submit.sbatch", "pytorchjob.yaml", "bridge_overrides.txt",
                                 "ranks.json"})
        for line in (self.path / "run/megatron.args").read_text().splitlines():
            self.assertRegex(line, r"^--[a-z0-9-]+( [^ ]+)*$")
        script = (self.path / "run/launch.sh").read_text()
        self.assertIn("set -euo pipefail", script)
        self.assertIn("${EXTRA_ARGS:-}", script)
        self.assertRegex(script, r"# trifold plan [0-9a-f]{16}: ")
        self.assertRegex(script, r"# predicted step time \d")
        for line in script.splitlines():
            if re.search(r"\bexport\b", line):
                self.assertRegex(line, r"^export [A-Z_0-9]+=\S")
        ranks = json.loads((self.path / "run/ranks.json").read_text())
        self.assertEqual(len(ranks["ranks"]), 64)
        for name in ("launch.sh", "submit.sbatch"):
            subprocess.run(["bash", "-n", self.path / "run" / name], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", "--shell=bash", self.path / "run" / name], check=True)

    def test_versions(self):
        old = self.good("emit", self.job, "--megatron", "0.16", "--set", "techniques.dispatcher_sms=24")
        new = self.good("emit", self.job, "--megatron", "main", "--set", "techniques.dispatcher_sms=24")
        self.assertIn("--moe-deepep-num-sms 24", old)
        self.assertIn("--moe-flex-dispatcher-num-sms 24", new)
        self.bad(INFEASIBLE, "0.16 has no --use-transformer-engine-op-fuser", "emit", self.job, "--megatron", "0.16",
                 "--set", "techniques.fusions=grouped_mlp")


class Check(Case):
    def test_plan(self):
        self.assertIn("accepted", self.good("check", self.job))
        result = self.run_it("check", self.job, "--set", "layout.ep=3")
        self.assertEqual(result.returncode, CHECK)
        self.assertRegex(result.stdout, r"reject: GRID-02: .*64 .*; fix: ")

    def test_arguments(self):
        (self.path / "megatron.args").write_text(self.good("emit", self.job))
        self.bad(USAGE, "--gpus", "check", "megatron.args")
        words = ["check", "megatron.args", "--env", "CUDA_DEVICE_MAX_CONNECTIONS=1"]
        self.good(*words, "--gpus", "64")
        result = self.run_it(*words, "--gpus", "60")
        self.assertEqual(result.returncode, CHECK)
        self.assertRegex(result.stdout, r"GRID-01: .*60 GPUs.*fix: use 64 GPUs")
        text = (self.path / "megatron.args").read_text()
        number = text.splitlines().index("--swiglu") + 1
        self.write("typo.args", text.replace("--swiglu", "--swigluu"))
        result = self.run_it("check", "typo.args", "--gpus", "64", "--env", "CUDA_DEVICE_MAX_CONNECTIONS=1")
        self.assertRegex(result.stdout, rf"TRN-03.*--swigluu.*line {number}\).*did you mean --swiglu\?")

    def test_warnings(self):
        plain = json.loads(json.dumps(JOB))
        plain["training"]["micro_batch_size"] = 8
        plain["layout"] = {"tp": 1, "pp": 1, "ep": 8}
        plain["techniques"]["overlap"] = ["grad_reduce", "param_gather"]
        text = self.good("check", self.write("big.json", json.dumps(plain)))
        self.assertRegex(text, r"warning: TRI-OOM: .*GiB of .*GiB")
        (self.path / "big.args").write_text(self.good("emit", "big.json"))
        words = ["check", "big.args", "--gpus", "64"]
        self.assertNotIn("TRI-OOM", self.good(*words))
        self.assertIn("TRI-OOM", self.good(*words, "--cluster", "dgx-h100"))
        # MoE with TP and no sequence parallelism: Megatron warns, then dies in the first forward.
        result = self.run_it("check", self.job, "--set", "techniques.sequence_parallel=false")
        self.assertRegex(result.stdout, "TP-05")
        # 8 micro-batches of 4 stages are fine, 9 are not a multiple.
        result = self.run_it("check", self.job, "--set", "training.global_batch_size=72")
        self.assertRegex(result.stdout, "PP-08.*micro-batches a multiple of pp")

    def test_json(self):
        found = json.loads(self.run_it("check", self.job, "--set", "layout.tp=3", "--json").stdout)
        self.assertEqual(found["verdict"], "reject")
        self.assertEqual(set(found["findings"][0]), {"severity", "rule", "reason", "detail", "fix"})

    def test_fast(self):
        """A check of arguments is a matter of milliseconds beyond the start of the program."""
        (self.path / "megatron.args").write_text(self.good("emit", self.job))

        def best_of(*words):
            best = 1e9
            for _ in range(10):
                start = time.monotonic()
                self.good(*words)
                best = min(best, time.monotonic() - start)
            return best

        start = best_of("--version")
        check = best_of("check", "megatron.args", "--gpus", "64", "--env", "CUDA_DEVICE_MAX_CONNECTIONS=1")
        print(f"check of arguments: {(check - start) * 1e3:.1f} ms beyond a start of {start * 1e3:.1f} ms")
        self.assertLess(check - start, 0.05)


class Import(Case):
    def test_round_trip(self):
        self.good("emit", self.job, "-o", "run")
        for name, more in (("launch.sh", []), ("megatron.args", ["--gpus", "64"])):
            self.good("import", f"run/{name}", "--cluster", "dgx-h100", *more, "-o", "back.json")
            self.assertEqual(self.good("emit", "back.json"), (self.path / "run/megatron.args").read_text())
            back = json.loads((self.path / "back.json").read_text())
            self.assertEqual(back["model"], "qwen3-30b-a3b")
            self.assertEqual(back["cluster"], "dgx-h100")
        piped = self.good("import", "run/launch.sh", "--cluster", "dgx-h100", "-o", "-")
        self.assertEqual(self.good("estimate", "-", "--json", stdin=piped), self.good("estimate", self.job, "--json"))

    def test_what_is_missing(self):
        self.good("emit", self.job, "-o", "run")
        self.bad(USAGE, "which cluster", "import", "run/launch.sh")
        self.bad(USAGE, "how many GPUs", "import", "run/megatron.args", "--cluster", "dgx-h100")
        self.bad(INPUT, "no Megatron arguments", "import", self.write("x.sh", "echo hello\n"), "--cluster", "dgx-h100",
                 "--gpus", "8")

    def test_lines(self):
        words = ["--cluster", "dgx-h100", "--gpus", "64"]
        args = self.good("emit", self.job).splitlines()

        def broken(old, new, says):
            lines = list(args)
            at = next(i for i, line in enumerate(lines) if line.split()[0] == old.split()[0])
            lines[at] = new
            self.bad(INPUT, rf"m\.args:{at + 1}: .*{says}", "import", self.write("m.args", "\n".join(lines) + "\n"),
                     *words)

        broken("--hidden-size", "--hiden-size 2048", "did you mean --hidden-size")
        broken("--hidden-size", "--hidden-size", "takes 1 value, 0 given")
        broken("--hidden-size", "--hidden-size wide", "not a number")
        broken("--swiglu", "--fp16", "--bf16|--fp16")

    def test_yaml(self):
        lines = ["MODEL_ARGS:"]
        for line in self.good("emit", self.job).splitlines():
            flag, *values = line.split()
            value = f"[{', '.join(values)}]" if len(values) > 1 else values[0] if values else "true"
            lines.append(f"  {flag}: {value}")
        text = "\n".join(lines) + "\n"
        words = ["--cluster", "dgx-h100", "--gpus", "64"]
        self.good("import", self.write("zoo.yaml", text), *words, "-o", "back.json")
        self.assertEqual(self.good("emit", "back.json"), self.good("emit", self.job))
        torn = text[: text.index("--num-attention-heads") + 12]
        self.bad(INPUT, rf"torn\.yaml:{torn.count(chr(10)) + 1}: .*cut off", "import", self.write("torn.yaml", torn), *words)

    def test_listed(self):
        self.good("emit", self.job, "-o", "run")
        args = (self.path / "run/megatron.args").read_text() + "--our-fork-has-this 3\n--wandb-project x\n"
        found = json.loads(self.good("import", self.write("m.args", args), "--cluster", "dgx-h100", "--gpus", "64",
                                     "--json"))
        self.assertTrue(any("--our-fork-has-this 3" in line for line in found["not_understood"]))
        self.assertTrue(any("--wandb-project x" in line for line in found["no_effect"]))
        # Every flag is somewhere: in the Job's own arguments, or listed.
        said = self.good("emit", "-", stdin=json.dumps(found["job"]))
        for line in args.splitlines():
            flag = line.split()[0]
            self.assertTrue(f"{flag} " in said + " " or f"{flag}\n" in said or flag in json.dumps(found), flag)


class Compare(Case):
    def log(self):
        return (ROOT / "tests/observations/megatron_runs/moe_ep2.log").read_text()

    def job_file(self):
        return ROOT / "tests/observations/megatron_runs/moe_ep2.json"

    def test_whole(self):
        text = self.good("compare", self.job_file(), self.write("train.log", self.log()))
        self.assertRegex(text, r"step time \(s\)")
        self.assertRegex(text, r"peak memory \(GiB\)")
        self.assertRegex(text, r"interval")

    def test_truncated(self):
        log = self.log()
        second = [m.start() for m in re.finditer(r"iteration +\d+/", log)][2]
        self.bad(INPUT, "breaks off after 2 iterations", "compare", self.job_file(),
                 self.write("cut.log", log[: second + 30]))
        self.bad(INPUT, "no iteration lines", "compare", self.job_file(), self.write("empty.log", ""))

    def test_another_run(self):
        self.bad(INPUT, "another run: GPUs 2, the plan has 64", "compare", self.job,
                 self.write("train.log", self.log()))

    def synthetic(self, seconds):
        return "".join(f" [2026-01-01 00:00:00] iteration {i}/ 12 | elapsed time per iteration (ms): {seconds * 1e3} | "
                       "global batch size: 512 | number of skipped iterations: 0 | number of nan iterations: 0 |\n"
                       for i in range(1, 13))

    def test_profile(self):
        """A site that is 5 % slower: the correction says from what, and makes the estimate slower."""
        predicted = json.loads(self.good("estimate", self.job, "--json"))["step_time_s"]["value"]
        log = self.write("train.log", self.synthetic(1.05 * predicted))
        self.good("compare", self.job, log, "--update-profile", "site.json")
        profile = (self.path / "site.json").read_text()
        source = json.loads(profile)["constants"]["gemm_sustained_factor"]["source"]
        self.assertRegex(source, r"site correction x1\.\d+: train\.log ran x1\.050 .*8 iterations of job [0-9a-f]{16}")
        self.assertIn("-site", json.loads(profile)["name"])
        again = json.loads(self.good("estimate", self.job, "--json", "--set", "profile=site.json"))["step_time_s"]["value"]
        self.assertAlmostEqual(again / predicted, 1.05, places=5)
        # Ten times slower is no site: nothing is written.
        self.bad(INPUT, "physical range", "compare", self.job, self.write("slow.log", self.synthetic(10 * predicted)),
                 "--update-profile", "slow.json")
        self.assertFalse((self.path / "slow.json").exists())


def main():
    global TRIFOLD, ROOT
    TRIFOLD, ROOT = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])


if __name__ == "__main__":
    main()
