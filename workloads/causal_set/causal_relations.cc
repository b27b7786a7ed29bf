#include "workloads/causal_set/causal_relations.h"

#include <algorithm>
#include <ranges>

namespace oarlock::causal_set {

namespace {

size_t at(int64_t element) { return static_cast<size_t>(element); }

// `order` must list each element after the elements in `next` of it.
std::vector<int64_t> longest(auto&& order, const std::vector<std::vector<int64_t>>& next) {
  std::vector<int64_t> length(next.size(), 0);
  for (const int64_t element : order) {
    for (const int64_t other : next[at(element)])
      length[at(element)] = std::max(length[at(element)], length[at(other)] + 1);
  }
  return length;
}

// Sets of elements as bit sets, one row per element.
class BitRows {
 public:
  explicit BitRows(int64_t size) : words_((at(size) + 63) / 64), bits_(at(size) * words_, 0) {}

  void set(int64_t row, int64_t column) { word(row, column) |= uint64_t{1} << (at(column) % 64); }
  bool get(int64_t row, int64_t column) const {
    return (bits_[at(row) * words_ + at(column) / 64] >> (at(column) % 64) & 1) != 0;
  }
  void add(int64_t row, int64_t other) {
    for (size_t i = 0; i < words_; ++i) bits_[at(row) * words_ + i] |= bits_[at(other) * words_ + i];
  }

 private:
  uint64_t& word(int64_t row, int64_t column) { return bits_[at(row) * words_ + at(column) / 64]; }

  size_t words_;
  std::vector<uint64_t> bits_;
};

}  // namespace

CausalRelations::CausalRelations(int64_t size, std::span<const Relation> relations)
    : successors_(at(size)), predecessors_(at(size)) {
  for (const auto& [from, to] : relations) {
    successors_[at(from)].push_back(to);
    predecessors_[at(to)].push_back(from);
  }
}

// Kahn, Topological sorting of large networks (1962).
std::optional<std::vector<int64_t>> CausalRelations::order() const {
  std::vector<size_t> missing(successors_.size());
  std::vector<int64_t> out;
  for (int64_t element = 0; element < size(); ++element) {
    missing[at(element)] = predecessors(element).size();
    if (predecessors(element).empty()) out.push_back(element);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    for (const int64_t later : successors(out[i])) {
      if (--missing[at(later)] == 0) out.push_back(later);
    }
  }
  if (out.size() < successors_.size()) return std::nullopt;
  return out;
}

std::vector<int64_t> CausalRelations::longest_future(std::span<const int64_t> order) const {
  return longest(std::views::reverse(order), successors_);
}

std::vector<int64_t> CausalRelations::longest_past(std::span<const int64_t> order) const {
  return longest(order, predecessors_);
}

std::vector<Relation> CausalRelations::links(std::span<const int64_t> order) const {
  std::vector<size_t> place(successors_.size());
  for (size_t i = 0; i < order.size(); ++i) place[at(order[i])] = i;
  BitRows past(size());  // per element, the earlier ends of its links and all their predecessors
  std::vector<std::vector<int64_t>> linked(successors_.size());
  for (const int64_t later : order) {
    std::vector<int64_t> candidates = predecessors(later);
    // In descending order: a predecessor of a link's earlier end is not a link.
    std::ranges::sort(candidates, std::greater(), [&](int64_t element) { return place[at(element)]; });
    for (const int64_t earlier : candidates) {
      if (past.get(later, earlier)) continue;
      linked[at(later)].push_back(earlier);
      past.add(later, earlier);
      past.set(later, earlier);
    }
    std::ranges::sort(linked[at(later)]);
  }
  std::vector<Relation> out;
  for (int64_t later = 0; later < size(); ++later)
    for (const int64_t earlier : linked[at(later)]) out.push_back({earlier, later});
  return out;
}

std::vector<Relation> CausalRelations::closure(std::span<const int64_t> order) const {
  BitRows past(size());
  for (const int64_t later : order) {
    for (const int64_t earlier : predecessors(later)) {
      past.add(later, earlier);
      past.set(later, earlier);
    }
  }
  std::vector<Relation> out;
  for (int64_t later = 0; later < size(); ++later) {
    for (int64_t earlier = 0; earlier < size(); ++earlier)
      if (past.get(later, earlier)) out.push_back({earlier, later});
  }
  return out;
}

}  // namespace oarlock::causal_set
