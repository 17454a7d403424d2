// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hardware/profile.h"

// Collectives inside one domain.
//
// Between measured sizes: linear in (ln bytes, ln seconds); constant below the first point
// (latency) and slope 1 above the last (bandwidth). shared/reference/calibration.md section 3:
// bridging a gap of 4x so costs 1-11 % median, against 5-17 % for alpha-beta.
//
// Unmeasured rank counts use the step model t(S, n) = alpha(n) + S f(n) / B(S) with B shared:
//   f(n) = (n-1)/n for all-gather, reduce-scatter, all-to-all; 2 (n-1)/n for all-reduce; 1 for
//   send/recv. alpha(n) = a + steps(n) h, steps = n-1 for the rings and the pairwise exchange, 2
//   (n-1) for all-reduce. a/h comes from the public H100 tables at 2 and 8 ranks, 1 KiB
//   (shared/reference/achieved.md section 1): all-gather 5.2 -> 10.4 us gives 5.0, all-reduce 5.9
//   -> 15.6 us gives 5.3, all-to-all 6.6 -> 8.1 us gives 25 (its pairs run side by side).
// Between two measured rank counts both neighbours are scaled and blended in ln n. Known error: 15
// % one sigma more than the curve itself, and more per doubling; NVLS and copy-engine paths that
// start at a rank count are not seen.
//
// An operation without any curve borrows: reduce-scatter and all-gather from each other, all-reduce
// is their sum, all-to-all from all-gather, send/recv from all-to-all.

namespace trifold::hardware {

namespace {

double read_curve(const CollectiveCurve& curve, double bytes) {
  const auto& x = curve.bytes;
  const auto& y = curve.seconds;
  if (bytes <= x.front()) return y.front();
  if (bytes >= x.back()) return y.back() * bytes / x.back();
  const auto above = std::upper_bound(x.begin(), x.end(), bytes);
  const std::size_t i = static_cast<std::size_t>(above - x.begin());
  const double weight = std::log(bytes / x[i - 1]) / std::log(x[i] / x[i - 1]);
  return y[i - 1] * std::pow(y[i] / y[i - 1], weight);
}

bool on_point(const CollectiveCurve& curve, double bytes) {
  return std::binary_search(curve.bytes.begin(), curve.bytes.end(), bytes);
}

double volume(Collective op, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  switch (op) {
    case Collective::all_reduce:
      return 2 * share;
    case Collective::send_recv:
      return 1;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      break;
  }
  return share;
}

// In units of one hop.
double latency(Collective op, int ranks) {
  constexpr double kRingBase = 5, kPairwiseBase = 25;
  switch (op) {
    case Collective::all_reduce:
      return kRingBase + 2 * (ranks - 1);
    case Collective::all_to_all:
      return kPairwiseBase + (ranks - 1);
    case Collective::send_recv:
      return 1;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      break;
  }
  return kRingBase + (ranks - 1);
}

double scaled_seconds(Collective op, const CollectiveCurve& curve, int ranks, double bytes) {
  const double alpha = curve.seconds.front();
  const double transfer = read_curve(curve, bytes) - alpha;
  return alpha * latency(op, ranks) / latency(op, curve.ranks) +
         transfer * volume(op, ranks) / volume(op, curve.ranks);
}

Known from_curves(Collective op, const std::vector<CollectiveCurve>& curves, int ranks,
                  double bytes) {
  constexpr double kScaledError = 0.15, kPerDoubling = 0.05;
  const auto above =
      std::lower_bound(curves.begin(), curves.end(), ranks,
                       [](const CollectiveCurve& c, int wanted) { return c.ranks < wanted; });
  if (above != curves.end() && above->ranks == ranks) {
    Basis basis = above->basis;
    if (basis == Basis::measured && !on_point(*above, bytes)) basis = Basis::interpolated;
    if (bytes > above->bytes.back()) basis = std::max(basis, Basis::scaled);
    return {read_curve(*above, bytes), basis, above->error};
  }
  const CollectiveCurve& low = above == curves.begin() ? *above : *(above - 1);
  const CollectiveCurve& high = above == curves.end() ? low : *above;
  const double from_low = scaled_seconds(op, low, ranks, bytes);
  Known known{from_low, std::max({Basis::scaled, low.basis, high.basis}), low.error};
  double doublings = std::abs(std::log2(static_cast<double>(ranks) / low.ranks));
  if (high.ranks != low.ranks) {
    const double weight = std::log(static_cast<double>(ranks) / low.ranks) /
                          std::log(static_cast<double>(high.ranks) / low.ranks);
    const double from_high = scaled_seconds(op, high, ranks, bytes);
    known.value = std::pow(from_low, 1 - weight) * std::pow(from_high, weight);
    known.error = std::max(low.error, high.error);
    doublings = std::min(doublings, std::log2(static_cast<double>(high.ranks) / ranks));
  }
  known.error = std::hypot(known.error, kScaledError + kPerDoubling * (doublings - 1));
  return known;
}

constexpr double kBorrowError = 0.2;

Known borrow(Known known) {
  known.basis = std::max(known.basis, Basis::scaled);
  known.error = std::hypot(known.error, kBorrowError);
  return known;
}

}  // namespace

Known Profile::collective_seconds(Collective op, int ranks, double bytes) const {
  if (op == Collective::send_recv) ranks = 2;
  if (ranks <= 1 || bytes <= 0) return {0, Basis::measured, 0};
  const auto curves = [&](Collective which) -> const std::vector<CollectiveCurve>& {
    return collectives[static_cast<std::size_t>(which)];
  };
  if (!curves(op).empty()) return from_curves(op, curves(op), ranks, bytes);
  switch (op) {
    case Collective::all_gather:
    case Collective::reduce_scatter: {
      const Collective twin =
          op == Collective::all_gather ? Collective::reduce_scatter : Collective::all_gather;
      if (!curves(twin).empty()) return borrow(from_curves(twin, curves(twin), ranks, bytes));
      break;
    }
    case Collective::all_reduce: {
      const Known gather = collective_seconds(Collective::all_gather, ranks, bytes);
      const Known scatter = collective_seconds(Collective::reduce_scatter, ranks, bytes);
      return borrow({gather.value + scatter.value, std::max(gather.basis, scatter.basis),
                     std::max(gather.error, scatter.error)});
    }
    case Collective::all_to_all:
      return borrow(collective_seconds(Collective::all_gather, ranks, bytes));
    case Collective::send_recv: {
      // Two ranks exchange S/2 each of an all-to-all of size S.
      return borrow(collective_seconds(Collective::all_to_all, 2, 2 * bytes));
    }
  }
  TRIFOLD_CHECK(!"a profile has a curve of all_gather or reduce_scatter");
  return {};
}

}  // namespace trifold::hardware
