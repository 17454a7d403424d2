// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cmath>
#include <thread>

#include "calibrate/harness/gemm.h"
#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

using hardware::Dtype;
using hardware::GemmPass;

const char* pass_name(GemmPass pass) {
  return pass == GemmPass::forward ? "forward" : pass == GemmPass::dgrad ? "dgrad" : "wgrad";
}

struct Sets {
  std::vector<GemmBuffers> buffers;
  const GemmBuffers& at(int iteration) const {
    return buffers[static_cast<std::size_t>(iteration) % buffers.size()];
  }
};

Result<Sets> make_sets(Rank& rank, const GemmShape& shape) {
  Sets sets;
  const int count = rotating_sets(rank.device, gemm_bytes(shape).total());
  for (int i = 0; i < count; ++i) {
    TRIFOLD_ASSIGN(buffers, take_gemm(rank.device, shape));
    TRIFOLD_TRY(fill_gemm(rank.device, shape, buffers));
    sets.buffers.push_back(buffers);
  }
  return sets;
}

Result<std::vector<Point>> run_gemm(Rank& rank, Point asked, const GemmShape& shape,
                                    const SampleRule& rule) {
  TRIFOLD_ASSIGN(sets, make_sets(rank, shape));
  TRIFOLD_ASSIGN(plan, GemmPlan::make(rank.device, shape, sets.buffers[0]));
  TRIFOLD_ASSIGN(right, check_gemm(rank.device, plan, sets.buffers[0]));
  if (!right) asked.flags.insert(PointFlag::bad);
  TRIFOLD_ASSIGN(m, measure(rank.device, rule, [&](int i, cudaStream_t s) {
                   return plan.run(rank.device, sets.at(i), 0, s);
                 }));
  if (asked.variant != "sustained") asked.flags.insert(PointFlag::burst);
  return std::vector<Point>{answer(std::move(asked), m)};
}

void add(std::vector<Job>& jobs, const GemmShape& shape, const std::string& variant, int priority,
         bool anchor = false) {
  Job job;
  job.question = question(PointFamily::gemm, pass_name(shape.pass),
                          shape.pass == GemmPass::wgrad ? "f32" + variant : variant, shape.dtype,
                          {static_cast<double>(shape.m), static_cast<double>(shape.n),
                           static_cast<double>(shape.k), 0});
  job.priority = priority;
  job.anchor = anchor;
  SampleRule rule;
  rule.budget_ms = 40;
  rule.warm_ms = 25;
  job.run = [shape, asked = job.question, rule](Rank& rank) {
    return run_gemm(rank, asked, shape, rule);
  };
  jobs.push_back(std::move(job));
}

struct Weight {
  std::int64_t n, k;
  int priority;
};

// Weights of the models that people train: DeepSeek-V3 (attention, shared and dense feed-forward,
// router), Qwen3-235B, Mixtral 8x7B, Llama-3 70B, and squares. TP shards fall between them.
constexpr Weight kWeights[] = {
    {4096, 7168, 0},  {7168, 2048, 0},  {1536, 7168, 1},  {24576, 1536, 1}, {576, 7168, 1},
    {32768, 512, 1},  {7168, 16384, 1}, {36864, 7168, 1}, {7168, 18432, 1}, {256, 7168, 1},
    {9216, 4096, 1},  {4096, 8192, 0},  {3072, 4096, 0},  {4096, 1536, 1},  {6144, 4096, 1},
    {4096, 4096, 0},  {28672, 4096, 0}, {4096, 14336, 1}, {8192, 8192, 0},  {10240, 8192, 1},
    {8192, 28672, 1}, {2048, 2048, 1},  {1024, 1024, 1},  {16384, 4096, 1}, {2048, 7168, 1}};

// Powers of two and halfway, where waves of tiles fill differently.
constexpr std::int64_t kTokens[] = {128,  192,  256,  384,  512,  768,   1024, 1536,
                                    2048, 3072, 4096, 6144, 8192, 12288, 16384};

bool quick_tokens(std::int64_t m) { return m == 512 || m == 2048 || m == 8192; }

void add_passes(std::vector<Job>& jobs) {
  for (const Weight& w : kWeights)
    for (const std::int64_t m : kTokens) {
      const int priority = w.priority == 0 && quick_tokens(m) ? 0 : 1;
      GemmShape s;
      s.m = m;
      s.n = w.n;
      s.k = w.k;
      add(jobs, s, "", priority, m == 4096 && w.n == 4096 && w.k == 7168);
      if (m < 512 || m == 768) continue;
      for (const GemmPass pass : {GemmPass::dgrad, GemmPass::wgrad}) {
        s.pass = pass;
        add(jobs, s, "", m == 512 ? 1 : priority);
      }
    }
}

void add_fp8(std::vector<Job>& jobs) {
  for (const Weight& w : kWeights)
    for (const std::int64_t m : kTokens)
      for (const Dtype dtype : {Dtype::fp8_tensor, Dtype::fp8_block})
        for (const GemmPass pass : {GemmPass::forward, GemmPass::dgrad, GemmPass::wgrad}) {
          if (m < 512 || m == 768) continue;
          if (pass != GemmPass::forward && (m < 1024 || m == 1536)) continue;
          GemmShape s;
          s.dtype = dtype;
          s.pass = pass;
          s.m = m;
          s.n = w.n;
          s.k = w.k;
          const bool quick = w.priority == 0 && pass == GemmPass::forward && quick_tokens(m);
          add(jobs, s, "", quick ? 0 : 1);
        }
}

// Saturation in K, whole and broken waves, and SM carve-outs.
void add_sweeps(std::vector<Job>& jobs, int sms) {
  for (std::int64_t k = 128; k <= 16384; k *= 2) {
    GemmShape s;
    s.m = s.n = 4096;
    s.k = k;
    if (k != 4096) add(jobs, s, "", 1);
  }
  for (std::int64_t n = 512; n <= 8704; n += 1024) {
    GemmShape s;
    s.m = 2048;
    s.n = n;
    s.k = 4096;
    add(jobs, s, "", 1);
  }
  for (const int left : {4, 8, 16, 24, 32}) {
    GemmShape s;
    s.m = 8192;
    s.n = 4096;
    s.k = 7168;
    s.sm_target = sms - left;
    add(jobs, s, "sms" + std::to_string(s.sm_target), left == 8 || left == 24 ? 0 : 1);
  }
}

// Two seconds back to back: the clock that the power limit leaves.
void add_sustained(std::vector<Job>& jobs) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp8_tensor}) {
    GemmShape s;
    s.dtype = dtype;
    s.m = s.n = s.k = 8192;
    Job job;
    job.question =
        question(PointFamily::gemm, "forward", "sustained", dtype, {8192, 8192, 8192, 0});
    job.priority = dtype == Dtype::bf16 ? 0 : 1;
    SampleRule rule;
    rule.min_span_us = 20000;
    rule.min_samples = rule.max_samples = 100;
    rule.budget_ms = 2200;
    rule.warm_ms = 500;
    rule.cool_ms = 0;
    job.run = [s, asked = job.question, rule](Rank& rank) {
      return run_gemm(rank, asked, s, rule);
    };
    jobs.push_back(std::move(job));
  }
}

constexpr int kHeldLaunches = 320;
constexpr int kHeldRounds = 3;
constexpr double kHeld_ms[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 400};

// Launches back to back from a rested GPU: microseconds of each, and when it ended.
struct Held {
  std::vector<double> us, ended_ms;
};

Result<void> hold(Rank& rank, const GemmPlan& plan, const Sets& sets,
                  std::vector<cudaEvent_t>& events, Held& held) {
  Device& d = rank.device;
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  TRIFOLD_TRY(cool(d, 400));
  CUDA_TRY(kernels::spin(5000, d.stream));
  CUDA_TRY(cudaEventRecord(events[0], d.stream));
  for (int i = 0; i < kHeldLaunches; ++i) {
    TRIFOLD_TRY(plan.run(d, sets.at(i), 0, d.stream));
    CUDA_TRY(cudaEventRecord(events[static_cast<std::size_t>(i) + 1], d.stream));
  }
  TRIFOLD_TRY(wait_for(d.stream, 60, {}));
  double ended = 0;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    float ms = 0;
    CUDA_TRY(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
    ended += static_cast<double>(ms);
    held.us.push_back(1000 * static_cast<double>(ms));
    held.ended_ms.push_back(ended);
  }
  return {};
}

// How the power limit sets in: the same GEMM after 1 ms to 400 ms of itself.
Result<std::vector<Point>> run_held(Rank& rank, Point asked, const GemmShape& shape) {
  TRIFOLD_ASSIGN(sets, make_sets(rank, shape));
  TRIFOLD_ASSIGN(plan, GemmPlan::make(rank.device, shape, sets.buffers[0]));
  std::vector<cudaEvent_t> events(kHeldLaunches + 1);
  for (cudaEvent_t& event : events) CUDA_TRY(cudaEventCreate(&event));
  Held held;
  Result<void> ran;
  for (int round = 0; round < kHeldRounds && ran; ++round)
    ran = hold(rank, plan, sets, events, held);
  for (cudaEvent_t event : events) (void)cudaEventDestroy(event);
  TRIFOLD_TRY(ran);
  std::vector<Point> points;
  for (const double ms : kHeld_ms) {
    std::vector<double> us;
    for (std::size_t i = 0; i < held.us.size(); ++i)
      if (held.ended_ms[i] >= ms / 1.4 && held.ended_ms[i] <= 1.4 * ms) us.push_back(held.us[i]);
    if (us.empty()) continue;
    Point p = asked;
    p.variant = "held_" + std::to_string(static_cast<int>(ms)) + "ms";
    p.us = percentile(us, 0.5);
    p.us_p10 = percentile(us, 0.1);
    p.us_p90 = percentile(us, 0.9);
    p.samples = static_cast<int>(us.size());
    points.push_back(std::move(p));
  }
  return points;
}

void add_held(std::vector<Job>& jobs) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp8_tensor}) {
    GemmShape s;
    s.dtype = dtype;
    s.m = s.n = s.k = 8192;
    Job job;
    job.question = question(PointFamily::gemm, "forward", "held_1ms", dtype, {8192, 8192, 8192, 0});
    job.priority = 1;
    job.run = [s, asked = job.question](Rank& rank) { return run_held(rank, asked, s); };
    jobs.push_back(std::move(job));
  }
}

}  // namespace

void add_gemm_jobs(std::vector<Job>& jobs, int sms) {
  add_passes(jobs);
  add_fp8(jobs);
  add_sweeps(jobs, sms);
  add_sustained(jobs);
  add_held(jobs);
}

}  // namespace trifold::calibrate
