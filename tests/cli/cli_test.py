#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program from outside: exit codes, streams, help, bad input. cli_test.py TRIFOLD ROOT [Class[.test]]

Exit codes (DESIGN section 8): 0 done, 1 internal, 2 usage, 3 bad input, 4 nothing feasible, 5 the machine lacks
something, 6 a check failed. Whoever makes a mistake gets one message on standard error that says where and what to
do, and nothing on standard output.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TRIFOLD = ""
ROOT = pathlib.Path()
DONE, USAGE, INPUT, INFEASIBLE, ENVIRONMENT, CHECK = 0, 2, 3, 4, 5, 6

# A geometry that leaves the planner little to search.
PINNED = "--tp 1 --cp 1 --ulysses-sp 1 --pp 1 --vpp 1 --etp 1 --no-fsdp --no-offload --dispatcher alltoall --recompute none".split()
SMALL = "plan qwen3-30b-a3b --cluster dgx-h200 --gpus 8 --global-batch-size 64".split()


def small(**changes):
    """SMALL with other values: small(gpus=0, sequence_length=-1)."""
    words = list(SMALL)
    for key, value in changes.items():
        flag = "--" + key.replace("_", "-")
        if flag in words:
            words[words.index(flag) + 1] = str(value)
        else:
            words += [flag, str(value)]
    return words

JOB = {
    "schema": "trifold.job/1",
    "model": "qwen3-30b-a3b",
    "cluster": "dgx-h200",
    "gpus": 16,
    "training": {"sequence_length": 4096, "global_batch_size": 64, "micro_batch_size": 1, "precision": "bf16"},
    "layout": {"tp": 1, "pp": 2, "ep": 8, "etp": 1},
    "techniques": {"dispatcher": "alltoall", "recompute": ["layernorm", "moe_act"]},
}
CONFIG = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def run_it(self, *words, stdin="", environment=None):
        return subprocess.run([TRIFOLD, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=100,
                              cwd=self.path, env={**os.environ, **(environment or {})})

    def write(self, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (self.path / name).write_text(text)
        return name

    def good(self, *words, **more):
        result = self.run_it(*words, **more)
        self.assertEqual(result.returncode, DONE, f"{words}: {result.stderr}")
        return result

    def bad(self, code, says, *words, **more):
        """Exit code, nothing on stdout, one clear message on stderr that matches every pattern of `says`."""
        result = self.run_it(*words, **more)
        self.assertEqual(result.returncode, code, f"{words}: {result.stdout[:300]}{result.stderr}")
        self.assertEqual(result.stdout, "", words)
        message = result.stderr
        self.assertTrue(message.strip(), f"{words}: exit {code} without a word")
        self.assertNotRegex(message, r"internal|terminate|what\(\)|Assertion|CHECK|std::|nlohmann|json\.exception")
        for pattern in [says] if isinstance(says, str) else says:
            self.assertRegex(message, pattern, words)
        # One message: a person reads it at a glance (usage errors add CLI11's line).
        self.assertLessEqual(len([line for line in message.splitlines() if not line.startswith("note:")]), 3, message)
        return result

    def verbs(self):
        text = self.good("--help").stdout
        listed = text[text.index("Subcommands:"):].split("\n\n")[0]
        return re.findall(r"^  ([a-z][a-z-]*) ", listed, re.M)

    def need_verb(self, verb):
        if verb not in self.verbs():
            self.skipTest(f"no verb {verb}")


class Help(Case):
    def test_program(self):
        result = self.good("--help")
        self.assertEqual(result.stderr, "")
        self.assertIn("Examples:", result.stdout)
        self.assertRegex(self.good("--version").stdout, r"^trifold \d+\.\d+\.\d+\n$")
        for verb in ("plan", "estimate", "list", "import", "calibrate"):
            self.assertIn(verb, self.verbs())

    def test_every_verb_ends_with_examples(self):
        for verb in self.verbs():
            with self.subTest(verb=verb):
                result = self.good(verb, "--help")
                self.assertEqual(result.stderr, "")
                text, _, examples = result.stdout.partition("Examples:\n")
                lines = [line for line in examples.splitlines() if line.strip()]
                self.assertTrue(lines, "no examples")
                # Copied as it stands: it names the verb, and every flag of it is in the help above.
                joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
                for line in joined:
                    self.assertRegex(line, r"^  (\S.* )?trifold " + verb + r"\b")
                    words = line.split(f"trifold {verb}", 1)[1]
                    for flag in re.findall(r"(?<!\S)--?[a-z][a-z-]*", re.split(r" [|>] ", words)[0]):
                        self.assertRegex(text, rf"(^|[\s,]){re.escape(flag)}\b", f"{flag} of: {line}")


class Usage(Case):
    def test_usage_errors(self):
        for words in ([], ["pln"], ["plan"], ["plan", "qwen3-30b-a3b"], ["estimate"], ["list"], ["list", "modls"],
                      [*SMALL, "--wombat"], [*SMALL, "--gpus", "many"], [*SMALL, "--best", "0"],
                      [*SMALL, "--threads", "-1"], [*SMALL, "--tp", "two"], ["calibrate"]):
            with self.subTest(words=words):
                self.bad(USAGE, r"\w", *words)

    def test_unknown_verb_suggests(self):
        self.bad(USAGE, r"unknown verb 'pln'.*did you mean 'plan'", "pln")
        self.bad(USAGE, r"unknown field 'layout.ept'.*did you mean", "estimate", self.write("job.json", JOB), "--set",
                 "layout.ept=2")


class ModelInput(Case):
    """config.json, through import and plan."""

    def bad_config(self, says, **changes):
        config = {**CONFIG, **changes}
        config = {key: value for key, value in config.items() if value is not ...}
        name = self.write("config.json", config)
        with self.subTest(changes=changes):
            self.bad(INPUT, says, "import", name)
            self.bad(INPUT, says, "plan", name, *SMALL[2:])

    def test_good(self):
        text = self.good("import", self.write("config.json", CONFIG)).stdout
        # Qwen3-30B-A3B: 30.5 B, of which 3.3 B work on a token (its model card).
        self.assertRegex(text, r"total +30\.5")
        self.assertRegex(text, r"active +3\.3")
        self.good("import", "-", stdin=json.dumps(CONFIG))
        self.good("import", self.write("nested.json", {"model_type": "kimi_vl", "text_config": CONFIG}))

    def test_truncated(self):
        text = json.dumps(CONFIG, indent=1)
        name = self.write("half.json", text[: len(text) // 2])
        self.bad(INPUT, [r"half\.json:\d+", "truncated"], "import", name)
        self.bad(INPUT, r"half\.json", "plan", name, *SMALL[2:])
        self.bad(INPUT, r"json", "import", self.write("empty.json", ""))
        self.bad(INPUT, r"json", "import", self.write("deep.json", "[" * 200000))
        self.bad(INPUT, r"json", "import", self.write("binary.json", "\x00\x01\x02"))

    def test_missing_keys(self):
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "moe_intermediate_size",
                    "num_experts_per_tok"):
            self.bad_config(key, **{key: ...})

    def test_wrong_numbers(self):
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "moe_intermediate_size",
                    "num_experts"):
            for value in (-1, 10**15, 1e300, "many", [1], True):
                self.bad_config(key, **{key: value})

    def test_inconsistent(self):
        self.bad_config("key/value heads", num_key_value_heads=5)
        self.bad_config("num_experts_per_tok|top_k", num_experts_per_tok=129)

    def test_refused_by_name(self):
        self.bad_config("mamba", model_type="mamba2")
        self.bad_config("state-space|jamba", model_type="jamba")

    def test_unreadable(self):
        self.bad(INPUT, "/nonexistent/config.json", "import", "/nonexistent/config.json")
        self.bad(INPUT, "directory", "import", ".")
        self.bad(INPUT, ["catalogue", "qwen3-30b-a3b"], "plan", "qwen3-30b-a3bb", *SMALL[2:])


class JobInput(Case):
    def job(self, **changes):
        job = json.loads(json.dumps(JOB))
        for key, value in changes.items():
            *folders, last = key.split("__")
            at = job
            for folder in folders:
                at = at[folder]
            if value is ...:
                del at[last]
            else:
                at[last] = value
        return self.write("job.json", job)

    def test_good(self):
        text = self.good("estimate", self.job()).stdout
        self.assertIn("TFLOP/s/GPU", text)
        self.good("estimate", "-", stdin=json.dumps(JOB))
        self.good("estimate", self.job(), "--set", "ep=4", "--set", "layout.pp=1")

    def test_structure(self):
        self.bad(INPUT, [r"job\.json#/techniques/dispatchr", "did you mean 'dispatcher'"], "estimate",
                 self.job(techniques__dispatchr="deepep"))
        self.bad(INPUT, [r"job\.json#/techniques/dispatcher", "did you mean 'deepep'"], "estimate",
                 self.job(techniques__dispatcher="deepp"))
        self.bad(INPUT, ["gpus"], "estimate", self.job(gpus=...))
        self.bad(INPUT, ["model"], "estimate", self.job(model=...))
        self.bad(INPUT, "schema|trifold", "estimate", self.job(schema="trifold.job/9"))
        self.bad(INPUT, r"half\.json:\d+", "estimate", self.write("half.json", json.dumps(JOB)[:100]))
        for text in ("5", "null", '"job"', "[]", "[1, 2]", "{}", '{"job": 5}', "[{}]"):
            with self.subTest(text=text):
                self.bad(INPUT, r"odd\.json", "estimate", self.write("odd.json", text))

    def test_sizes(self):
        for key in ("gpus", "training__sequence_length", "training__global_batch_size", "training__micro_batch_size",
                    "layout__tp", "layout__pp", "layout__ep", "layout__etp"):
            for value in (0, -1, 10**18, 1e300, 1.5, "many"):
                with self.subTest(key=key, value=value):
                    self.bad(INPUT, key.split("__")[-1], "estimate", self.job(**{key: value}))

    def test_what_does_not_divide(self):
        # 128 experts over 7 or 3 ranks, 16 GPUs over 3 stages, 64 sequences over 8 data-parallel ranks x 3.
        # 32 heads over 64 ranks.
        for says, change in (("ep|expert", {"layout__ep": 3}), ("pp|divisible", {"layout__pp": 3}),
                             ("batch", {"training__micro_batch_size": 3}), ("gpus|GPUs|divisible", {"gpus": 7}),
                             ("heads|tp", {"layout__tp": 64, "gpus": 128, "layout__ep": 1})):
            with self.subTest(change=change):
                result = self.run_it("estimate", self.job(**change))
                self.assertIn(result.returncode, (INPUT, INFEASIBLE), result.stdout + result.stderr)
                self.assertRegex(result.stderr, says)

    def test_model_overrides(self):
        self.bad(INPUT, "hiden", "estimate", self.job(model_overrides={"hiden": 4}))
        self.bad(INPUT, "num_layers", "estimate", self.job(model_overrides={"num_layers": -4}))


class PlanInput(Case):
    def test_numbers(self):
        for says, key, values in (("gpus|GPU", "gpus", (0, -8, 2 * 10**9)), ("batch", "global_batch_size", (0, -64)),
                                  ("sequence", "sequence_length", (0, -1, 10**12)),
                                  ("batch", "global_batch_size", (9 * 10**18,))):
            for value in values:
                with self.subTest(key=key, value=value):
                    self.bad(INPUT, says, *small(**{key: value}))

    def test_words(self):
        self.bad(INPUT, "did you mean 'dgx-h200'", *small(cluster="dgx-h20"))
        self.bad(INPUT, "precision", *small(precision="fp9"))
        self.bad(INPUT, "dispatcher", *small(dispatcher="pigeon"))
        self.bad(INPUT, "runtime", *small(runtime="jax"))
        self.bad(INPUT, "fp8_block", *small(cluster="dgx-a100", precision="fp8_block"))
        self.bad(INPUT, "profile", *small(profile="h2000"))

    def test_clusters(self):
        cluster = json.loads((ROOT / "hardware/clusters/dgx-h200.json").read_text())
        self.good(*small(cluster=self.write("mine.json", cluster)), *PINNED, "--ep", "8")
        for key, value in (("wombat", 1), ("gpu", 5), ("domain_gpus", 0), ("hbm_bytes", -1), ("bf16_flops_per_s", 0)):
            with self.subTest(key=key):
                self.bad(INPUT, [r"odd\.json", key], *small(cluster=self.write("odd.json", {**cluster, key: value})))
        self.bad(INPUT, r"half\.json", *small(cluster=self.write("half.json", json.dumps(cluster)[:200])))

    def test_output_directory(self):
        self.write("file", "in the way")
        self.bad(INPUT, "file", *SMALL, *PINNED, "--ep", "8", "-o", "file")
        self.bad(INPUT, "file/below", *SMALL, *PINNED, "--ep", "8", "-o", "file/below")
        self.assertEqual((self.path / "file").read_text(), "in the way")


class Streams(Case):
    def test_json_is_json(self):
        job = self.write("job.json", JOB)
        config = self.write("config.json", CONFIG)
        plan = [*SMALL, *PINNED, "--ep", "8"]
        commands = [["estimate", job], ["import", config], plan]
        commands += [["list", what] for what in ("models", "clusters", "profiles", "techniques")]
        for words in commands:
            with self.subTest(words=words):
                result = self.good(*words, "--json")
                self.assertEqual(result.stderr, "")
                json.loads(result.stdout)
                self.assertTrue(result.stdout.endswith("\n"))
                self.assertNotIn("\x1b", self.good(*words).stdout)  # not a terminal: no colour

    def test_estimate_json(self):
        e = json.loads(self.good("estimate", self.write("job.json", JOB), "--json").stdout)
        step = e["step_time_s"]
        self.assertLess(step["low"], step["value"])
        self.assertGreater(step["high"], step["value"])
        times = e["time_s"]
        whole = sum(times[key] for key in ("compute", "recompute", "bubble", "host", "optimizer"))
        whole += sum(times["exposed"][key] for key in ("ep", "tp", "cp", "pp", "dp"))
        self.assertAlmostEqual(whole / step["value"], 1, places=6)
        # 64 sequences of 4,096 tokens over 16 GPUs.
        self.assertAlmostEqual(e["tokens_per_s_per_gpu"] * step["value"] * 16 / (64 * 4096), 1, places=6)
        self.assertTrue(0 < e["mfu"] < 1)
        self.assertGreater(e["tflops_per_gpu"], 0)
        ep = e["communication"]["ep"]
        self.assertLessEqual(ep["exposed_s"], ep["total_s"] * (1 + 1e-9))
        self.assertAlmostEqual(ep["total_share"], ep["total_s"] / step["value"], places=6)
        memory = e["memory"]
        self.assertEqual(memory["headroom_bytes"], memory["capacity_bytes"] - memory["reserved_bytes"])
        self.assertEqual(len(memory["stages"]), 2)
        for stage in memory["stages"]:
            for key in ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "buffers_bytes"):
                self.assertIsInstance(stage[key], int)
        self.assertEqual(memory["peak_bytes"], max(stage["peak_bytes"] for stage in memory["stages"]))

    def test_plan_json_and_files(self):
        p = json.loads(self.good(*SMALL, *PINNED, "--json", "-o", "run").stdout)
        steps = [plan["estimate"]["step_time_s"]["value"] for plan in p["plans"]]
        self.assertEqual(steps, sorted(steps))
        self.assertTrue(all({"job", "estimate", "verdict"} <= set(plan) for plan in p["plans"]))
        self.assertTrue(all({"name", "job", "estimate"} <= set(g) for g in p["geometries"]))
        self.assertLessEqual(p["fits"], p["legal"])
        self.assertLessEqual(p["legal"], p["considered"])
        self.assertLessEqual(p["considered"], p["space"] * (1 + 1e-9))
        self.assertIsInstance(p["rejected"], dict)
        files = {path.name for path in (self.path / "run").iterdir()}
        self.assertLessEqual({"plan.json", "megatron.args", "launch.sh", "submit.sbatch"}, files)
        # The chosen plan answers the same when it is asked again.
        again = json.loads(self.good("estimate", "run/plan.json", "--json").stdout)
        self.assertAlmostEqual(again["step_time_s"]["value"] / steps[0], 1, places=9)
        args = (self.path / "run/megatron.args").read_text()
        self.assertRegex(args, r"(?m)^--num-layers 48$")
        self.assertRegex(args, r"(?m)^--num-experts 128$")
        self.assertRegex(args, r"(?m)^--global-batch-size 64$")
        for script in ("launch.sh", "submit.sbatch"):
            subprocess.run(["bash", "-n", self.path / "run" / script], check=True)
        self.assertIn("EXTRA_ARGS", (self.path / "run/launch.sh").read_text())


class Infeasible(Case):
    def test_fits_on_no_layout(self):
        # Mixtral 8x7B: 46.7 B weights, in BF16 with gradients in FP32 and an optimizer of at least 6 bytes a weight, are
        # 560 GB; 4 x 80 GiB hold 344 GB. 560 GB over 86 GB is 6.5 GPUs: of the doublings of 4, 8 at the least.
        words = "plan mixtral-8x7b --cluster dgx-h100 --gpus 4 --global-batch-size 64".split()
        result = self.bad(INFEASIBLE, [r"fits on no layout", r"short of [\d,.]+ GiB"], *words)
        would_do = re.search(r"([\d,]+) GPUs of this kind would do", result.stderr)
        self.assertTrue(would_do, result.stderr)
        self.assertIn(int(would_do.group(1).replace(",", "")), (8, 16, 32))

    def test_batch_that_nothing_divides(self):
        # 64 GPUs without any model parallelism are 64 data-parallel ranks: 7 sequences do not divide over them.
        words = "plan qwen3-30b-a3b --cluster dgx-h200 --gpus 64 --global-batch-size 7".split()
        self.bad(INFEASIBLE, "batch", *words, "--pp", "1", "--tp", "1", "--cp", "1", "--ulysses-sp", "1")

    def test_pins_that_exclude_everything(self):
        self.bad(INFEASIBLE, r"\bep\b|expert|divisible", *SMALL, *PINNED, "--ep", "7")


class Environment(Case):
    def test_no_gpu(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("this machine has a GPU")
        self.bad(ENVIRONMENT, "CUDA|GPU|NCCL|driver", "calibrate", "-o", "x.json")
        self.assertEqual(list(self.path.glob("*.json")), [])

    def test_data_folder(self):
        self.bad(INPUT, "catalogue|no/where", "--data", "no/where", *SMALL)
        self.bad(INPUT, "catalogue|no/where", *SMALL, environment={"TRIFOLD_DATA": "no/where"})


class Check(Case):
    def test_launch_files(self):
        self.need_verb("check")
        self.good(*SMALL, *PINNED, "--ep", "8", "-o", "run")
        self.good("check", "run/plan.json")
        self.good("check", "run/launch.sh")
        self.good("check", "run/megatron.args", "--gpus", "8")
        for name, more in (("launch.sh", []), ("megatron.args", ["--gpus", "8"])):
            script = self.path / "run" / name
            flag = "--expert-model-parallel-size"
            self.assertIn(f"{flag} 8", script.read_text())
            # 128 experts do not divide over 3 ranks, nor 8 GPUs into groups of 3.
            script.write_text(script.read_text().replace(f"{flag} 8", f"{flag} 3"))
            result = self.run_it("check", script, *more)
            self.assertEqual(result.returncode, CHECK, result.stdout + result.stderr)
            self.assertRegex(result.stdout + result.stderr, "expert")


class Determinism(Case):
    def test_threads(self):
        words = ["plan", "qwen3-30b-a3b", "--cluster", "dgx-h200", "--gpus", "16", "--global-batch-size", "64", "--cp", "1",
                 "--ulysses-sp", "1", "--etp", "1", "--vpp", "1", "--micro-batch-size", "1", "--dispatcher", "alltoall"]
        for more in (["--json", "--simulate", "3"], [], ["--json"]):
            one, two, seven = (self.good(*words, *more, "--threads", n, "-o", "run").stdout for n in ("1", "2", "7"))
            self.assertEqual(one, two)
            self.assertEqual(one, seven)
        first = {p.name: p.read_bytes() for p in (self.path / "run").iterdir()}
        self.good(*words, "--threads", "1", "-o", "run")
        self.assertEqual(first, {p.name: p.read_bytes() for p in (self.path / "run").iterdir()})

    def test_locale_and_place(self):
        job = self.write("job.json", JOB)
        plain = self.good("estimate", job, "--json").stdout
        self.assertEqual(plain, self.good("estimate", self.path / job, "--json",
                                          environment={"LC_ALL": "de_DE.UTF-8", "NO_COLOR": "1"}).stdout)


class Interrupt(Case):
    def test_interrupt(self):
        process = subprocess.Popen([TRIFOLD, "plan", "deepseek-v3", "--cluster", "dgx-h100", "--gpus", "1024",
                                    "--global-batch-size", "8192", "-o", "run"], cwd=self.path,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        if process.returncode == 0:
            self.skipTest("finished before the interrupt")
        # A shell reports death by SIGINT as 130.
        self.assertIn(process.returncode, (-signal.SIGINT, 130))
        self.assertEqual(out, b"")
        self.assertFalse((self.path / "run").exists())


class Sweeps(Case):
    """Every file of the corpus and of the catalogue, where the corpus is."""

    def test_catalogue(self):
        for name in json.loads(self.good("list", "models", "--json").stdout):
            self.assertGreater(name["parameters"], 0)

    def test_corpus(self):
        corpus = ROOT.parent / "shared/data/hf"
        files = sorted(corpus.glob("*.json"))
        if not files:
            self.skipTest(f"no {corpus}")
        for path in files:
            with self.subTest(path=path.name):
                result = self.run_it("import", path)
                self.assertIn(result.returncode, (DONE, INPUT), result.stderr)
                if result.returncode == INPUT:
                    self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)

    def test_mutilated_job(self):
        """A Job cut short anywhere is refused, not crashed on."""
        text = json.dumps(JOB)
        for length in range(0, len(text), 7):
            result = self.run_it("estimate", "-", stdin=text[:length])
            self.assertEqual(result.returncode, INPUT, text[:length])


def main():
    global TRIFOLD, ROOT
    TRIFOLD, ROOT = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    result = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun and len(result.skipped) == result.testsRun else 0)


if __name__ == "__main__":
    main()
