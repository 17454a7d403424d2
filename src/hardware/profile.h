// SPDX-License-Identifier: Apache-2.0
#pragma once

// Profile: what operations cost on one GPU type, its links and its software. Produced by
// calibrate/fit (from public tables or from `trifold calibrate` points) and read here. Every answer
// says how it was known. Files: hardware/profiles/*.json.
//
// Between points: GEMM, grouped GEMM and attention interpolate utilisation (not time)
// multi-linearly in logs on a grid; collectives are monotone piecewise linear in (log bytes, log
// time), slope 1 beyond the last point.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/units.h"
#include "hardware/cluster.h"
#include "hardware/grouped_kernel.h"

namespace trifold::hardware {

enum class Basis : std::uint8_t { measured, interpolated, scaled, assumed };
inline constexpr Token<Basis> kBases[] = {{Basis::measured, "measured"},
                                          {Basis::interpolated, "interpolated"},
                                          {Basis::scaled, "scaled"},
                                          {Basis::assumed, "assumed"}};

// A number and how it was known; `error` is the one-sigma relative error of its family.
struct Known {
  double value = 0;
  Basis basis = Basis::assumed;
  double error = 0.2;
};

// u(x, y, z) on a tensor grid of logs. Values are clamped to the grid's edges.
struct Grid3 {
  std::array<std::vector<double>, 3> axes;  // natural logs of the nodes, ascending
  std::vector<double> values;               // ln u, row-major, last axis fastest
  std::vector<std::uint8_t>
      support;  // 1 where measured points pinned the node, 0 where the prior filled it
  double error = 0.1;
  Basis basis = Basis::interpolated;
  std::string source;
  bool empty() const { return values.empty(); }
  Known at(double x, double y, double z) const;  // plain values, not logs
};

enum class GemmPass : std::uint8_t { forward, dgrad, wgrad };
inline constexpr int kGemmPasses = 3;

// A grouped GEMM that is not on four streams:
//   t = max(2 M n k / (peak x min(efficiency u(M, n, k), ceiling)),
//           groups n k element bytes / (weight_rate x HBM)) + launch_s
// M: the rows of all groups, each group's in whole tiles, which share the SMs as the tiles of one
// GEMM do; in a loop and in weight gradients u has the rows of one group. u: the dense surface.
struct GroupedLaunch {
  double efficiency = 0;  // 0: not measured
  double ceiling = 1;
  double weight_rate = 1;
  double row_rate = 1;  // share of HBM that a fused operator's passes over its rows reach
  double launch_s = 0;
  int tile_rows = 1;
  Basis basis = Basis::assumed;
  double error = 0.2;
  std::string source;
};

// How fast a GEMM or a layer's experts run: utilisation of the peak by the rows that count, the
// share of HBM at which weights are read at best, what a launch adds.
struct GemmRate {
  Known utilisation;
  double weight_rate = 1, launch_s = 0;
};

enum class Collective : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  send_recv
};
inline constexpr Token<Collective> kCollectives[] = {{Collective::all_gather, "all_gather"},
                                                     {Collective::reduce_scatter, "reduce_scatter"},
                                                     {Collective::all_reduce, "all_reduce"},
                                                     {Collective::all_to_all, "all_to_all"},
                                                     {Collective::send_recv, "send_recv"}};
inline constexpr int kCollectiveCount = 5;

// Inside one domain: measured curves by rank count. `bytes` are nccl-tests sizes (total buffer S),
// `seconds` medians.
struct CollectiveCurve {
  int ranks = 2;
  std::vector<double> bytes, seconds;
  double error = 0.1;
  Basis basis = Basis::interpolated;
  std::string source;
};

// Dispatchers over NVLink and NIC: fraction of the link's rate reached at enough SMs, and what one
// SM can drive.
struct DispatcherRate {
  double scaleup_efficiency = 0;   // of the NVLink rate; 0: not available on this GPU
  double scaleout_efficiency = 0;  // of the NIC rate
  double bytes_per_s_per_sm = 0;   // linear in SMs up to the link
  double sm_s_per_row = 0;         // what a row costs the SM that sends it, besides its bytes
  double latency_s = 0;            // per transfer inside a domain
  double latency_scaleout_s = 0;   // per transfer that crosses domains (metadata, notify)
  int default_sms = 20;
  Basis basis = Basis::assumed;
  double error = 0.2;
  std::string source;
};

// Constants of the time model, few and physical. Each has a unit, a physical range and a source in
// the file; the fitter may move those marked `fitted` inside their range. Keys are listed in
// profile.cc (kConstants) and nowhere else.
struct Constant {
  double value = 0, low = 0, high = 0;
  bool fitted = false;
  Basis basis = Basis::assumed;
  std::string source;
};

struct Provenance {
  std::string gpu, driver, cuda, cublas, nccl, date, source, commit;
};

struct Profile {
  std::string name;
  Provenance provenance;
  // By dtype and pass (fp32/tf32 fall back to constants). x = m (tokens), y = n (out), z = k (in).
  std::array<std::array<Grid3, kGemmPasses>, kDtypeCount> gemm;
  // Grouped GEMM: x = tokens per expert, y = n, z = k; utilisation of the whole group.
  std::array<std::array<Grid3, kGemmPasses>, kDtypeCount> grouped_gemm;
  std::array<std::array<GroupedLaunch, kDtypeCount>, kGroupedKernelCount> grouped_launch;
  // Attention, bf16 unless fp8: x = sequence of keys, y = qk head dim, z = heads x batch;
  // utilisation of the bf16 peak on causal-half FLOPs. [0] forward, [1] backward.
  std::array<Grid3, 2> attention;
  std::array<std::vector<CollectiveCurve>, kCollectiveCount> collectives;  // ascending rank counts
  std::map<std::string, DispatcherRate> dispatchers;  // alltoall, allgather, deepep, hybridep
  std::map<std::string, Constant, std::less<>> constants;

  Known gemm_utilisation(Dtype dtype, GemmPass pass, double m, double n, double k) const;
  Known grouped_utilisation(Dtype dtype, GemmPass pass, double tokens_per_expert, double n,
                            double k) const;
  // By any kernel; the nearest format's launch where this one's was not measured.
  GemmRate grouped_rate(GroupedKernel kernel, Dtype dtype, GemmPass pass, double groups,
                        double tokens_per_expert, double n, double k) const;
  Known attention_utilisation(bool backward, double sequence, double head_dim,
                              double heads_batch) const;
  // Seconds of a collective inside one domain; `bytes` as nccl-tests counts. Unmeasured rank counts
  // are scaled from the nearest curve by the ring or pairwise step model
  // (shared/reference/calibration.md section 3).
  Known collective_seconds(Collective op, int ranks, double bytes) const;
  // CHECKs that the key exists; every profile has every key.
  double constant(std::string_view key) const;
};

Result<Profile> load_profile(const std::string& name_or_path, const std::string& data_dir);
// The cluster's own; a cluster that names none gets assumed_profile().
Result<Profile> profile_of(const Cluster& cluster, const std::string& data_dir);
Result<Profile> read_profile(const Json& json, const std::string& file);
Json to_json(const Profile& profile);
std::string dump_profile(const Profile& profile);  // to_json as text, one line a list of numbers
std::vector<std::string> list_profiles(const std::string& data_dir);

// A profile for a GPU that nobody measured: no grids (lookups answer with the saturating prior),
// curves and dispatchers from the cluster's rates, constants at their defaults; all of it
// `assumed`.
Profile assumed_profile(const Cluster& cluster);
// Was the profile made on this GPU type? Compares the GPU's first word ("H200") with
// provenance.gpu.
bool made_for(const Profile& profile, const Gpu& gpu);

// Keys, units, ranges and default values of every constant. The only list.
struct ConstantSpec {
  const char* key;
  const char* unit;
  double value, low, high;
  const char* meaning;
};
const std::vector<ConstantSpec>& constant_specs();
const ConstantSpec& constant_spec(std::string_view key);  // which must exist
Constant default_constant(const ConstantSpec& spec);

}  // namespace trifold::hardware
