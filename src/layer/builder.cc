// SPDX-License-Identifier: Apache-2.0
#include "layer/builder.h"

#include "layer/counts.h"

namespace trifold::layer {

Builder::Builder(const job::Job& job_in, Block& block)
    : job(job_in),
      model(job_in.model),
      techniques(job_in.techniques),
      shape(shape_of(job_in)),
      load(expert_load(job_in)),
      exchange(exchange_of(job_in, load)),
      block_(block) {}

void Builder::add(Operator op, Pass pass) {
  op.pass = pass;
  op.segment = segment_;
  op.graph_scope = scope_;
  op.modules = modules_;
  op.routing = routing_;
  block_.operators.push_back(op);
}

void Builder::quantize(const char* name, double elements, Pass pass, float tensors) {
  if (shape.linear == hardware::Dtype::bf16) return;
  Operator op;
  op.name = name;
  op.family = Family::quantize;
  op.dtype = shape.linear;
  op.bytes = elements * counts::quantize_bytes(shape.linear, job.cluster.gpu.arch);
  op.kernels = tensors * counts::quantize_kernels(shape.linear);
  op.host_ops = tensors * counts::quantize_host(shape.linear);
  add(op, pass);
}

void Builder::linear(const char* name, double m, double n, double k, bool low) {
  const bool quantized = low && shape.linear != hardware::Dtype::bf16;
  Operator op;
  op.name = name;
  op.family = Family::gemm;
  op.dtype = quantized ? shape.linear : hardware::Dtype::bf16;
  op.flops = 2 * m * n * k;
  op.m = m;
  op.kernels = 1;
  if (quantized) quantize(name, m * k, Pass::forward, 1);
  op.n = n;
  op.k = k;
  op.host_ops = counts::kLinearHost;
  op.gemm_pass = hardware::GemmPass::forward;
  add(op, Pass::forward);
  // Backward operators are reversed later: weight gradient first here, so that it follows its data
  // gradient there.
  op.gemm_pass = hardware::GemmPass::wgrad;
  op.host_ops = counts::kLinearHostBackward / 2;
  op.bytes =
      n * k * 2 *
      bytes_of(job.training.optimizer.gradient_buffer());  // read and write the gradient buffer
  add(op, Pass::wgrad);
  op.bytes = 0;
  op.gemm_pass = hardware::GemmPass::dgrad;
  op.n = k;
  op.k = n;
  add(op, Pass::dgrad);
  if (quantized) quantize(name, m * n, Pass::dgrad, 1);
}

void Builder::grouped_linear(const char* name, double n, double k) {
  const bool quantized = shape.linear != hardware::Dtype::bf16;
  const bool fused = techniques.has(job::Fusion::grouped_mlp);
  const int groups = load.experts_per_rank;
  Operator op;
  op.name = name;
  op.family = Family::grouped_gemm;
  op.dtype = shape.linear;
  op.m = load.padded_tokens_per_rank / groups;
  op.groups = groups;
  op.grouped_kernel = techniques.grouped_gemm;
  op.flops = 2 * load.padded_tokens_per_rank * n * k;
  op.n = n;
  op.k = k;
  const bool one_launch = fused || hardware::launches_once(op.grouped_kernel);
  op.kernels = one_launch ? 1.0f : static_cast<float>(groups);
  op.host_ops = one_launch
                    ? counts::kLinearHost
                    : counts::kLinearHost + counts::kExpertGemmHost * static_cast<float>(groups);
  const float tensors =
      fused ? 0.5f : static_cast<float>(groups);  // the fused kernel quantises its own output
  if (quantized)
    quantize(name, load.padded_tokens_per_rank * k * (fused ? 0.5 : 1.0), Pass::forward, tensors);
  op.gemm_pass = hardware::GemmPass::forward;
  add(op, Pass::forward);
  op.gemm_pass = hardware::GemmPass::wgrad;
  op.bytes = groups * n * k * 2 * bytes_of(job.training.optimizer.gradient_buffer());
  add(op, Pass::wgrad);
  op.bytes = 0;
  op.gemm_pass = hardware::GemmPass::dgrad;
  op.n = k;
  op.k = n;
  add(op, Pass::dgrad);
  if (quantized)
    quantize(name, load.padded_tokens_per_rank * n * (fused ? 0.5 : 1.0), Pass::dgrad, tensors);
}

void Builder::elementwise(const char* name, double forward_bytes, double backward_bytes,
                          float forward_kernels, float backward_kernels, float extra_host) {
  Operator op;
  op.name = name;
  op.family = Family::memory_bound;
  if (forward_kernels > 0) {
    op.bytes = forward_bytes;
    op.kernels = forward_kernels;
    op.host_ops = counts::kElementwiseHost * forward_kernels + extra_host;
    add(op, Pass::forward);
  }
  if (backward_kernels > 0) {
    op.bytes = backward_bytes;
    op.kernels = backward_kernels;
    op.host_ops = counts::kElementwiseHostBackward * backward_kernels + extra_host;
    add(op, Pass::dgrad);
  }
}

void Builder::collective(const char* name, Pass pass, Family family, hardware::Collective kind,
                         double bytes, int ranks, int domains, int repeat) {
  if (ranks <= 1 || bytes <= 0) return;
  Operator op;
  op.name = name;
  op.family = family;
  op.collective = kind;
  op.bytes = bytes;
  op.group_ranks = ranks;
  op.group_domains = domains;
  op.repeat = repeat;
  op.host_ops = counts::kCollectiveHost * static_cast<float>(repeat);
  add(op, pass);
}

void Builder::tp_collective(const char* name, Pass pass, hardware::Collective op) {
  const double element =
      op == hardware::Collective::all_gather ? counts::gathered_bytes(shape.linear) : shape.element;
  collective(name, pass, Family::tp_comm, op,
             shape.tokens * static_cast<double>(model.hidden) * element, job.layout.tp,
             shape.tp_domains);
}

}  // namespace trifold::layer
