// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "calibrate/fit/csv.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/profile_fit.h"
#include "facts_table.h"
#include "hardware/catalogue.h"

// Published and measured kernel times: attention, GEMM and grouped GEMM, each shape priced as an
// operator. Profiles are fitted on most of these tables; what a left-out point or curve costs
// stands in the fitter's own report. Judged without having been fitted on: the profile of our own
// later run (h200-measured) against the first run's rows, and the grouped GEMMs of DeepSeek's
// trace.

namespace trifold::facts {
namespace {

using hardware::Dtype;
using hardware::GemmPass;
using hardware::GroupedKernel;
using layer::Family;
using layer::Operator;

class Machine {
 public:
  // `sustained`: at the clocks of training, as samples that last long enough to meet the power
  // limit.
  Machine(const std::string& cluster, const std::string& profile, bool sustained = false)
      : cluster_(*hardware::load_cluster(cluster, TRIFOLD_SOURCE_DIR)),
        profile_(profile_at(profile.empty() ? cluster_.profile : profile, sustained)),
        pricer_(cluster_, profile_) {}

  double gemm(Dtype dtype, GemmPass pass, double m, double n, double k, double bytes = 0) const {
    Operator op;
    op.family = Family::gemm;
    op.dtype = dtype;
    op.gemm_pass = pass;
    op.m = m, op.n = n, op.k = k;
    op.flops = 2 * m * n * k;
    op.bytes = bytes;
    return seconds(op);
  }
  double grouped(Dtype dtype, GemmPass pass, double groups, double m, double n, double k,
                 GroupedKernel kernel = GroupedKernel::streams) const {
    Operator op;
    op.family = Family::grouped_gemm;
    op.dtype = dtype;
    op.gemm_pass = pass;
    op.m = m, op.n = n, op.k = k;
    op.groups = static_cast<int>(groups);
    op.grouped_kernel = kernel;
    op.flops = 2 * groups * m * n * k;
    return seconds(op);
  }
  // Causal; `value`: head dim of the values.
  double attention(bool backward, double batch, double s, double heads, double qk,
                   double value) const {
    Operator op;
    op.family = Family::attention;
    op.gemm_pass = backward ? GemmPass::dgrad : GemmPass::forward;
    op.m = s, op.n = qk, op.k = heads * batch;
    op.flops = flops(backward, batch, s, heads, qk, value);
    return seconds(op);
  }
  static double flops(bool backward, double batch, double s, double heads, double qk,
                      double value) {
    return batch * heads * s * s * (backward ? 3 * qk + 2 * value : qk + value);
  }
  // Passes of a fused operator over its rows.
  double rows(Dtype dtype, double bytes) const {
    const auto& launches =
        profile_.grouped_launch[static_cast<std::size_t>(GroupedKernel::cutlass)];
    return bytes / (launches[static_cast<std::size_t>(dtype)].row_rate *
                    cluster_.gpu.hbm_bandwidth.value());
  }
  const hardware::Cluster& cluster() const { return cluster_; }

 private:
  static hardware::Profile profile_at(const std::string& name, bool sustained) {
    hardware::Profile profile = benchmark_profile(name);
    constexpr const char* kClocks = "gemm_sustained_factor";
    if (sustained)
      profile.constants.find(kClocks)->second.value =
          hardware::load_profile(name, TRIFOLD_SOURCE_DIR)->constant(kClocks);
    return profile;
  }
  double seconds(const Operator& op) const { return pricer_.price(op, {}).seconds; }
  hardware::Cluster cluster_;
  hardware::Profile profile_;
  cost::Pricer pricer_;
};

fit::Csv table(const std::string& path) {
  Result<fit::Csv> csv = fit::Csv::read(shared("data/" + path));
  EXPECT_TRUE(csv) << path;
  return *csv;
}

double fact(const char* id) {
  for (const Json& f : facts())
    if (f.at("id") == id) return f.at("value").get<double>();
  ADD_FAILURE() << "no " << id;
  return 0;
}

// "cudnn_h128/128_d192/128": what stands after the last slash.
double value_dim(std::string_view variant) {
  return std::stod(std::string(variant.substr(variant.rfind('/') + 1)));
}

// DeepSeek-V3's attention, TFLOP/s.
void add_table_nine(const Machine& h100, const Machine& gb200, std::vector<Row>& rows) {
  const std::pair<const char*, double> sequences[] = {{"mcore-moe-087", 4096},
                                                      {"mcore-moe-089", 16384},
                                                      {"mcore-moe-091", 4096},
                                                      {"mcore-moe-093", 16384}};
  int number = 87;
  for (const auto& [first, s] : sequences) {
    const Machine& machine = number < 91 ? h100 : gb200;
    for (const bool backward : {false, true}) {
      const std::string id = fmt::format("mcore-moe-{:03}", number++);
      const double published =
          Machine::flops(backward, 1, s, 128, 192, 128) / (fact(id.c_str()) * 1e12);
      rows.push_back(
          {"2603.07685 Table 9 (cuDNN)", id,
           fmt::format("{} 128 heads 192/128 at {}", backward ? "backward" : "forward", s),
           published, machine.attention(backward, 1, s, 128, 192, 128)});
    }
  }
}

void add_measured_attention(const std::string& source, const Machine& h200,
                            std::vector<Row>& rows) {
  const fit::Csv csv = table("h200x2/attn.csv");
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string variant(csv.text(i, "var"));
    if (variant.rfind("cudnn", 0) != 0) continue;
    const bool backward = csv.text(i, "op") == "attn_bwd";
    rows.push_back({source, "attn.csv",
                    fmt::format("{} {} batch {} at {}", backward ? "backward" : "forward", variant,
                                csv.text(i, "d0"), csv.text(i, "d1")),
                    csv.number(i, "us") * 1e-6,
                    h200.attention(backward, csv.number(i, "d0"), csv.number(i, "d1"),
                                   csv.number(i, "d2"), csv.number(i, "d3"), value_dim(variant))});
  }
}

// DeepSeek's profile-data: 112 of the H800's 132 SMs compute. 32,768 rows over 4 experts of a rank.
void add_trace(const Machine& h800, std::vector<Row>& rows) {
  const double lent = 132.0 / 112, rows_each = 32768 / 4;
  const auto attention = [&](const char* id, bool backward, double us) {
    rows.push_back({"DeepSeek profile-data, attention", id,
                    backward ? "backward, its two small kernels included" : "forward", us * 1e-6,
                    lent * h800.attention(backward, 1, 4096, 128, 192, 128)});
  };
  attention("ds-trace-010", false, fact("ds-trace-010"));
  attention("ds-trace-011", true,
            fact("ds-trace-011") + fact("ds-trace-012") + fact("ds-trace-013"));
  const auto grouped = [&](const char* id, const char* what, GemmPass pass, double n, double k) {
    rows.push_back(
        {"DeepSeek profile-data, grouped GEMM (DeepGEMM)", id, what, fact(id) * 1e-6,
         lent * h800.grouped(Dtype::fp8_block, pass, 4, rows_each, n, k, GroupedKernel::deepgemm)});
  };
  grouped("ds-trace-014", "fc1 forward", GemmPass::forward, 4096, 7168);
  grouped("ds-trace-015", "fc2 forward", GemmPass::forward, 7168, 2048);
  grouped("ds-trace-016", "fc1 data gradient", GemmPass::dgrad, 7168, 4096);
  grouped("ds-trace-017", "fc2 data gradient", GemmPass::dgrad, 2048, 7168);
}

TEST(Facts, Attention) {
  if (!have_shared()) GTEST_SKIP() << "../shared is not here";
  const Machine h100("dgx-h100", ""), h800("hgx-h800", ""), h200("dgx-h200", ""),
      ours("dgx-h200", "h200-measured"), gb200("gb200-nvl72", "");
  std::vector<Row> rows;
  add_table_nine(h100, gb200, rows);
  add_measured_attention("2 x H200 attn.csv, h200", h200, rows);
  add_measured_attention("2 x H200 attn.csv, h200-measured", ours, rows);
  add_trace(h800, rows);
  judge("Attention, causal; grouped GEMMs of one trace", rows,
        {{"2603.07685 Table 9 (cuDNN)", "all rows", 0.10},
         {"2 x H200 attn.csv, h200", "all rows", 0.10},
         {"2 x H200 attn.csv, h200-measured", "no", 0.10},
         {"DeepSeek profile-data, attention", "all rows", 0.10},
         {"DeepSeek profile-data, grouped GEMM (DeepGEMM)", "its README", 0.10}});
}

// aiconfigurator's linears of 64 rows and more. Low-precision ones quantise their input inside,
// whose cost calibrate's fitter takes off and this puts back.
void add_public_gemms(std::vector<Row>& rows) {
  const fit::Csv csv = table("third_party_measurements/gemm_compact.csv");
  const auto gpus = fit::read_gpu_facts(shared("data"));
  ASSERT_TRUE(gpus);
  const fit::GpuFacts& h200 = *fit::find_gpu(*gpus, "h200");
  const auto per_tensor = fit::fit_per_tensor_quantize(h200, shared("data"));
  ASSERT_TRUE(per_tensor);
  const fit::QuantizeCost one_pass{3, 1.5e-6};
  const std::map<std::string, std::string> clusters = {
      {"A100", "dgx-a100"}, {"H100", "dgx-h100"},     {"H200", "dgx-h200"},    {"B200", "dgx-b200"},
      {"B300", "dgx-b300"}, {"GB200", "gb200-nvl72"}, {"GB300", "gb300-nvl72"}};
  std::map<std::string, std::unique_ptr<Machine>> machines;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string gpu(csv.text(i, "gpu")), name(csv.text(i, "dtype"));
    const double m = csv.number(i, "m"), n = csv.number(i, "n"), k = csv.number(i, "k");
    // Blackwell's per-tensor profile is the better of two columns: no row of one column is its own.
    const bool hopper = gpu[0] == 'H';
    const bool judged =
        name == "bfloat16" || name == "fp8_block" || name == "nvfp4" || (name == "fp8" && hopper);
    if (m < 64 || !judged) continue;
    auto& machine = machines[gpu];
    if (machine == nullptr) machine = std::make_unique<Machine>(clusters.at(gpu), "");
    const Dtype dtype = name == "bfloat16"    ? Dtype::bf16
                        : name == "fp8"       ? Dtype::fp8_tensor
                        : name == "fp8_block" ? Dtype::fp8_block
                                              : Dtype::nvfp4;
    double predicted = machine->gemm(dtype, GemmPass::forward, m, n, k);
    if (dtype != Dtype::bf16)
      predicted += (name == "fp8" ? *per_tensor : one_pass)
                       .seconds(m, k, machine->cluster().gpu.hbm_bandwidth.value());
    rows.push_back({"aiconfigurator " + name, gpu, fmt::format("{} x {} x {}", m, n, k),
                    csv.number(i, "us") * 1e-6, predicted});
  }
}

void add_measured_gemms(const std::string& source, const Machine& h200, std::vector<Row>& rows) {
  const fit::Csv csv = table("h200x2/gemm.csv");
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string op(csv.text(i, "op")), var(csv.text(i, "var"));
    const double a = csv.number(i, "d0"), b = csv.number(i, "d1"), c = csv.number(i, "d2");
    const Dtype dtype = var.rfind("bf16", 0) == 0                   ? Dtype::bf16
                        : var == "fp8_tensor" || var == "fp8_acc32" ? Dtype::fp8_tensor
                                                                    : Dtype::fp8_block;
    const bool known = var == "bf16" || var == "bf16_acc32" || var == "fp8_tensor" ||
                       var == "fp8_acc32" || var == "fp8_blk128w_vec128x";
    if (!known || csv.text(i, "ok") == "BAD" || a < 64) continue;
    double predicted = 0;
    if (op == "fwd" || op == "wave" || op == "ksweep")
      predicted = h200.gemm(dtype, GemmPass::forward, a, b, c);
    else if (op == "dgrad")
      predicted = h200.gemm(dtype, GemmPass::dgrad, a, b, c);
    else if (op == "wgrad")  // a x b weights, reduced over c tokens
      predicted = h200.gemm(dtype, GemmPass::wgrad, c, a, b,
                            var.find("acc32") == std::string::npos ? 0 : 8 * a * b);
    else
      continue;
    rows.push_back({source, "gemm.csv", fmt::format("{} {} {} x {} x {}", op, var, a, b, c),
                    csv.number(i, "us") * 1e-6, predicted});
  }
}

TEST(Facts, Gemm) {
  if (!have_shared()) GTEST_SKIP() << "../shared is not here";
  std::vector<Row> rows;
  add_public_gemms(rows);
  add_measured_gemms("2 x H200 gemm.csv, h200", Machine("dgx-h200", ""), rows);
  add_measured_gemms("2 x H200 gemm.csv, h200-measured", Machine("dgx-h200", "h200-measured"),
                     rows);
  judge("GEMM", rows,
        {{"aiconfigurator bfloat16", "all rows", 0.10},
         {"aiconfigurator fp8", "all rows", 0.10},
         {"aiconfigurator fp8_block", "all rows", 0.10},
         {"aiconfigurator nvfp4", "all rows", 0.10},
         {"2 x H200 gemm.csv, h200", "all rows", 0.10},
         {"2 x H200 gemm.csv, h200-measured", "no", 0.10}},
        false);
}

// Experts' GEMMs by one back end of gemm.csv.
void add_measured_grouped(const std::string& variant, const std::string& source,
                          const Machine& machine, GroupedKernel kernel, std::vector<Row>& rows) {
  const fit::Csv csv = table("h200x2/gemm.csv");
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string op(csv.text(i, "op")), var(csv.text(i, "var"));
    const double groups = csv.number(i, "d0"), each = csv.number(i, "d1") / groups;
    if ((op != "grouped_fc1" && op != "grouped_fc2") || var.find(variant) == std::string::npos ||
        groups < 4)
      continue;
    const double n = csv.number(i, "d2"), k = csv.number(i, "d3");
    const Dtype dtype = var[0] == 'b' ? Dtype::bf16 : Dtype::fp8_tensor;
    rows.push_back({source, "gemm.csv",
                    fmt::format("{} {} experts, {} rows each, {} x {}", var, groups, each, n, k),
                    csv.number(i, "us") * 1e-6,
                    machine.grouped(dtype, GemmPass::forward, groups, each, n, k, kernel)});
  }
}

// The run's long samples met the power limit: it is 11 % slower on the 44 shapes that our rested
// run shares with it, whose profile is therefore taken at sustained clocks.
void add_back_ends(std::vector<Row>& rows) {
  const Machine h200("dgx-h200", ""), ours("dgx-h200", "h200-measured", true);
  add_measured_grouped("loop4s", "2 x H200 four streams, h200", h200, GroupedKernel::streams, rows);
  add_measured_grouped("loop4s", "2 x H200 four streams, h200-measured", ours,
                       GroupedKernel::streams, rows);
  add_measured_grouped("strided", "2 x H200 strided batch, h200", h200, GroupedKernel::strided,
                       rows);
  add_measured_grouped("_grouped", "2 x H200 cublasGemmGroupedBatchedEx, h200", h200,
                       GroupedKernel::batched, rows);
  add_measured_grouped("loop1", "2 x H200 one stream, h200", h200, GroupedKernel::loop, rows);
}

// aiconfigurator's fused operator: fc1, fc2 and what it does to rows around them.
void add_fused(const std::string& gpu, const std::string& cluster, std::vector<Row>& rows) {
  const Machine machine(cluster, "");
  const auto measured = fit::read_fused_moe(gpu, shared("data"));
  ASSERT_TRUE(measured);
  for (const fit::FusedMoe& f : *measured) {
    const auto gemm = [&](double n, double k) {
      return machine.grouped(f.dtype, GemmPass::forward, f.groups, f.rows, n, k,
                             GroupedKernel::cutlass);
    };
    const std::string dtype(token_name(hardware::kDtypes, f.dtype));
    rows.push_back({"aiconfigurator fused MoE " + dtype, gpu, f.text(), f.seconds,
                    gemm(2 * f.width, f.hidden) + gemm(f.hidden, f.width) +
                        machine.rows(f.dtype, f.row_bytes())});
  }
}

TEST(Facts, GroupedGemm) {
  if (!have_shared()) GTEST_SKIP() << "../shared is not here";
  std::vector<Row> rows;
  add_back_ends(rows);
  judge("Grouped GEMM", rows,
        {{"2 x H200 four streams, h200", "all rows", 0.10},
         {"2 x H200 four streams, h200-measured", "another run", 0.10},
         {"2 x H200 strided batch, h200", "all rows", 0.10},
         {"2 x H200 cublasGemmGroupedBatchedEx, h200", "all rows", 0.10},
         {"2 x H200 one stream, h200", "all rows", 0.10}});
  rows.clear();
  add_fused("H100", "dgx-h100", rows);
  add_fused("H200", "dgx-h200", rows);
  judge("Fused MoE operator of TensorRT-LLM", rows,
        {{"aiconfigurator fused MoE bf16", "all rows", 0.10},
         {"aiconfigurator fused MoE fp8_tensor", "all rows", 0.10},
         {"aiconfigurator fused MoE fp8_block", "all rows", 0.10}},
        false);
}

// What the fits find of rows that they did not see: each point of a surface left out, each
// collective size, a fifth of a dispatcher's rows.
TEST(Facts, LeftOut) {
  if (!have_shared()) GTEST_SKIP() << "../shared is not here";
  for (const char* name : {"h100", "h200", "b200", "gb200"}) {
    const Result<fit::FittedProfile> fitted = fit::fit_public(name, shared("data"));
    ASSERT_TRUE(fitted) << fitted.error().to_string();
    fmt::print("{}, left out\n{}\n", name, fit::error_table(fitted->reports));
    for (const fit::ErrorReport& r : fitted->reports) {
      // B200's attention has nine rows of three software stacks, which differ by a factor of two.
      const bool three_stacks = name == std::string("b200") && r.family == "attention forward";
      const double bound = three_stacks || r.family.rfind("dispatcher", 0) == 0 ? 0.15 : 0.10;
      EXPECT_LT(r.point_median, bound) << name << ": " << r.family;
    }
  }
}

}  // namespace
}  // namespace trifold::facts
