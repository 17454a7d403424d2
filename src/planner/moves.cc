// SPDX-License-Identifier: Apache-2.0
#include "planner/moves.h"

#include <fmt/format.h>

#include "planner/balance.h"

namespace trifold::planner {

namespace {

using job::Job;
using job::Overlap;
using job::Recompute;

class List {
 public:
  explicit List(const Job& job) : job_(job) {}

  void add(Attack attack, std::string name, bool removes, std::function<void(Job&)> apply,
           bool layout = false) {
    moves_.push_back({attack, std::move(name), removes, layout, std::move(apply)});
  }
  // A technique that is on or off.
  void toggle(Attack attack, const std::string& name, bool on,
              std::function<void(Job&, bool)> set) {
    add(attack, (on ? "without " : "with ") + name, on, [set, on](Job& j) { set(j, !on); });
  }
  template <class Field>
  void axis(const char* name, Field field) {
    const int value = field(job_);
    const auto to = [&](int next) {
      add(
          Attack::geometry, fmt::format("{} {} -> {}", name, value, next), next < value,
          [field, next](Job& j) {
            field(j) = next;
            j.techniques.sequence_parallel = j.layout.tp > 1;
          },
          true);
    };
    to(value * 2);
    if (value % 2 == 0) to(value / 2);
  }
  std::vector<Move> take() { return std::move(moves_); }

 private:
  const Job& job_;
  std::vector<Move> moves_;
};

template <class E>
void put(EnumSet<E>& set, E value, bool on) {
  if (on)
    set.insert(value);
  else
    set.erase(value);
}

void geometry(const Job& job, List& list) {
  list.axis(
      "tp", [](auto& j) -> auto& { return j.layout.tp; });
  list.axis(
      "cp", [](auto& j) -> auto& { return j.layout.cp; });
  list.axis(
      "pp", [](auto& j) -> auto& { return j.layout.pp; });
  if (job.layout.pp > 1)
    list.axis(
        "vpp", [](auto& j) -> auto& { return j.layout.vpp; });
  if (job.layout.ulysses_sp > 1)
    list.axis(
        "ulysses_sp", [](auto& j) -> auto& { return j.layout.ulysses_sp; });
  if (job.model.is_moe()) {
    list.axis(
        "ep", [](auto& j) -> auto& { return j.layout.ep; });
    list.axis(
        "etp", [](auto& j) -> auto& { return j.layout.etp; });
  }
  list.toggle(Attack::geometry, "FSDP", job.layout.fsdp, [](Job& j, bool on) {
    j.layout.fsdp = on;
    put(j.techniques.overlap, Overlap::fsdp, on);
  });
}

void memory_headroom(const Job& job, List& list) {
  const Attack attack = Attack::memory_headroom;
  const job::Techniques& t = job.techniques;
  for (const auto& token : job::kRecomputes) {
    const Recompute r = token.value;
    list.toggle(attack, fmt::format("recompute {}", token.name), t.has(r), [r](Job& j, bool on) {
      if (on && r == Recompute::full) j.techniques.recompute = {};
      put(j.techniques.recompute, r, on);
    });
  }
  for (const job::OffloadModule m : {job::OffloadModule::core_attn, job::OffloadModule::expert_fc1,
                                     job::OffloadModule::moe_act}) {
    if (!job.model.is_moe() && m != job::OffloadModule::core_attn) continue;
    list.toggle(attack, fmt::format("offload {}", token_name(job::kOffloadModules, m)),
                t.offload.activation_modules.contains(m),
                [m](Job& j, bool on) { put(j.techniques.offload.activation_modules, m, on); });
  }
  list.toggle(attack, "optimizer states parked on the host",
              t.offload.optimizer == job::OptimizerOffload::states_parked_on_host,
              [](Job& j, bool on) {
                j.techniques.offload.optimizer =
                    on ? job::OptimizerOffload::states_parked_on_host : job::OptimizerOffload::none;
              });
  list.toggle(attack, "BF16 moments", job.training.optimizer.moments == job::StateType::bf16,
              [](Job& j, bool on) {
                j.training.optimizer.moments = on ? job::StateType::bf16 : job::StateType::fp32;
              });
  list.toggle(attack, "distributed optimizer", job.training.optimizer.distributed,
              [](Job& j, bool on) { j.training.optimizer.distributed = on; });
  const std::int64_t size = job.training.micro_batch_size;
  const auto micro_batch = [&](std::int64_t next) {
    list.add(attack, fmt::format("micro batch {} -> {}", size, next), next < size,
             [next](Job& j) { j.training.micro_batch_size = next; });
  };
  micro_batch(size * 2);
  if (size % 2 == 0) micro_batch(size / 2);
  if (!job.model.is_moe()) return;
  list.toggle(attack, "memory-efficient permutation", t.memory_efficient_permutation,
              [](Job& j, bool on) { j.techniques.memory_efficient_permutation = on; });
  list.toggle(attack, "paged stash", t.paged_stash,
              [](Job& j, bool on) { j.techniques.paged_stash = on; });
}

void dispatchers(const Job& job, List& list) {
  if (!job.model.is_moe() || job.layout.ep * job.layout.etp == 1) return;
  for (const auto& token : job::kDispatchers) {
    if (token.value == job.techniques.dispatcher) continue;
    const job::Dispatcher d = token.value;
    list.add(Attack::dispatcher_bandwidth,
             fmt::format("dispatcher {} -> {}",
                         token_name(job::kDispatchers, job.techniques.dispatcher), token.name),
             !job::is_flex(d), [d](Job& j) {
               j.techniques.dispatcher = d;
               j.techniques.dispatcher_sms = 0;
             });
  }
}

void hide_latency(const Job& job, List& list) {
  const Attack attack = Attack::hide_latency;
  const auto overlap = [&](const char* name, std::initializer_list<Overlap> set) {
    const std::vector<Overlap> all(set);
    list.toggle(attack, name, job.techniques.has(all.front()), [all](Job& j, bool on) {
      for (Overlap o : all) put(j.techniques.overlap, o, on);
    });
  };
  overlap("gradient and parameter overlap", {Overlap::grad_reduce, Overlap::param_gather});
  if (job.layout.vpp > 1) overlap("pipeline send overlap", {Overlap::pipeline_p2p});
  if (job.layout.tp > 1) overlap("tensor-parallel overlap", {Overlap::tp_comm});
  if (job.model.is_moe()) {
    overlap("EP overlap", {Overlap::ep_a2a, Overlap::delay_wgrad});
    if (job.model.moe.shared_ffn > 0) overlap("shared-expert overlap", {Overlap::shared_expert});
  }
  overlap("inter-operator overlap", {Overlap::inter_op});
  overlap("intra-operator overlap", {Overlap::intra_op});
}

void compute_packing(const Job& job, List& list) {
  const Attack attack = Attack::compute_packing;
  const job::Techniques& t = job.techniques;
  const auto fusion = [&](const char* name, job::Fusion f) {
    list.toggle(attack, name, t.has(f), [f](Job& j, bool on) { put(j.techniques.fusions, f, on); });
  };
  const bool moe = job.model.is_moe();
  fusion("cross-entropy fusion", job::Fusion::cross_entropy);
  if (moe) {
    fusion("router fusion", job::Fusion::router);
    fusion("permute fusion", job::Fusion::permute);
    fusion("grouped-MLP fusion", job::Fusion::grouped_mlp);
  }
  list.toggle(attack, "CUDA graphs", !t.cuda_graph.empty(), [moe](Job& j, bool on) {
    j.techniques.cuda_graph = {};
    if (!on) return;
    j.techniques.cuda_graph.insert(job::GraphScope::attn);
    if (!moe) return;
    j.techniques.cuda_graph.insert(job::GraphScope::moe_router);
    j.techniques.cuda_graph.insert(job::GraphScope::moe_preprocess);
  });
  list.toggle(attack, "processes bound to CPUs", t.processes_bound_to_cpus,
              [](Job& j, bool on) { j.techniques.processes_bound_to_cpus = on; });
}

void compress(const Job& job, List& list) {
  const Attack attack = Attack::compress;
  const bool blackwell = job.cluster.gpu.arch == hardware::GpuArch::blackwell;
  const job::Precision now = job.training.precision;
  const auto precision = [&](job::Precision next) {
    if (next == now || job.cluster.gpu.peak(job::gemm_dtype(next)).value() <= 0) return;
    list.add(attack,
             fmt::format("precision {} -> {}", token_name(job::kPrecisions, now),
                         token_name(job::kPrecisions, next)),
             next == job::Precision::bf16, [next](Job& j) {
               j.training.precision = next;
               j.training.optimizer.fp8_param_gather = job::is_low_precision(next);
             });
  };
  precision(job::Precision::bf16);
  precision(blackwell ? job::Precision::mxfp8 : job::Precision::fp8_block);
  if (blackwell) precision(job::Precision::nvfp4);
  list.toggle(attack, "BF16 gradient reduction",
              job.training.optimizer.grad_reduce == job::StateType::bf16, [](Job& j, bool on) {
                j.training.optimizer.grad_reduce = on ? job::StateType::bf16 : job::StateType::fp32;
                if (!on) j.training.optimizer.main_grads = job::StateType::fp32;
              });
  list.toggle(attack, "one-shot BF16 gradient all-to-all",
              job.techniques.gradient_compression != job::GradientCompression::none,
              [](Job& j, bool on) {
                j.techniques.gradient_compression =
                    on ? job::GradientCompression::bf16_all_to_all : job::GradientCompression::none;
              });
  if (job.model.is_moe() && job::is_low_precision(now))
    list.toggle(attack, "FP8 dispatch",
                job.techniques.dispatch_precision == job::DispatchPrecision::fp8,
                [](Job& j, bool on) {
                  j.techniques.dispatch_precision =
                      on ? job::DispatchPrecision::fp8 : job::DispatchPrecision::bf16;
                });
}

}  // namespace

std::vector<Move> moves(const Job& job) {
  List list(job);
  geometry(job, list);
  memory_headroom(job, list);
  dispatchers(job, list);
  hide_latency(job, list);
  compute_packing(job, list);
  compress(job, list);
  return list.take();
}

void recut(Job& job, bool fresh) {
  layout::Layout& l = job.layout;
  layout::Pipeline pipeline;
  const auto cuts = [&] {
    return layout::cut_pipeline(job.model, l, pipeline, job.placement()).ok();
  };
  if (!fresh && cuts()) return;
  l.pipeline_layout.clear();
  l.account_for_embedding = l.account_for_loss = false;
  l.first_stage_layers = l.last_stage_layers = 0;
  if (cuts()) return;
  l.account_for_embedding = l.account_for_loss = true;
  if (cuts()) return;
  l.account_for_embedding = l.account_for_loss = false;
  if (static_cast<std::int64_t>(l.pp) * l.vpp > job.model.num_layers() + 2) return;
  l.pipeline_layout = layout::filled_pipeline_layout(job.model, l.pp, l.vpp);
  if (!l.pipeline_layout.empty()) return;
  // An MoE block takes about twice a dense one, the loss about one (techniques.md (c)9).
  ChunkCosts costs;
  for (int i = 0; i < model::kLayerKinds; ++i)
    costs.layer[static_cast<std::size_t>(i)] = model::LayerKind::from_index(i).moe ? 2 : 1.3;
  costs.embedding = 0.1, costs.mtp = 2.2, costs.loss = 1;
  l.pipeline_layout =
      layout::print_pipeline_layout(balanced_pipeline(job.model, l.pp, l.vpp, costs));
}

}  // namespace trifold::planner
