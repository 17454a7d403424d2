// SPDX-License-Identifier: Apache-2.0
#include "hardware/profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>

// Reading a profile.
//
// Utilisation. ln u is multi-linear in the logs of the three axes; outside the grid the edge holds
// (shared/reference/calibration.md section 3: interpolate utilisation, never time; beyond the
// points hold the edge). An answer that leans on nodes which no measurement pinned, or that lies
// outside, is `scaled` and its error grows: twice the family's on the prior alone, and once more
// for each e-fold outside, at most two. (Public tables: 5 % median inside, 45-52 % p90 in the
// tails.)
//
// Without a grid the prior answers: u = 0.80 m/(m + 175) n/(n + 175) k/(k + 280) for GEMMs (the
// saturating form of the same section with the middle of its half-points for Hopper), and
// u = 0.60 s/(s + 1500) for attention (H100 and H200, head dim 128, causal, 512..16k: 0.11, 0.20,
// 0.33, 0.58, 0.51..0.73, 0.54..0.80 of the peak), backward 0.75 of forward; `assumed`.

namespace trifold::hardware {

namespace {

// key, unit, default, low, high, meaning. One line a constant.
const std::vector<ConstantSpec> kConstants = {
    // clang-format off
    {"kernel_gap_s", "s", 2.5e-6, 1e-6, 6e-6, "device time between dependent kernels"},
    {"kernel_gap_graph_s", "s", 1.2e-6, 0.5e-6, 3e-6, "the same inside a CUDA graph"},
    {"host_op_s", "s", 8e-6, 4e-6, 15e-6, "host time of one host operation"},
    {"host_op_unbound_factor", "1", 2, 1, 3, "host time multiplier of a process not bound to its CPUs"},
    {"host_overlap_factor", "1", 1.5, 1, 2, "host time multiplier of merged forward-backward"},
    {"hbm_efficiency", "1", 0.65, 0.4, 0.92, "HBM rate of memory-bound kernels, of the datasheet"},
    {"quantize_efficiency", "1", 0.5, 0.3, 0.9, "HBM rate of quantise and transpose passes, of the datasheet"},
    {"gemm_sustained_factor", "1", 1.17, 0.8, 1.45, "GEMM time multiplier at sustained, power-limited clocks"},
    {"attention_sustained_factor", "1", 1.0, 0.8, 1.3, "attention time multiplier at sustained clocks"},
    {"fp8_attention_factor", "1", 0.75, 0.5, 1, "FP8 attention time over BF16 attention time"},
    {"low_precision_factor", "1", 1.0, 0.5, 1.3, "GEMM time multiplier of formats narrower than FP8"},
    {"scaleout_efficiency", "1", 0.90, 0.4, 0.97, "share of the NIC rate that large messages reach"},
    {"scaleout_latency_s", "s", 15e-6, 5e-6, 60e-6, "one message step between nodes"},
    {"ep_sync_latency_s", "s", 50e-6, 5e-6, 300e-6, "device time lost while the host waits for row counts"},
    {"ep_metadata_s", "s", 1.01e-3, 0.1e-3, 3e-3,
     "HybridEP's routing metadata ahead of a dispatch that crosses domains (3.109 s a step in a trace of Qwen3-30B on 16 H100: 64 micro-batches x 48 layers)"},
    {"ep_scaleout_latency_factor", "1", 1.0, 0.1, 3,
     "latency of a dispatch that crosses domains in a training step, over the benchmark's"},
    {"overlap_leak", "1", 0.1, 0, 0.6, "what passes and transfers of a merged pair lose beside one another, and a GEMM beside a NIC"},
    {"overlap_leak_graph", "1", 0.07, 0, 0.3, "the same under CUDA graphs"},
    {"tp_overlap_exposed", "1", 0.3, 0, 1, "share of overlapped tensor-parallel communication that shows"},
    {"cp_overlap_exposed", "1", 0.2, 0, 1, "share of overlapped context-parallel communication that shows"},
    {"dp_overlap_exposed", "1", 0.2, 0, 0.6, "share of overlapped data-parallel communication that shows"},
    {"p2p_exposed", "1", 0.15, 0, 1, "share of overlapped pipeline sends that shows"},
    {"optimizer_fixed_s", "s", 0.01, 0.002, 0.03, "fixed part of an optimizer step"},
    {"step_sync_s", "s", 0.02, 0, 0.06,
     "waiting of a step's end (gradient norm, stragglers, data) per doubling of the nodes"},
    {"host_link_efficiency", "1", 0.8, 0.5, 0.95, "share of the PCIe or C2C rate that copies reach"},
    {"step_sigma", "1", 0.045, 0.03, 0.2, "one-sigma relative error of a step time for stated settings"},
    // clang-format on
};

struct Bracket {
  std::size_t low = 0;
  double weight = 0;   // of the node above
  double outside = 0;  // e-folds beyond the edge
};

Bracket bracket(const std::vector<double>& axis, double value) {
  const double x = std::log(std::max(value, 1e-9));
  if (x <= axis.front()) return {0, 0, axis.front() - x};
  if (x >= axis.back()) {
    if (axis.size() == 1) return {0, 0, x - axis.back()};
    return {axis.size() - 2, 1, x - axis.back()};
  }
  const auto above = std::upper_bound(axis.begin(), axis.end(), x);
  const std::size_t low = static_cast<std::size_t>(above - axis.begin()) - 1;
  return {low, (x - axis[low]) / (axis[low + 1] - axis[low]), 0};
}

bool on_node(const Bracket& b) {
  constexpr double kSlack = 1e-9;  // the nodes are logs of integers
  return b.outside <= kSlack && (b.weight <= kSlack || b.weight >= 1 - kSlack);
}

Basis worse(Basis a, Basis b) { return std::max(a, b); }

Known downgrade(Known known, Basis basis, double error) {
  known.basis = worse(known.basis, basis);
  known.error = std::hypot(known.error, error);
  return known;
}

// The formats whose curves may stand in for one that has none, nearest first; BF16 is the last
// resort of all. Two formats of one width share kernels (`scaled`); another width shares only the
// shape of the curve (`assumed`).
struct StandIn {
  Dtype dtype = Dtype::bf16;
  Basis basis = Basis::assumed;
  double error = 0.2;
};
using StandIns = std::array<StandIn, 4>;

constexpr StandIns stand_ins(Dtype dtype) {
  const StandIn own = {dtype, Basis::measured, 0};
  const auto scaled = [](Dtype d) { return StandIn{d, Basis::scaled, 0.1}; };
  switch (dtype) {
    case Dtype::fp32:
      return {own, StandIn{Dtype::tf32}};
    case Dtype::tf32:
    case Dtype::bf16:
      return {own};
    case Dtype::fp8_tensor:
      return {own, scaled(Dtype::fp8_block), scaled(Dtype::mxfp8)};
    case Dtype::fp8_block:
      return {own, scaled(Dtype::fp8_tensor), scaled(Dtype::mxfp8)};
    case Dtype::mxfp8:
      return {own, scaled(Dtype::fp8_block), scaled(Dtype::fp8_tensor)};
    case Dtype::nvfp4:
      break;
  }
  return {own, StandIn{Dtype::mxfp8}, StandIn{Dtype::fp8_tensor}};
}

constexpr double kOtherPassError = 0.08;  // dgrad or wgrad read off the forward grid
constexpr double kUngroupedError = 0.2;   // a grouped GEMM read off the dense grid

const GroupedLaunch kAssumedLaunch = {0.9, 1, 0.8, 0.5, 0, 1, Basis::assumed, 0.2, ""};

using Family = std::array<std::array<Grid3, kGemmPasses>, kDtypeCount>;

// The nearest grid of a family, and how far it was fetched; nullptr when the family is empty.
struct Found {
  const Grid3* grid = nullptr;
  Basis basis = Basis::measured;
  double error = 0;
};

Found find_grid(const Family& family, Dtype dtype, GemmPass pass) {
  for (const StandIn& stand_in : stand_ins(dtype)) {
    const auto& passes = family[static_cast<std::size_t>(stand_in.dtype)];
    const Grid3& own = passes[static_cast<std::size_t>(pass)];
    if (!own.empty()) return {&own, stand_in.basis, stand_in.error};
    const Grid3& forward = passes[static_cast<std::size_t>(GemmPass::forward)];
    if (!forward.empty())
      return {&forward, worse(stand_in.basis, Basis::scaled),
              std::hypot(stand_in.error, kOtherPassError)};
  }
  return {};
}

Known gemm_prior(double m, double n, double k) {
  return {0.80 * m / (m + 175) * n / (n + 175) * k / (k + 280), Basis::assumed, 0.25};
}

}  // namespace

const std::vector<ConstantSpec>& constant_specs() { return kConstants; }

const ConstantSpec& constant_spec(std::string_view key) {
  const auto found = std::find_if(kConstants.begin(), kConstants.end(),
                                  [&](const ConstantSpec& spec) { return spec.key == key; });
  TRIFOLD_CHECK(found != kConstants.end());
  return *found;
}

Known Grid3::at(double x, double y, double z) const {
  TRIFOLD_CHECK(!empty());
  const std::array<Bracket, 3> b = {bracket(axes[0], x), bracket(axes[1], y), bracket(axes[2], z)};
  const std::size_t stride_y = axes[2].size();
  const std::size_t stride_x = axes[1].size() * stride_y;
  double log_value = 0, pinned = 0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1;
    std::array<std::size_t, 3> node{};
    for (unsigned a = 0; a < 3; ++a) {
      const unsigned up = (corner >> a) & 1u;
      weight *= up != 0 ? b[a].weight : 1 - b[a].weight;
      node[a] = b[a].low + up;
    }
    if (weight == 0) continue;
    const std::size_t index = node[0] * stride_x + node[1] * stride_y + node[2];
    log_value += weight * values[index];
    pinned += weight * (support.empty() ? 1 : support[index]);
  }
  const double outside = b[0].outside + b[1].outside + b[2].outside;
  const bool exact = on_node(b[0]) && on_node(b[1]) && on_node(b[2]);
  Basis known = basis == Basis::measured && !exact ? Basis::interpolated : basis;
  if (pinned < 0.5 || outside > 1e-9) known = worse(known, Basis::scaled);
  return {std::exp(log_value), known, error * (2 - pinned) * (1 + std::min(outside, 2.0))};
}

Known Profile::gemm_utilisation(Dtype dtype, GemmPass pass, double m, double n, double k) const {
  const Found found = find_grid(gemm, dtype, pass);
  if (found.grid == nullptr) return gemm_prior(m, n, k);
  return downgrade(found.grid->at(m, n, k), found.basis, found.error);
}

Known Profile::grouped_utilisation(Dtype dtype, GemmPass pass, double tokens_per_expert, double n,
                                   double k) const {
  const Found found = find_grid(grouped_gemm, dtype, pass);
  if (found.grid != nullptr)
    return downgrade(found.grid->at(tokens_per_expert, n, k), found.basis, found.error);
  return downgrade(gemm_utilisation(dtype, pass, tokens_per_expert, n, k), Basis::scaled,
                   kUngroupedError);
}

GemmRate Profile::grouped_rate(GroupedKernel kernel, Dtype dtype, GemmPass pass, double groups,
                               double tokens_per_expert, double n, double k) const {
  if (kernel == GroupedKernel::streams)
    return {grouped_utilisation(dtype, pass, tokens_per_expert, n, k)};
  const auto& launches = grouped_launch[static_cast<std::size_t>(kernel)];
  const GroupedLaunch* launch = &kAssumedLaunch;
  StandIn found;
  for (const StandIn& stand_in : stand_ins(dtype)) {
    if (launches[static_cast<std::size_t>(stand_in.dtype)].efficiency <= 0) continue;
    launch = &launches[static_cast<std::size_t>(stand_in.dtype)];
    found = stand_in;
    break;
  }
  const double each = std::ceil(tokens_per_expert / launch->tile_rows) * launch->tile_rows;
  // A weight gradient's rows are depth, which groups do not share.
  const bool together = launches_once(kernel) && pass != GemmPass::wgrad;
  Known u = gemm_utilisation(dtype, pass, together ? groups * each : each, n, k);
  u.value = std::min(launch->efficiency * u.value, launch->ceiling) * tokens_per_expert / each;
  return {downgrade(u, worse(launch->basis, found.basis), std::hypot(launch->error, found.error)),
          launch->weight_rate, launch->launch_s};
}

Known Profile::attention_utilisation(bool backward, double sequence, double head_dim,
                                     double heads_batch) const {
  constexpr double kBackwardRatio = 0.75;
  const Grid3& own = attention[backward ? 1 : 0];
  if (!own.empty()) return own.at(sequence, head_dim, heads_batch);
  Known known = attention[0].empty()
                    ? Known{0.60 * sequence / (sequence + 1500), Basis::assumed, 0.25}
                    : attention[0].at(sequence, head_dim, heads_batch);
  if (!backward) return known;
  known.value *= kBackwardRatio;
  return downgrade(known, Basis::scaled, 0.1);
}

double Profile::constant(std::string_view key) const {
  const auto it = constants.find(key);
  TRIFOLD_CHECK(it != constants.end());
  return it->second.value;
}

bool made_for(const Profile& profile, const Gpu& gpu) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const std::string word(gpu.name.begin(),
                         std::find_if_not(gpu.name.begin(), gpu.name.end(), is_word));
  const std::string& text = profile.provenance.gpu;
  for (std::size_t at = text.find(word); !word.empty() && at != std::string::npos;
       at = text.find(word, at + 1)) {
    const bool starts = at == 0 || !is_word(text[at - 1]);
    const std::size_t end = at + word.size();
    if (starts && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

}  // namespace trifold::hardware
