#include "trainer/tasks/gears/data/ranking.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace oarlock {
namespace {

double absolute_t(const GroupSums& sums, int64_t group, int64_t reference, int64_t gene) {
  const auto share = [&](int64_t g) {
    return sums.variance(g, gene) / static_cast<double>(sums.cells[static_cast<size_t>(g)]);
  };
  const double t = (sums.mean(group, gene) - sums.mean(reference, gene)) / std::sqrt(share(group) + share(reference));
  return std::isnan(t) ? 0 : std::abs(t);
}

}  // namespace

std::vector<int64_t> rank_genes(const GroupSums& sums, int64_t group, int64_t reference) {
  std::vector<double> scores;
  for (int64_t gene = 0; gene < sums.genes; ++gene) scores.push_back(absolute_t(sums, group, reference, gene));
  std::vector<int64_t> ranking(static_cast<size_t>(sums.genes));
  std::iota(ranking.begin(), ranking.end(), 0);
  std::stable_sort(ranking.begin(), ranking.end(), [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  return ranking;
}

std::vector<int64_t> top_non_dropout(std::span<const int64_t> ranking, std::span<const double> means,
                                     std::span<const double> control_means) {
  std::vector<int64_t> top;
  for (const int64_t gene : ranking) {
    const auto at = static_cast<size_t>(gene);
    if (means[at] == 0 && control_means[at] != 0) continue;
    top.push_back(gene);
    if (std::ssize(top) == kTopGenes) break;
  }
  return top;
}

}  // namespace oarlock
