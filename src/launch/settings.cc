// SPDX-License-Identifier: Apache-2.0
#include "launch/settings.h"

#include <algorithm>
#include <cstdlib>

#include "layout/pipeline.h"

namespace trifold::launch {

bool contains(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Settings::Settings(const Arguments& arguments, std::int64_t world)
    : gpus(world), arguments_(&arguments) {
  read_parallel();
  read_pipeline();
  read_techniques();
}

std::string Settings::text(std::string_view flag) const {
  const Flag* known = find_flag(flag);
  return arguments_->value(flag, known != nullptr ? known->fallback : "");
}

std::int64_t Settings::integer(std::string_view flag, std::int64_t otherwise) const {
  const std::string value = text(flag);
  return value.empty() ? otherwise : std::strtoll(value.c_str(), nullptr, 10);
}

double Settings::real(std::string_view flag, double otherwise) const {
  const std::string value = text(flag);
  return value.empty() ? otherwise : std::strtod(value.c_str(), nullptr);
}

std::vector<std::string> Settings::list(std::string_view flag) const {
  const Argument* argument = arguments_->find(flag);
  return argument != nullptr ? argument->values : std::vector<std::string>();
}

bool Settings::lists(std::string_view flag, std::string_view value) const {
  const Argument* argument = arguments_->find(flag);
  return argument != nullptr && contains(argument->values, value);
}

void Settings::read_parallel() {
  tp = std::max<std::int64_t>(1, integer("--tensor-model-parallel-size", 1));
  cp = std::max<std::int64_t>(1, integer("--context-parallel-size", 1));
  pp = std::max<std::int64_t>(1, integer("--pipeline-model-parallel-size", 1));
  ep = std::max<std::int64_t>(1, integer("--expert-model-parallel-size", 1));
  etp = std::max<std::int64_t>(1, integer("--expert-tensor-parallel-size", tp));
  gtp = std::max<std::int64_t>(1, integer("--tensor-parallel-num-weight-shards", tp) / tp);
  egtp =
      std::max<std::int64_t>(1, integer("--expert-tensor-parallel-num-weight-shards", etp) / etp);
  dp = std::max<std::int64_t>(1, gpus / (tp * cp * pp * gtp));
  layers = integer("--num-layers", integer("--encoder-num-layers"));
  mtp = integer("--mtp-num-layers");
  experts = integer("--num-experts");
  moe = experts > 0;
  mla = has("--multi-latent-attention");
  micro_batch = integer("--micro-batch-size");
  global_batch = integer("--global-batch-size", micro_batch * dp);
  microbatches = micro_batch > 0 ? global_batch / (micro_batch * dp * gtp) : 0;
  sequence_parallel = has("--sequence-parallel") && tp > 1;
}

void Settings::read_pipeline() {
  const std::string cut = text("--pipeline-model-parallel-layout");
  const std::int64_t per_chunk = integer("--num-layers-per-virtual-pipeline-stage");
  if (!cut.empty()) {
    const Result<std::vector<std::string>> stages = layout::parse_pipeline_layout(cut);
    if (stages) vpp = static_cast<std::int64_t>(stages->size()) / pp;
  } else if (has("--num-virtual-stages-per-pipeline-rank")) {
    vpp = integer("--num-virtual-stages-per-pipeline-rank");
  } else if (per_chunk > 0) {
    const std::int64_t counted = layers +
                                 (has("--account-for-embedding-in-pipeline-split") ? 1 : 0) +
                                 (has("--account-for-loss-in-pipeline-split") ? 1 : 0);
    vpp = counted / pp / per_chunk;
  }
  if (vpp <= 1) vpp = 0;
}

void Settings::read_techniques() {
  fsdp = has("--use-megatron-fsdp");
  optimizer = text("--optimizer");
  distributed_optimizer =
      has("--use-distributed-optimizer") || (fsdp && integer("--megatron-fsdp-version", 1) == 1);
  fp8 = has("--fp8-format");
  fp4 = has("--fp4-format");
  ep_overlap = has("--overlap-moe-expert-parallel-comm");
  const std::string granularity = text("--recompute-granularity");
  full_recompute = granularity == "full";
  selective = granularity == "selective" || has("--recompute-activations") ||
              (has("--moe-layer-recompute") && !full_recompute);
  recompute = list("--recompute-modules");
  if (recompute.empty()) recompute = {"core_attn"};
  if (has("--moe-layer-recompute")) recompute.emplace_back("moe");
  graph_impl = text("--cuda-graph-impl");
  if (has("--enable-cuda-graph")) graph_impl = "local";
  if (has("--external-cuda-graph")) graph_impl = "transformer_engine";
  graph_modules = list(has("--cuda-graph-modules") ? "--cuda-graph-modules" : "--cuda-graph-scope");
  if (graph_modules == std::vector<std::string>{"full"}) graph_modules.clear();
  if (contains(graph_modules, "full_iteration")) {
    graph_impl = "full_iteration";
    graph_modules.clear();
  }
  dispatcher = text("--moe-token-dispatcher-type");
  if (dispatcher == "flex")
    backend = has("--moe-enable-deepep") ? "deepep" : text("--moe-flex-dispatcher-backend");
}

}  // namespace trifold::launch
