// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/grouped.h"
#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

using hardware::Dtype;
using hardware::GemmPass;

const char* pass_name(GemmPass pass) {
  return pass == GemmPass::forward ? "forward" : pass == GemmPass::dgrad ? "dgrad" : "wgrad";
}

Result<std::vector<Point>> run_grouped(Rank& rank, Point asked, const GroupedShape& shape) {
  // cublasGemmGroupedBatchedEx keeps its pointers on the device: one object a set.
  struct Set {
    GemmBuffers buffers;
    GroupedGemm gemm;
  };
  std::vector<Set> sets;
  const int count = rotating_sets(rank.device, grouped_bytes(shape));
  for (int i = 0; i < count; ++i) {
    TRIFOLD_ASSIGN(buffers, take_grouped(rank.device, shape));
    TRIFOLD_TRY(fill_grouped(rank.device, shape, buffers));
    TRIFOLD_ASSIGN(gemm, GroupedGemm::make(rank.device, shape, buffers));
    sets.push_back(Set{buffers, std::move(gemm)});
  }
  TRIFOLD_ASSIGN(right, sets[0].gemm.check(rank.device, sets[0].buffers));
  if (!right) asked.flags.insert(PointFlag::bad);
  SampleRule rule;
  rule.budget_ms = 40;
  rule.warm_ms = 25;
  TRIFOLD_ASSIGN(m, measure(rank.device, rule, [&](int i, cudaStream_t s) {
                   Set& set = sets[static_cast<std::size_t>(i) % sets.size()];
                   return set.gemm.run(rank.device, set.buffers, s);
                 }));
  asked.flags.insert(PointFlag::burst);
  return std::vector<Point>{answer(std::move(asked), m)};
}

struct Weight {
  std::int64_t n, k;
};
// fc1 (gate and up) and fc2 of DeepSeek-V3, Qwen3-235B and Mixtral experts.
constexpr Weight kWeights[] = {{4096, 7168}, {7168, 2048},  {3072, 4096},
                               {4096, 1536}, {28672, 4096}, {4096, 14336}};

void add(std::vector<Job>& jobs, const GroupedShape& shape, const std::string& variant,
         int priority) {
  const auto experts = static_cast<double>(shape.rows.size());
  Job job;
  job.question = question(PointFamily::grouped_gemm, pass_name(shape.pass),
                          shape.pass == GemmPass::wgrad ? variant + "_f32" : variant, shape.dtype,
                          {static_cast<double>(shape.total_rows()) / experts,
                           static_cast<double>(shape.n), static_cast<double>(shape.k), experts});
  job.priority = priority;
  job.run = [shape, asked = job.question](Rank& rank) { return run_grouped(rank, asked, shape); };
  jobs.push_back(std::move(job));
}

bool small_enough(const Weight& w, int experts, std::int64_t rows) {
  return experts * rows <= 65536 && experts * w.n * w.k <= (std::int64_t{1} << 32);
}

void add_balanced(std::vector<Job>& jobs, const Weight& w, int experts, std::int64_t rows) {
  GroupedShape s;
  s.n = w.n;
  s.k = w.k;
  s.rows = balanced_rows(rows * experts, experts);
  const bool quick = experts == 8 && w.k != 14336 && w.n != 28672 && (rows == 256 || rows == 2048);
  const bool compared = experts == 8 || experts == 32;  // every back end, and FP8
  for (const Backend backend :
       {Backend::streams, Backend::loop, Backend::grouped, Backend::strided}) {
    if (!compared && backend != Backend::streams && experts > 1) continue;
    s.backend = backend;
    s.dtype = Dtype::bf16;
    s.pass = GemmPass::forward;
    add(jobs, s, backend_name(backend), quick && backend != Backend::strided ? 0 : 1);
    if (backend != Backend::streams || rows < 128 || experts == 1) continue;
    // Streams are what training stacks run on Hopper: the other passes and FP8 there.
    for (const GemmPass pass : {GemmPass::dgrad, GemmPass::wgrad}) {
      s.pass = pass;
      add(jobs, s, backend_name(backend), quick ? 0 : 1);
    }
    s.pass = GemmPass::forward;
    s.dtype = Dtype::fp8_tensor;
    if (compared) add(jobs, s, backend_name(backend), 1);
  }
}

// Counts as balanced routing scatters them: no two experts alike, none a multiple of a tile.
void add_scattered(std::vector<Job>& jobs, const Weight& w, int experts, std::int64_t rows) {
  if (!small_enough(w, experts, rows)) return;
  GroupedShape s;
  s.n = w.n;
  s.k = w.k;
  s.backend = Backend::streams;
  s.rows = scattered_rows(rows * experts, experts, 17);
  for (const GemmPass pass : {GemmPass::forward, GemmPass::dgrad, GemmPass::wgrad}) {
    s.pass = pass;
    add(jobs, s, "streams_scattered", 1);
  }
}

}  // namespace

void add_grouped_jobs(std::vector<Job>& jobs) {
  for (const Weight& w : kWeights)
    for (const int experts : {1, 4, 8, 16, 32, 64})
      for (const std::int64_t rows : {32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
        // Every row count at 8 experts; a coarser grid elsewhere.
        if (experts != 8 && (rows == 64 || rows == 256 || rows == 1024 || rows == 4096)) continue;
        if (experts == 1 && rows < 128) continue;
        if (small_enough(w, experts, rows)) add_balanced(jobs, w, experts, rows);
      }
  for (const Weight& w : kWeights)
    for (const int experts : {8, 32})
      for (const std::int64_t rows :
           {32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192})
        add_scattered(jobs, w, experts, rows);
  for (const Weight& w : kWeights)
    for (const double exponent : {0.5, 1.0})
      for (const Backend backend : {Backend::loop, Backend::grouped, Backend::streams}) {
        GroupedShape s;
        s.n = w.n;
        s.k = w.k;
        s.backend = backend;
        s.rows = zipf_rows(16384, 16, exponent);
        const std::string name = exponent < 0.75 ? "_zipf05" : "_zipf10";
        add(jobs, s, backend_name(backend) + name, w.n == 4096 && w.k == 7168 ? 0 : 1);
      }
}

}  // namespace trifold::calibrate
