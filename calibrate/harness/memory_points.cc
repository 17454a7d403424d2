// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

using hardware::Dtype;
using kernels::Element;

// One set of the buffers that a memory-bound kernel touches.
struct Set {
  std::vector<void*> p;
  template <class T = void>
  T* as(std::size_t i) const {
    return static_cast<T*>(p[i]);
  }
};

struct Spec {
  std::string op;                                        // the point's and the kernel check's name
  std::string variant;                                   // shape in words: t4096_h7168_k8
  double bytes = 0;                                      // moved through HBM
  std::vector<std::pair<std::size_t, Element>> buffers;  // elements; f32 and bf16 get normals
  std::function<Result<void>(Rank&, Set&)> prepare;      // indices and maps; may be empty
  std::function<cudaError_t(const Set&, cudaStream_t)> launch;
  int priority = 1;
  PointFamily family = PointFamily::memory_bound;
  bool anchor = false;
};

Result<std::vector<Point>> run_spec(Rank& rank, Point asked, const Spec& spec) {
  std::size_t bytes = 0;
  for (const auto& [count, type] : spec.buffers) bytes += count * kernels::element_size(type);
  std::vector<Set> sets;
  const int count = rotating_sets(rank.device, bytes);
  Device& d = rank.device;
  for (int i = 0; i < count; ++i) {
    Set set;
    for (const auto& [elements, type] : spec.buffers) {
      TRIFOLD_ASSIGN(p, d.arena.take(elements * kernels::element_size(type)));
      if (type == Element::i32)
        CUDA_TRY(cudaMemsetAsync(p, 0, elements * 4, d.stream));
      else
        CUDA_TRY(kernels::fill_normal(p, type, elements, 1.0f, d.seed(), d.stream));
      set.p.push_back(p);
    }
    if (spec.prepare) TRIFOLD_TRY(spec.prepare(rank, set));
    sets.push_back(std::move(set));
  }
  const auto known = rank.kernel_ok.find(spec.op);
  if (known == rank.kernel_ok.end())
    asked.flags.insert(PointFlag::unchecked);
  else if (!known->second)
    asked.flags.insert(PointFlag::bad);
  SampleRule rule;
  rule.budget_ms = 30;
  rule.warm_ms = 20;
  TRIFOLD_ASSIGN(m, measure(d, rule, [&](int i, cudaStream_t s) -> Result<void> {
                   CUDA_TRY(spec.launch(sets[static_cast<std::size_t>(i) % sets.size()], s));
                   return {};
                 }));
  return std::vector<Point>{answer(std::move(asked), m)};
}

void add(std::vector<Job>& jobs, const Spec& spec, Dtype dtype = Dtype::bf16) {
  Job job;
  job.question = question(spec.family, spec.op, spec.variant, dtype, {spec.bytes, 0, 0, 0});
  job.priority = spec.priority;
  job.anchor = spec.anchor;
  job.run = [spec, asked = job.question](Rank& rank) { return run_spec(rank, asked, spec); };
  jobs.push_back(std::move(job));
}

struct Routing {
  int tokens, experts, k, hidden;
};

std::string words(const Routing& r) {
  return "t" + std::to_string(r.tokens) + "_e" + std::to_string(r.experts) + "_k" +
         std::to_string(r.k) + "_h" + std::to_string(r.hidden);
}

// Buffers 0: logits, 1: indices, 2: probabilities, 3: counts and offsets, 4: slots, 5: workspace.
std::vector<std::pair<std::size_t, Element>> routing_buffers(const Routing& r) {
  const auto copies = static_cast<std::size_t>(r.tokens) * static_cast<std::size_t>(r.k);
  return {{static_cast<std::size_t>(r.tokens) * static_cast<std::size_t>(r.experts), Element::f32},
          {copies, Element::i32},
          {copies, Element::f32},
          {2 * static_cast<std::size_t>(r.experts) + 1, Element::i32},
          {copies, Element::i32},
          {kernels::permutation_workspace(r.tokens * r.k, r.experts), Element::i32}};
}

kernels::RouterConfig router_of(const Routing& r, bool sigmoid) {
  kernels::RouterConfig c;
  c.tokens = r.tokens;
  c.experts = r.experts;
  c.k = r.k;
  c.sigmoid = sigmoid;
  if (sigmoid && r.experts == 256) {
    c.groups = 8;
    c.top_groups = 4;
    c.scale = 2.5f;
  }
  return c;
}

cudaError_t topk_of(const Routing& r, bool sigmoid, const Set& s, cudaStream_t stream) {
  return kernels::router_topk(router_of(r, sigmoid), s.as<float>(0), nullptr, s.as<int>(1),
                              s.as<float>(2), stream);
}

cudaError_t map_of(const Routing& r, const Set& s, cudaStream_t stream) {
  return kernels::permutation_map(s.as<int>(1), r.tokens * r.k, r.experts, s.as<int>(3),
                                  s.as<int>(3) + r.experts, s.as<int>(4), s.as<int>(5), stream);
}

std::function<Result<void>(Rank&, Set&)> route(const Routing& r) {
  return [r](Rank& rank, Set& s) -> Result<void> {
    CUDA_TRY(topk_of(r, false, s, rank.device.stream));
    CUDA_TRY(map_of(r, s, rank.device.stream));
    return {};
  };
}

void add_routing(std::vector<Job>& jobs, const Routing& r, int priority) {
  const double copies = static_cast<double>(r.tokens) * r.k;
  Spec spec;
  spec.buffers = routing_buffers(r);
  spec.variant = words(r);
  spec.priority = priority;
  for (const bool sigmoid : {false, true}) {
    spec.op = sigmoid ? "router_sigmoid" : "router_softmax";
    spec.bytes = 4.0 * r.tokens * r.experts + 8 * copies;
    spec.launch = [r, sigmoid](const Set& s, cudaStream_t c) { return topk_of(r, sigmoid, s, c); };
    add(jobs, spec);
  }
  spec.op = "permutation_map";
  spec.bytes = 12 * copies;
  spec.prepare = route(r);
  spec.launch = [r](const Set& s, cudaStream_t c) { return map_of(r, s, c); };
  add(jobs, spec);
}

void add_permute(std::vector<Job>& jobs, const Routing& r, int priority) {
  const auto tokens = static_cast<std::size_t>(r.tokens), h = static_cast<std::size_t>(r.hidden);
  const std::size_t copies = tokens * static_cast<std::size_t>(r.k);
  Spec spec;
  spec.variant = words(r);
  spec.priority = priority;
  spec.buffers = routing_buffers(r);
  spec.buffers.emplace_back(tokens * h, Element::bf16);  // 6: tokens
  spec.buffers.emplace_back(copies * h, Element::bf16);  // 7: rows
  spec.buffers.emplace_back(copies, Element::f32);       // 8: probabilities of rows
  spec.prepare = route(r);
  spec.bytes = 2.0 * static_cast<double>(tokens + copies) * r.hidden;
  spec.op = "permute";
  spec.launch = [r](const Set& s, cudaStream_t c) {
    return kernels::permute(s.p[6], s.as<int>(4), nullptr, r.tokens, r.k, r.hidden, s.p[7],
                            s.as<float>(2), s.as<float>(8), c);
  };
  add(jobs, spec);
  spec.op = "unpermute";  // with probabilities; without is the memory-efficient variant
  spec.launch = [r](const Set& s, cudaStream_t c) {
    return kernels::unpermute(s.p[7], s.as<int>(4), s.as<float>(2), r.tokens, r.k, r.hidden, s.p[6],
                              c);
  };
  add(jobs, spec);
  spec.op = "unpermute_plain";
  spec.launch = [r](const Set& s, cudaStream_t c) {
    return kernels::unpermute(s.p[7], s.as<int>(4), nullptr, r.tokens, r.k, r.hidden, s.p[6], c);
  };
  spec.priority = 1;
  add(jobs, spec);
  spec.op = "unpermute_backward";
  spec.bytes = 2.0 * static_cast<double>(tokens + 2 * copies) * r.hidden;
  spec.buffers.emplace_back(copies * h, Element::bf16);  // 9: gradient of rows
  spec.launch = [r](const Set& s, cudaStream_t c) {
    return kernels::unpermute_backward(s.p[6], s.p[7], s.as<int>(4), s.as<float>(2), r.tokens, r.k,
                                       r.hidden, s.p[9], s.as<float>(8), c);
  };
  add(jobs, spec);
}

void add_swiglu(std::vector<Job>& jobs, std::int64_t rows, int width, int priority) {
  const auto size = static_cast<std::size_t>(rows * width);
  Spec spec;
  spec.variant = "r" + std::to_string(rows) + "_w" + std::to_string(width);
  spec.priority = priority;
  spec.buffers = {{2 * size, Element::bf16},
                  {size, Element::bf16},
                  {2 * size, Element::bf16},
                  {static_cast<std::size_t>(rows), Element::f32},
                  {static_cast<std::size_t>(rows), Element::f32}};
  for (const bool weighted : {false, true}) {
    const std::string name = weighted ? "swiglu_weighted" : "swiglu";
    spec.op = name + "_forward";
    spec.bytes = 6.0 * static_cast<double>(size);
    spec.launch = [rows, width, weighted](const Set& s, cudaStream_t c) {
      return kernels::swiglu_forward(s.p[0], weighted ? s.as<float>(3) : nullptr, rows, width,
                                     s.p[1], c);
    };
    add(jobs, spec);
    spec.op = name + "_backward";
    spec.bytes = 10.0 * static_cast<double>(size);
    spec.launch = [rows, width, weighted](const Set& s, cudaStream_t c) {
      return kernels::swiglu_backward(s.p[1], s.p[0], weighted ? s.as<float>(3) : nullptr, rows,
                                      width, s.p[2], s.as<float>(4), c);
    };
    add(jobs, spec);
    spec.priority = 1;
  }
}

void add_norms(std::vector<Job>& jobs, int rows, int width, int priority) {
  const std::size_t size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  const std::string shape = "r" + std::to_string(rows) + "_w" + std::to_string(width);
  Spec norm;
  norm.op = "rmsnorm";
  norm.variant = shape;
  norm.priority = priority;
  norm.bytes = 4.0 * static_cast<double>(size);
  norm.buffers = {{size, Element::bf16},
                  {static_cast<std::size_t>(width), Element::bf16},
                  {size, Element::bf16},
                  {static_cast<std::size_t>(rows), Element::f32}};
  norm.launch = [rows, width](const Set& s, cudaStream_t c) {
    return kernels::rmsnorm(s.p[0], s.p[1], rows, width, 1e-6f, s.p[2], s.as<float>(3), c);
  };
  add(jobs, norm);
  Spec rope;
  rope.op = "rope";
  rope.variant = shape;
  rope.bytes = 4.0 * static_cast<double>(size);
  const int heads = width / 128;
  rope.buffers = {{size, Element::bf16},
                  {static_cast<std::size_t>(rows) * 64, Element::f32},
                  {static_cast<std::size_t>(rows) * 64, Element::f32}};
  rope.launch = [rows, heads](const Set& s, cudaStream_t c) {
    return kernels::rope(s.p[0], s.as<float>(1), s.as<float>(2), rows, heads, 128, c);
  };
  add(jobs, rope);
  for (const bool transposed : {false, true}) {
    Spec quantise;
    quantise.family = PointFamily::quantize;
    quantise.op = transposed ? "fp8_block_transpose" : "fp8_block";
    quantise.variant = shape;
    quantise.priority = priority;
    quantise.bytes = (transposed ? 4.0 : 3.0) * static_cast<double>(size);
    quantise.buffers = {{size, Element::bf16},
                        {size, Element::e4m3},
                        {size / 128, Element::f32},
                        {size, Element::e4m3},
                        {size / 128, Element::f32}};
    quantise.launch = [rows, width, transposed](const Set& s, cudaStream_t c) {
      return kernels::quantize_1x128(s.p[0], rows, width, s.p[1], s.as<float>(2),
                                     transposed ? s.p[3] : nullptr, s.as<float>(4), c);
    };
    add(jobs, quantise, Dtype::fp8_block);
  }
}

void add_adam(std::vector<Job>& jobs, std::size_t count, int priority) {
  Spec spec;
  spec.op = "adam";
  spec.variant = "p" + std::to_string(count);
  spec.priority = priority;
  spec.bytes = 30.0 * static_cast<double>(count);
  spec.buffers = {{count, Element::f32},
                  {count, Element::f32},
                  {count, Element::f32},
                  {count, Element::f32},
                  {count, Element::bf16}};
  // Second moments start positive, as they are.
  spec.prepare = [count](Rank& rank, Set& s) -> Result<void> {
    CUDA_TRY(kernels::fill_uniform(s.as<float>(2), count, 0.1f, 1.0f, rank.device.seed(),
                                   rank.device.stream));
    return {};
  };
  spec.launch = [count](const Set& s, cudaStream_t c) {
    return kernels::adam({}, s.as<float>(0), s.as<float>(1), s.as<float>(2), s.as<float>(3), s.p[4],
                         static_cast<std::int64_t>(count), c);
  };
  add(jobs, spec);
}

void add_cross_entropy(std::vector<Job>& jobs, int tokens, int vocabulary, int priority) {
  const std::size_t size = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(vocabulary);
  Spec spec;
  spec.op = "cross_entropy";
  spec.variant = "t" + std::to_string(tokens) + "_v" + std::to_string(vocabulary);
  spec.priority = priority;
  spec.bytes = 6.0 * static_cast<double>(size);
  spec.buffers = {{size, Element::bf16},
                  {static_cast<std::size_t>(tokens), Element::i32},
                  {static_cast<std::size_t>(tokens), Element::f32}};
  spec.launch = [tokens, vocabulary](const Set& s, cudaStream_t c) {
    return kernels::cross_entropy(s.p[0], s.as<int>(1), tokens, vocabulary, 1e-3f, s.as<float>(2),
                                  c);
  };
  add(jobs, spec);
}

void add_copies(std::vector<Job>& jobs) {
  for (int shift = 16; shift <= 30; shift += 2)
    for (const int blocks : {0, 4, 16, 32}) {
      if (blocks != 0 && shift != 28) continue;
      const std::size_t bytes = std::size_t{1} << shift;
      Spec spec;
      spec.op = blocks == 0 ? "copy" : "copy_sms";
      spec.variant = blocks == 0 ? "" : "sms" + std::to_string(blocks);
      spec.priority = shift >= 20 || blocks == 16 ? 0 : 1;
      spec.anchor = shift == 28 && blocks == 0;
      spec.bytes = 2.0 * static_cast<double>(bytes);
      spec.buffers = {{bytes / 2, Element::bf16}, {bytes / 2, Element::bf16}};
      spec.launch = [bytes, blocks](const Set& s, cudaStream_t c) {
        return kernels::copy_blocks(s.p[0], s.p[1], bytes, blocks, c);
      };
      add(jobs, spec);
    }
}

}  // namespace

void add_memory_jobs(std::vector<Job>& jobs) {
  for (const int tokens : {512, 1024, 4096, 8192, 16384}) {
    const int priority = tokens == 1024 || tokens == 4096 || tokens == 16384 ? 0 : 1;
    add_routing(jobs, {tokens, 256, 8, 7168}, priority);
    add_routing(jobs, {tokens, 128, 8, 4096}, 1);
    add_routing(jobs, {tokens, 8, 2, 4096}, 1);
    add_permute(jobs, {tokens, 256, 8, 7168}, priority);
    add_permute(jobs, {tokens, 128, 8, 4096}, 1);
    add_permute(jobs, {tokens, 8, 2, 4096}, 1);
    add_norms(jobs, tokens, 7168, priority);
    add_norms(jobs, tokens, 4096, 1);
    add_swiglu(jobs, tokens * 8, 2048, priority);
    add_swiglu(jobs, tokens, 14336, 1);
  }
  for (const std::size_t count : {std::size_t{1} << 20, std::size_t{1} << 24, std::size_t{1} << 28})
    add_adam(jobs, count, count == std::size_t{1} << 24 ? 0 : 1);
  add_cross_entropy(jobs, 4096, 129280, 0);
  add_cross_entropy(jobs, 4096, 32000, 1);
  add_cross_entropy(jobs, 1024, 151936, 1);
  add_copies(jobs);
}

}  // namespace trifold::calibrate
