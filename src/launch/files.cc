// SPDX-License-Identifier: Apache-2.0
#include "launch/files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/json.h"
#include "layout/rank_grid.h"

namespace trifold::launch {
namespace {

std::string plan_id(const job::Job& job, const ScriptOptions& options) {
  return options.plan_id.empty() ? job::job_id(job) : options.plan_id;
}

int nodes(const job::Job& job) {
  const int per_node = job.cluster.gpus_per_node;
  return (job.gpus + per_node - 1) / per_node;
}
int per_node(const job::Job& job) { return std::min(job.gpus, job.cluster.gpus_per_node); }

std::string header(const job::Job& job, const LaunchPlan& plan, const ScriptOptions& options) {
  const layout::Layout& l = job.layout;
  std::string text = fmt::format(
      "# trifold plan {}: {} on {} x {}, Megatron {}\n"
      "# tp {} cp {} dp {} pp {} vpp {} ep {} etp {} edp {}, global batch {}, micro batch {}, "
      "sequence {}\n",
      plan_id(job, options), job.model.name, job.gpus, job.cluster.name,
      token_name(kMegatronVersions, plan.version), l.tp, l.sequence_ranks(), job.dp(), l.pp, l.vpp,
      l.ep, l.etp, job.edp(), job.training.global_batch_size, job.training.micro_batch_size,
      job.training.sequence_length);
  if (options.step_time_s > 0)
    text += fmt::format("# predicted step time {:.3f} s (80 % interval {:.3f} to {:.3f} s)\n",
                        options.step_time_s, options.low_s, options.high_s);
  for (const std::string& note : plan.notes) text += "# note: " + note + "\n";
  return text;
}

// Arguments that the script's own data and checkpoint switches replace.
bool is_data(const std::string& flag) {
  return flag == "--mock-data" || flag == "--tokenizer-type" || flag == "--vocab-size";
}

std::string array_lines(const LaunchPlan& plan, bool data) {
  std::string text;
  for (const Argument& argument : plan.arguments.items) {
    if (is_data(argument.flag) != data) continue;
    text += "  " + argument.flag;
    for (const std::string& value : argument.values) text += " " + shell_quote(value);
    text += "\n";
  }
  return text;
}

std::string yaml_quote(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Slurm: so many nodes of one NVLink domain are kept together. 0: a node is a domain.
int segment(const job::Job& job) {
  const hardware::Cluster& c = job.cluster;
  if (c.domain_gpus <= c.gpus_per_node) return 0;
  return std::min(nodes(job), c.gpus_used_per_domain / c.gpus_per_node);
}

std::string replica(const job::Job& job, const std::string& name, const char* role, int replicas) {
  return fmt::format(
      "    {}:\n"
      "      replicas: {}\n"
      "      restartPolicy: OnFailure\n"
      "      template:\n"
      "        spec:\n"
      "          containers:\n"
      "            - name: pytorch\n"
      "              image: IMAGE  # placeholder: an image with Megatron-LM and its libraries\n"
      "              command: [\"bash\", \"-c\"]\n"
      "              args: [{}]\n"
      "              env:\n"
      "                - name: NNODES\n"
      "                  value: \"{}\"\n"
      "              resources:\n"
      "                limits:\n"
      "                  nvidia.com/gpu: {}\n"
      "              volumeMounts:\n"
      "                - name: launch\n"
      "                  mountPath: /launch\n"
      "                - name: shared-memory\n"
      "                  mountPath: /dev/shm\n"
      "          volumes:\n"
      "            - name: launch\n"
      "              configMap:\n"
      "                name: {}\n"
      "            - name: shared-memory\n"
      "              emptyDir:\n"
      "                medium: Memory\n",
      role, replicas,
      yaml_quote("export NODE_RANK=\"${RANK}\"; unset RANK WORLD_SIZE; exec bash "
                 "/launch/launch.sh"),
      nodes(job), per_node(job), name);
}

// Flags whose Bridge field is not model.<the name that Megatron's parser gives it>.
struct BridgeKey {
  const char* flag;
  const char* key;
};
constexpr BridgeKey kBridgeKeys[] = {
    {"--micro-batch-size", "train.micro_batch_size"},
    {"--global-batch-size", "train.global_batch_size"},
    {"--train-iters", "train.train_iters"},
    {"--manual-gc", "train.manual_gc"},
    {"--manual-gc-interval", "train.manual_gc_interval"},
    {"--seq-length", "model.seq_length"},
    {"--num-experts", "model.num_moe_experts"},
    {"--decoder-first-pipeline-num-layers", "model.num_layers_in_first_pipeline_stage"},
    {"--decoder-last-pipeline-num-layers", "model.num_layers_in_last_pipeline_stage"},
    {"--num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size"},
    {"--fp8-format", "mixed_precision.fp8"},
    {"--fp8-recipe", "mixed_precision.fp8_recipe"},
    {"--fp8-param-gather", "mixed_precision.fp8_param_gather"},
    {"--reuse-grad-buf-for-mxfp8-param-ag", "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag"},
    {"--grad-reduce-in-bf16", "ddp.grad_reduce_in_fp32"},
    {"--overlap-grad-reduce", "ddp.overlap_grad_reduce"},
    {"--overlap-param-gather", "ddp.overlap_param_gather"},
    {"--use-distributed-optimizer", "ddp.use_distributed_optimizer"},
    {"--use-megatron-fsdp", "ddp.use_megatron_fsdp"},
    {"--data-parallel-sharding-strategy", "ddp.data_parallel_sharding_strategy"},
    {"--optimizer", "optimizer.optimizer"},
    {"--use-precision-aware-optimizer", "optimizer.use_precision_aware_optimizer"},
    {"--main-params-dtype", "optimizer.main_params_dtype"},
    {"--main-grads-dtype", "optimizer.main_grads_dtype"},
    {"--exp-avg-dtype", "optimizer.exp_avg_dtype"},
    {"--exp-avg-sq-dtype", "optimizer.exp_avg_sq_dtype"},
    {"--optimizer-cpu-offload", "optimizer.optimizer_cpu_offload"},
    {"--lr", "optimizer.lr"},
    {"--min-lr", "optimizer.min_lr"},
    {"--weight-decay", "optimizer.weight_decay"},
    {"--clip-grad", "optimizer.clip_grad"},
    {"--adam-beta1", "optimizer.adam_beta1"},
    {"--adam-beta2", "optimizer.adam_beta2"},
    {"--log-interval", "logger.log_interval"},
};

// The recipe brings data, tokenizer and housekeeping of its own.
bool left_to_recipe(std::string_view flag) {
  static constexpr std::string_view kLeft[] = {"--mock-data",
                                               "--tokenizer-type",
                                               "--bf16",
                                               "--log-throughput",
                                               "--eval-iters",
                                               "--lr-decay-style",
                                               "--distributed-timeout-minutes",
                                               "--no-check-for-nan-in-loss-and-grad",
                                               "--ckpt-format",
                                               "--vocab-size"};
  return std::find(std::begin(kLeft), std::end(kLeft), flag) != std::end(kLeft);
}

std::string bridge_value(const Argument& argument, const Flag& flag) {
  if (flag.kind == FlagKind::set_true) return "true";
  if (flag.kind == FlagKind::set_false) return "false";
  if (argument.values.size() == 1 && flag.arity == 1) return argument.values[0];
  std::string list = "[";
  for (const std::string& value : argument.values) list += (list.size() > 1 ? "," : "") + value;
  return list + "]";
}

}  // namespace

std::string megatron_args(const LaunchPlan& plan) { return print_arguments(plan.arguments); }

std::string launch_script(const job::Job& job, const LaunchPlan& plan,
                          const ScriptOptions& options) {
  std::string text = "#!/bin/bash\n" + header(job, plan, options);
  text += fmt::format(
      "# Run on every node: NODE_RANK=0..{0} MASTER_ADDR=first-host bash launch.sh\n"
      "set -euo pipefail\n\n"
      "# Placeholders\n"
      "export MEGATRON_PATH=\"${{MEGATRON_PATH:-/opt/megatron-lm}}\"\n"
      "export DATA_PATH=\"${{DATA_PATH:-}}\"              # empty: mock data\n"
      "export TOKENIZER_MODEL=\"${{TOKENIZER_MODEL:-}}\"  # with DATA_PATH: a Hugging Face "
      "tokenizer\n"
      "export CHECKPOINT_PATH=\"${{CHECKPOINT_PATH:-}}\"  # empty: nothing is saved or loaded\n"
      "export NNODES=\"${{NNODES:-{1}}}\"\n"
      "export GPUS_PER_NODE=\"${{GPUS_PER_NODE:-{2}}}\"\n"
      "export NODE_RANK=\"${{NODE_RANK:-0}}\"\n"
      "export MASTER_ADDR=\"${{MASTER_ADDR:-localhost}}\"\n"
      "export MASTER_PORT=\"${{MASTER_PORT:-29500}}\"\n\n",
      nodes(job) - 1, nodes(job), per_node(job));
  for (const auto& [name, value] : plan.environment)
    text += "export " + name + "=" + shell_quote(value) + "\n";
  text += "\nDATA_ARGS=(\n" + array_lines(plan, true) + ")\n";
  text +=
      "if [[ -n \"${DATA_PATH}\" ]]; then\n"
      "  DATA_ARGS=(--data-path \"${DATA_PATH}\" --split '99,1,0' --tokenizer-type "
      "HuggingFaceTokenizer --tokenizer-model \"${TOKENIZER_MODEL}\")\n"
      "fi\n"
      "CHECKPOINT_ARGS=()\n"
      "if [[ -n \"${CHECKPOINT_PATH}\" ]]; then\n"
      "  CHECKPOINT_ARGS=(--save \"${CHECKPOINT_PATH}\" --load \"${CHECKPOINT_PATH}\" "
      "--save-interval 1000)\n"
      "fi\n";
  text += "ARGS=(\n" + array_lines(plan, false) + ")\n";
  text +=
      "# shellcheck disable=SC2206  # EXTRA_ARGS is cut at blanks\n"
      "EXTRA=(${EXTRA_ARGS:-})\n\n"
      "exec torchrun --nnodes \"${NNODES}\" --nproc-per-node \"${GPUS_PER_NODE}\" \\\n"
      "  --node-rank \"${NODE_RANK}\" --master-addr \"${MASTER_ADDR}\" --master-port "
      "\"${MASTER_PORT}\" \\\n"
      "  \"${MEGATRON_PATH}/pretrain_gpt.py\" \"${ARGS[@]}\" \"${DATA_ARGS[@]}\" "
      "\"${CHECKPOINT_ARGS[@]}\" \"${EXTRA[@]}\"\n";
  return text;
}

std::string slurm_script(const job::Job& job, const LaunchPlan& plan,
                         const ScriptOptions& options) {
  std::string text = fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name=trifold-{}\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node=1\n"
      "#SBATCH --gpus-per-node={}\n"
      "#SBATCH --exclusive\n"
      "#SBATCH --time=04:00:00\n"
      "#SBATCH --output=trifold-%j.log\n",
      plan_id(job, options), nodes(job), per_node(job));
  if (segment(job) > 0) text += fmt::format("#SBATCH --segment={}\n", segment(job));
  text +=
      "# Placeholders (remove one # each)\n"
      "##SBATCH --account=ACCOUNT\n"
      "##SBATCH --partition=PARTITION\n";
  text += header(job, plan, options);
  text +=
      "# Submit from the directory of this file: sbatch submit.sbatch\n"
      "set -euo pipefail\n\n"
      "MASTER_ADDR=\"$(scontrol show hostnames \"${SLURM_JOB_NODELIST}\" | head -n 1)\"\n"
      "export MASTER_ADDR\n"
      "export MASTER_PORT=\"${MASTER_PORT:-29500}\"\n"
      "export NNODES=\"${SLURM_JOB_NUM_NODES}\"\n"
      "export LAUNCH_DIR=\"${SLURM_SUBMIT_DIR}\"\n\n"
      "# One launcher a node; the node's place in the job is its place in the rank order.\n"
      "# shellcheck disable=SC2016  # expanded on the node\n"
      "srun --ntasks-per-node=1 bash -c 'NODE_RANK=\"${SLURM_NODEID}\" exec bash "
      "\"${LAUNCH_DIR}/launch.sh\"'\n";
  return text;
}

std::string pytorch_job(const job::Job& job, const LaunchPlan& plan, const ScriptOptions& options) {
  const std::string name = "trifold-" + plan_id(job, options);
  std::string text = header(job, plan, options);
  text += fmt::format(
      "# kubectl create configmap {0} --from-file=launch.sh && kubectl apply -f pytorchjob.yaml\n"
      "apiVersion: kubeflow.org/v1\n"
      "kind: PyTorchJob\n"
      "metadata:\n"
      "  name: {0}\n"
      "spec:\n"
      "  nprocPerNode: \"{1}\"\n"
      "  pytorchReplicaSpecs:\n",
      name, per_node(job));
  text += replica(job, name, "Master", 1);
  if (nodes(job) > 1) text += replica(job, name, "Worker", nodes(job) - 1);
  return text;
}

std::string bridge_overrides(const job::Job& job, const LaunchPlan& plan,
                             const ScriptOptions& options) {
  std::string text = header(job, plan, options);
  text += "# Megatron-Bridge: append these to a recipe's command line\n";
  for (const Argument& argument : plan.arguments.items) {
    const Flag* flag = find_flag(argument.flag);
    if (flag == nullptr || left_to_recipe(argument.flag)) continue;
    std::string key = std::string("model.") + flag->destination;
    for (const BridgeKey& entry : kBridgeKeys)
      if (argument.flag == entry.flag) key = entry.key;
    std::string value = bridge_value(argument, *flag);
    if (argument.flag == "--grad-reduce-in-bf16") value = "false";
    text += shell_quote(key + "=" + value) + "\n";
  }
  if (job.techniques.has(job::Fusion::fp8_attention))
    text += "model.fp8_dot_product_attention=true\n";
  return text;
}

std::string rank_map(const job::Job& job, const ScriptOptions& options) {
  const layout::RankGrid grid(job.layout, job.gpus);
  std::string text = fmt::format(
      "{{\n  \"schema\": \"trifold.ranks/1\",\n  \"plan\": \"{}\",\n  \"gpus\": {},\n"
      "  \"columns\": [\"rank\", \"host\", \"slot\", \"tp\", \"cp\", \"dp\", \"pp\", \"etp\", "
      "\"ep\", \"edp\"],\n  \"ranks\": [\n",
      plan_id(job, options), job.gpus);
  const int slots = per_node(job);
  for (int rank = 0; rank < job.gpus; ++rank) {
    const layout::Coordinates c = grid.coordinates(RankId(rank));
    text += fmt::format("    [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}]{}\n", rank, rank / slots,
                        rank % slots, c.tp, c.cp, c.dp, c.pp, c.etp, c.ep, c.edp,
                        rank + 1 < job.gpus ? "," : "");
  }
  return text + "  ]\n}\n";
}

std::map<std::string, std::string> launch_files(const job::Job& job, const LaunchPlan& plan,
                                                const ScriptOptions& options) {
  return {{"megatron.args", megatron_args(plan)},
          {"launch.sh", launch_script(job, plan, options)},
          {"submit.sbatch", slurm_script(job, plan, options)},
          {"pytorchjob.yaml", pytorch_job(job, plan, options)},
          {"bridge_overrides.txt", bridge_overrides(job, plan, options)},
          {"ranks.json", rank_map(job, options)}};
}

Result<void> write_launch_directory(const std::string& directory,
                                    const std::map<std::string, std::string>& files) {
  namespace fs = std::filesystem;
  const auto failed = [&](const std::string& what, const std::error_code& ec) {
    return Error{ErrorCode::input, what + ": " + ec.message(), directory, {}};
  };
  std::error_code ec;
  fs::create_directories(directory, ec);
  if (ec) return failed("cannot create the directory", ec);
  const auto staged = [&](const std::string& name) {
    return fs::path(directory) / ("." + name + ".new");
  };
  for (const auto& [name, content] : files) TRIFOLD_TRY(write_text(staged(name).string(), content));
  for (const auto& [name, content] : files) {
    if (name == "launch.sh")
      fs::permissions(staged(name), fs::perms::owner_exec | fs::perms::group_exec,
                      fs::perm_options::add, ec);
    fs::rename(staged(name), fs::path(directory) / name, ec);
    if (ec) return failed("cannot put " + name + " in place", ec);
  }
  return {};
}

}  // namespace trifold::launch
