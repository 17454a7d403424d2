// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random Jobs that Megatron can run: a legal one written by hand, changed field by field, where a
// change that a rule refuses is taken back.

#include "base/random.h"
#include "job/legality.h"
#include "tests/unit/launch/jobs.h"

namespace trifold::launch {

inline bool coin(Random& random) { return random.below(2) == 0; }

// One of the table's first entries.
template <class E, std::size_t N>
E pick(Random& random, const Token<E> (&table)[N], std::size_t first = N) {
  return table[random.below(std::min(first, N))].value;
}

template <class E>
void flip(EnumSet<E>& set, E value) {
  if (set.contains(value))
    set.erase(value);
  else
    set.insert(value);
}

inline int power_of_two(Random& random, int most) {
  return 1 << random.below(static_cast<std::uint64_t>(most) + 1);
}

inline void change_layout(Random& random, job::Job& job) {
  layout::Layout& l = job.layout;
  switch (random.below(9)) {
    case 0:
      l.tp = power_of_two(random, 3);
      job.techniques.sequence_parallel = l.tp > 1;
      break;
    case 1:
      l.cp = power_of_two(random, 2);
      break;
    case 2:
      l.ulysses_sp = power_of_two(random, 2);
      break;
    case 3:
      job.techniques.cp_comm = pick(random, job::kCpComms, 3);
      break;
    case 4:
      if (job.model.is_moe()) l.ep = power_of_two(random, 6);
      break;
    case 5:
      if (job.model.is_moe()) l.etp = power_of_two(random, 2);
      break;
    case 6:
      l.order =
          coin(random) ? layout::RankOrder::tp_cp_ep_dp_pp : layout::RankOrder::tp_cp_ep_pp_dp;
      break;
    case 7:
      l.fsdp = !l.fsdp;
      if (l.fsdp) job.training.optimizer.distributed = true;
      break;
    case 8:  // another cut
      l.pipeline_layout.clear();
      l.account_for_embedding = coin(random);
      l.account_for_loss = coin(random);
      l.first_stage_layers = coin(random) ? 0 : static_cast<int>(random.below(8));
      l.pp = 1 + static_cast<int>(random.below(8));
      l.vpp = coin(random) ? 1 : 1 + static_cast<int>(random.below(8));
      job.schedule.kind =
          l.vpp > 1 ? layout::ScheduleKind::interleaved : layout::ScheduleKind::one_f_one_b;
      job.schedule.microbatch_group_size = l.vpp > 1 && coin(random) ? l.pp : 0;
      break;
  }
  if (l.vpp == 1) job.techniques.overlap.erase(job::Overlap::pipeline_p2p);
}

inline void change_training(Random& random, job::Job& job) {
  job::Training& t = job.training;
  job::Optimizer& o = t.optimizer;
  switch (random.below(8)) {
    case 0:
      t.precision = pick(random, job::kPrecisions);
      break;
    case 1:
      t.micro_batch_size = power_of_two(random, 2);
      break;
    case 2:
      o.name = pick(random, job::kOptimizerNames);
      break;
    case 3:
      o.distributed = !o.distributed;
      break;
    case 4:
      o.main_grads = coin(random) ? job::StateType::fp32 : job::StateType::bf16;
      break;
    case 5:
      o.moments = pick(random, job::kStateTypes);
      o.main_params = coin(random) ? job::StateType::fp32 : job::StateType::fp16;
      break;
    case 6:
      o.grad_reduce = coin(random) ? job::StateType::fp32 : job::StateType::bf16;
      job.techniques.gradient_compression = pick(random, job::kGradientCompressions);
      break;
    case 7:
      o.fp8_param_gather = !o.fp8_param_gather;
      break;
  }
  if (o.main_grads == job::StateType::bf16) o.grad_reduce = job::StateType::bf16;
}

inline void change_memory(Random& random, job::Job& job) {
  job::Techniques& t = job.techniques;
  switch (random.below(6)) {
    case 0:
      t.recompute = coin(random) ? EnumSet<job::Recompute>{} : EnumSet{job::Recompute::full};
      break;
    case 1:
    case 2:
      flip(t.recompute, pick(random, job::kRecomputes, 7));
      break;
    case 3:
      flip(t.offload.activation_modules, pick(random, job::kOffloadModules));
      if (t.offload.activation_modules.empty()) t.offload.fraction = 1;
      break;
    case 4:
      t.offload.optimizer = pick(random, job::kOptimizerOffloads, 2);
      break;
    case 5:
      if (!t.offload.activation_modules.empty()) t.offload.fraction = random.uniform();
      break;
  }
}

inline void change_execution(Random& random, job::Job& job) {
  job::Techniques& t = job.techniques;
  const bool moe = job.model.is_moe();
  switch (random.below(7)) {
    case 0:
    case 1: {
      const job::Overlap o = pick(random, job::kOverlaps, 9);
      if (o != job::Overlap::fsdp && (o != job::Overlap::pipeline_p2p || job.layout.vpp > 1))
        flip(t.overlap, o);
      break;
    }
    case 2:
      if (moe) flip(t.cuda_graph, pick(random, job::kGraphScopes, 5));
      break;
    case 3:
      t.cuda_graph = {};
      if (coin(random))
        t.cuda_graph = {coin(random) ? job::GraphScope::full_iteration : job::GraphScope::layer};
      break;
    case 4: {
      const job::Fusion f = pick(random, job::kFusions);
      const bool experts_only =
          f == job::Fusion::router || f == job::Fusion::permute || f == job::Fusion::grouped_mlp;
      if (f != job::Fusion::fp8_attention && (moe || !experts_only)) flip(t.fusions, f);
      break;
    }
    case 5:
      if (!moe) break;
      t.dispatcher = pick(random, job::kDispatchers);
      t.dispatcher_sms = is_flex(t.dispatcher) ? static_cast<int>(random.below(40)) : 0;
      t.paged_stash = coin(random);
      break;
    case 6:
      if (!moe) break;
      t.routing.balance = coin(random) ? job::Balance::forced : job::Balance::unstated;
      t.routing.capacity_factor = coin(random) ? 0 : 1 + random.uniform();
      t.routing.pad_to_capacity = coin(random);
      break;
  }
}

// `changes`: how many are tried.
inline job::Job random_legal_job(std::uint64_t seed, int changes = 30) {
  Random random(seed);
  constexpr std::size_t kRows = sizeof(kJobRows) / sizeof(kJobRows[0]);
  job::Job job = *make_job(kJobRows[random.below(kRows)]);
  if (job.model.mtp_layers > 0 && coin(random) && job.layout.pipeline_layout.empty())
    job.model.mtp_layers = 0;
  for (int i = 0; i < changes; ++i) {
    job::Job changed = job;
    switch (random.below(4)) {
      case 0:
        change_layout(random, changed);
        break;
      case 1:
        change_training(random, changed);
        break;
      case 2:
        change_memory(random, changed);
        break;
      case 3:
        change_execution(random, changed);
        break;
    }
    job::Techniques& t = changed.techniques;
    t.overlap.erase(job::Overlap::fsdp);
    if (changed.layout.fsdp && t.has(job::Overlap::grad_reduce) &&
        t.has(job::Overlap::param_gather))
      t.overlap.insert(job::Overlap::fsdp);
    const layout::Layout& l = changed.layout;
    if (changed.gpus % l.dense_model_size() == 0)  // four micro-batches a stage
      changed.training.global_batch_size =
          changed.training.micro_batch_size * changed.dp() * l.pp * 4;
    if (job::check(changed).legal()) job = changed;
  }
  return job;
}

}  // namespace trifold::launch
