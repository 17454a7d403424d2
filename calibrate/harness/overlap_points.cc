// SPDX-License-Identifier: Apache-2.0
// Interference: an operation's time while the other stream is always busy, and alone. GEMMs of many
// and of few waves, a memory-bound copy; against collectives by CTA limit and SM carve-out, host
// copies, SM-limited copies. Each pair gives two points (one a side), alone_us beside.
#include <optional>

#include "calibrate/harness/gemm.h"
#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

using hardware::Collective;
using hardware::Dtype;

enum class Work { gemm_many_waves, gemm_one_wave, copy };
enum class Traffic { all_to_all, all_gather, reduce_scatter, all_reduce, d2h, h2d, sm_copy };

const char* work_name(Work w) {
  return w == Work::gemm_many_waves ? "gemm8192x4096x7168"
         : w == Work::gemm_one_wave ? "gemm1024x4096x7168"
                                    : "copy256MiB";
}

struct TrafficName {
  Traffic traffic;
  const char* name;
  std::optional<Collective> collective;
};
const TrafficName kTraffic[] = {
    {Traffic::all_to_all, "all_to_all", Collective::all_to_all},
    {Traffic::all_gather, "all_gather", Collective::all_gather},
    {Traffic::reduce_scatter, "reduce_scatter", Collective::reduce_scatter},
    {Traffic::all_reduce, "all_reduce", Collective::all_reduce},
    {Traffic::d2h, "d2h", std::nullopt},
    {Traffic::h2d, "h2d", std::nullopt},
    {Traffic::sm_copy, "sm_copy", std::nullopt}};

const TrafficName& traffic_of(Traffic t) {
  for (const TrafficName& entry : kTraffic)
    if (entry.traffic == t) return entry;
  return kTraffic[0];
}

struct Ask {
  Work work;
  Traffic traffic;
  std::size_t bytes = std::size_t{1} << 28;
  int ctas = 0, sms = 0;
  bool collective() const { return traffic_of(traffic).collective.has_value(); }
};

// The compute side.
struct Compute {
  std::vector<GemmBuffers> buffers;
  std::optional<GemmPlan> plan;
  void *from = nullptr, *to = nullptr;
};

constexpr std::size_t kCopyBytes = std::size_t{256} << 20;

Result<Compute> make_compute(Rank& rank, const Ask& ask) {
  Compute c;
  Device& d = rank.device;
  if (ask.work == Work::copy) {
    TRIFOLD_ASSIGN(from, d.arena.take(kCopyBytes));
    TRIFOLD_ASSIGN(to, d.arena.take(kCopyBytes));
    CUDA_TRY(
        kernels::fill_normal(from, kernels::Element::bf16, kCopyBytes / 2, 1, d.seed(), d.stream));
    c.from = from, c.to = to;
    return c;
  }
  GemmShape s;
  s.m = ask.work == Work::gemm_many_waves ? 8192 : 1024;
  s.n = 4096;
  s.k = 7168;
  s.sm_target = ask.sms;
  for (int i = 0; i < 2; ++i) {
    TRIFOLD_ASSIGN(b, take_gemm(d, s));
    TRIFOLD_TRY(fill_gemm(d, s, b));
    c.buffers.push_back(b);
  }
  TRIFOLD_ASSIGN(plan, GemmPlan::make(d, s, c.buffers[0]));
  c.plan = std::move(plan);
  return c;
}

Result<void> compute(Rank& rank, const Compute& c, int i, cudaStream_t s) {
  if (c.plan) return c.plan->run(rank.device, c.buffers[static_cast<std::size_t>(i) % 2], 0, s);
  CUDA_TRY(kernels::copy_blocks(c.from, c.to, kCopyBytes, 0, s));
  return {};
}

struct Pinned {
  void* p = nullptr;
  Pinned() = default;
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() {
    if (p != nullptr) (void)cudaFreeHost(p);
  }
};

Result<void> traffic(const Ask& ask, const Communicator* c, void* a, void* b, void* host,
                     cudaStream_t s) {
  switch (ask.traffic) {
    case Traffic::d2h:
      CUDA_TRY(cudaMemcpyAsync(host, a, ask.bytes, cudaMemcpyDeviceToHost, s));
      return {};
    case Traffic::h2d:
      CUDA_TRY(cudaMemcpyAsync(a, host, ask.bytes, cudaMemcpyHostToDevice, s));
      return {};
    case Traffic::sm_copy:
      CUDA_TRY(kernels::copy_blocks(a, b, ask.bytes, ask.ctas, s));
      return {};
    default:
      return c->collective(*traffic_of(ask.traffic).collective, a, b, ask.bytes, s);
  }
}

Point side(const Ask& ask, const std::string& op, double alone_us, const Measurement& m) {
  Point p = question(PointFamily::overlap, op, "", Dtype::bf16,
                     {static_cast<double>(ask.bytes), static_cast<double>(ask.ctas),
                      static_cast<double>(ask.sms), alone_us});
  return answer(std::move(p), m);
}

std::string name_of(const Ask& ask, bool compute_side) {
  const std::string work = work_name(ask.work), other = traffic_of(ask.traffic).name;
  return compute_side ? work + " under " + other : other + " under " + work;
}

Result<std::vector<Point>> run_overlap(Rank& rank, const Ask& ask) {
  Device& d = rank.device;
  const Communicator* c = &rank.world;
  Team team;
  if (ask.collective()) {
    team = rank.team();
    if (ask.ctas > 0) {
      auto found = rank.limited.find(ask.ctas);
      if (found == rank.limited.end()) {
        TRIFOLD_ASSIGN(made, rank.world.split(rank.control, rank.control.world(), ask.ctas));
        found = rank.limited.emplace(ask.ctas, std::move(made)).first;
      }
      c = &found->second;
    }
  }
  Pinned host;
  if (ask.traffic == Traffic::d2h || ask.traffic == Traffic::h2d)
    CUDA_TRY(cudaMallocHost(&host.p, ask.bytes));
  Result<Compute> work = make_compute(rank, ask);
  Result<void*> a = d.arena.take(ask.bytes), b = d.arena.take(ask.bytes);
  bool fits = work.has_value() && a.has_value() && b.has_value();
  if (ask.collective()) {
    TRIFOLD_ASSIGN(everybody, rank.control.all(fits));
    fits = everybody;
  }
  if (!work && !is_skip(work.error())) return std::move(work).error();
  if (!fits) return skip("out of device memory or no GEMM algorithm on a rank");
  CUDA_TRY(kernels::fill_normal(*a, kernels::Element::bf16, ask.bytes / 2, 1, d.seed(), d.stream));
  CUDA_TRY(cudaStreamSynchronize(d.stream));
  const Operation first = [&](int i, cudaStream_t s) { return compute(rank, *work, i, s); };
  const Operation second = [&](int, cudaStream_t s) { return traffic(ask, c, *a, *b, host.p, s); };
  SampleRule rule;
  rule.budget_ms = 40;
  rule.warm_ms = 30;
  TRIFOLD_ASSIGN(first_alone, measure(d, rule, first, team));
  TRIFOLD_ASSIGN(second_alone, measure(d, rule, second, team));
  TRIFOLD_ASSIGN(both, measure_overlap(d, first, first_alone.us, second, second_alone.us, team));
  return std::vector<Point>{side(ask, name_of(ask, true), first_alone.us, both.first),
                            side(ask, name_of(ask, false), second_alone.us, both.second)};
}

void add(std::vector<Job>& jobs, const Ask& ask, int priority) {
  Job job;
  job.question = side(ask, name_of(ask, true), 0, {});
  job.priority = priority;
  job.collective = ask.collective();
  job.run = [ask](Rank& rank) { return run_overlap(rank, ask); };
  jobs.push_back(std::move(job));
}

}  // namespace

void add_overlap_jobs(std::vector<Job>& jobs, int world, int sms) {
  const std::size_t link = std::size_t{64} << 20;
  for (const Work work : {Work::gemm_many_waves, Work::copy}) {
    add(jobs, {work, Traffic::d2h, link}, work == Work::gemm_many_waves ? 0 : 1);
    add(jobs, {work, Traffic::h2d, link}, 1);
    for (const int ctas : {4, 16, 32})
      add(jobs, {work, Traffic::sm_copy, std::size_t{1} << 28, ctas}, ctas == 16 ? 0 : 1);
  }
  if (world < 2) return;
  for (const Work work : {Work::gemm_many_waves, Work::gemm_one_wave, Work::copy})
    for (const Traffic traffic :
         {Traffic::all_to_all, Traffic::all_gather, Traffic::reduce_scatter, Traffic::all_reduce})
      for (const int ctas : {0, 8, 16}) {
        Ask ask{work, traffic};
        ask.ctas = ctas;
        if (ctas > 0 && traffic != Traffic::all_to_all && traffic != Traffic::all_gather) continue;
        add(jobs, ask, 1);
      }
  for (const int left : {8, 16, 24, 32})
    for (const int ctas : {0, 8, 16}) {
      Ask ask{Work::gemm_many_waves, Traffic::all_to_all};
      ask.ctas = ctas;
      ask.sms = sms - left;
      add(jobs, ask, 1);
    }
}

}  // namespace trifold::calibrate
