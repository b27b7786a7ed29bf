#include "trainer/tasks/protein_diffusion/sedd/graph.h"

#include <ATen/TensorOperators.h>

#include "trainer/tasks/protein_diffusion/sedd/absorbing_graph.h"
#include "trainer/tasks/protein_diffusion/sedd/uniform_graph.h"

namespace oarlock {

void describe(GraphConfig& config, Fields& fields) {
  fields.choice<GraphKind>("type", config.kind, {{"absorb", GraphKind::kAbsorb}, {"uniform", GraphKind::kUniform}},
                           "what noise does to a token: mask it, or replace it by any other");
}

std::unique_ptr<Graph> make_graph(const GraphConfig& config, int64_t tokens) {
  if (config.kind == GraphKind::kUniform) return std::make_unique<UniformGraph>(tokens);
  return std::make_unique<AbsorbingGraph>(tokens);
}

at::Tensor reverse_rate(const Graph& graph, const at::Tensor& x, const at::Tensor& score) {
  const at::Tensor state = x.unsqueeze(-1);
  const at::Tensor rate = (graph.transposed_rate(x, score.scalar_type()) * score).scatter(-1, state, 0);
  return rate.scatter(-1, state, -rate.sum(-1, /*keepdim=*/true));
}

}  // namespace oarlock
