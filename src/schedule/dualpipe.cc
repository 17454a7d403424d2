// SPDX-License-Identifier: Apache-2.0
// DualPipe (DeepSeek-V3 report section 3.2.1; order of units as in deepseek-ai/DualPipe): the
// micro-batches enter from both ends, and a forward of one direction runs beside a backward of the
// other. DualPipeV is the same on a V of 2 p virtual stages: one direction, half of the parameters.
// Eight phases; h = rank counted from the nearer end, H = number of such ranks (p/2, or p for V).
// Bubble (p/2-1)(F&B + B - 3W), B the full backward; parameters 2x, activations p+1.
// M must be even and at least 2 p (for V at least 2 p).
#include <algorithm>

#include "base/check.h"
#include "schedule/program.h"

namespace trifold::schedule {
namespace {

// Issues units of one rank; direction 0 is the one that enters nearer to it.
class Rank {
 public:
  Rank(std::vector<Slot>& slots, bool flipped) : slots_(slots), flipped_(flipped) {}

  void forward(int direction) {
    const int c = chunk(direction);
    slots_.push_back({Work::forward, static_cast<std::int16_t>(c), forwards_[c]++});
  }
  void backward(int direction, bool split) {
    const int c = chunk(direction);
    Slot slot{Work::backward, static_cast<std::int16_t>(c), backwards_[c]++};
    slot.split = split;
    if (split) waiting_.push_back(slot);
    slots_.push_back(slot);
  }
  void wgrad() {
    Slot slot = waiting_[first_++];
    slot.work = Work::wgrad;
    slot.split = false;
    slots_.push_back(slot);
  }
  void both(int forward_direction, int backward_direction) {
    const int f = chunk(forward_direction), b = chunk(backward_direction);
    slots_.push_back({Work::merged, static_cast<std::int16_t>(f), forwards_[f]++,
                      static_cast<std::int16_t>(b), backwards_[b]++});
  }
  std::size_t waiting() const { return waiting_.size() - first_; }

 private:
  int chunk(int direction) const { return flipped_ ? 1 - direction : direction; }

  std::vector<Slot>& slots_;
  bool flipped_;
  std::int32_t forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::vector<Slot> waiting_;
  std::size_t first_ = 0;
};

void issue(Rank& rank, int h, int half_ranks, int main_steps, bool innermost) {
  for (int i = 0; i < (half_ranks - h - 1) * 2; ++i) rank.forward(0);
  for (int i = 0; i < h + 1; ++i) rank.forward(0), rank.forward(1);
  for (int i = 0; i < half_ranks - h - 1; ++i)
    rank.backward(1, true), rank.wgrad(), rank.forward(1);
  for (int i = 0; i < main_steps; ++i) {
    if (i == 0 && innermost)
      rank.forward(0), rank.backward(1, false);
    else
      rank.both(0, 1);
    rank.both(1, 0);
  }
  for (int i = 0; i < half_ranks - h - 1; ++i) rank.backward(1, false), rank.both(1, 0);
  bool split = false;
  for (int i = 0; i < h + 1; ++i) {
    if (i == (h + 1) / 2 && h % 2 == 1) split = true;
    rank.backward(1, split);
    if (i == (h + 1) / 2 && h % 2 == 0) split = true;
    rank.backward(0, split);
  }
  for (int i = 0; i < half_ranks - h - 1; ++i) rank.wgrad(), rank.backward(0, true);
  while (rank.waiting() > 0) rank.wgrad();
}

}  // namespace

void build_dualpipe(const layout::ScheduleShape& shape, Program& out) {
  const int p = shape.pp, m = shape.microbatches;
  const bool vee = shape.kind == layout::ScheduleKind::dualpipe_v;
  out.placement = vee ? Placement::vee : Placement::two_way;
  out.chunks = 2;
  out.microbatches = vee ? m : m / 2;
  TRIFOLD_CHECK(m >= 2 * p && (vee || (m % 2 == 0 && p % 2 == 0)));
  for (int r = 0; r < p; ++r) {
    const int h = vee ? r : std::min(r, p - 1 - r);
    const int half = vee ? p : p / 2;
    Rank rank(out.stages[static_cast<std::size_t>(r)], !vee && r >= p / 2);
    issue(rank, h, half, (vee ? m - 2 * p : m / 2 - p) + h + 1, h == half - 1);
  }
}

}  // namespace trifold::schedule
