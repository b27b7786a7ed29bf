#include "trainer/tasks/causal_set/generator/random_orders.h"

#include <algorithm>

#include "trainer/data/random.h"

namespace oarlock {
namespace {

std::vector<Relation> all_relations(int64_t size, const std::vector<Relation>& some) {
  const CausalRelations relations(size, some);
  return relations.closure(*relations.order());
}

}  // namespace

std::vector<Relation> sprinkle_diamond(int64_t size, uint64_t seed) {
  struct Point {
    float u;
    float v;
  };
  SampleRandom random(seed, 0);
  std::vector<Point> points(static_cast<size_t>(size));
  for (Point& point : points) {
    point.u = random.uniform();
    point.v = random.uniform();
  }
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.u + a.v < b.u + b.v; });
  std::vector<Relation> out;
  for (int64_t to = 0; to < size; ++to) {
    for (int64_t from = 0; from < to; ++from) {
      const Point& earlier = points[static_cast<size_t>(from)];
      const Point& later = points[static_cast<size_t>(to)];
      if (earlier.u < later.u && earlier.v < later.v) out.push_back({from, to});
    }
  }
  return out;
}

std::vector<Relation> kleitman_rothschild(int64_t size, uint64_t seed) {
  SampleRandom random(seed, 0);
  const int64_t quarter = size / 4;
  const auto layer = [&](int64_t element) { return element < quarter ? 0 : (element < size - quarter ? 1 : 2); };
  std::vector<Relation> some;
  for (int64_t to = 0; to < size; ++to) {
    for (int64_t from = 0; from < to; ++from) {
      if (layer(to) == layer(from) + 1 && random.uniform() < 0.5F) some.push_back({from, to});
    }
  }
  return all_relations(size, some);
}

}  // namespace oarlock
