// SPDX-License-Identifier: Apache-2.0

// The order of attack of arXiv:2603.07685: first the geometry, which decides what crosses which
// link; then memory headroom, which buys back recompute; then the bandwidth of token dispatch; then
// hiding what is left; then packing compute and the host; then fewer bytes and bits. Each step
// copies one group of the plan's fields into the job climbed so far, so the sum of the gains is
// exactly baseline minus plan; the gain of a step depends on its place in the order. Gains are
// closed-form estimates: known error of a single step's gain +-5 points (techniques.md (c)2-4 and
// 19 give published ones; tests/unit/planner/ladder_test.cc says how near they land).

#include "planner/ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/math.h"

namespace trifold::planner {

namespace {

using estimate::Estimate;
using job::Job;
using job::Overlap;

std::string grid(const layout::Layout& l) {
  std::string text = fmt::format("tp {}", l.tp);
  if (l.ulysses_sp > 1) text += fmt::format(" ulysses {}", l.ulysses_sp);
  if (l.cp > 1) text += fmt::format(" cp {}", l.cp);
  text += fmt::format(" pp {} ep {} etp {}", l.pp, l.ep, l.etp);
  if (l.fsdp) text += " FSDP";
  return text;
}

template <class E, std::size_t N>
std::string words(const Token<E> (&table)[N], EnumSet<E> set) {
  std::string text;
  for (const Token<E>& token : table)
    if (set.contains(token.value)) text += (text.empty() ? "" : "+") + std::string(token.name);
  return text.empty() ? "none" : text;
}

// A copy step: changes `job` towards `plan` and says what it did; empty: nothing to do.
using Copy = std::string (*)(const Job& plan, Job& job);

std::string copy_layout(const Job& plan, Job& job) {
  layout::Layout wanted = plan.layout;
  const layout::Layout& now = job.layout;
  if (plan.layout.vpp != now.vpp || plan.schedule.kind != job.schedule.kind) {
    wanted.vpp = now.vpp;
    wanted.pipeline_layout = now.pipeline_layout;
    wanted.account_for_embedding = now.account_for_embedding;
    wanted.account_for_loss = now.account_for_loss;
    wanted.first_stage_layers = now.first_stage_layers;
    wanted.last_stage_layers = now.last_stage_layers;
  }
  const bool sequence_parallel = plan.techniques.sequence_parallel;
  if (wanted == now && job.techniques.sequence_parallel == sequence_parallel &&
      job.techniques.cp_comm == plan.techniques.cp_comm)
    return "";
  const std::string before = grid(now), after = grid(wanted);
  const bool deeper = wanted.pp != now.pp;
  job.layout = wanted;
  job.techniques.sequence_parallel = sequence_parallel;
  job.techniques.cp_comm = plan.techniques.cp_comm;
  recut(job, deeper && job.layout.vpp != plan.layout.vpp);
  return before == after ? "pipeline cut" : fmt::format("layout {} -> {}", before, after);
}

std::string copy_schedule(const Job& plan, Job& job) {
  if (job.layout == plan.layout && job.schedule == plan.schedule) return "";
  const std::string text =
      job.layout.vpp != plan.layout.vpp
          ? fmt::format("virtual stages {} -> {}", job.layout.vpp, plan.layout.vpp)
          : fmt::format("schedule {}", token_name(layout::kScheduleKinds, plan.schedule.kind));
  job.layout = plan.layout;
  job.schedule = plan.schedule;
  return text;
}

std::string copy_optimizer_formats(const Job& plan, Job& job) {
  job::Optimizer& to = job.training.optimizer;
  const job::Optimizer& from = plan.training.optimizer;
  job::Optimizer wanted = from;
  wanted.grad_reduce = to.grad_reduce;  // compress
  wanted.main_grads = to.main_grads;
  wanted.fp8_param_gather = to.fp8_param_gather;
  if (wanted == to) return "";
  to = wanted;
  return fmt::format(
      "optimizer states: moments {}, master {}{}", token_name(job::kStateTypes, to.moments),
      token_name(job::kStateTypes, to.main_params), to.distributed ? ", distributed" : "");
}

std::string copy_offload(const Job& plan, Job& job) {
  if (job.techniques.offload == plan.techniques.offload) return "";
  job.techniques.offload = plan.techniques.offload;
  return fmt::format("offload {}",
                     words(job::kOffloadModules, plan.techniques.offload.activation_modules));
}

std::string copy_moe_buffers(const Job& plan, Job& job) {
  job::Techniques& t = job.techniques;
  if (t.memory_efficient_permutation == plan.techniques.memory_efficient_permutation &&
      t.paged_stash == plan.techniques.paged_stash)
    return "";
  t.memory_efficient_permutation = plan.techniques.memory_efficient_permutation;
  t.paged_stash = plan.techniques.paged_stash;
  return t.paged_stash ? "memory-efficient permutation, paged stash"
                       : "memory-efficient permutation";
}

std::string copy_recompute(const Job& plan, Job& job) {
  if (job.techniques.recompute == plan.techniques.recompute) return "";
  std::string text =
      fmt::format("recompute {} -> {}", words(job::kRecomputes, job.techniques.recompute),
                  words(job::kRecomputes, plan.techniques.recompute));
  job.techniques.recompute = plan.techniques.recompute;
  return text;
}

std::string copy_micro_batch(const Job& plan, Job& job) {
  std::int64_t& size = job.training.micro_batch_size;
  if (size == plan.training.micro_batch_size) return "";
  std::string text = fmt::format("micro batch {} -> {}", size, plan.training.micro_batch_size);
  size = plan.training.micro_batch_size;
  return text;
}

std::string copy_dispatcher(const Job& plan, Job& job) {
  job::Techniques& t = job.techniques;
  if (t.dispatcher == plan.techniques.dispatcher &&
      t.dispatcher_sms == plan.techniques.dispatcher_sms)
    return "";
  std::string text = fmt::format("dispatcher {} -> {}", token_name(job::kDispatchers, t.dispatcher),
                                 token_name(job::kDispatchers, plan.techniques.dispatcher));
  t.dispatcher = plan.techniques.dispatcher;
  t.dispatcher_sms = plan.techniques.dispatcher_sms;
  return text;
}

std::string copy_overlaps(const char* name, std::initializer_list<Overlap> set, const Job& plan,
                          Job& job) {
  bool adds = false, drops = false;
  for (Overlap o : set) {
    const bool now = job.techniques.has(o), wanted = plan.techniques.has(o);
    adds = adds || (wanted && !now), drops = drops || (now && !wanted);
    if (wanted) job.techniques.overlap.insert(o);
    if (!wanted) job.techniques.overlap.erase(o);
  }
  if (!adds && !drops) return "";
  return adds ? std::string(name) : std::string("without ") + name;
}

std::string copy_data_overlap(const Job& plan, Job& job) {
  return copy_overlaps("gradient and parameter overlap",
                       {Overlap::grad_reduce, Overlap::param_gather,
                        Overlap::param_gather_with_optimizer, Overlap::fsdp},
                       plan, job);
}
std::string copy_send_overlap(const Job& plan, Job& job) {
  return copy_overlaps("pipeline send overlap", {Overlap::pipeline_p2p}, plan, job);
}
std::string copy_tensor_overlap(const Job& plan, Job& job) {
  return copy_overlaps("tensor-parallel overlap", {Overlap::tp_comm}, plan, job);
}
std::string copy_shared_overlap(const Job& plan, Job& job) {
  return copy_overlaps("shared-expert overlap", {Overlap::shared_expert}, plan, job);
}
std::string copy_expert_overlap(const Job& plan, Job& job) {
  return copy_overlaps("EP overlap (merged forward-backward)",
                       {Overlap::ep_a2a, Overlap::delay_wgrad}, plan, job);
}
std::string copy_inter_overlap(const Job& plan, Job& job) {
  return copy_overlaps("inter-operator overlap", {Overlap::inter_op}, plan, job);
}
std::string copy_intra_overlap(const Job& plan, Job& job) {
  return copy_overlaps("intra-operator overlap", {Overlap::intra_op}, plan, job);
}

std::string copy_fusions(const Job& plan, Job& job) {
  EnumSet<job::Fusion> added;
  for (const auto& token : job::kFusions) {
    const job::Fusion f = token.value;
    if (f == job::Fusion::fp8_attention || f == job::Fusion::fp8_output_projection) continue;
    const bool now = job.techniques.has(f), wanted = plan.techniques.has(f);
    if (now == wanted) continue;
    added.insert(f);
    if (wanted) job.techniques.fusions.insert(f);
    if (!wanted) job.techniques.fusions.erase(f);
  }
  return added.empty() ? "" : "fusions " + words(job::kFusions, added);
}

std::string copy_graphs(const Job& plan, Job& job) {
  if (job.techniques.cuda_graph == plan.techniques.cuda_graph) return "";
  job.techniques.cuda_graph = plan.techniques.cuda_graph;
  return "CUDA graphs " + words(job::kGraphScopes, plan.techniques.cuda_graph);
}

std::string copy_host(const Job& plan, Job& job) {
  job::Techniques& t = job.techniques;
  if (t.processes_bound_to_cpus == plan.techniques.processes_bound_to_cpus &&
      t.implementation == plan.techniques.implementation)
    return "";
  t.processes_bound_to_cpus = plan.techniques.processes_bound_to_cpus;
  t.implementation = plan.techniques.implementation;
  return "processes bound to CPUs";
}

std::string copy_precision(const Job& plan, Job& job) {
  if (job.training.precision == plan.training.precision) return "";
  std::string text =
      fmt::format("precision {} -> {}", token_name(job::kPrecisions, job.training.precision),
                  token_name(job::kPrecisions, plan.training.precision));
  job.training.precision = plan.training.precision;
  job.training.optimizer.fp8_param_gather = plan.training.optimizer.fp8_param_gather;
  for (job::Fusion f : {job::Fusion::fp8_attention, job::Fusion::fp8_output_projection})
    if (plan.techniques.has(f)) job.techniques.fusions.insert(f);
  return text;
}

std::string copy_gradients(const Job& plan, Job& job) {
  if (job.training.optimizer == plan.training.optimizer &&
      job.techniques.gradient_compression == plan.techniques.gradient_compression)
    return "";
  job.training.optimizer = plan.training.optimizer;
  job.techniques.gradient_compression = plan.techniques.gradient_compression;
  return fmt::format("gradients reduced in {}{}",
                     token_name(job::kStateTypes, plan.training.optimizer.grad_reduce),
                     plan.techniques.gradient_compression == job::GradientCompression::none
                         ? ""
                         : ", one-shot all-to-all");
}

std::string copy_dispatch_precision(const Job& plan, Job& job) {
  if (job.techniques.dispatch_precision == plan.techniques.dispatch_precision) return "";
  job.techniques.dispatch_precision = plan.techniques.dispatch_precision;
  return fmt::format("dispatch in {}",
                     token_name(job::kDispatchPrecisions, plan.techniques.dispatch_precision));
}

std::string copy_rest(const Job& plan, Job& job) {
  if (job.techniques == plan.techniques && job.training == plan.training &&
      job.layout == plan.layout && job.schedule == plan.schedule)
    return "";
  job = plan;
  return "routing and the rest";
}

struct CopyStep {
  Attack attack;
  Copy copy;
};
constexpr CopyStep kSteps[] = {{Attack::geometry, copy_layout},
                               {Attack::geometry, copy_schedule},
                               {Attack::memory_headroom, copy_optimizer_formats},
                               {Attack::memory_headroom, copy_offload},
                               {Attack::memory_headroom, copy_moe_buffers},
                               {Attack::memory_headroom, copy_recompute},
                               {Attack::memory_headroom, copy_micro_batch},
                               {Attack::dispatcher_bandwidth, copy_dispatcher},
                               {Attack::hide_latency, copy_data_overlap},
                               {Attack::hide_latency, copy_send_overlap},
                               {Attack::hide_latency, copy_tensor_overlap},
                               {Attack::hide_latency, copy_shared_overlap},
                               {Attack::hide_latency, copy_expert_overlap},
                               {Attack::hide_latency, copy_inter_overlap},
                               {Attack::hide_latency, copy_intra_overlap},
                               {Attack::compute_packing, copy_fusions},
                               {Attack::compute_packing, copy_graphs},
                               {Attack::compute_packing, copy_host},
                               {Attack::compress, copy_precision},
                               {Attack::compress, copy_gradients},
                               {Attack::compress, copy_dispatch_precision},
                               {Attack::compress, copy_rest}};

bool evaluate(const Job& job, estimate::Estimator& estimator, Estimate& out) {
  if (!job::check(job, job::Runtime::any).legal()) return false;
  const Result<layout::Pipeline> pipeline =
      layout::build_pipeline(job.model, job.layout, job.placement());
  if (!pipeline) return false;
  estimator.evaluate(job, *pipeline, out);
  return true;
}

void add_step(Attack attack, std::string name, const Job& job, Estimate&& estimate,
              std::vector<LadderStep>& steps) {
  LadderStep step;
  step.attack = attack;
  step.name = std::move(name);
  step.job = job;
  step.estimate = std::move(estimate);
  step.wall = binding_wall(step.estimate);
  step.wall_before = step.wall;
  step.fits = step.estimate.memory.fits();
  if (!steps.empty()) {
    const LadderStep& last = steps.back();
    step.wall_before = last.wall;
    step.gain_s = last.estimate.step_time_s - step.estimate.step_time_s;
    step.freed = last.estimate.memory.peak - step.estimate.memory.peak;
  }
  steps.push_back(std::move(step));
}

std::vector<NextStep> next_steps(const Job& plan, const Estimate& now,
                                 estimate::Estimator& estimator) {
  const job::Runtime runtime =
      job::check(plan).legal() ? job::Runtime::megatron : job::Runtime::any;
  std::vector<NextStep> found;
  for (const Move& move : moves(plan)) {
    NextStep next{move.attack, move.name, plan, {}, 0, Bytes()};
    move.apply(next.job);
    if (move.layout)
      recut(next.job,
            next.job.layout.pp != plan.layout.pp || next.job.layout.vpp != plan.layout.vpp);
    if (next.job.layout.vpp > 1 && plan.layout.vpp == 1 &&
        next.job.schedule.kind == layout::ScheduleKind::one_f_one_b) {
      next.job.schedule.kind = layout::ScheduleKind::interleaved;
      next.job.techniques.overlap.insert(Overlap::pipeline_p2p);
      recut(next.job, true);
    }
    if (!job::check(next.job, runtime).legal()) continue;
    if (!evaluate(next.job, estimator, next.estimate)) continue;
    if (!next.estimate.memory.fits()) continue;
    next.gain_s = now.step_time_s - next.estimate.step_time_s;
    next.freed = now.memory.peak - next.estimate.memory.peak;
    if (next.gain_s > 1e-6 * now.step_time_s) found.push_back(std::move(next));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const NextStep& a, const NextStep& b) { return a.gain_s > b.gain_s; });
  if (found.size() > 5) found.resize(5);
  return found;
}

// The largest expert group inside data parallelism that shards experts no wider than the plan.
int classic_ep(const Job& plan, int tp) {
  const int dp = plan.gpus / (tp * plan.layout.cp * plan.layout.pp);
  const int wanted = std::max(1, plan.layout.ep * plan.layout.etp / tp);
  int best = 1;
  for (std::int64_t d : divisors(plan.model.moe.experts))
    if (d <= wanted && divides(d, dp)) best = static_cast<int>(d);
  return best;
}

Job bare(const Job& plan, int tp) {
  Job job = plan;
  const bool moe = plan.model.is_moe();
  job.layout = layout::Layout{};
  job.layout.tp = tp;
  job.layout.cp = plan.layout.cp;
  job.layout.pp = plan.layout.pp;
  job.layout.ep = moe ? classic_ep(plan, tp) : 1;
  job.layout.etp = moe ? tp : 1;
  job.schedule = {};
  job.training.micro_batch_size = 1;
  job.training.precision = job::Precision::bf16;
  job.training.optimizer = {};
  job.training.optimizer.name = plan.training.optimizer.name;
  job.techniques = {};
  job.techniques.routing = plan.techniques.routing;
  job.techniques.sequence_parallel = tp > 1;
  job.techniques.memory_efficient_permutation = false;
  job.techniques.processes_bound_to_cpus = false;
  recut(job, true);
  return job;
}

}  // namespace

job::Job naive_baseline(const job::Job& plan, const hardware::Profile& profile) {
  estimate::Estimator estimator(plan.cluster, profile);
  Estimate estimate;
  constexpr std::int64_t kNarrowest = 1024;  // columns of an expert shard
  const int domain = std::max(8, std::min(plan.cluster.gpus_per_node, plan.cluster.domain_gpus));
  Job smallest = plan;
  Bytes least(INT64_MAX);
  for (int tp = domain; tp >= 1; tp /= 2) {
    if (tp > 1 && plan.model.is_moe() && plan.model.moe.expert_ffn / tp < kNarrowest) continue;
    if (plan.gpus % (tp * plan.layout.cp * plan.layout.pp) != 0) continue;
    for (const bool full : {false, true}) {
      Job job = bare(plan, tp);
      if (full) job.techniques.recompute.insert(job::Recompute::full);
      if (!evaluate(job, estimator, estimate)) continue;
      if (estimate.memory.fits()) return job;
      if (estimate.memory.peak < least) least = estimate.memory.peak, smallest = job;
    }
  }
  return smallest;
}

Result<Ladder> climb(const job::Job& plan, const job::Job* from, const hardware::Profile& profile) {
  for (const job::Job* job : {&plan, from}) {
    if (job == nullptr) continue;
    const job::Verdict verdict = job::check(*job, job::Runtime::any);
    if (!verdict.legal())
      return Error{ErrorCode::infeasible, "this layout cannot run: " + job::explain(verdict),
                   job == from ? "--from" : "explain", ""};
  }
  if (from != nullptr && (from->gpus != plan.gpus || from->model.layers != plan.model.layers ||
                          from->training.global_batch_size != plan.training.global_batch_size ||
                          from->training.sequence_length != plan.training.sequence_length))
    return input_error("the two Jobs differ in model, GPUs, batch or sequence", "--from",
                       "a ladder compares two ways to do the same work");
  estimate::Estimator estimator(plan.cluster, profile);
  Ladder ladder;
  Job job = from != nullptr ? *from : naive_baseline(plan, profile);
  job.cluster = plan.cluster, job.cluster_origin = plan.cluster_origin;
  Estimate estimate;
  evaluate(job, estimator, estimate);
  add_step(Attack::baseline, grid(job.layout), job, std::move(estimate), ladder.steps);
  std::string pending;
  for (const CopyStep& step : kSteps) {
    const std::string text = step.copy(plan, job);
    if (text.empty()) continue;
    pending += (pending.empty() ? "" : "; ") + text;
    Estimate after;
    if (!evaluate(job, estimator, after)) continue;  // legal only with a later change
    add_step(step.attack, std::move(pending), job, std::move(after), ladder.steps);
    pending.clear();
  }
  ladder.next = next_steps(plan, ladder.steps.back().estimate, estimator);
  return ladder;
}

}  // namespace trifold::planner
