// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a GEMM's price adds to a profile's utilisation surfaces. cost/ applies it, calibrate/fit
// takes it out of measured times, so that a measured shape gets its own time back.

#include <algorithm>
#include <cmath>

#include "hardware/cluster.h"

namespace trifold::hardware {

// Output columns are computed in whole tiles; the library picks 128 or, a little more efficient,
// 256.
inline double tile_waste(double columns) {
  const double narrow = std::ceil(columns / 128) * 128 / columns;
  const double wide = std::ceil(columns / 256) * 256 / columns;
  return std::min(1.04 * narrow, wide);
}

// Of a GEMM's operand in memory, scales included.
constexpr double element_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
    case Dtype::tf32:
      return 4;
    case Dtype::bf16:
      return 2;
    case Dtype::nvfp4:
      return 0.5625;  // a scale for 16 elements
    default:
      return 1;
  }
}

// Streams that a grouped linear spreads its launches over; gaps overlap between them.
inline constexpr double kGroupedStreams = 4;

}  // namespace trifold::hardware
