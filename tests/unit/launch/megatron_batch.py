#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Megatron's verdict on many plans: megatron_check.py once, then a fork a plan.

    megatron_batch.py CHECKER MEGATRON_DIR GPU < plans.jsonl > reports.jsonl

A plan is {world_size, env{}, args[]}; a report is what `megatron_check.py --json` prints, with the
process groups named in GROUPS. Importing Megatron takes a second, judging a plan a tenth of it.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import sys

GROUPS = ("TENSOR_MODEL_PARALLEL_GROUP", "CONTEXT_PARALLEL_GROUP", "DATA_PARALLEL_GROUP",
          "DATA_PARALLEL_GROUP_WITH_CP", "PIPELINE_MODEL_PARALLEL_GROUP",
          "EXPERT_MODEL_PARALLEL_GROUP", "EXPERT_DATA_PARALLEL_GROUP",
          "EXPERT_TENSOR_PARALLEL_GROUP")
# What a job sees comes from its plan alone.
FOREIGN = ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_CPU_OFFLOAD_V1", "NCCL_GRAPH_REGISTER",
           "PYTORCH_CUDA_ALLOC_CONF", "NCCL_PROTO", "CUDA_GRAPHS_USE_NODE_PRIORITY",
           "NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN",
           "NVTE_APPLY_QK_LAYER_SCALING", "NVTE_CUTEDSL_FUSED_GROUPED_MLP")
WARM = ("megatron.training.arguments", "megatron.training.training",
        "megatron.training.theoretical_memory_usage", "megatron.core.models.gpt.gpt_layer_specs",
        "megatron.core.pipeline_parallel.schedules", "megatron.core.num_microbatches_calculator",
        "megatron.core.parallel_state")


def load_checker(path):
    spec = importlib.util.spec_from_file_location("megatron_check", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["megatron_check"] = module
    spec.loader.exec_module(module)
    return module


class Rows(list):
    def tolist(self):
        return self


def rearrange(flat, pattern, l, s, u):
    """einops.rearrange as create_hierarchical_groups asks for it."""
    assert pattern == "(l s u) -> (l u) s", pattern
    return Rows([flat[(i * s + k) * u + j] for k in range(s)] for i in range(l) for j in range(u))


def judge(checker, root, plan):
    os.environ.update({name: str(value) for name, value in plan.get("env", {}).items()})
    report = checker.check(root, [str(word) for word in plan["args"]], plan["world_size"], 0,
                           GROUPS)
    verdict = "REJECT" if not report.ok else ("INTERNAL" if report.internal else "ACCEPT")
    for name in ("args", "groups_of_rank", "megatron_numbers_log", "stubs"):
        report.info.pop(name, None)
    return {"verdict": verdict, "stages": report.stages, **report.info}


def main():
    checker_path, root, gpu = sys.argv[1:4]
    for name in FOREIGN:
        os.environ.pop(name, None)
    checker = load_checker(checker_path)
    checker.OPT.sm = checker.GPU_SM[gpu]
    sys.path.insert(0, os.path.realpath(root))
    os.environ["NO_VCS_VERSION"] = "1"
    # Megatron's ranks are the plan's; nothing here is one.
    os.environ.update(WORLD_SIZE="1", RANK="0", LOCAL_RANK="0")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        checker.install_stubs()
        # The checker's stand-ins for these return nothing, which hierarchical groups are made of.
        importlib.import_module("einops").rearrange = rearrange
        importlib.import_module("numpy").array = list
        for name in WARM:
            importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            with contextlib.redirect_stderr(io.StringIO()):
                report = judge(checker, root, json.loads(line))
            print(json.dumps(report, default=str), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            print(json.dumps({"verdict": "INTERNAL", "stages": [
                {"stage": "fork", "status": "internal", "message": f"ended with {status}"}]}),
                  flush=True)


if __name__ == "__main__":
    main()
