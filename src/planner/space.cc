// SPDX-License-Identifier: Apache-2.0
#include "planner/space.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "planner/query.h"

namespace trifold::planner {

namespace {

using job::OffloadModule;
using job::Recompute;

std::vector<int> powers_of_two(std::int64_t limit) {
  std::vector<int> values;
  for (std::int64_t v = 1; v <= limit; v *= 2) values.push_back(static_cast<int>(v));
  return values;
}

template <class Keep>
std::vector<int> filtered(std::vector<int> values, const std::vector<int>& pinned, Keep keep) {
  if (!pinned.empty())
    values = pinned;
  else
    values.erase(std::remove_if(values.begin(), values.end(), [&](int v) { return !keep(v); }),
                 values.end());
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

std::vector<int> divisors_int(std::int64_t value) {
  std::vector<int> values;
  for (std::int64_t d : divisors(value)) values.push_back(static_cast<int>(d));
  return values;
}

// SMs lent to a dispatcher: its default and what people set instead.
std::vector<int> sm_choices(const Query& query, job::Dispatcher dispatcher) {
  if (!query.pins.dispatcher_sms.empty()) return query.pins.dispatcher_sms;
  if (dispatcher == job::Dispatcher::deepep) return {0, 12, 24, 32};
  if (dispatcher == job::Dispatcher::hybridep) return {0, 8, 16, 32};
  return {0};
}

std::vector<Beside> beside_choices(const Query& query, job::Dispatcher dispatcher) {
  std::vector<Beside> list = {Beside::nothing};
  const model::Model& m = query.model;
  const bool gathers = dispatcher == job::Dispatcher::allgather;
  if (m.is_moe() && !gathers && m.moe.shared_ffn > 0) list.push_back(Beside::shared_expert);
  if (m.is_moe() && !gathers) list.push_back(Beside::merged);
  list.push_back(Beside::operators);
  if (query.pins.ep_overlap)
    list.erase(
        std::remove_if(list.begin(), list.end(),
                       [&](Beside b) { return (b == Beside::merged) != *query.pins.ep_overlap; }),
        list.end());
  return list;
}

std::vector<Transport> transports(const Query& query) {
  std::vector<Transport> list;
  std::vector<job::Dispatcher> dispatchers = query.pins.dispatcher;
  if (dispatchers.empty())
    for (const auto& token : job::kDispatchers) dispatchers.push_back(token.value);
  if (!query.model.is_moe()) dispatchers = {job::Dispatcher::alltoall};
  for (job::Dispatcher dispatcher : dispatchers)
    for (int sms : sm_choices(query, dispatcher))
      for (Beside beside : beside_choices(query, dispatcher))
        for (bool graphs : {false, true}) {
          if (query.pins.cuda_graph && *query.pins.cuda_graph != graphs) continue;
          list.push_back({dispatcher, sms, beside, graphs});
        }
  return list;
}

std::vector<EnumSet<Recompute>> recompute_sets(const Query& query) {
  if (query.pins.recompute) return {*query.pins.recompute};
  const bool moe = query.model.is_moe(),
             mla = query.model.attention.kind == model::AttentionKind::mla;
  const bool dense = query.model.dense_layers() > 0;
  std::vector<Recompute> light;
  if (moe) light.push_back(Recompute::moe_act);
  if (moe || mla) light.push_back(Recompute::layernorm);
  if (mla) light.push_back(Recompute::mla_up_proj);
  if (dense) light.push_back(Recompute::mlp);
  std::vector<EnumSet<Recompute>> sets;
  for (unsigned mask = 0; mask < (1u << light.size()); ++mask) {
    EnumSet<Recompute> set;
    for (std::size_t i = 0; i < light.size(); ++i)
      if ((mask >> i) & 1u) set.insert(light[i]);
    sets.push_back(set);
  }
  if (moe) sets.push_back({Recompute::moe, Recompute::layernorm});
  if (query.model.moe.shared_ffn > 0)
    sets.push_back({Recompute::shared_experts, Recompute::moe_act, Recompute::layernorm});
  sets.push_back({Recompute::full});
  return sets;
}

std::vector<MemorySaving> savings(const Query& query) {
  std::vector<EnumSet<OffloadModule>> offloads = {{}};
  const bool may_offload = query.model.is_moe() && query.pins.activation_offload.value_or(true);
  if (may_offload) {
    offloads.push_back({OffloadModule::expert_fc1});
    offloads.push_back({OffloadModule::moe_act});
    offloads.push_back({OffloadModule::expert_fc1, OffloadModule::moe_act});
    if (query.pins.activation_offload.value_or(false)) offloads.erase(offloads.begin());
  }
  std::vector<bool> moments = {query.optimizer_precision == OptimizerPrecision::bf16_moments};
  if (query.optimizer_precision == OptimizerPrecision::automatic) moments = {false, true};
  std::vector<MemorySaving> list;
  for (bool bf16 : moments)
    for (const auto& recompute : recompute_sets(query))
      for (const auto& offload : offloads) {
        // A module that is rebuilt is not offloaded as well, and full recompute leaves nothing to
        // offload.
        if (!offload.empty() && recompute.contains(Recompute::full)) continue;
        if (offload.contains(OffloadModule::moe_act) && recompute.contains(Recompute::moe_act))
          continue;
        if (!offload.empty() && recompute.contains(Recompute::moe)) continue;
        list.push_back({recompute, offload, bf16});
      }
  return list;
}

}  // namespace

double Space::geometries() const {
  double n = static_cast<double>(fsdp.size() * orders.size());
  for (const auto* axis : {&tp, &ulysses_sp, &cp, &pp, &ep, &etp, &micro_batch_size})
    n *= static_cast<double>(axis->size());
  return n;
}

double Space::variants() const {
  return static_cast<double>(depths.size() * transports.size() * savings.size());
}

namespace {

std::vector<Depth> depths(const Query& query) {
  using K = layout::ScheduleKind;
  std::vector<K> kinds = query.pins.schedule;
  if (kinds.empty())
    for (const auto& token : layout::kScheduleKinds) kinds.push_back(token.value);
  std::vector<int> chunks = query.pins.vpp;
  if (chunks.empty())
    for (int v = 1; v <= query.model.num_layers() + query.model.mtp_layers; ++v)
      chunks.push_back(v);
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  std::vector<Depth> list;
  for (int v : chunks)
    for (K kind : kinds) {
      const bool fits = kind == K::interleaved ? v > 1 : layout::is_vee(kind) ? v == 2 : v == 1;
      if (fits) list.push_back({kind, v});
    }
  return list;
}

int index_in(std::vector<EnumSet<Recompute>>& list, EnumSet<Recompute> set) {
  auto at = std::find(list.begin(), list.end(), set);
  if (at == list.end()) at = list.insert(at, set);
  return static_cast<int>(at - list.begin());
}

// Full recompute reruns what any module does.
bool contains(EnumSet<Recompute> set, EnumSet<Recompute> smaller) {
  return set.contains(Recompute::full) || (smaller.bits() & ~set.bits()) == 0;
}

void list_parts(Space& s) {
  for (const MemorySaving& saving : s.savings)
    s.recompute_of.push_back(index_in(s.recomputes, saving.recompute));
  TRIFOLD_CHECK(s.recomputes.size() <= 32);
  for (std::size_t i = 0; i < s.recomputes.size(); ++i) {
    std::uint32_t over = 0;
    for (std::size_t j = 0; j < i; ++j)
      if (contains(s.recomputes[i], s.recomputes[j])) over |= std::uint32_t{1} << j;
    s.recompute_over.push_back(over);
  }
}

// `a` never holds more than `b`: it rebuilds and offloads the same tensors and more. Each frees one
// tensor of n >= 1 layers in flight and brings back at most one of them (stage.cc). A rebuilt `moe`
// or layer keeps an input that `layernorm` would free, so those compare with themselves alone.
bool undercuts(const MemorySaving& a, const MemorySaving& b) {
  constexpr EnumSet<Recompute> coarse = {Recompute::moe, Recompute::full};
  const std::uint64_t mine = a.recompute.bits(), others = b.recompute.bits();
  const bool compared =
      ((mine | others) & coarse.bits()) != 0 ? mine == others : (others & ~mine) == 0;
  return compared && (b.offload.bits() & ~a.offload.bits()) == 0 &&
         (a.bf16_moments || !b.bf16_moments);
}

void list_least(Space& s) {
  const int n = static_cast<int>(s.savings.size());
  const auto saving = [&](int i) -> const MemorySaving& {
    return s.savings[static_cast<std::size_t>(i)];
  };
  for (int i = 0; i < n; ++i) {
    bool lowest = true;
    for (int j = 0; j < n && lowest; ++j) lowest = i == j || !undercuts(saving(j), saving(i));
    if (lowest) s.least.push_back(i);
  }
  TRIFOLD_CHECK(s.least.size() <= 32);
  for (int i = 0; i < n; ++i) {
    std::uint32_t by = 0;
    for (std::size_t k = 0; k < s.least.size(); ++k)
      if (undercuts(saving(s.least[k]), saving(i))) by |= std::uint32_t{1} << k;
    s.undercut_by.push_back(by);
  }
}

}  // namespace

Space make_space(const Query& query) {
  const model::Model& m = query.model;
  const Pins& pins = query.pins;
  const int domain = query.cluster.gpus_used_per_domain;
  const std::int64_t layers = m.num_layers() + m.mtp_layers;
  Space s;
  s.tp = filtered(powers_of_two(domain), pins.tp,
                  [&](int v) { return divides(v, m.attention.heads); });
  s.ulysses_sp = filtered(powers_of_two(domain), pins.ulysses_sp,
                          [&](int v) { return divides(v, m.attention.heads); });
  s.cp = filtered(powers_of_two(std::max<std::int64_t>(1, query.training.sequence_length / 2048)),
                  pins.cp, [](int) { return true; });
  s.pp = filtered(divisors_int(query.gpus), pins.pp, [&](int v) { return v <= layers; });
  s.ep = filtered(divisors_int(std::max<std::int64_t>(1, m.moe.experts)), pins.ep,
                  [&](int v) { return v <= query.gpus; });
  s.etp = filtered(m.is_moe() ? powers_of_two(domain) : std::vector<int>{1}, pins.etp,
                   [&](int v) { return !m.is_moe() || divides(v, m.moe.expert_ffn); });
  s.micro_batch_size = filtered({1, 2, 4, 8}, pins.micro_batch_size, [&](int v) {
    return divides(v, query.training.global_batch_size);
  });
  s.fsdp = pins.fsdp ? std::vector<bool>{*pins.fsdp} : std::vector<bool>{false, true};
  s.orders = {layout::RankOrder::tp_cp_ep_dp_pp, layout::RankOrder::tp_cp_ep_pp_dp};
  s.depths = depths(query);
  s.transports = transports(query);
  s.savings = savings(query);
  list_parts(s);
  list_least(s);
  return s;
}

job::Job base_job(const Query& query) {
  job::Job job;
  job.model = query.model;
  job.cluster = query.cluster;
  job.profile = query.profile;
  job.gpus = query.gpus;
  job.training = query.training;
  job.techniques.routing = query.routing;
  job.techniques.fusions = {job::Fusion::cross_entropy};
  if (query.model.is_moe()) {
    job.techniques.fusions.insert(job::Fusion::router);
    job.techniques.fusions.insert(job::Fusion::permute);
  }
  return job;
}

void set_geometry(const Geometry& g, job::Job& job) {
  layout::Layout& l = job.layout;
  l.tp = g.tp;
  l.ulysses_sp = g.ulysses_sp;
  l.cp = g.cp;
  l.pp = g.pp;
  l.ep = g.ep;
  l.etp = g.etp;
  l.fsdp = g.fsdp;
  l.order = g.order;
  job.training.micro_batch_size = g.micro_batch_size;
  job.techniques.sequence_parallel = g.tp > 1;
}

namespace {

void set_overlap(const Depth& depth, Beside beside, job::Job& job) {
  using job::Overlap;
  EnumSet<Overlap>& overlap = job.techniques.overlap;
  overlap = {Overlap::grad_reduce, Overlap::param_gather};
  if (job.layout.fsdp) overlap.insert(Overlap::fsdp);
  if (depth.vpp > 1) overlap.insert(Overlap::pipeline_p2p);
  if (job.layout.tp > 1) overlap.insert(Overlap::tp_comm);
  switch (beside) {
    case Beside::nothing:
      break;
    case Beside::shared_expert:
      overlap.insert(Overlap::shared_expert);
      break;
    case Beside::merged:
      overlap.insert(Overlap::ep_a2a);
      overlap.insert(Overlap::delay_wgrad);
      break;
    case Beside::operators:
      overlap.insert(Overlap::inter_op);
      overlap.insert(Overlap::intra_op);
      break;
  }
}

}  // namespace

void set_variant(const Query& query, const Depth& depth, const Transport& transport,
                 const MemorySaving& saving, job::Job& job) {
  job.layout.vpp = depth.vpp;
  job.schedule.kind = depth.kind;
  job::Techniques& t = job.techniques;
  t.dispatcher = transport.dispatcher;
  t.dispatcher_sms = transport.sms;
  set_overlap(depth, transport.beside, job);
  t.cuda_graph = {};
  if (transport.graphs) {
    t.cuda_graph.insert(job::GraphScope::attn);
    if (query.model.is_moe()) {
      t.cuda_graph.insert(job::GraphScope::moe_router);
      t.cuda_graph.insert(job::GraphScope::moe_preprocess);
    }
  }
  t.recompute = saving.recompute;
  t.offload.activation_modules = saving.offload;
  job.training.optimizer = query.training.optimizer;
  if (saving.bf16_moments) job.training.optimizer.moments = job::StateType::bf16;
}

int complexity(const Depth& depth, const Transport& transport, const MemorySaving& saving) {
  const auto count = [](std::uint64_t bits) { return __builtin_popcountll(bits); };
  int points = 8 * count(saving.recompute.bits()) + 12 * count(saving.offload.bits());
  if (saving.recompute.contains(job::Recompute::full)) points += 16;
  if (saving.bf16_moments) points += 10;
  if (transport.sms > 0) points += 3;
  if (transport.beside != Beside::nothing) points += 8;
  if (transport.graphs) points += 6;
  if (transport.dispatcher != job::Dispatcher::alltoall) points += 1;
  for (int v = depth.vpp; v > 1; v = (v + 1) / 2) points += 2;
  if (depth.kind != layout::ScheduleKind::one_f_one_b) points += 2;
  return points;
}

Result<void> validate(const Query& query) {
  if (query.gpus <= 0)
    return input_error("a plan needs at least one GPU", "--gpus", "for example --gpus 1024");
  if (query.gpus > query.cluster.max_gpus)
    return input_error("cluster " + query.cluster.name + " has " +
                           std::to_string(query.cluster.max_gpus) + " GPUs",
                       "--gpus", "ask for at most that many");
  if (query.training.global_batch_size <= 0 || query.training.sequence_length <= 0)
    return input_error("batch and sequence must be positive",
                       "--global-batch-size, --sequence-length");
  return {};
}

}  // namespace trifold::planner
