#include "trainer/tasks/gears/graphs/edge_list.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>
#include <unordered_map>

#include "common/files.h"

namespace oarlock {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

tl::unexpected<Error> bad_line(const std::filesystem::path& csv, int64_t line, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}:{}: {}", csv.string(), line, what));
}

// Where the three columns are.
Result<std::array<size_t, 3>> columns_of(const std::filesystem::path& csv, const std::string& header) {
  const std::vector<std::string> names = cells_of(header);
  std::array<size_t, 3> at{};
  const std::array<const char*, 3> wanted{"source", "target", "importance"};
  for (size_t i = 0; i < wanted.size(); ++i) {
    at[i] = static_cast<size_t>(std::find(names.begin(), names.end(), wanted[i]) - names.begin());
    if (at[i] == names.size()) {
      return bad_line(csv, 1, fmt::format("no column {}; expected source,target,importance", wanted[i]));
    }
  }
  return at;
}

}  // namespace

Result<std::vector<NamedEdge>> read_edges(const std::filesystem::path& csv) {
  const Result<std::string> text = read_file(csv);
  if (!text) return tl::make_unexpected(text.error());
  std::istringstream in(*text);
  std::string line;
  std::getline(in, line);
  const auto columns = columns_of(csv, line);
  if (!columns) return tl::make_unexpected(columns.error());
  const auto [source, target, importance] = *columns;
  std::vector<NamedEdge> edges;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.empty()) continue;
    if (cells.size() <= std::max({source, target, importance})) return bad_line(csv, number, "has too few columns");
    NamedEdge edge{.source = cells[source], .target = cells[target]};
    const std::string& value = cells[importance];
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), edge.importance);
    if (error != std::errc() || end != value.data() + value.size() || !(edge.importance >= 0)) {
      return bad_line(csv, number, fmt::format("the importance \"{}\" is no number of at least 0", value));
    }
    edges.push_back(std::move(edge));
  }
  return edges;
}

Result<void> write_edges(const std::filesystem::path& csv, const std::vector<NamedEdge>& edges) {
  std::string text = "source,target,importance\n";
  for (const NamedEdge& edge : edges) text += fmt::format("{},{},{}\n", edge.source, edge.target, edge.importance);
  return write_file_atomically(csv, text);
}

std::vector<NamedEdge> strongest_of_targets(std::vector<NamedEdge> edges, int64_t count) {
  std::map<std::string, std::vector<NamedEdge>> by_target;
  for (NamedEdge& edge : edges) by_target[edge.target].push_back(std::move(edge));
  std::vector<NamedEdge> strongest;
  for (auto& [target, own] : by_target) {
    std::stable_sort(own.begin(), own.end(),
                     [](const NamedEdge& a, const NamedEdge& b) { return a.importance > b.importance; });
    own.resize(std::min(own.size(), static_cast<size_t>(count)));
    strongest.insert(strongest.end(), own.begin(), own.end());
  }
  return strongest;
}

GraphEdges numbered_edges(const std::vector<NamedEdge>& edges, const std::vector<std::string>& names) {
  std::unordered_map<std::string, int64_t> numbers;
  for (size_t i = 0; i < names.size(); ++i) numbers.emplace(names[i], static_cast<int64_t>(i));
  std::map<std::pair<int64_t, int64_t>, double> weights;  // by target, then source
  for (const NamedEdge& edge : edges) {
    const auto source = numbers.find(edge.source);
    const auto target = numbers.find(edge.target);
    if (source == numbers.end() || target == numbers.end()) continue;
    weights[{target->second, source->second}] = edge.importance;
  }
  const int64_t count = std::ssize(weights);
  GraphEdges graph{at::empty({count}, at::kLong), at::empty({count}, at::kLong), at::empty({count}, at::kFloat)};
  auto* source = graph.source.mutable_data_ptr<int64_t>();
  auto* target = graph.target.mutable_data_ptr<int64_t>();
  auto* weight = graph.weight.mutable_data_ptr<float>();
  for (const auto& [nodes, importance] : weights) {
    *target++ = nodes.first;
    *source++ = nodes.second;
    *weight++ = static_cast<float>(importance);
  }
  return graph;
}

}  // namespace oarlock
