// SPDX-License-Identifier: Apache-2.0
#include "hardware/fabric.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "base/math.h"

// Placement: rank r sits in domain r / gpus_used_per_domain; the GPUs of a domain fill its nodes in
// order; nodes fill leaf groups in order. The rails of a leaf group are one vertex: NCCL moves a
// message to its destination's rail over NVLink first (PXN), so a leaf group is never left for
// another rail. Rates on edges are one rank's share when every rank sends: a leaf's uplink carries
// NIC / leaf_oversubscription.

namespace trifold::hardware {

namespace {

struct Place {
  int domain, leaf;
};

int nodes_per_domain(const Cluster& c) { return std::max(1, c.domain_gpus / c.gpus_per_node); }
int domains_per_node(const Cluster& c) { return std::max(1, c.gpus_per_node / c.domain_gpus); }

int node_of(const Cluster& c, int rank) {
  const int domain = rank / c.gpus_used_per_domain;
  const int local = rank % c.gpus_used_per_domain;
  return domain / domains_per_node(c) * nodes_per_domain(c) + local / c.gpus_per_node;
}

Place place_of(const Cluster& c, int rank) {
  return {rank / c.gpus_used_per_domain, node_of(c, rank) / c.nodes_per_leaf};
}

// The first rank of a leaf group or of a later one.
std::int64_t first_rank_of_leaf(const Cluster& c, int leaf) {
  const std::int64_t node = std::int64_t{leaf} * c.nodes_per_leaf;
  const std::int64_t domain = node / nodes_per_domain(c) * domains_per_node(c);
  const std::int64_t local = node % nodes_per_domain(c) * c.gpus_per_node;
  return domain * c.gpus_used_per_domain + std::min<std::int64_t>(local, c.gpus_used_per_domain);
}

void set_rates(const Cluster& c, GroupSpan& span) {
  span.scaleup = c.scaleup_bandwidth;
  span.scaleout = span.domains > 1 && span.leaves > 1 ? c.scaleout_rate() / c.leaf_oversubscription
                                                      : c.scaleout_rate();
}

// Ascending ranks base + o outer_stride + i inner_stride, blocks that do not interleave.
struct Members {
  std::int64_t base, inner_count, inner_stride, outer_count, outer_stride;

  std::int64_t count() const { return inner_count * outer_count; }
  std::int64_t rank(std::int64_t i) const {
    return base + i / inner_count * outer_stride + i % inner_count * inner_stride;
  }
  // How many members lie below a rank.
  std::int64_t below(std::int64_t bound) const {
    if (bound <= base) return 0;
    const std::int64_t block = std::min((bound - base - 1) / outer_stride, outer_count - 1);
    const std::int64_t offset = bound - base - block * outer_stride;
    return block * inner_count + std::min(ceil_div(offset, inner_stride), inner_count);
  }
};

// The count of members in every domain but the first and the last that the group touches; 0 when it
// is not the same in all of them. Blocks tile a domain when their stride divides it and none of
// them leaves its tile.
std::int64_t regular_interior(const Members& m, std::int64_t used) {
  if (m.outer_count == 1) return divides(m.inner_stride, used) ? used / m.inner_stride : 0;
  const std::int64_t extent = (m.inner_count - 1) * m.inner_stride;
  const bool tiles =
      divides(m.outer_stride, used) && m.base % m.outer_stride + extent < m.outer_stride;
  return tiles ? m.inner_count * (used / m.outer_stride) : 0;
}

// Domain by domain: one step each.
void count_each_domain(const Members& m, std::int64_t used, GroupSpan& span) {
  span.domains = 0;
  span.max_ranks_per_domain = 0;
  span.min_ranks_per_domain = std::numeric_limits<int>::max();
  for (std::int64_t i = 0, count = m.count(); i < count;) {
    const std::int64_t next = m.below((m.rank(i) / used + 1) * used);
    const int here = static_cast<int>(next - i);
    span.max_ranks_per_domain = std::max(span.max_ranks_per_domain, here);
    span.min_ranks_per_domain = std::min(span.min_ranks_per_domain, here);
    ++span.domains;
    i = next;
  }
}

void count_domains(const Members& m, std::int64_t used, GroupSpan& span) {
  if (m.outer_count == 1 && m.inner_stride >= used) {
    span.domains = static_cast<int>(m.inner_count);  // one member each: the defaults of max and min
    return;
  }
  const std::int64_t extent = (m.inner_count - 1) * m.inner_stride;
  if (m.outer_count > 1 && divides(used, m.outer_stride) &&
      (m.base % used + extent) / used < m.outer_stride / used) {
    // Every block meets the domains as the first does, in domains of its own.
    count_domains({m.base, m.inner_count, m.inner_stride, 1, extent + m.inner_stride}, used, span);
    span.domains *= static_cast<int>(m.outer_count);
    return;
  }
  const std::int64_t first = m.base / used, last = m.rank(m.count() - 1) / used;
  const std::int64_t interior = last - first > 1 ? regular_interior(m, used) : 1;
  if (interior == 0) return count_each_domain(m, used, span);
  const auto head = static_cast<int>(m.below((first + 1) * used));
  const auto tail = static_cast<int>(m.count() - m.below(last * used));
  const auto middle = last - first > 1 ? static_cast<int>(interior) : head;
  span.domains = static_cast<int>(last - first + 1);
  span.max_ranks_per_domain = std::max({head, middle, tail});
  span.min_ranks_per_domain = std::min({head, middle, tail});
}

// Any nodes_per_domain() nodes in a row hold one domain's worth of ranks; when all GPUs of a domain
// are used any node holds its own.
std::int64_t fewest_ranks_per_leaf(const Cluster& c) {
  if (c.domain_gpus < c.gpus_per_node)
    return std::int64_t{c.nodes_per_leaf} * domains_per_node(c) * c.gpus_used_per_domain;
  if (c.gpus_used_per_domain == c.domain_gpus)
    return std::int64_t{c.nodes_per_leaf} * c.gpus_per_node;
  return std::int64_t{c.nodes_per_leaf / nodes_per_domain(c)} * c.gpus_used_per_domain;
}

int count_leaves(const Cluster& c, const Members& m) {
  const auto leaf_of = [&](std::int64_t i) {
    return place_of(c, static_cast<int>(m.rank(i))).leaf;
  };
  const std::int64_t count = m.count();
  const int between = leaf_of(count - 1) - leaf_of(0);
  const std::int64_t gap =
      std::max(m.inner_stride, m.outer_stride - (m.inner_count - 1) * m.inner_stride);
  if (between <= 1 || gap <= fewest_ranks_per_leaf(c)) return between + 1;
  int leaves = 0;
  for (std::int64_t i = 0; i < count; ++leaves) i = m.below(first_rank_of_leaf(c, leaf_of(i) + 1));
  return leaves;
}

GroupSpan span_of_members(const Cluster& c, const Members& m) {
  GroupSpan span;
  span.ranks = static_cast<int>(m.count());
  count_domains(m, c.gpus_used_per_domain, span);
  span.leaves = count_leaves(c, m);
  set_rates(c, span);
  return span;
}

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property,
                                    boost::property<boost::edge_weight_t, double>>;
using Vertex = boost::graph_traits<Graph>::vertex_descriptor;

// Vertices: sending GPUs, receiving GPUs, NICs, NVLink switches (one a domain), leaf groups, the
// spine. Sending and receiving are apart because a GPU does not forward: a domain that hangs under
// two leaves is no way around the spine.
Graph build_graph(const Cluster& c, int gpus) {
  const Place last = place_of(c, gpus - 1);
  const std::size_t n = static_cast<std::size_t>(gpus);
  const Vertex switches = 3 * n;
  const Vertex leaves = switches + static_cast<std::size_t>(last.domain) + 1;
  const Vertex spine = leaves + static_cast<std::size_t>(last.leaf) + 1;
  const double nvlink = c.scaleup_bandwidth.value(), wire = c.scaleout_rate().value();
  Graph graph(spine + 1);
  for (int r = 0; r < gpus; ++r) {
    const Place place = place_of(c, r);
    const Vertex sender = static_cast<Vertex>(r), receiver = n + sender, nic = 2 * n + sender;
    const Vertex nvswitch = switches + static_cast<std::size_t>(place.domain);
    const Vertex leaf = leaves + static_cast<std::size_t>(place.leaf);
    boost::add_edge(sender, nvswitch, nvlink, graph);
    boost::add_edge(nvswitch, receiver, nvlink, graph);
    boost::add_edge(sender, nic, wire, graph);
    boost::add_edge(nic, receiver, wire, graph);
    boost::add_edge(nic, leaf, wire, graph);
    boost::add_edge(leaf, nic, wire, graph);
  }
  for (Vertex leaf = leaves; leaf < spine; ++leaf) {
    boost::add_edge(leaf, spine, wire / c.leaf_oversubscription, graph);
    boost::add_edge(spine, leaf, wire / c.leaf_oversubscription, graph);
  }
  return graph;
}

// The narrowest edge on the path with the fewest hops from one vertex to every other.
std::vector<double> narrowest_from(const Graph& graph, Vertex source) {
  class Visitor : public boost::default_bfs_visitor {
   public:
    explicit Visitor(std::vector<double>& rate) : rate_(&rate) {}
    void tree_edge(boost::graph_traits<Graph>::edge_descriptor edge, const Graph& g) {
      const double weight = boost::get(boost::edge_weight, g, edge);
      (*rate_)[boost::target(edge, g)] = std::min((*rate_)[boost::source(edge, g)], weight);
    }

   private:
    std::vector<double>* rate_;
  };
  std::vector<double> rate(boost::num_vertices(graph), std::numeric_limits<double>::infinity());
  boost::breadth_first_search(graph, source, boost::visitor(Visitor(rate)));
  return rate;
}

}  // namespace

GroupSpan route_group(const Cluster& c, int gpus, const std::vector<RankId>& members) {
  TRIFOLD_CHECK(!members.empty());
  const Graph graph = build_graph(c, gpus);
  std::map<int, int> ranks_in_domain;
  std::set<int> leaves;
  for (const RankId r : members) {
    TRIFOLD_CHECK(r.value() >= 0 && r.value() < gpus);
    const Place place = place_of(c, r.value());
    ++ranks_in_domain[place.domain];
    leaves.insert(place.leaf);
  }
  GroupSpan span;
  span.ranks = static_cast<int>(members.size());
  span.domains = static_cast<int>(ranks_in_domain.size());
  const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [fewest, most] =
      std::minmax_element(ranks_in_domain.begin(), ranks_in_domain.end(), by_count);
  span.min_ranks_per_domain = fewest->second;
  span.max_ranks_per_domain = most->second;
  span.leaves = static_cast<int>(leaves.size());
  double scaleup = c.scaleup_bandwidth.value(), scaleout = c.scaleout_rate().value();
  const std::size_t receivers = static_cast<std::size_t>(gpus);
  for (const RankId a : members) {
    const std::vector<double> rate = narrowest_from(graph, a.index());
    for (const RankId b : members) {
      if (a == b) continue;
      const bool inside = place_of(c, a.value()).domain == place_of(c, b.value()).domain;
      double& narrowest = inside ? scaleup : scaleout;
      narrowest = std::min(narrowest, rate[receivers + b.index()]);
    }
  }
  span.scaleup = BytesPerSecond(scaleup);
  span.scaleout = BytesPerSecond(scaleout);
  return span;
}

GroupSpan span_of(const Cluster& cluster, int base, int count, int stride) {
  return span_of(cluster, base, count, stride, 1, count * stride);
}

GroupSpan span_of(const Cluster& cluster, int base, int inner_count, int inner_stride,
                  int outer_count, int outer_stride) {
  TRIFOLD_CHECK(base >= 0 && inner_count > 0 && outer_count > 0);
  Members m = {base, inner_count, inner_stride, outer_count, outer_stride};
  if (m.inner_count > 1 && m.outer_count > 1 && m.outer_stride < m.inner_stride) {
    std::swap(m.inner_count, m.outer_count);
    std::swap(m.inner_stride, m.outer_stride);
  }
  if (m.inner_count == 1) {
    m.inner_count = std::exchange(m.outer_count, 1);
    m.inner_stride = m.outer_stride;
  }
  if (m.inner_count == 1) m.inner_stride = 1;
  TRIFOLD_CHECK(m.inner_stride > 0);
  if (m.outer_count == 1) m.outer_stride = m.inner_count * m.inner_stride;
  TRIFOLD_CHECK(m.outer_stride > (m.inner_count - 1) * m.inner_stride);
  return span_of_members(cluster, m);
}

}  // namespace trifold::hardware
