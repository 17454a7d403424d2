// SPDX-License-Identifier: Apache-2.0
#pragma once

// A profile's curves were measured on its own links. A cluster that overrides the NVLink rate needs
// them rescaled; the NIC's rate is read from the cluster anyway (cost/communication.cc).

#include "hardware/profile.h"

namespace trifold::hardware {

// Of a collective inside a domain, what grows with its bytes scales with the NVLink rate (`ratio`:
// new over old), its latency stays. Basis becomes `scaled`.
Profile rescaled(const Profile& profile, double ratio);

// NVLink rate of `cluster` over the one of the catalogue's cluster that it was made from; 1 where
// `catalogue_name` is empty.
Result<double> scaleup_ratio(const Cluster& cluster, const std::string& catalogue_name,
                             const std::string& data_dir);

}  // namespace trifold::hardware
