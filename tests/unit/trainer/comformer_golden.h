// Results of the original ComFormer (tests/data/comformer_*.safetensors), and crystals as batches of its models.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp/safetensors.h"
#include "tests/support/paths.h"
#include "workloads/comformer/crystal_graph.h"
#include "workloads/comformer/model.h"

namespace oarlock::test {

// Returns the offsets of the groups, int64 [groups + 1], from the sorted group numbers of the elements.
inline at::Tensor begins(const at::Tensor& group_of, int64_t groups) {
  return at::cat({at::zeros({1}, at::kLong), at::bincount(group_of, {}, groups).cumsum(0)});
}

struct ComformerGolden {
  TensorMap tensors;
  nlohmann::json config;
  nlohmann::json no_grad;

  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }

  comformer::ComformerConfig model() const {
    return {.kind = config["name"] == "iComformer" ? comformer::ComformerKind::kInvariant
                                                   : comformer::ComformerKind::kEquivariant,
            .conv_layers = config["conv_layers"],
            .edge_features = config["edge_features"],
            .triplet_input_features = config["triplet_input_features"],
            .node_features = config["node_features"],
            .fc_features = config["fc_features"],
            .output_features = config["output_features"]};
  }

  // Returns the input of the original as a batch, with its edges sorted by destination.
  comformer::CrystalBatch batch(at::ScalarType type) const {
    const at::Tensor order = (*this)["edge_index"][1].argsort(/*stable=*/true, 0);
    const at::Tensor edge_index = (*this)["edge_index"].index_select(1, order);
    const at::Tensor vectors = (*this)["edge_attr"].index_select(0, order).to(type);
    const at::Tensor crystal_of = (*this)["batch"];
    const at::Tensor atom_begin = begins(crystal_of, 2);
    comformer::CrystalBatch batch{.atoms = (*this)["x"].to(type),
                                  .edge_index = edge_index,
                                  .edge_begin = begins(edge_index[1], crystal_of.size(0)),
                                  .edge_vectors = vectors,
                                  .lattices = {},
                                  .crystal_of = crystal_of,
                                  .atom_begin = atom_begin};
    if (!tensors.contains("edge_nei")) return batch;
    // The original repeats a crystal's lattice for each of its edges. This takes that of the first edge to the first
    // atom.
    const at::Tensor first_edge = batch.edge_begin.index_select(0, atom_begin.narrow(0, 0, 2));
    batch.lattices = (*this)["edge_nei"].index_select(0, order.index_select(0, first_edge)).to(type);
    return batch;
  }
};

inline ComformerGolden comformer_golden(const std::string& model) {
  const auto file = read_safetensors(test::data_path("comformer_") + model + ".safetensors");
  EXPECT_TRUE(file) << file.error().message;
  return {.tensors = file->tensors,
          .config = nlohmann::json::parse(file->metadata.at("config")),
          .no_grad = nlohmann::json::parse(file->metadata.at("no_grad"))};
}

// Graphs as a batch, in double precision; `features` is a table by atomic number.
inline comformer::CrystalBatch batch_of(const std::vector<comformer::CrystalGraph>& graphs,
                                        const at::Tensor& features) {
  std::vector<int64_t> numbers, sources, destinations, crystal_of;
  std::vector<double> vectors, lattices;
  for (size_t g = 0; g < graphs.size(); ++g) {
    const auto first = static_cast<int64_t>(numbers.size());
    for (const comformer::CrystalEdge& edge : graphs[g].edges) {
      sources.push_back(first + edge.source);
      destinations.push_back(first + edge.destination);
      vectors.insert(vectors.end(), edge.vector.begin(), edge.vector.end());
    }
    for (const Vector3& vector : graphs[g].lattice_vectors)
      lattices.insert(lattices.end(), vector.begin(), vector.end());
    numbers.insert(numbers.end(), graphs[g].numbers.begin(), graphs[g].numbers.end());
    crystal_of.resize(numbers.size(), static_cast<int64_t>(g));
  }
  const auto atoms = static_cast<int64_t>(numbers.size());
  const at::Tensor crystals = at::tensor(crystal_of);
  return {.atoms = features.to(at::kDouble).index_select(0, at::tensor(numbers)),
          .edge_index = at::stack({at::tensor(sources), at::tensor(destinations)}),
          .edge_begin = begins(at::tensor(destinations), atoms),
          .edge_vectors = at::tensor(vectors, at::kDouble).view({-1, 3}),
          .lattices = at::tensor(lattices, at::kDouble).view({-1, 3, 3}),
          .crystal_of = crystals,
          .atom_begin = begins(crystals, static_cast<int64_t>(graphs.size()))};
}

}  // namespace oarlock::test
