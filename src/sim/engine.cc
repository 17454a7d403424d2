// SPDX-License-Identifier: Apache-2.0
#include "sim/engine.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace trifold::sim {
namespace {

constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

struct Active {
  Index task = -1;
  std::uint8_t load = 0;
  Picoseconds remaining = 0;  // at full speed
  Rate rate = kFull;
};

struct Domain {
  Active active[kMaxBeside];
  int count = 0;
  Index waiting[kMaxBeside];  // admitted when what fills resource 0 ends
  int waits = 0;
  Picoseconds settled = 0;  // `remaining` is as of this time
  bool touched = false;
};

// (remaining work) / rate, rounded up.
Picoseconds duration_at(Picoseconds remaining, Rate rate) {
  if (rate == kFull) return remaining;
  const auto r = static_cast<Picoseconds>(rate);
  const Picoseconds whole = remaining / r, rest = remaining % r;
  return whole * kFull + (rest * kFull + r - 1) / r;
}

Picoseconds work_done(Picoseconds elapsed, Rate rate) {
  if (rate == kFull) return elapsed;
  const Picoseconds high = elapsed >> 20, low = elapsed & (kFull - 1);
  return high * rate + ((low * rate) >> 20);
}

// Rates by the sorted loads of a domain: an open-addressing table that grows with new company only.
class RateCache {
 public:
  void clear() {
    slots_.assign(64, {});
    used_ = 0;
  }

  const Rate* find(const LoadTable& table, const std::uint8_t* sorted, int count) {
    std::uint64_t key[2] = {0, static_cast<std::uint64_t>(count) << 48};
    for (int i = 0; i < count; ++i)
      key[i / 8] |= static_cast<std::uint64_t>(sorted[i]) << (8 * (i % 8));
    std::size_t i = probe(key);
    if (slots_[i].key[1] == 0) {
      if (used_ * 2 >= slots_.size()) grow(), i = probe(key);
      slots_[i].key[0] = key[0];
      slots_[i].key[1] = key[1];
      table.rates(sorted, count, slots_[i].rates);
      ++used_;
    }
    return slots_[i].rates;
  }

 private:
  struct Slot {
    std::uint64_t key[2] = {0, 0};
    Rate rates[kMaxBeside] = {};
  };

  std::size_t probe(const std::uint64_t* key) const {
    std::uint64_t h = key[0] * 0x9e3779b97f4a7c15ull ^ key[1] * 0xc2b2ae3d27d4eb4full;
    h ^= h >> 31;
    std::size_t i = h & (slots_.size() - 1);
    while (slots_[i].key[1] != 0 && (slots_[i].key[0] != key[0] || slots_[i].key[1] != key[1]))
      i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.key[1] != 0) slots_[probe(s.key)] = s;
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

// Domains by the time of their next completion: a binary heap with positions.
class DomainHeap {
 public:
  void reset(Index domains) {
    time_.assign(at(domains), kNever);
    heap_.resize(at(domains));
    where_.resize(at(domains));
    for (Index d = 0; d < domains; ++d) heap_[at(d)] = where_[at(d)] = d;
  }
  Index top() const { return heap_[0]; }
  Picoseconds top_time() const { return time_[at(heap_[0])]; }

  void set(Index domain, Picoseconds time) {
    const Picoseconds old = time_[at(domain)];
    time_[at(domain)] = time;
    if (time < old)
      up(where_[at(domain)]);
    else
      down(where_[at(domain)]);
  }

 private:
  bool less(Index a, Index b) const {
    return time_[at(a)] != time_[at(b)] ? time_[at(a)] < time_[at(b)] : a < b;
  }
  void place(Index slot, Index domain) {
    heap_[at(slot)] = domain;
    where_[at(domain)] = slot;
  }
  void up(Index slot) {
    const Index d = heap_[at(slot)];
    while (slot > 0 && less(d, heap_[at((slot - 1) / 2)])) {
      place(slot, heap_[at((slot - 1) / 2)]);
      slot = (slot - 1) / 2;
    }
    place(slot, d);
  }
  void down(Index slot) {
    const Index n = static_cast<Index>(heap_.size()), d = heap_[at(slot)];
    for (;;) {
      Index child = 2 * slot + 1;
      if (child >= n) break;
      if (child + 1 < n && less(heap_[at(child + 1)], heap_[at(child)])) ++child;
      if (!less(heap_[at(child)], d)) break;
      place(slot, heap_[at(child)]);
      slot = child;
    }
    place(slot, d);
  }

  std::vector<Picoseconds> time_;
  std::vector<Index> heap_, where_;
};

}  // namespace

struct Engine::State {
  // What the loop reads of a task, on one cache line; the rest stays in the Graph's arrays.
  struct Hot {
    Picoseconds work = 0;
    Index next = -1;  // in its stream
    Index begin = 0;  // of its successors
    Index successors = 0;
    Index pending = 0;  // predecessors left, the stream's previous task included
    Index domain = 0;
    std::uint8_t load = 0;
    bool fills = false, holds = false;
  };
  Outcome out;
  std::vector<Hot> hot;
  std::vector<Index> successors;
  std::vector<Index> ready, light, heavy, done;
  std::vector<Domain> domains;
  std::vector<Index> touched;
  DomainHeap heap;
  RateCache cache;
  const Graph* graph = nullptr;
  const LoadTable* loads = nullptr;

  void freeze();
  void release(Index task, Picoseconds now);
  void run_free();
  void run_contended();
  void start(Index task, Picoseconds now);
  void finish(Index task, Picoseconds now);
  void drain_ready(Picoseconds now);
  void settle(Domain& d, Picoseconds now);
  void touch(Index domain, Picoseconds now);
  void rerate(Index domain);
  bool admissible(const Domain& d, std::uint8_t load) const;
};

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

void Engine::State::freeze() {
  const Graph& g = *graph;
  const std::size_t n = at(g.tasks()), m = g.dependencies();
  hot.resize(n);
  successors.resize(m);
  out.start.assign(n, -1);
  out.end.assign(n, -1);
  out.cause.assign(n, -1);
  out.makespan = 0;
  out.finished = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Index t = static_cast<Index>(i);
    const Load& load = (*loads)[g.load(t)];
    hot[i] = {g.work(t),
              g.next_in_stream(t),
              0,
              0,
              g.previous_in_stream(t) >= 0 ? 1 : 0,
              g.domain(t),
              g.load(t),
              load.fill > 0,
              load.hold[0] > 0};
  }
  for (std::size_t i = 0; i < m; ++i) ++hot[at(g.dependency_before(i))].successors;
  Index total = 0;
  for (Hot& h : hot) h.begin = total, total += h.successors, h.successors = 0;
  for (std::size_t i = 0; i < m; ++i) {
    Hot& before = hot[at(g.dependency_before(i))];
    successors[at(before.begin + before.successors++)] = g.dependency_after(i);
    ++hot[at(g.dependency_after(i))].pending;
  }
  ready.clear();
  for (std::size_t i = 0; i < n; ++i)
    if (hot[i].pending == 0) ready.push_back(static_cast<Index>(i));
}

// Tells the successors of a task that ended at `now`.
void Engine::State::release(Index task, Picoseconds now) {
  const auto tell = [&](Index next) {
    Index& cause = out.cause[at(next)];
    if (cause < 0 || out.end[at(cause)] <= now) cause = task;
    if (--hot[at(next)].pending == 0) ready.push_back(next);
  };
  const Hot h = hot[at(task)];
  if (h.next >= 0) tell(h.next);
  for (Index i = 0; i < h.successors; ++i) tell(successors[at(h.begin + i)]);
}

void Engine::State::run_free() {
  while (!ready.empty()) {
    const Index task = ready.back();
    ready.pop_back();
    const Index cause = out.cause[at(task)];
    const Picoseconds begin_time = cause < 0 ? 0 : out.end[at(cause)];
    const Picoseconds end_time = begin_time + hot[at(task)].work;
    out.start[at(task)] = begin_time;
    out.end[at(task)] = end_time;
    out.makespan = std::max(out.makespan, end_time);
    ++out.finished;
    release(task, end_time);
  }
}

void Engine::State::settle(Domain& d, Picoseconds now) {
  const Picoseconds elapsed = now - d.settled;
  if (elapsed > 0)
    for (int i = 0; i < d.count; ++i) d.active[i].remaining -= work_done(elapsed, d.active[i].rate);
  d.settled = now;
}

void Engine::State::touch(Index domain, Picoseconds now) {
  Domain& d = domains[at(domain)];
  if (d.touched) return;
  d.touched = true;
  touched.push_back(domain);
  settle(d, now);
}

bool Engine::State::admissible(const Domain& d, std::uint8_t load) const {
  const double hold = (*loads)[load].hold[0];
  if (hold <= 0) return true;
  double filled = 0;
  for (int i = 0; i < d.count; ++i) filled += (*loads)[d.active[i].load].fill;
  return hold + filled <= 1 + 1e-9;
}

void Engine::State::start(Index task, Picoseconds now) {
  const Hot& h = hot[at(task)];
  Domain& d = domains[at(h.domain)];
  touch(h.domain, now);
  TRIFOLD_CHECK(d.count < kMaxBeside);
  out.start[at(task)] = now;
  if (h.next >= 0) {  // needed when this one ends; large graphs do not stay in the cache
    __builtin_prefetch(&hot[at(h.next)], 1);
    __builtin_prefetch(&out.end[at(h.next)], 1);
    __builtin_prefetch(&out.start[at(h.next)], 1);
    __builtin_prefetch(&out.cause[at(h.next)], 1);
  }
  d.active[d.count++] = {task, h.load, h.work, kFull};
}

void Engine::State::finish(Index task, Picoseconds now) {
  out.end[at(task)] = now;
  out.makespan = std::max(out.makespan, now);
  ++out.finished;
  release(task, now);
}

// Starts what is ready at `now`: first what waits for a place, then tasks that fill none, then the
// ones that fill resource 0 and make others wait.
void Engine::State::drain_ready(Picoseconds now) {
  for (;;) {
    light.clear();
    heavy.clear();
    for (std::size_t i = 0; i < ready.size(); ++i) {
      const Index task = ready[i];
      if (hot[at(task)].work == 0) {
        out.start[at(task)] = now;
        finish(task, now);
      } else {
        (hot[at(task)].fills ? heavy : light).push_back(task);
      }
    }
    ready.clear();
    for (std::size_t t = 0; t < touched.size(); ++t) {
      Domain& d = domains[at(touched[t])];
      if (d.waits == 0) continue;
      int kept = 0;
      for (int i = 0; i < d.waits; ++i) {
        if (admissible(d, hot[at(d.waiting[i])].load))
          start(d.waiting[i], now);
        else
          d.waiting[kept++] = d.waiting[i];
      }
      d.waits = kept;
    }
    if (light.size() > 1) std::sort(light.begin(), light.end());
    if (heavy.size() > 1) std::sort(heavy.begin(), heavy.end());
    for (const Index task : light) {
      const Hot& h = hot[at(task)];
      Domain& d = domains[at(h.domain)];
      if (!h.holds || admissible(d, h.load))
        start(task, now);
      else
        d.waiting[d.waits++] = task;
    }
    for (const Index task : heavy) start(task, now);
    if (ready.empty()) return;
  }
}

void Engine::State::rerate(Index domain) {
  Domain& d = domains[at(domain)];
  d.touched = false;
  Picoseconds next = kNever;
  if (d.count == 1) {
    d.active[0].rate = kFull;
    next = d.settled + std::max<Picoseconds>(0, d.active[0].remaining);
  } else if (d.count > 1) {
    for (int i = 1; i < d.count; ++i)  // insertion sort by load: the key of the cache
      for (int j = i; j > 0 && d.active[j].load < d.active[j - 1].load; --j)
        std::swap(d.active[j], d.active[j - 1]);
    std::array<std::uint8_t, kMaxBeside> sorted{};
    const int count = std::min(d.count, kMaxBeside);  // so that compilers see the bound
    for (int i = 0; i < count; ++i) sorted[static_cast<std::size_t>(i)] = d.active[i].load;
    const Rate* rates = cache.find(*loads, sorted.data(), count);
    for (int i = 0; i < d.count; ++i) {
      d.active[i].rate = rates[i];
      next = std::min(
          next, d.settled + duration_at(std::max<Picoseconds>(0, d.active[i].remaining), rates[i]));
    }
  }
  heap.set(domain, next);
}

void Engine::State::run_contended() {
  domains.resize(at(std::max<Index>(1, graph->domains())));
  for (Domain& d : domains) d.count = d.waits = 0, d.settled = 0, d.touched = false;
  heap.reset(std::max<Index>(1, graph->domains()));
  cache.clear();
  touched.clear();
  Picoseconds now = 0;
  for (;;) {
    drain_ready(now);
    for (std::size_t t = 0; t < touched.size(); ++t) rerate(touched[t]);
    touched.clear();
    now = heap.top_time();
    if (now == kNever) return;
    const Index domain = heap.top();
    touch(domain, now);
    Domain& d = domains[at(domain)];
    for (int i = 0; i < d.count;) {
      if (d.active[i].remaining > 0) {
        ++i;
        continue;
      }
      done.push_back(d.active[i].task);
      d.active[i] = d.active[--d.count];
    }
    if (done.size() > 1) std::sort(done.begin(), done.end());
    for (const Index task : done) finish(task, now);
    done.clear();
  }
}

const Outcome& Engine::run(const Graph& graph, const LoadTable& loads) {
  State& s = *state_;
  s.graph = &graph;
  s.loads = &loads;
  s.freeze();
  if (loads.contended())
    s.run_contended();
  else
    s.run_free();
  s.out.complete = s.out.finished == graph.tasks();
  return s.out;
}

}  // namespace trifold::sim
