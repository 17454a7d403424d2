// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/gpu_facts.h"

namespace trifold::fit {

namespace {

// profile, hardware.json name, device, gemm_compact.csv, file prefix, facts.json, stands on
std::vector<GpuFacts> known_gpus() {
  const auto gpu = [](const char* profile, const char* hardware, const char* device,
                      const char* gemm, const char* files, const char* facts, const char* from) {
    GpuFacts g;
    g.profile = profile;
    g.hardware = hardware;
    g.device = device;
    g.gemm = gemm;
    g.files = files;
    g.facts = facts;
    g.scaled_from = from;
    return g;
  };
  return {
      gpu("h100", "H100 SXM5", "NVIDIA H100 80GB HBM3", "H100", "h100_sxm", "H100", ""),
      gpu("h800", "H800 SXM5", "NVIDIA H800", "H100", "h100_sxm", "H800", "h100"),
      gpu("h200", "H200 SXM5", "NVIDIA H200", "H200", "h200_sxm", "H200", ""),
      gpu("b200", "B200 SXM", "NVIDIA B200", "B200", "b200_sxm", "B200", ""),
      gpu("b300", "B300 SXM (Blackwell Ultra)", "NVIDIA B300 SXM6 AC", "B300", "b300_sxm", "B300",
          ""),
      gpu("gb200", "GB200 NVL72 (per GPU)", "NVIDIA GB200", "GB200", "gb200", "GB200", ""),
      gpu("gb300", "GB300 NVL72 (per GPU)", "NVIDIA GB300", "GB300", "gb300", "GB300", ""),
      gpu("a100", "A100-80GB SXM", "NVIDIA A100-SXM4-80GB", "A100", "a100_sxm", "A100-80G", "")};
}

double at(const Json& json, const char* key, double unit) {
  const auto it = json.find(key);
  return it == json.end() || !it->is_number() ? 0 : it->get<double>() * unit;
}

}  // namespace

double GpuFacts::peak(hardware::Dtype dtype) const {
  switch (dtype) {
    case hardware::Dtype::fp32:
    case hardware::Dtype::tf32:
    case hardware::Dtype::bf16:
      return bf16;
    case hardware::Dtype::fp8_tensor:
    case hardware::Dtype::fp8_block:
      return fp8;
    case hardware::Dtype::mxfp8:
      return blackwell ? fp8 : 0;
    case hardware::Dtype::nvfp4:
      return fp4;
  }
  return 0;
}

Result<std::vector<GpuFacts>> read_gpu_facts(const std::string& data_dir) {
  const std::string path = data_dir + "/hardware.json";
  TRIFOLD_ASSIGN(json, read_json(path));
  std::vector<GpuFacts> gpus = known_gpus();
  for (GpuFacts& g : gpus) {
    const Json* entry = nullptr;
    for (const Json& candidate : json)
      if (candidate.value("name", "") == g.hardware) entry = &candidate;
    if (entry == nullptr) return input_error("no GPU named '" + g.hardware + "'", path);
    const Json& peaks = entry->at("peak_dense_tflops");
    g.bf16 = at(peaks, "bf16", 1e12);
    g.fp8 = at(peaks, "fp8", 1e12);
    g.fp4 = at(peaks, "fp4", 1e12);
    g.blackwell = entry->value("arch", "").rfind("Blackwell", 0) == 0;
    g.hbm = at(*entry, "hbm_bw_gbs", 1e9);
    g.sms = entry->value("sm_count", 132);
    g.scaleup = at(entry->at("scaleup"), "gbs_per_dir_per_gpu", 1e9);
    g.domain = entry->at("scaleup").value("domain_gpus", 8);
    g.scaleout = at(entry->at("node"), "nic_gbs_per_dir_per_gpu", 1e9);
    g.nic = g.scaleout;
    // B300 and GB300 ship 800 Gb/s NICs that no published run shows; 50 GB/s is what those runs
    // reach (shared/reference/modelling.md section 5).
    if (g.blackwell) g.scaleout = 50e9;
    g.host = at(entry->at("host_link"), "gbs_per_dir_per_gpu", 1e9);
    if (entry->contains("achieved")) g.h2d = at(entry->at("achieved"), "h2d_gbs", 1e9);
  }
  return gpus;
}

const GpuFacts* find_gpu(const std::vector<GpuFacts>& all, const std::string& profile) {
  for (const GpuFacts& g : all)
    if (g.profile == profile) return &g;
  return nullptr;
}

}  // namespace trifold::fit
