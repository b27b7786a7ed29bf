// Collation by stacking, by padding and of graphs, and reuse of the memory of a batch.
#include "trainer/data/batch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/data/graph_collation.h"

namespace oarlock {
namespace {

using testing::HasSubstr;

at::Tensor longs(std::vector<int64_t> values) { return at::tensor(values, at::TensorOptions().dtype(at::kLong)); }

TEST(Stack, CopiesRowsOfEveryTypeAndShape) {
  const std::vector<int64_t> indices = {4, 0, 4, 2};
  for (const at::ScalarType type : {at::kByte, at::kHalf, at::kFloat, at::kDouble, at::kLong}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{5}, {5, 1}, {5, 2}, {5, 4}, {5, 8}, {5, 3, 7}, {5, 0}}) {
      const int64_t elements = c10::multiply_integers(shape);
      const at::Tensor source = at::arange(elements).reshape(shape).to(type);
      Batch batch;
      stack_rows(source, indices, "x", batch);
      EXPECT_TRUE(at::equal(batch["x"], source.index_select(0, longs(indices)))) << type << " " << shape.size();
      EXPECT_TRUE(batch["x"].is_contiguous());
    }
  }
  Batch batch;
  EXPECT_THROW(stack_rows(at::arange(5), std::vector<int64_t>{5}, "x", batch), std::out_of_range);
  EXPECT_THROW(stack_rows(at::arange(5), std::vector<int64_t>{-1}, "x", batch), std::out_of_range);
  stack_rows(at::arange(5), {}, "x", batch);
  EXPECT_EQ(batch["x"].numel(), 0);
}

TEST(EmptySamples, AllocatesAnySize) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 3}, {1}, {5, 7}, {3000, 1024}}) {
    at::Tensor samples = empty_samples(shape, at::kFloat);
    EXPECT_EQ(samples.sizes(), at::IntArrayRef(shape));
    samples.fill_(2);
    EXPECT_TRUE(at::equal(samples, at::full(shape, 2.0, at::kFloat)));
  }
}

TEST(Ragged, JoinsSamplesAndNamesMismatch) {
  const std::vector<at::Tensor> samples = {at::full({2, 3}, 1.0), at::full({0, 3}, 2.0), at::full({1, 3}, 3.0)};
  const auto ragged = make_ragged(samples);
  ASSERT_TRUE(ragged) << ragged.error().message;
  EXPECT_EQ(ragged->offsets, (std::vector<int64_t>{0, 2, 2, 3}));
  EXPECT_EQ(ragged->size(), 3);
  EXPECT_EQ(ragged->length(0), 2);
  const std::vector<at::Tensor> bad = {at::full({2, 3}, 1.0), at::full({2, 4}, 1.0)};
  EXPECT_THAT(make_ragged(bad).error().message, HasSubstr("sample 1"));
  EXPECT_FALSE(make_ragged({}));
}

TEST(Pad, PadsToTheLongestSample) {
  const auto ragged = make_ragged(std::vector<at::Tensor>{longs({1, 2, 3}), longs({4}), longs({}), longs({5, 6})});
  Batch batch;
  pad_rows(*ragged, std::vector<int64_t>{1, 3, 2}, -9, "token", batch);
  EXPECT_TRUE(at::equal(batch["token"], longs({4, -9, 5, 6, -9, -9}).reshape({3, 2})));
  EXPECT_TRUE(at::equal(batch["token_length"], longs({1, 2, 0})));
  EXPECT_TRUE(at::equal(batch["token_mask"], longs({1, 0, 1, 1, 0, 0}).reshape({3, 2}).to(at::kBool)));
  pad_rows(*ragged, std::vector<int64_t>{0}, -9, "token", batch);  // into the same memory
  EXPECT_TRUE(at::equal(batch["token"], longs({1, 2, 3}).reshape({1, 3})));
  EXPECT_TRUE(batch["token_mask"].all().item<bool>());
  pad_rows(*ragged, std::vector<int64_t>{2, 2}, -9, "token", batch);
  EXPECT_EQ(batch["token"].sizes(), at::IntArrayRef({2, 0}));
  EXPECT_THROW(pad_rows(*ragged, std::vector<int64_t>{4}, 0, "token", batch), std::out_of_range);
}

TEST(Pad, KeepsInnerDimensions) {
  const auto ragged = make_ragged(std::vector<at::Tensor>{at::arange(6.).reshape({3, 2}), at::full({1, 2}, 7.)});
  Batch batch;
  pad_rows(*ragged, std::vector<int64_t>{1, 0}, 0.5, "x", batch);
  const at::Tensor expected =
      at::stack({at::tensor({7., 7., .5, .5, .5, .5}).reshape({3, 2}), at::arange(6.).reshape({3, 2})});
  EXPECT_TRUE(at::equal(batch["x"], expected));
}

// A triangle with edges out of order, a single node, and a path of two nodes.
GraphArrays three_graphs() {
  GraphArrays arrays;
  arrays.node_offsets = {0, 3, 4, 6};
  arrays.edge_offsets = {0, 4, 4, 6};
  arrays.edge_index = at::stack({longs({0, 2, 1, 2, 0, 1}), longs({2, 0, 2, 1, 1, 0})});
  arrays.nodes["x"] = at::arange(12.).reshape({6, 2});
  arrays.edges["weight"] = at::tensor({10., 11., 12., 13., 20., 21.});
  arrays.graphs["y"] = at::tensor({100., 101., 102.});
  arrays.graphs["centre"] = longs({2, 0, 1}).reshape({3, 1});
  arrays.node_numbers = {"centre"};
  return arrays;
}

TEST(Graphs, JoinsGraphsOfBatch) {
  const auto graphs = GraphCollation::create(three_graphs());
  ASSERT_TRUE(graphs) << graphs.error().message;
  EXPECT_EQ(graphs->size(), 3);
  Batch batch;
  graphs->collate(std::vector<int64_t>{2, 1, 0}, batch);
  EXPECT_TRUE(at::equal(batch["ptr"], longs({0, 2, 3, 6})));
  EXPECT_TRUE(at::equal(batch["batch"], longs({0, 0, 1, 2, 2, 2})));
  // Path: 1->0, 0->1, by destination. Triangle, from node 3 on: 2->0, 2->1, 0->2, 1->2 with the last two in order.
  EXPECT_TRUE(at::equal(batch["edge_index"], at::stack({longs({1, 0, 5, 5, 3, 4}), longs({0, 1, 3, 4, 5, 5})})));
  EXPECT_TRUE(at::equal(batch["weight"], at::tensor({21., 20., 11., 13., 10., 12.})));
  EXPECT_TRUE(at::equal(batch["edge_ptr"], longs({0, 1, 2, 2, 3, 4, 6})));
  EXPECT_TRUE(at::equal(batch["x"], at::tensor({8., 9., 10., 11., 6., 7., 0., 1., 2., 3., 4., 5.}).reshape({6, 2})));
  EXPECT_TRUE(at::equal(batch["y"], at::tensor({102., 101., 100.})));
  EXPECT_TRUE(at::equal(batch["centre"], longs({1, 2, 5}).reshape({3, 1})));
}

// The neighbors of a node do not depend on the other graphs of the batch.
TEST(Graphs, NeighborsAreIndependentOfBatch) {
  const auto graphs = GraphCollation::create(three_graphs());
  const auto sums = [&](const std::vector<int64_t>& indices) {
    Batch batch;
    graphs->collate(indices, batch);
    const at::Tensor messages =
        batch["x"].index_select(0, batch["edge_index"][0]).mul(batch["weight"].unsqueeze(1).to(at::kFloat));
    return at::full_like(batch["x"], 0).index_add(0, batch["edge_index"][1], messages);
  };
  const at::Tensor together = sums({0, 1, 2});
  EXPECT_TRUE(at::equal(together, at::cat({sums({0}), sums({1}), sums({2})})));
  EXPECT_TRUE(at::equal(at::cat({sums({2}), sums({0})}), sums({2, 0})));
}

TEST(Graphs, RejectsInconsistentArrays) {
  const auto error = [](const std::function<void(GraphArrays&)>& spoil) {
    GraphArrays arrays = three_graphs();
    spoil(arrays);
    const auto made = GraphCollation::create(std::move(arrays));
    EXPECT_FALSE(made);
    return made ? "" : made.error().message;
  };
  EXPECT_THAT(error([](auto& g) { g.edge_index = g.edge_index.add(1); }),
              HasSubstr("'edge_index' of graph 0 refers to node 3"));
  EXPECT_THAT(error([](auto& g) { g.graphs["centre"] = longs({0, 1, 0}).reshape({3, 1}); }),
              HasSubstr("'centre' of graph 1 refers to node 1, but the graph has 1 node"));
  EXPECT_THAT(error([](auto& g) { g.nodes["x"] = at::arange(5.); }), HasSubstr("'x' must be contiguous with a row"));
  EXPECT_THAT(error([](auto& g) { g.node_offsets = {0, 4, 3, 6}; }), HasSubstr("node_offsets must be non-decreasing"));
  EXPECT_THAT(error([](auto& g) { g.edge_offsets = {0, 6}; }), HasSubstr("different numbers of graphs"));
  EXPECT_THAT(error([](auto& g) { g.nodes["ptr"] = at::arange(6.); }), HasSubstr("'ptr'"));
  EXPECT_THAT(error([](auto& g) { g.node_numbers.insert("none"); }), HasSubstr("'none'"));
  Batch batch;
  EXPECT_THROW(GraphCollation::create(three_graphs())->collate(std::vector<int64_t>{3}, batch), std::out_of_range);
}

TEST(Batch, ReusesMemoryOnlyOfSoleOwner) {
  Batch batch;
  const void* first = batch.allocate("x", {4, 2}, at::kFloat).const_data_ptr();
  EXPECT_EQ(batch.allocate("x", {2, 3}, at::kFloat).const_data_ptr(), first) << "a smaller one fits";
  EXPECT_EQ(batch.allocate("x", {8}, at::kFloat).const_data_ptr(), first) << "the memory is still as large";
  EXPECT_EQ(batch["x"].sizes(), at::IntArrayRef({8}));
  EXPECT_TRUE(batch["x"].is_contiguous());
  const at::Tensor kept = batch["x"].fill_(1).narrow(0, 0, 2);  // a view holds it, too
  EXPECT_NE(batch.allocate("x", {8}, at::kFloat).fill_(2).const_data_ptr(), first);
  EXPECT_TRUE(kept.eq(1).all().item<bool>());
  EXPECT_EQ(batch.allocate("x", {9}, at::kFloat).numel(), 9);
  EXPECT_EQ(batch.allocate("x", {1}, at::kLong).scalar_type(), at::kLong) << "another type never shares";
}

}  // namespace
}  // namespace oarlock
