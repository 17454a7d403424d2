// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cluster: one GPU type, its scale-up domain (NVLink), scale-out fabric and host link. Rates are
// per GPU and per direction, datasheet values; what is achieved lives in a Profile. Files:
// hardware/clusters/*.json.

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/units.h"

namespace trifold::hardware {

// Number formats of a GEMM's inputs.
enum class Dtype : std::uint8_t { fp32, tf32, bf16, fp8_tensor, fp8_block, mxfp8, nvfp4 };
inline constexpr Token<Dtype> kDtypes[] = {
    {Dtype::fp32, "fp32"},           {Dtype::tf32, "tf32"},
    {Dtype::bf16, "bf16"},           {Dtype::fp8_tensor, "fp8_tensor"},
    {Dtype::fp8_block, "fp8_block"}, {Dtype::mxfp8, "mxfp8"},
    {Dtype::nvfp4, "nvfp4"}};
inline constexpr int kDtypeCount = 7;

enum class GpuArch : std::uint8_t { ampere, hopper, blackwell };
inline constexpr Token<GpuArch> kGpuArchs[] = {
    {GpuArch::ampere, "ampere"}, {GpuArch::hopper, "hopper"}, {GpuArch::blackwell, "blackwell"}};

enum class HostCpu : std::uint8_t { x86, grace };
inline constexpr Token<HostCpu> kHostCpus[] = {{HostCpu::x86, "x86"}, {HostCpu::grace, "grace"}};

struct Gpu {
  std::string name;
  GpuArch arch = GpuArch::hopper;
  FlopsPerSecond bf16, fp8, fp4, tf32;  // dense peaks; 0 where the GPU lacks the format
  Bytes hbm;                            // what the driver shows (nvidia-smi)
  BytesPerSecond hbm_bandwidth;
  Bytes l2;
  int sms = 0;

  FlopsPerSecond peak(Dtype dtype) const;  // 0 where unsupported
};

struct Cluster {
  std::string name;
  std::string profile;  // catalogue name of the Profile that prices this GPU
  Gpu gpu;
  int gpus_per_node = 8;              // one host, one launcher
  int domain_gpus = 8;                // NVLink domain
  int gpus_used_per_domain = 8;       // published NVL72 runs use 64 of 72
  BytesPerSecond scaleup_bandwidth;   // NVLink, per GPU and direction
  BytesPerSecond scaleout_bandwidth;  // NIC, per GPU and direction
  BytesPerSecond host_bandwidth;      // PCIe or C2C, per GPU and direction
  int nodes_per_leaf = 32;            // rail-optimised leaf switches
  double leaf_oversubscription = 1;   // leaf uplinks: 1 is non-blocking
  // Synchronous training goes at the pace of the worst: the share of its clock at which the slowest
  // GPU runs, and the NICs that failed in one node, whose GPUs share the others.
  double slowest_gpu = 1;
  int failed_nics = 0;
  HostCpu host_cpu = HostCpu::x86;
  Bytes host_memory_per_gpu;
  int max_gpus = 1 << 20;
  Bytes
      reserved_hbm;  // context, driver, NCCL: not the allocator's. capacity() = hbm - reserved_hbm

  BytesPerSecond scaleout_rate() const {  // of the worst node
    return scaleout_bandwidth * (1 - static_cast<double>(failed_nics) / gpus_per_node);
  }
  Bytes capacity() const { return gpu.hbm - reserved_hbm; }  // what a process may allocate
};

Result<Cluster> load_cluster(const std::string& name_or_path, const std::string& data_dir);
Result<Cluster> read_cluster(const Json& json, const std::string& file);
// The same, and "base": "<catalogue name>" may give every field that the file does not override.
Result<Cluster> read_cluster(const Json& json, const std::string& file,
                             const std::string& data_dir);
Json to_json(const Cluster& cluster);
std::vector<std::string> list_clusters(const std::string& data_dir);
// Any field by its JSON key, e.g. {"scaleout_bytes_per_s": 1e11, "gpus_used_per_domain": 72}.
Result<void> apply_overrides(Cluster& cluster, const Json& overrides, const std::string& where);
Result<void> validate(const Cluster& cluster, const std::string& where);

}  // namespace trifold::hardware
