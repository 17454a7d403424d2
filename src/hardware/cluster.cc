// SPDX-License-Identifier: Apache-2.0
#include "hardware/cluster.h"

#include <fmt/format.h>

#include <cmath>

#include "base/math.h"
#include "hardware/catalogue.h"

namespace trifold::hardware {

namespace {

constexpr const char* kSchema = "trifold.cluster/1";

// Keys without which a cluster cannot be priced; the rest have a default or mean "none".
constexpr const char* kRequired[] = {"name",
                                     "gpu",
                                     "arch",
                                     "sms",
                                     "bf16_flops_per_s",
                                     "hbm_bytes",
                                     "l2_bytes",
                                     "domain_gpus",
                                     "host_cpu",
                                     "hbm_bytes_per_s",
                                     "gpus_per_node",
                                     "reserved_hbm_bytes",
                                     "scaleup_bytes_per_s",
                                     "scaleout_bytes_per_s",
                                     "host_bytes_per_s"};

template <class Q>
void get_quantity(JsonReader& reader, const char* key, Q& out) {
  typename Q::rep value = out.value();
  reader.get(key, value);
  out = Q(value);
}

void read_fields(JsonReader& reader, Cluster& c) {
  reader.get("name", c.name);
  reader.get("profile", c.profile);
  reader.get("gpu", c.gpu.name);
  reader.get_token("arch", kGpuArchs, c.gpu.arch);
  reader.get("sms", c.gpu.sms);
  get_quantity(reader, "bf16_flops_per_s", c.gpu.bf16);
  get_quantity(reader, "fp8_flops_per_s", c.gpu.fp8);
  get_quantity(reader, "fp4_flops_per_s", c.gpu.fp4);
  get_quantity(reader, "tf32_flops_per_s", c.gpu.tf32);
  get_quantity(reader, "l2_bytes", c.gpu.l2);
  get_quantity(reader, "hbm_bytes", c.gpu.hbm);
  get_quantity(reader, "reserved_hbm_bytes", c.reserved_hbm);
  get_quantity(reader, "hbm_bytes_per_s", c.gpu.hbm_bandwidth);
  reader.get("domain_gpus", c.domain_gpus);
  c.gpus_used_per_domain = reader.has("domain_gpus") ? c.domain_gpus : c.gpus_used_per_domain;
  reader.get("gpus_used_per_domain", c.gpus_used_per_domain);
  get_quantity(reader, "scaleup_bytes_per_s", c.scaleup_bandwidth);
  get_quantity(reader, "scaleout_bytes_per_s", c.scaleout_bandwidth);
  reader.get("nodes_per_leaf", c.nodes_per_leaf);
  reader.get("leaf_oversubscription", c.leaf_oversubscription);
  reader.get("slowest_gpu", c.slowest_gpu);
  reader.get("failed_nics", c.failed_nics);
  reader.get("gpus_per_node", c.gpus_per_node);
  reader.get("max_gpus", c.max_gpus);
  reader.get_token("host_cpu", kHostCpus, c.host_cpu);
  get_quantity(reader, "host_bytes_per_s", c.host_bandwidth);
  get_quantity(reader, "host_memory_bytes_per_gpu", c.host_memory_per_gpu);
}

struct Range {
  const char* key;
  double value, low, high;
};

// Wide enough for any machine of a decade either way, narrow enough to catch a wrong unit.
Result<void> check_ranges(const Cluster& c, const std::string& where) {
  const double gib = 1024.0 * 1024 * 1024;
  const Range ranges[] = {
      {"sms", static_cast<double>(c.gpu.sms), 1, 4096},
      {"bf16_flops_per_s", c.gpu.bf16.value(), 1e12, 1e18},
      {"fp8_flops_per_s", c.gpu.fp8.value(), 0, 1e18},
      {"fp4_flops_per_s", c.gpu.fp4.value(), 0, 1e18},
      {"tf32_flops_per_s", c.gpu.tf32.value(), 0, 1e18},
      {"l2_bytes", static_cast<double>(c.gpu.l2.value()), 1 << 20, 16 * gib},
      {"hbm_bytes", static_cast<double>(c.gpu.hbm.value()), gib, 16384 * gib},
      {"reserved_hbm_bytes", static_cast<double>(c.reserved_hbm.value()), 0, 64 * gib},
      {"hbm_bytes_per_s", c.gpu.hbm_bandwidth.value(), 1e10, 1e15},
      {"domain_gpus", static_cast<double>(c.domain_gpus), 1, 1 << 16},
      {"gpus_used_per_domain", static_cast<double>(c.gpus_used_per_domain), 1, 1 << 16},
      {"scaleup_bytes_per_s", c.scaleup_bandwidth.value(), 1e9, 1e14},
      {"scaleout_bytes_per_s", c.scaleout_bandwidth.value(), 1e8, 1e14},
      {"nodes_per_leaf", static_cast<double>(c.nodes_per_leaf), 1, 1 << 20},
      {"leaf_oversubscription", c.leaf_oversubscription, 1, 64},
      {"slowest_gpu", c.slowest_gpu, 0.05, 1},
      {"failed_nics", static_cast<double>(c.failed_nics), 0, c.gpus_per_node - 1.0},
      {"gpus_per_node", static_cast<double>(c.gpus_per_node), 1, 1024},
      {"max_gpus", static_cast<double>(c.max_gpus), 1, 1 << 24},
      {"host_bytes_per_s", c.host_bandwidth.value(), 1e8, 1e14},
      {"host_memory_bytes_per_gpu", static_cast<double>(c.host_memory_per_gpu.value()), 0,
       65536 * gib}};
  for (const Range& r : ranges)
    if (!(r.value >= r.low && r.value <= r.high))
      return input_error(
          fmt::format("{} is {:g}, outside {:g}..{:g}", r.key, r.value, r.low, r.high), where,
          "rates are bytes/s and FLOP/s per GPU and direction");
  return {};
}

}  // namespace

FlopsPerSecond Gpu::peak(Dtype dtype) const {
  switch (dtype) {
    case Dtype::fp32: {
      // CUDA cores: one FMA a core and clock; 64 cores an SM on A100, 128 since. Boost clocks.
      const double cores = arch == GpuArch::ampere ? 64 : 128;
      const double clock = arch == GpuArch::ampere ? 1.41e9 : 1.98e9;
      return FlopsPerSecond(2 * cores * clock * sms);
    }
    case Dtype::tf32:
      return tf32;
    case Dtype::bf16:
      return bf16;
    case Dtype::fp8_tensor:
    case Dtype::fp8_block:
      return fp8;
    case Dtype::mxfp8:
      return arch == GpuArch::blackwell ? fp8 : FlopsPerSecond(0);
    case Dtype::nvfp4:
      break;
  }
  return fp4;
}

Result<void> validate(const Cluster& c, const std::string& where) {
  TRIFOLD_TRY(check_ranges(c, where));
  if (c.gpus_used_per_domain > c.domain_gpus)
    return input_error(fmt::format("gpus_used_per_domain is {} but an NVLink domain has {} GPUs",
                                   c.gpus_used_per_domain, c.domain_gpus),
                       where, fmt::format("use at most {}", c.domain_gpus));
  if (!divides(c.gpus_per_node, c.domain_gpus) && !divides(c.domain_gpus, c.gpus_per_node))
    return input_error(fmt::format("domain_gpus {} and gpus_per_node {} do not divide each other",
                                   c.domain_gpus, c.gpus_per_node),
                       where);
  if (c.reserved_hbm >= c.gpu.hbm)
    return input_error("reserved_hbm_bytes leaves nothing of hbm_bytes", where);
  if (c.scaleup_bandwidth > c.gpu.hbm_bandwidth)
    return input_error("scaleup_bytes_per_s is above the GPU's own hbm_bytes_per_s", where,
                       "is it in bits?");
  return {};
}

Result<void> apply_overrides(Cluster& cluster, const Json& overrides, const std::string& where) {
  Cluster changed = cluster;
  JsonReader reader(overrides, where);
  read_fields(reader, changed);
  TRIFOLD_TRY(reader.finish());
  TRIFOLD_TRY(validate(changed, where));
  cluster = std::move(changed);
  return {};
}

Result<Cluster> read_cluster(const Json& json, const std::string& file) {
  TRIFOLD_TRY(check_schema(json, kSchema, file));
  if (json.contains("base"))
    return input_error("'base' needs the catalogue", file + "#/base", "pass the file's path");
  JsonReader reader(json, file);
  reader.ignore("schema");
  for (const char* key : kRequired)
    if (!reader.has(key)) {
      reader.fail(
          input_error(fmt::format("missing key '{}'", key), reader.where(),
                      "give it, or start from a catalogue cluster: \"base\": \"dgx-h100\""));
      break;
    }
  Cluster cluster;
  read_fields(reader, cluster);
  TRIFOLD_TRY(reader.finish());
  TRIFOLD_TRY(validate(cluster, file));
  return cluster;
}

Result<Cluster> read_cluster(const Json& json, const std::string& file,
                             const std::string& data_dir) {
  if (!json.is_object() || !json.contains("base")) return read_cluster(json, file);
  TRIFOLD_TRY(check_schema(json, kSchema, file));
  if (!json["base"].is_string()) return input_error("expected a catalogue name", file + "#/base");
  const auto base = json["base"].get<std::string>();
  TRIFOLD_ASSIGN(parent, read_catalogue(base, data_dir + "/hardware/clusters", "cluster"));
  TRIFOLD_ASSIGN(cluster, read_cluster(parent.json, parent.path));
  Json overrides = json;
  overrides.erase("schema");
  overrides.erase("base");
  TRIFOLD_TRY(apply_overrides(cluster, overrides, file));
  return cluster;
}

Result<Cluster> load_cluster(const std::string& name_or_path, const std::string& data_dir) {
  TRIFOLD_ASSIGN(file, read_catalogue(name_or_path, data_dir + "/hardware/clusters", "cluster"));
  return read_cluster(file.json, file.path, data_dir);
}

Json to_json(const Cluster& c) {
  const auto whole = [](double v) -> Json {
    return v == std::floor(v) && std::abs(v) < 9e18 ? Json(static_cast<std::int64_t>(v)) : Json(v);
  };
  Json json = Json::object();
  json["schema"] = kSchema;
  json["name"] = c.name;
  if (!c.profile.empty()) json["profile"] = c.profile;
  json["gpu"] = c.gpu.name;
  json["arch"] = std::string(token_name(kGpuArchs, c.gpu.arch));
  json["sms"] = c.gpu.sms;
  json["bf16_flops_per_s"] = whole(c.gpu.bf16.value());
  json["fp8_flops_per_s"] = whole(c.gpu.fp8.value());
  json["fp4_flops_per_s"] = whole(c.gpu.fp4.value());
  json["tf32_flops_per_s"] = whole(c.gpu.tf32.value());
  json["l2_bytes"] = c.gpu.l2.value();
  json["hbm_bytes"] = c.gpu.hbm.value();
  json["reserved_hbm_bytes"] = c.reserved_hbm.value();
  json["hbm_bytes_per_s"] = whole(c.gpu.hbm_bandwidth.value());
  json["domain_gpus"] = c.domain_gpus;
  json["gpus_used_per_domain"] = c.gpus_used_per_domain;
  json["scaleup_bytes_per_s"] = whole(c.scaleup_bandwidth.value());
  json["scaleout_bytes_per_s"] = whole(c.scaleout_bandwidth.value());
  json["nodes_per_leaf"] = c.nodes_per_leaf;
  json["leaf_oversubscription"] = c.leaf_oversubscription;
  json["slowest_gpu"] = c.slowest_gpu;
  json["failed_nics"] = c.failed_nics;
  json["gpus_per_node"] = c.gpus_per_node;
  json["max_gpus"] = c.max_gpus;
  json["host_cpu"] = std::string(token_name(kHostCpus, c.host_cpu));
  json["host_bytes_per_s"] = whole(c.host_bandwidth.value());
  json["host_memory_bytes_per_gpu"] = c.host_memory_per_gpu.value();
  return json;
}

std::vector<std::string> list_clusters(const std::string& data_dir) {
  return list_catalogue(data_dir + "/hardware/clusters");
}

}  // namespace trifold::hardware
