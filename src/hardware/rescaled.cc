// SPDX-License-Identifier: Apache-2.0
#include "hardware/rescaled.h"

#include <algorithm>
#include <cmath>

namespace trifold::hardware {

Profile rescaled(const Profile& profile, double ratio) {
  Profile out = profile;
  if (std::abs(ratio - 1) < 1e-12) return out;
  for (auto& curves : out.collectives)
    for (CollectiveCurve& curve : curves) {
      if (curve.seconds.empty()) continue;
      const double latency = curve.seconds.front();
      for (double& s : curve.seconds) s = latency + (s - latency) / ratio;
      curve.basis = std::max(curve.basis, Basis::scaled);
    }
  return out;
}

Result<double> scaleup_ratio(const Cluster& cluster, const std::string& catalogue_name,
                             const std::string& data_dir) {
  if (catalogue_name.empty()) return 1.0;
  TRIFOLD_ASSIGN(nominal, load_cluster(catalogue_name, data_dir));
  return cluster.scaleup_bandwidth.value() / nominal.scaleup_bandwidth.value();
}

}  // namespace trifold::hardware
