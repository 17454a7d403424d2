// SPDX-License-Identifier: Apache-2.0
#pragma once

// Points: what a calibration run measured, one JSON object a line (`trifold.points/1`), appended as
// it goes so that a run that dies keeps what it has. The first line is the header; a torn last line
// is dropped when read. Plain C++: the CUDA side writes these, the fitter reads them, and published
// tables become the same thing.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "hardware/profile.h"

namespace trifold::fit {

enum class PointFamily : std::uint8_t {
  gemm,          // op forward | dgrad | wgrad
  grouped_gemm,  // op forward | dgrad | wgrad; variant: the back end
  attention,     // op forward | backward, causal; variant: the back end
  collective,    // op as hardware::Collective; variant stream | graph | stream_hosts<N>
  dispatch,      // op dispatch | combine; variant alltoall | allgather | deepep | hybridep
  memory_bound,  // op copy | permute | unpermute | swiglu_forward | swiglu_backward | rmsnorm | ...
  quantize,      // op = format
  host_link,     // op h2d | d2h | bidirectional
  host,          // op enqueue | kernel_gap | round_trip | stream_hop | graph_launch | graph_node
  overlap        // op = "<compute> under <communication>"; us with the other stream busy
};
inline constexpr Token<PointFamily> kPointFamilies[] = {
    {PointFamily::gemm, "gemm"},           {PointFamily::grouped_gemm, "grouped_gemm"},
    {PointFamily::attention, "attention"}, {PointFamily::collective, "collective"},
    {PointFamily::dispatch, "dispatch"},   {PointFamily::memory_bound, "memory_bound"},
    {PointFamily::quantize, "quantize"},   {PointFamily::host_link, "host_link"},
    {PointFamily::host, "host"},           {PointFamily::overlap, "overlap"}};

// What shape[0..3] mean, by family (the JSON keys of "shape"); "" is unused and not written.
//   gemm, grouped_gemm   y[m,n] = x[m,k] w[n,k] of the *forward* pass for all three passes: m
//   tokens
//                        (grouped: per group, mean), n out, k in; groups
//   attention            sequence of keys, query head dim, heads x batch, value head dim
//   collective           ranks, bytes (nccl-tests total size), ctas (0: library default)
//   dispatch             ranks, bytes a rank sends in its domain, bytes to other domains, sms
//   memory_bound, quantize, host_link  bytes moved through HBM or the link (reads plus writes)
//   host                 how many (kernels of a graph, enqueues of a loop)
//   overlap              bytes of the collective, ctas, sms left to the GEMM (0: all), alone_us
using PointAxes = std::array<const char*, 4>;
const PointAxes& point_axes(PointFamily family);

enum class PointFlag : std::uint8_t {
  throttled,  // SM clock below 0.9 of its warm median, or the driver says power or thermal
  bad,        // the reference check failed: never fitted
  unchecked,  // no reference was computed
  hot,        // inputs were in L2
  burst,      // short run at burst clocks; otherwise sustained
  anchor,     // re-measured at start, middle and end to see drift
  unstable    // the stop rule never met its noise bound
};
inline constexpr Token<PointFlag> kPointFlags[] = {
    {PointFlag::throttled, "throttled"}, {PointFlag::bad, "bad"},
    {PointFlag::unchecked, "unchecked"}, {PointFlag::hot, "hot"},
    {PointFlag::burst, "burst"},         {PointFlag::anchor, "anchor"},
    {PointFlag::unstable, "unstable"}};

struct Point {
  PointFamily family = PointFamily::gemm;
  std::string op;       // see PointFamily
  std::string variant;  // back end, stream or graph, "" when there is only one
  hardware::Dtype dtype = hardware::Dtype::bf16;
  std::array<double, 4> shape{};
  double us = 0, us_p10 = 0, us_p90 = 0;  // device time of one operation
  int samples = 0;
  double clock_mhz = 0;  // SM clock while measuring, 0: not read
  EnumSet<PointFlag> flags;
};

struct PointsFile {
  hardware::Provenance provenance;
  int gpus = 1;          // that took part
  std::string topology;  // free text: NV18, NVLS off, ...
  std::string gpu_uuid_hash;
  std::vector<Point> points;
  bool torn = false;  // the last line was cut off and dropped
};

// One line each, without the newline.
std::string header_line(const PointsFile& file);
std::string point_line(const Point& point);

// Appends lines and flushes; creates the file with its header when absent or empty.
Result<void> append_points(const std::string& path, const PointsFile& header,
                           const std::vector<Point>& points);

Result<PointsFile> read_points(const std::string& path);  // "-" is standard input
Result<PointsFile> parse_points(const std::string& text, const std::string& name);

}  // namespace trifold::fit
