// SPDX-License-Identifier: Apache-2.0
#pragma once

// Content hashes of a Job's parts.

#include <cstdint>

#include "hardware/cluster.h"
#include "model/model.h"

namespace trifold::job {

std::uint64_t fingerprint(const model::Model& model);
std::uint64_t fingerprint(const hardware::Cluster& cluster);

}  // namespace trifold::job
