// SPDX-License-Identifier: Apache-2.0
#pragma once

// A forward of one MoE layer beside a backward of another (Megatron's combined 1F1B,
// TransformerLayerSchedulePlan.run; reference/megatron.md 4.4), transfers that nothing slows:
//
//   comm stream:    C.bwd   D.fwd -> D.bwd                  C.fwd
//   compute stream: A.fwd   X.bwd -> X.wgrad -> X.fwd       A.bwd -> A.wgrad
//
// The shared expert is part of A. What combine does to rows runs with C, on its stream. Weight
// gradients that are not delayed are part of X.bwd and A.bwd.

#include <algorithm>

namespace trifold::cost {

// Two transfers in a row on one stream, c1 and c2, and two passes on the other, k1 and k2: c2 needs
// k1, k2 needs c1. `w` runs between the passes and waits for nothing.
constexpr double crossed(double c1, double k1, double w, double c2, double k2) {
  return std::max(std::max(c1, k1) + c2, std::max(c1, k1 + w) + k2);
}

// Each of four passes waits for an event of the other stream, 1.7 us on H200.
inline constexpr double kPairHops = 4 * 1.7e-6;

struct MergedPair {                                                           // seconds
  double attention_forward = 0, attention_backward = 0, attention_wgrad = 0;  // A
  double experts_forward = 0, experts_backward = 0, experts_wgrad = 0;        // X
  double dispatch_forward = 0, dispatch_backward = 0;                         // D
  double combine_forward = 0, combine_backward = 0;                           // C

  // Passes and transfers that take longer by a factor.
  constexpr MergedPair slowed(double passes, double transfers) const {
    return {passes * attention_forward,   passes * attention_backward,
            passes * attention_wgrad,     passes * experts_forward,
            passes * experts_backward,    passes * experts_wgrad,
            transfers * dispatch_forward, transfers * dispatch_backward,
            transfers * combine_forward,  transfers * combine_backward};
  }

  // From one X.bwd to the next. `early`: A.bwd stands before X.fwd, so it waits for D.bwd, and
  // C.fwd is left with A.wgrad.
  constexpr double seconds(bool early) const {
    const double back = early ? 0 : attention_backward;
    const double around =
        crossed(combine_forward, back, attention_wgrad, combine_backward, attention_forward);
    if (!early)
      return around + crossed(dispatch_forward, experts_backward, experts_wgrad, dispatch_backward,
                              experts_forward);
    const double returned =
        std::max(std::max(dispatch_forward, experts_backward) + dispatch_backward,
                 experts_backward + experts_wgrad);
    return around + returned + attention_backward + experts_forward;
  }
};

}  // namespace trifold::cost
