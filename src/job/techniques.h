// SPDX-License-Identifier: Apache-2.0
#pragma once

// Techniques: everything that changes how a layout runs without changing what it computes. Tokens
// as in shared/data/observations/README.md.

#include <cstdint>
#include <string>
#include <vector>

#include "base/tokens.h"
#include "hardware/grouped_kernel.h"
#include "job/training.h"

namespace trifold::job {

enum class Dispatcher : std::uint8_t { alltoall, allgather, deepep, hybridep };
inline constexpr Token<Dispatcher> kDispatchers[] = {{Dispatcher::alltoall, "alltoall"},
                                                     {Dispatcher::allgather, "allgather"},
                                                     {Dispatcher::deepep, "deepep"},
                                                     {Dispatcher::hybridep, "hybridep"}};
constexpr bool is_flex(Dispatcher d) {
  return d == Dispatcher::deepep || d == Dispatcher::hybridep;
}

enum class Overlap : std::uint8_t {
  grad_reduce,
  param_gather,
  param_gather_with_optimizer,
  pipeline_p2p,
  ep_a2a,
  delay_wgrad,
  early_attn_release,  // merged: A.bwd before the other unit's X.fwd
  tp_comm,
  fsdp,
  shared_expert,
  inter_op,
  intra_op
};
inline constexpr Token<Overlap> kOverlaps[] = {
    {Overlap::grad_reduce, "grad_reduce"},
    {Overlap::param_gather, "param_gather"},
    {Overlap::param_gather_with_optimizer, "param_gather_with_optimizer"},
    {Overlap::pipeline_p2p, "pipeline_p2p"},
    {Overlap::ep_a2a, "ep_a2a"},
    {Overlap::delay_wgrad, "delay_wgrad"},
    {Overlap::early_attn_release, "early_attn_release"},
    {Overlap::tp_comm, "tp_comm"},
    {Overlap::fsdp, "fsdp"},
    {Overlap::shared_expert, "shared_expert"},
    {Overlap::inter_op, "inter_op"},
    {Overlap::intra_op, "intra_op"}};

enum class Recompute : std::uint8_t {
  core_attn,
  moe_act,
  layernorm,
  mla_up_proj,
  mlp,
  moe,
  shared_experts,
  full
};
inline constexpr Token<Recompute> kRecomputes[] = {{Recompute::core_attn, "core_attn"},
                                                   {Recompute::moe_act, "moe_act"},
                                                   {Recompute::layernorm, "layernorm"},
                                                   {Recompute::mla_up_proj, "mla_up_proj"},
                                                   {Recompute::mlp, "mlp"},
                                                   {Recompute::moe, "moe"},
                                                   {Recompute::shared_experts, "shared_experts"},
                                                   {Recompute::full, "full"}};

enum class GraphScope : std::uint8_t {
  attn,
  moe_router,
  moe_preprocess,
  moe,
  mlp,
  mamba,
  layer,
  full_iteration
};
inline constexpr Token<GraphScope> kGraphScopes[] = {
    {GraphScope::attn, "attn"},
    {GraphScope::moe_router, "moe_router"},
    {GraphScope::moe_preprocess, "moe_preprocess"},
    {GraphScope::moe, "moe"},
    {GraphScope::mlp, "mlp"},
    {GraphScope::mamba, "mamba"},
    {GraphScope::layer, "layer"},
    {GraphScope::full_iteration, "full_iteration"}};

enum class Fusion : std::uint8_t {
  router,
  permute,
  cross_entropy,
  grouped_mlp,
  fp8_attention,
  fp8_output_projection
};
inline constexpr Token<Fusion> kFusions[] = {
    {Fusion::router, "router"},
    {Fusion::permute, "permute"},
    {Fusion::cross_entropy, "cross_entropy"},
    {Fusion::grouped_mlp, "grouped_mlp"},
    {Fusion::fp8_attention, "fp8_attention"},
    {Fusion::fp8_output_projection, "fp8_output_projection"}};

enum class OffloadModule : std::uint8_t {
  core_attn,
  attn_proj,
  expert_fc1,
  moe_act,
  fused_group_mlp,
  attn_norm,
  mlp_norm,
  qkv_linear
};
inline constexpr Token<OffloadModule> kOffloadModules[] = {
    {OffloadModule::core_attn, "core_attn"},
    {OffloadModule::attn_proj, "attn_proj"},
    {OffloadModule::expert_fc1, "expert_fc1"},
    {OffloadModule::moe_act, "moe_act"},
    {OffloadModule::fused_group_mlp, "fused_group_mlp"},
    {OffloadModule::attn_norm, "attn_norm"},
    {OffloadModule::mlp_norm, "mlp_norm"},
    {OffloadModule::qkv_linear, "qkv_linear"}};

enum class OptimizerOffload : std::uint8_t { none, cpu_adam, states_parked_on_host };
inline constexpr Token<OptimizerOffload> kOptimizerOffloads[] = {
    {OptimizerOffload::none, "none"},
    {OptimizerOffload::cpu_adam, "cpu_adam"},
    {OptimizerOffload::states_parked_on_host, "states_parked_on_host"}};

struct Offload {
  EnumSet<OffloadModule> activation_modules;  // fine-grained
  int activation_layers = 0;                  // whole layers
  OptimizerOffload optimizer = OptimizerOffload::none;
  double fraction = 1.0;  // of eligible activation groups
  bool activations() const { return !activation_modules.empty() || activation_layers > 0; }
  bool operator==(const Offload&) const = default;
};

enum class Balance : std::uint8_t { unstated, forced, natural };
inline constexpr Token<Balance> kBalances[] = {
    {Balance::unstated, "unstated"}, {Balance::forced, "forced"}, {Balance::natural, "natural"}};

enum class LoadDistribution : std::uint8_t { balanced, zipf, dirichlet, histogram };
inline constexpr Token<LoadDistribution> kLoadDistributions[] = {
    {LoadDistribution::balanced, "balanced"},
    {LoadDistribution::zipf, "zipf"},
    {LoadDistribution::dirichlet, "dirichlet"},
    {LoadDistribution::histogram, "histogram"}};

struct Routing {
  Balance balance = Balance::unstated;
  double capacity_factor = 0;  // tokens beyond it are dropped; 0: dropless
  bool pad_to_capacity = false;
  LoadDistribution distribution = LoadDistribution::balanced;
  std::vector<double>
      parameters;  // zipf: [exponent]; dirichlet: [concentration]; histogram: one share an expert
  std::int64_t seed = 0;
  int echo_spare_experts = 0;  // ECHO: spare slots a rank for clones of hot experts
  bool padded() const { return capacity_factor > 0 && pad_to_capacity; }  // shapes are static
  bool operator==(const Routing&) const = default;
};

enum class CpComm : std::uint8_t { p2p, a2a, all_gather, a2a_p2p };
inline constexpr Token<CpComm> kCpComms[] = {{CpComm::p2p, "p2p"},
                                             {CpComm::a2a, "a2a"},
                                             {CpComm::all_gather, "all_gather"},
                                             {CpComm::a2a_p2p, "a2a+p2p"}};

enum class Implementation : std::uint8_t { transformer_engine, local };
inline constexpr Token<Implementation> kImplementations[] = {
    {Implementation::transformer_engine, "transformer_engine"}, {Implementation::local, "local"}};

// Fused attention keeps row sums alone; unfused attention (plain PyTorch without a fused kernel)
// keeps the probabilities.
enum class AttentionBackend : std::uint8_t { flash, unfused };
inline constexpr Token<AttentionBackend> kAttentionBackends[] = {
    {AttentionBackend::flash, "flash"}, {AttentionBackend::unfused, "unfused"}};

// How dense gradients are reduced over data parallelism: a ring in the gradient dtype, or
// MegaScale's one-shot BF16 all-to-all with a local FP32 sum (half the bytes).
enum class GradientCompression : std::uint8_t { none, bf16_all_to_all };
inline constexpr Token<GradientCompression> kGradientCompressions[] = {
    {GradientCompression::none, "none"}, {GradientCompression::bf16_all_to_all, "bf16_all_to_all"}};

enum class DispatchPrecision : std::uint8_t { bf16, fp8 };
inline constexpr Token<DispatchPrecision> kDispatchPrecisions[] = {
    {DispatchPrecision::bf16, "bf16"}, {DispatchPrecision::fp8, "fp8"}};

struct Techniques {
  Dispatcher dispatcher = Dispatcher::alltoall;
  int dispatcher_sms = 0;  // 0: the dispatcher's default
  DispatchPrecision dispatch_precision = DispatchPrecision::bf16;
  EnumSet<Overlap> overlap;
  EnumSet<Recompute> recompute;
  EnumSet<GraphScope> cuda_graph;
  EnumSet<Fusion> fusions;
  Offload offload;
  Routing routing;
  CpComm cp_comm = CpComm::p2p;
  GradientCompression gradient_compression = GradientCompression::none;
  Implementation implementation = Implementation::transformer_engine;
  AttentionBackend attention_backend = AttentionBackend::flash;
  hardware::GroupedKernel grouped_gemm = hardware::GroupedKernel::streams;
  bool sequence_parallel = false;  // beside tp
  bool memory_efficient_permutation =
      true;  // probabilities applied before the second expert linear
  bool paged_stash = false;
  bool processes_bound_to_cpus = true;  // host.processes_bound_to_cpus
  bool operator==(const Techniques&) const = default;

  bool has(Overlap o) const { return overlap.contains(o); }
  bool has(Recompute r) const { return recompute.contains(r); }
  bool has(GraphScope g) const { return cuda_graph.contains(g); }
  bool has(Fusion f) const { return fusions.contains(f); }
};

}  // namespace trifold::job
