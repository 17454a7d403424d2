// SPDX-License-Identifier: Apache-2.0
// World, batch, tensor, context and expert parallelism.

#include <fmt/format.h>

#include "launch/findings.h"
#include "launch/layer_list.h"

namespace trifold::launch {
namespace {

std::string up_to(std::int64_t value, std::int64_t step) {
  return std::to_string((value + step - 1) / step * step);
}

void check_world(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const std::int64_t dense = s.tp * s.pp * s.cp * s.gtp, expert = s.etp * s.ep * s.pp * s.egtp;
  if (s.gpus % dense != 0)
    out.reject("GRID-01",
               fmt::format("{} GPUs, tp {} x cp {} x pp {} = {}", s.gpus, s.tp, s.cp, s.pp, dense),
               "use " + up_to(s.gpus, dense) + " GPUs, or smaller tp, cp or pp");
  if (s.gpus % expert != 0)
    out.reject(
        "GRID-02",
        fmt::format("{} GPUs, etp {} x ep {} x pp {} = {}", s.gpus, s.etp, s.ep, s.pp, expert),
        "use " + up_to(s.gpus, expert) + " GPUs, or smaller etp, ep or pp");
  if (s.has("--use-tp-pp-dp-mapping") && s.pp > 1 && dense != expert)
    out.reject("GRID-04", fmt::format("dp {} and edp {}", s.gpus / dense, s.gpus / expert));
  const std::int64_t instances = s.integer("--num-distributed-optimizer-instances", 1);
  if (instances > 1 && s.dp * s.cp % instances != 0)
    out.reject("GRID-06", fmt::format("dp x cp = {}, {} instances", s.dp * s.cp, instances));
  if (instances > 1 && (s.gtp > 1 || s.egtp > 1)) out.reject("GRID-07");
  const std::int64_t shards = s.integer("--tensor-parallel-num-weight-shards", s.tp);
  const std::int64_t expert_shards = s.integer("--expert-tensor-parallel-num-weight-shards", s.etp);
  if (shards < s.tp || shards % s.tp != 0 || expert_shards < s.etp || expert_shards % s.etp != 0)
    out.reject("GRID-08");
  if (s.has("--sharp-enabled-group") && !s.has("--use-sharp")) out.reject("GRID-13");
  if (!s.has("--expert-tensor-parallel-size") && s.moe && s.tp > 1)
    out.warn("GRID-05", fmt::format("etp becomes {}", s.tp));
}

void check_batch(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.has("--step-batch-size-schedule") && s.has("--global-batch-size")) out.reject("GRID-11");
  const std::int64_t lot = s.micro_batch * s.dp * s.gtp;
  if (lot <= 0) return;
  if (s.global_batch % lot != 0 || s.global_batch == 0)
    out.reject("GRID-09",
               fmt::format("global batch {}, micro batch {} x dp {} = {}", s.global_batch,
                           s.micro_batch, s.dp * s.gtp, lot),
               "--global-batch-size " + up_to(s.global_batch, lot));
  const std::int64_t eval_global = s.integer("--eval-global-batch-size", s.global_batch);
  const std::int64_t eval_lot = s.integer("--eval-micro-batch-size", s.micro_batch) * s.dp * s.gtp;
  if (eval_lot > 0 && eval_global % eval_lot != 0)
    out.reject("GRID-10",
               fmt::format("evaluation batch {}, {} a micro-batch", eval_global, eval_lot),
               "--global-batch-size " + up_to(eval_global, eval_lot));
}

void check_tensor(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const std::int64_t heads = s.integer("--num-attention-heads");
  const std::int64_t groups =
      s.has("--group-query-attention") ? s.integer("--num-query-groups", 1) : heads;
  if (heads % s.tp != 0) out.reject("TP-01", fmt::format("{} heads, tp {}", heads, s.tp));
  if (groups > 0 && groups % s.tp != 0 && s.tp % groups != 0)
    out.reject("TP-02", fmt::format("{} groups, tp {}", groups, s.tp));
  if (groups > 0 && heads % groups != 0)
    out.reject("TP-10", fmt::format("{} heads, {} groups", heads, groups));
  if (s.moe && s.tp > 1 && !s.sequence_parallel) out.reject("TP-05");
  if (s.has("--sequence-parallel") && s.tp == 1) out.warn("TP-03");
  if (s.has("--tp-comm-overlap") && !s.sequence_parallel) out.reject("TP-07");
  const bool needs_one = (s.tp > 1 || s.cp > 1) && q.options.arch != hardware::GpuArch::blackwell;
  const bool excused = s.fsdp || s.has("--use-torch-fsdp2") || s.ep_overlap;
  if (needs_one && !excused && q.variable("CUDA_DEVICE_MAX_CONNECTIONS") != "1")
    out.reject("TP-08", "it is '" + q.variable("CUDA_DEVICE_MAX_CONNECTIONS") + "'");
  if (!s.has("--kv-channels") && heads > 0 && s.integer("--hidden-size") % heads != 0)
    out.reject("TP-09");
}

// What Transformer Engine refuses in the first forward. The version told, else the one that this
// Megatron pins (2.14 up to 0.17, 2.16 and later from 0.18 on).
void check_exchange(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.cp == 1) return;
  if (s.text("--transformer-impl") == "local") out.reject("TRI-LOCAL", fmt::format("cp {}", s.cp));
  std::vector<std::string> kinds = s.list("--cp-comm-type");
  if (kinds.empty()) kinds = {"p2p"};
  const bool offsets = s.text("--softmax-type") != "vanilla";
  const bool windows = s.has("--window-size");
  const std::string& te = q.options.transformer_engine;
  const bool old = te.empty() ? q.options.version <= MegatronVersion::v0_17
                              : version_number(te) < version_number("2.16.0");
  for (const std::string& kind : kinds) {
    const bool whole = kind == "a2a" || kind == "all_gather";
    if ((offsets && kind != "a2a") || (windows && !whole) || (s.mla && whole && old)) {
      out.reject("TRI-CP", fmt::format("--cp-comm-type {} with {}", kind,
                                       offsets   ? "--softmax-type"
                                       : windows ? "--window-size"
                                                 : "MLA before Transformer Engine 2.16"));
      return;
    }
  }
}

void check_context(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const std::int64_t sequence = s.integer("--seq-length");
  if (s.cp > 1 && sequence % (2 * s.cp) != 0)
    out.reject("CP-01", fmt::format("sequence {}, cp {}", sequence, s.cp),
               "--seq-length " + up_to(sequence, 2 * s.cp));
  const std::vector<std::string> levels = s.list("--hierarchical-context-parallel-sizes");
  std::int64_t product = 1;
  for (const std::string& level : levels) product *= std::strtoll(level.c_str(), nullptr, 10);
  if (!levels.empty() && product != s.cp)
    out.reject("CP-02", fmt::format("product {}, cp {}", product, s.cp));
  if (s.lists("--cp-comm-type", "a2a+p2p") && levels.empty()) out.reject("CP-03");
  const std::size_t kinds = s.list("--cp-comm-type").size();
  if (s.cp > 1 && kinds > 1 && static_cast<std::int64_t>(kinds) != s.layers)
    out.reject("CP-04", fmt::format("{} given, {} layers", kinds, s.layers));
  if (s.has("--hybrid-context-parallel") &&
      (s.pp > 1 || s.has("--enable-cuda-graph") || s.fsdp || !s.has("--calculate-per-token-loss")))
    out.reject("CP-05");
  if (s.has("--experimental-attention-variant") && s.has("--linear-num-key-heads") &&
      (s.integer("--linear-num-key-heads") % (s.tp * s.cp) != 0 ||
       s.integer("--linear-num-value-heads") % (s.tp * s.cp) != 0))
    out.reject("CP-06");
  if (s.text("--experimental-attention-variant") == "dsa" && s.cp > 1 &&
      !s.lists("--cp-comm-type", "allgather") && !s.lists("--cp-comm-type", "all_gather"))
    out.reject("CP-07");
  const std::int64_t positions = s.integer("--max-position-embeddings");
  if (s.has("--max-position-embeddings") && positions < sequence)
    out.reject("SEQ-01", fmt::format("positions {}, sequence {}", positions, sequence),
               fmt::format("--max-position-embeddings {}", sequence));
}

void check_experts(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.ep > 1 && !s.moe) out.reject("EP-02");
  if (s.moe && s.experts % s.ep != 0)
    out.reject("EP-01", fmt::format("{} experts, ep {}", s.experts, s.ep));
  const bool biased = !s.has("--disable-bias-linear");
  if (s.moe && biased && s.etp > 1) out.reject("EP-03", fmt::format("etp {}", s.etp));
  if (biased && s.has("--moe-shared-expert-intermediate-size")) out.reject("EP-04");
  const std::string frequency = s.text("--moe-layer-freq");
  if (s.moe && !frequency.empty()) {
    const Result<LayerList> list = parse_layer_list(frequency, "--moe-layer-freq");
    if (!list)
      out.reject("EP-05", "'" + frequency + "' is no integer and no list");
    else if (list->is_list && static_cast<std::int64_t>(list->list.size()) != s.layers)
      out.reject("EP-05", fmt::format("{} entries, {} layers", list->list.size(), s.layers));
  }
  if (s.has("--moe-latent-size") && (!s.moe || s.integer("--moe-latent-size") <= 0))
    out.reject("EP-07");
  if (s.has("--moe-latent-size") && s.has("--moe-shared-expert-overlap")) out.reject("EP-08");
}

}  // namespace

void check_grid(const Question& q, Findings& out) {
  if (q.options.gpus > 0) {
    check_world(q, out);
    check_batch(q, out);
  } else {
    out.warn("ARG-06");
  }
  check_tensor(q, out);
  check_context(q, out);
  check_exchange(q, out);
  check_experts(q, out);
}

}  // namespace trifold::launch
