// Causal sets as relations, and the known properties of generated ones.
#include "workloads/causal_set/causal_relations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "workloads/causal_set/generator.h"

namespace oarlock::causal_set {
namespace {

using testing::ElementsAre;
using Relations = std::vector<Relation>;

// 0 precedes 1 and 2, which precede 3; 4 is related to nothing. All relations, so 0 -> 3 as well.
const Relations kDiamond = {{0, 1}, {0, 2}, {0, 3}, {1, 3}, {2, 3}};

TEST(CausalRelations, LinksHaveNothingBetweenTheirEnds) {
  const CausalRelations diamond(5, kDiamond);
  const std::vector<int64_t> order = *diamond.order();
  const Relations links = diamond.links(order);
  EXPECT_THAT(links, ElementsAre(Relation{0, 1}, Relation{0, 2}, Relation{1, 3}, Relation{2, 3}));
  EXPECT_THAT(diamond.longest_future(order), ElementsAre(2, 1, 1, 0, 0));
  EXPECT_THAT(diamond.longest_past(order), ElementsAre(0, 1, 1, 2, 0));
  const CausalRelations linked(5, links);
  EXPECT_EQ(linked.closure(*linked.order()), (Relations{{0, 1}, {0, 2}, {0, 3}, {1, 3}, {2, 3}}));
}

TEST(CausalRelations, AChainIsAsLongAsItHasLinks) {
  Relations all;
  for (int64_t from = 0; from < 70; ++from)
    for (int64_t to = from + 1; to < 70; ++to) all.push_back({69 - from, 69 - to});  // numbered backwards
  const CausalRelations chain(70, all);
  const std::vector<int64_t> order = *chain.order();
  EXPECT_EQ(order.front(), 69);
  EXPECT_EQ(chain.longest_future(order)[69], 69);
  EXPECT_EQ(chain.longest_past(order)[69], 0);
  EXPECT_EQ(chain.links(order).size(), 69U);
}

TEST(CausalRelations, ACycleHasNoOrder) {
  EXPECT_FALSE(CausalRelations(3, Relations{{0, 1}, {1, 2}, {2, 0}}).order());
  EXPECT_FALSE(CausalRelations(1, Relations{{0, 0}}).order());
  EXPECT_TRUE(CausalRelations(3, Relations{}).order());
}

double ordering_fraction(int64_t size, const Relations& relations) {
  return static_cast<double>(relations.size()) / (static_cast<double>(size * (size - 1)) / 2);
}

int64_t longest_chain(int64_t size, const Relations& relations) {
  const CausalRelations set(size, relations);
  const std::vector<int64_t> lengths = set.longest_future(*set.order());
  return *std::max_element(lengths.begin(), lengths.end()) + 1;  // in elements
}

// In two dimensions half of all pairs are related (Myrheim, 1978), and the longest chain of n points grows as
// 2 sqrt(n) (Brightwell, Gregory 1991).
TEST(RandomOrders, HalfOfAllPairsAreRelatedInTwoDimensions) {
  constexpr int64_t kSize = 96;
  constexpr int kSets = 200;
  double fraction = 0;
  double chain = 0;
  for (int seed = 0; seed < kSets; ++seed) {
    const Relations relations = sprinkle_diamond(kSize, static_cast<uint64_t>(seed));
    fraction += ordering_fraction(kSize, relations) / kSets;
    chain += static_cast<double>(longest_chain(kSize, relations)) / kSets;
    const CausalRelations set(kSize, relations);
    EXPECT_EQ(set.closure(*set.order()), relations) << "not transitive";
  }
  EXPECT_NEAR(fraction, 0.5, 0.01);
  EXPECT_GT(chain, 12);
  EXPECT_LT(chain, 2 * std::sqrt(static_cast<double>(kSize)));
}

TEST(RandomOrders, AKleitmanRothschildOrderHasThreeLayers) {
  constexpr int64_t kSize = 80;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Relations relations = kleitman_rothschild(kSize, seed);
    EXPECT_EQ(longest_chain(kSize, relations), 3);
    int64_t neighbors = 0;
    for (const auto& [from, to] : relations) {
      const auto layer = [](int64_t element) { return element < 20 ? 0 : (element < 60 ? 1 : 2); };
      EXPECT_LT(layer(from), layer(to));
      if (layer(to) == layer(from) + 1) ++neighbors;
    }
    EXPECT_NEAR(static_cast<double>(neighbors) / (2 * 20 * 40), 0.5, 0.06);  // 4 standard deviations are 0.05
  }
}

TEST(RandomOrders, ASeedGivesTheSameSet) {
  EXPECT_EQ(sprinkle_diamond(40, 7), sprinkle_diamond(40, 7));
  EXPECT_NE(sprinkle_diamond(40, 7), sprinkle_diamond(40, 8));
  EXPECT_EQ(kleitman_rothschild(40, 7), kleitman_rothschild(40, 7));
  EXPECT_NE(kleitman_rothschild(40, 7), kleitman_rothschild(40, 8));
}

}  // namespace
}  // namespace oarlock::causal_set
