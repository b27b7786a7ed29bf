#include "trainer/process/slurm.h"

#include <charconv>

namespace oarlock {
namespace {

// Removes a number from the front of the text.
std::optional<int> consume_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool consume_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

constexpr int kMaxNodes = 1'000'000;

}  // namespace

std::optional<std::string> first_slurm_host(std::string_view node_list) {
  std::string host;
  while (!node_list.empty() && node_list.front() != ',') {
    if (node_list.front() != '[') {
      host += node_list.front();
      node_list.remove_prefix(1);
      continue;
    }
    const size_t close = node_list.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view range = node_list.substr(1, close - 1);
    host += range.substr(0, range.find_first_of(",-"));
    node_list.remove_prefix(close + 1);
  }
  if (host.empty()) return std::nullopt;
  return host;
}

std::optional<std::vector<int>> slurm_tasks_by_node(std::string_view tasks_per_node) {
  std::vector<int> out;
  do {
    const std::optional<int> tasks = consume_number(tasks_per_node);
    if (!tasks) return std::nullopt;
    std::optional<int> nodes = 1;
    if (consume_prefix(tasks_per_node, "(x")) {
      nodes = consume_number(tasks_per_node);
      if (!nodes || *nodes > kMaxNodes || !consume_prefix(tasks_per_node, ")")) return std::nullopt;
    }
    out.insert(out.end(), static_cast<size_t>(*nodes), *tasks);
  } while (consume_prefix(tasks_per_node, ","));
  if (!tasks_per_node.empty()) return std::nullopt;
  return out;
}

}  // namespace oarlock
