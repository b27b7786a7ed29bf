#include "trainer/data/graph_collation.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

// Names that collate() adds.
constexpr std::string_view kReserved[] = {"edge_index", "batch", "ptr", "edge_ptr"};

size_t at(int64_t index) { return static_cast<size_t>(index); }

tl::unexpected<Error> invalid(const std::string& what) { return fail(ExitCode::kDataErr, "graphs: " + what); }

Result<void> check_offsets(const std::vector<int64_t>& offsets, const char* name) {
  if (offsets.empty() || offsets.front() != 0) return invalid(fmt::format("{} must start with 0", name));
  if (!std::is_sorted(offsets.begin(), offsets.end())) return invalid(fmt::format("{} must be non-decreasing", name));
  return {};
}

Result<void> check_tensors(const std::map<std::string, at::Tensor>& tensors, int64_t rows, const char* of) {
  for (const auto& [name, tensor] : tensors) {
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved))
      return invalid(fmt::format("the name '{}' is reserved for collation", name));
    if (!tensor.is_contiguous() || tensor.dim() == 0 || tensor.size(0) != rows) {
      return invalid(fmt::format("'{}' must be contiguous with a row for each of {} {}", name, rows, of));
    }
  }
  return {};
}

// Checks that node numbers are in range. `offsets` delimit the rows of each graph.
Result<void> check_numbers(const std::string& name, std::span<const int64_t> values,
                           const std::vector<int64_t>& offsets, int64_t per_row,
                           const std::vector<int64_t>& node_offsets) {
  for (size_t graph = 0; graph + 1 < node_offsets.size(); ++graph) {
    const int64_t nodes = node_offsets[graph + 1] - node_offsets[graph];
    for (size_t i = at(offsets[graph] * per_row); i < at(offsets[graph + 1] * per_row); ++i) {
      if (values[i] < 0 || values[i] >= nodes)
        return invalid(fmt::format("'{}' of graph {} refers to node {}, but the graph has {}", name, graph, values[i],
                                   counted(nodes, "node")));
    }
  }
  return {};
}

int64_t elements_per_row(const at::Tensor& tensor) { return c10::multiply_integers(tensor.sizes().slice(1)); }

std::vector<int64_t> one_each(int64_t count) {
  std::vector<int64_t> offsets(at(count) + 1);
  std::iota(offsets.begin(), offsets.end(), 0);
  return offsets;
}

Result<void> check(const GraphArrays& arrays) {
  RETURN_IF_ERROR(check_offsets(arrays.node_offsets, "node_offsets"));
  RETURN_IF_ERROR(check_offsets(arrays.edge_offsets, "edge_offsets"));
  if (arrays.node_offsets.size() != arrays.edge_offsets.size())
    return invalid("node_offsets and edge_offsets have different numbers of graphs");
  const auto graphs = static_cast<int64_t>(arrays.node_offsets.size()) - 1;
  const int64_t edges = arrays.edge_offsets.back();
  if (arrays.edge_index.scalar_type() != at::kLong || arrays.edge_index.sizes() != at::IntArrayRef({2, edges}) ||
      !arrays.edge_index.is_contiguous()) {
    return invalid(fmt::format("edge_index must be int64 [2, {}] and contiguous", edges));
  }
  RETURN_IF_ERROR(check_tensors(arrays.nodes, arrays.node_offsets.back(), "nodes"));
  RETURN_IF_ERROR(check_tensors(arrays.edges, edges, "edges"));
  RETURN_IF_ERROR(check_tensors(arrays.graphs, graphs, "graphs"));
  const auto* index = arrays.edge_index.const_data_ptr<int64_t>();
  for (const int64_t row : {0, 1}) {
    RETURN_IF_ERROR(check_numbers("edge_index", std::span(index + row * edges, at(edges)), arrays.edge_offsets, 1,
                                  arrays.node_offsets));
  }
  for (const std::string& name : arrays.node_numbers) {
    const auto look = [&](const std::map<std::string, at::Tensor>& tensors,
                          const std::vector<int64_t>& offsets) -> Result<bool> {
      const auto found = tensors.find(name);
      if (found == tensors.end()) return false;
      if (found->second.scalar_type() != at::kLong)
        return invalid(fmt::format("'{}' contains node numbers and must be int64", name));
      const std::span values(found->second.const_data_ptr<int64_t>(), at(found->second.numel()));
      return check_numbers(name, values, offsets, elements_per_row(found->second), arrays.node_offsets).map([] {
        return true;
      });
    };
    bool found = false;
    for (const Result<bool>& looked : {look(arrays.nodes, arrays.node_offsets), look(arrays.edges, arrays.edge_offsets),
                                       look(arrays.graphs, one_each(graphs))}) {
      RETURN_IF_ERROR(looked);
      found = found || *looked;
    }
    if (!found) return invalid(fmt::format("node_numbers contains '{}', but there is no such tensor", name));
  }
  return {};
}

bool are_sorted(const std::vector<int64_t>& offsets, const int64_t* destination) {
  for (size_t graph = 0; graph + 1 < offsets.size(); ++graph) {
    if (!std::is_sorted(destination + offsets[graph], destination + offsets[graph + 1])) return false;
  }
  return true;
}

// Sorts the edges of each graph stably by destination. Sorted edges are not copied, because they may be mapped from a
// file.
void sort_edges(GraphArrays& arrays) {
  const int64_t edges = arrays.edge_offsets.back();
  const auto* destination = arrays.edge_index.const_data_ptr<int64_t>() + edges;
  if (are_sorted(arrays.edge_offsets, destination)) return;
  std::vector<int64_t> order(at(edges));
  std::iota(order.begin(), order.end(), 0);
  for (size_t graph = 0; graph + 1 < arrays.edge_offsets.size(); ++graph) {
    std::stable_sort(order.begin() + arrays.edge_offsets[graph], order.begin() + arrays.edge_offsets[graph + 1],
                     [&](int64_t a, int64_t b) { return destination[a] < destination[b]; });
  }
  const at::Tensor index = at::empty({edges}, at::TensorOptions().dtype(at::kLong));
  std::copy(order.begin(), order.end(), index.mutable_data_ptr<int64_t>());
  arrays.edge_index = arrays.edge_index.index_select(1, index);
  for (auto& [name, tensor] : arrays.edges) tensor = tensor.index_select(0, index);
}

// Concatenates the rows of the selected graphs. Empty offsets mean one row per graph.
class Gather {
 public:
  Gather(const std::vector<int64_t>& offsets, std::span<const int64_t> indices) : offsets_(offsets), indices_(indices) {
    for (const int64_t graph : indices) rows_ += length(graph);
  }
  int64_t rows() const { return rows_; }
  int64_t begin(int64_t graph) const { return offsets_.empty() ? graph : offsets_[at(graph)]; }
  int64_t length(int64_t graph) const { return offsets_.empty() ? 1 : offsets_[at(graph) + 1] - offsets_[at(graph)]; }

  void copy(const at::Tensor& from, at::Tensor& to) const {
    const size_t bytes = at(elements_per_row(from)) * from.element_size();
    const auto* source = static_cast<const char*>(from.const_data_ptr());
    auto* target = static_cast<char*>(to.mutable_data_ptr());
    for (const int64_t graph : indices_) {
      const size_t size = at(length(graph)) * bytes;
      if (size > 0) std::memcpy(target, source + at(begin(graph)) * bytes, size);
      target += size;
    }
  }

  // Copies node numbers and shifts those of the g-th selected graph by first[g].
  void copy_shifted(const int64_t* from, int64_t per_row, const int64_t* first, int64_t* to) const {
    for (size_t g = 0; g < indices_.size(); ++g) {
      const int64_t* source = from + begin(indices_[g]) * per_row;
      const int64_t count = length(indices_[g]) * per_row;
      for (int64_t i = 0; i < count; ++i) to[i] = source[i] + first[g];
      to += count;
    }
  }

 private:
  const std::vector<int64_t>& offsets_;
  std::span<const int64_t> indices_;
  int64_t rows_ = 0;
};

void gather_all(const std::map<std::string, at::Tensor>& tensors, const Gather& gather,
                const std::set<std::string>& node_numbers, const int64_t* first, Batch& batch) {
  for (const auto& [name, tensor] : tensors) {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes[0] = gather.rows();
    at::Tensor& out = batch.allocate(name, sizes, tensor.scalar_type());
    if (node_numbers.contains(name)) {
      gather.copy_shifted(tensor.const_data_ptr<int64_t>(), elements_per_row(tensor), first,
                          out.mutable_data_ptr<int64_t>());
    } else {
      gather.copy(tensor, out);
    }
  }
}

}  // namespace

Result<GraphCollation> GraphCollation::create(GraphArrays arrays) {
  RETURN_IF_ERROR(check(arrays));
  sort_edges(arrays);
  return GraphCollation(std::move(arrays));
}

void GraphCollation::collate(std::span<const int64_t> indices, Batch& batch) const {
  for (const int64_t graph : indices) {
    if (graph < 0 || graph >= size())
      throw std::out_of_range(fmt::format("graph {} is out of range for {} graphs", graph, size()));
  }
  const Gather nodes(arrays_.node_offsets, indices);
  const Gather edges(arrays_.edge_offsets, indices);
  static const std::vector<int64_t> kOneRowEach;
  const Gather graphs(kOneRowEach, indices);

  auto* ptr = batch.allocate("ptr", {graphs.rows() + 1}, at::kLong).mutable_data_ptr<int64_t>();
  auto* of_node = batch.allocate("batch", {nodes.rows()}, at::kLong).mutable_data_ptr<int64_t>();
  ptr[0] = 0;
  for (size_t g = 0; g < indices.size(); ++g) {
    ptr[g + 1] = ptr[g] + nodes.length(indices[g]);
    std::fill(of_node + ptr[g], of_node + ptr[g + 1], static_cast<int64_t>(g));
  }

  auto* index = batch.allocate("edge_index", {2, edges.rows()}, at::kLong).mutable_data_ptr<int64_t>();
  const auto* from = arrays_.edge_index.const_data_ptr<int64_t>();
  edges.copy_shifted(from, 1, ptr, index);
  edges.copy_shifted(from + arrays_.edge_offsets.back(), 1, ptr, index + edges.rows());
  auto* edge_ptr = batch.allocate("edge_ptr", {nodes.rows() + 1}, at::kLong).mutable_data_ptr<int64_t>();
  std::fill(edge_ptr, edge_ptr + nodes.rows() + 1, 0);
  for (int64_t e = 0; e < edges.rows(); ++e) ++edge_ptr[index[edges.rows() + e] + 1];
  std::partial_sum(edge_ptr, edge_ptr + nodes.rows() + 1, edge_ptr);

  gather_all(arrays_.nodes, nodes, arrays_.node_numbers, ptr, batch);
  gather_all(arrays_.edges, edges, arrays_.node_numbers, ptr, batch);
  gather_all(arrays_.graphs, graphs, arrays_.node_numbers, ptr, batch);
}

}  // namespace oarlock
