// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "calibrate/fit/causal_prior.h"
#include "calibrate/fit/csv.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/solve.h"

// Attention, causal, forward and backward: utilisation of the dense bf16 peak on causal-half FLOPs,
// 2 s^2 (d_qk + d_v) / 2 a head forward and 2.5 times that backward.
//
// Sources, in order of weight (shared/reference/achieved.md section 7):
//   data/h200x2/attn.csv      cuDNN 9.19 on H200: head dims 64, 128, 192 (value 128), both passes
//   arXiv:2603.07685 Table 9  cuDNN, 128 heads, 192/128: Hopper 553/422 at 4k, 638/523 at 16k;
//                             Blackwell 1324/1083 and 1698/1298 (taken as GB200: 2500 peak)
//   DeepSeek profile-data     H800, FA3 on 112 of 132 SMs at 4k, 192/128: 555 forward, backward 420
//                             with its two small kernels (473 the main one); scaled to all SMs
//   aiconfigurator            context attention, 64/8 heads of 128, batch 1, by sequence
//   FlashAttention-3 paper    H100, causal, head dim 256, forward
// A GPU borrows the H200 surface times its own level where it has no row; such nodes are
// unsupported.
//
// Known error: neighbours of one table differ by 20 % (clocks), and SimuMax's B200 reaches about
// 800 TFLOP/s where Table 9 has 1324-1698: attention belongs to a software stack, not only to a
// GPU.

namespace trifold::fit {

using hardware::Basis;

namespace {

constexpr double kBorrowed = 0.02;  // weight of a borrowed node; < kPinned is no support

// Query tiles' worth of multiprocessors that stand idle while a kernel ends. Few public rows have
// fewer than 32 heads; our own run on H200 (tests/observations/h200x2-2026-11-30, 8 heads up) fits
// 200 tiles forward and 160 backward within 2.4 %. In proportion to the multiprocessors, and twice
// that for Blackwell's forward kernels, whose CTAs own two tiles (FlashAttention-4).
double idle_tiles(const GpuFacts& gpu, bool backward) {
  return (backward ? 160 : 200) * (gpu.sms / 132.0) * (gpu.blackwell && !backward ? 2 : 1);
}

// aiconfigurator, TFLOP/s at 512 .. 16384.
struct ContextRow {
  const char* profile;
  double tflops[6];
};
constexpr ContextRow kContext[] = {{"a100", {54, 83, 102, 126, 137, 146}},
                                   {"h100", {108, 200, 329, 579, 508, 538}},
                                   {"h200", {107, 207, 328, 580, 724, 792}},
                                   {"b200", {129, 295, 491, 891, 1052, 1130}},
                                   {"gb300", {141, 317, 649, 998, 1717, 1612}}};

struct TableNine {
  double sequence, forward, backward;  // TFLOP/s
};
constexpr TableNine kHopperNine[] = {{4096, 553, 422}, {16384, 638, 523}};
constexpr TableNine kBlackwellNine[] = {{4096, 1324, 1083}, {16384, 1698, 1298}};
constexpr double kBlackwellNinePeak = 2500;
// B200: SimuMax's runs at 128 k tokens reach about 800 forward (its backward 0.97 of that).
constexpr TableNine kSimuMaxB200 = {32768, 800, 776};
constexpr double kFa3Head256[6] = {286, 427, 537, 612, 628, 642};  // H100, 512 .. 16384, causal

int curve_of(double head_dim, double heads_batch) {
  return static_cast<int>(head_dim) * 10000 + static_cast<int>(heads_batch);
}

void add(std::vector<Sample>& out, double s, double d, double heads_batch, double u,
         double weight) {
  out.push_back({s, d, heads_batch, u, weight, curve_of(d, heads_batch)});
}

Result<void> add_h200(const std::string& data_dir, double peak, bool backward,
                      std::vector<Sample>& out) {
  TRIFOLD_ASSIGN(csv, Csv::read(data_dir + "/h200x2/attn.csv"));
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    if (csv.text(i, "op") != (backward ? "attn_bwd" : "attn_fwd")) continue;
    if (csv.text(i, "var").rfind("cudnn", 0) != 0) continue;
    add(out, csv.number(i, "d1"), csv.number(i, "d3"), csv.number(i, "d0") * csv.number(i, "d2"),
        csv.number(i, "rate") * 1e12 / peak, 1);
  }
  return {};
}

void add_published(const GpuFacts& gpu, bool backward, std::vector<Sample>& out) {
  const double peak = gpu.bf16 / 1e12;
  if (gpu.fp8 > 0) {
    const auto& nine = gpu.blackwell ? kBlackwellNine : kHopperNine;
    // Taken on GB200, newer cuDNN: where a GPU has rows of its own, a guide.
    const double weight = gpu.profile == "b200" ? 0.3 : 1;
    for (const TableNine& row : nine)
      add(out, row.sequence, 192, 128,
          (backward ? row.backward : row.forward) / (gpu.blackwell ? kBlackwellNinePeak : peak),
          weight);
  }
  if (gpu.profile == "b200")
    add(out, kSimuMaxB200.sequence, 128, 16,  // 8 heads a rank
        (backward ? kSimuMaxB200.backward : kSimuMaxB200.forward) / peak, 0.15);
  if (gpu.profile == "h800") add(out, 4096, 192, 128, (backward ? 420 : 555) / peak * 132 / 112, 1);
  if (backward) return;
  // Batch 1 and a TRT-LLM kernel: launch-bound below 4k. They guide; on A100 they are all there is.
  const double weight = gpu.profile == "a100" || gpu.profile == "b200" ? 0.5 : 0.08;
  for (const ContextRow& row : kContext)
    if (gpu.profile == row.profile)
      for (int i = 0; i < 6; ++i) add(out, 512 << i, 128, 64, row.tflops[i] / peak, weight);
  if (gpu.profile == "h100")
    for (int i = 0; i < 6; ++i)  // batch x sequence 16k, 8 heads
      add(out, 512 << i, 256, 8 * 16384 / (512 << i), kFa3Head256[i] / peak, 0.5);
}

// This GPU's level over a surface of another; `otherwise` where it has no rows.
double level_of(const Surface& other, const std::vector<Sample>& samples, double otherwise) {
  std::vector<double> level;
  for (const Sample& s : samples) level.push_back(s.u / other(s.x, s.y, s.z));
  return level.empty() ? otherwise : quantile(level, 0.5);
}

void borrow(const Surface& other, double scale, std::vector<Sample>& samples) {
  const auto nodes = attention_nodes();
  for (double s : nodes[0])
    for (double d : nodes[1])
      for (double hb : nodes[2]) {
        const double u = std::min(0.85, scale * other(s, d, hb));
        samples.push_back({s, d, hb, u, kBorrowed, -curve_of(d, hb)});
      }
}

GridFit fit_pass(const GpuFacts& gpu, bool backward, const std::vector<Sample>& samples,
                 Basis basis) {
  return fit_grid(backward ? "attention backward" : "attention forward", samples, attention_nodes(),
                  fit_causal_prior(samples, idle_tiles(gpu, backward)), basis);
}

Result<GridFit> fit_h200(const GpuFacts& h200, const std::string& data_dir, bool backward) {
  std::vector<Sample> samples;
  TRIFOLD_TRY(add_h200(data_dir, h200.bf16, backward, samples));
  if (samples.empty()) return input_error("no cudnn rows", data_dir + "/h200x2/attn.csv");
  add_published(h200, backward, samples);
  return fit_pass(h200, backward, samples, Basis::interpolated);
}

}  // namespace

std::array<std::vector<double>, 3> attention_nodes() {
  return {{{512, 1024, 2048, 4096, 8192, 16384, 32768}, {64, 128, 192, 256}, {8, 32, 128, 512}}};
}

Result<void> fit_attention(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile, std::vector<ErrorReport>& reports) {
  TRIFOLD_ASSIGN(all, read_gpu_facts(data_dir));
  const GpuFacts* h200 = find_gpu(all, "h200");
  double level = 1;  // the forward pass goes first: its level serves a backward without rows
  for (const bool backward : {false, true}) {
    TRIFOLD_ASSIGN(reference, fit_h200(*h200, data_dir, backward));
    GridFit fit = reference;
    if (gpu.profile != "h200") {
      std::vector<Sample> samples;
      add_published(gpu, backward, samples);
      // H100 and H800 are the same silicon, at the same peak: H200's rows are theirs.
      if (!gpu.blackwell && gpu.fp8 > 0)
        TRIFOLD_TRY(add_h200(data_dir, gpu.bf16, backward, samples));
      // Hopper's surface with this GPU's tiles.
      const Surface other = [&](double s, double d, double hb) {
        return reference.grid.at(s, d, hb).value * busy_share(s, hb, idle_tiles(gpu, backward)) /
               busy_share(s, hb, idle_tiles(*h200, backward));
      };
      level = level_of(other, samples, level);
      borrow(other, level, samples);
      fit = fit_pass(gpu, backward, samples, Basis::scaled);
      fit.grid.error = std::hypot(std::min(fit.report.sigma(), 0.1), 0.1);
    }
    fit.grid.error = std::max(fit.grid.error, 0.05);
    reports.push_back(fit.report);
    profile.attention[backward ? 1 : 0] = std::move(fit.grid);
  }
  return {};
}

}  // namespace trifold::fit
