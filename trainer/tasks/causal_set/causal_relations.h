// The relations of a causal set: which element precedes which. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace oarlock {

// An edge from an element to one that it precedes.
struct Relation {
  int64_t from;
  int64_t to;

  bool operator==(const Relation&) const = default;
};

class CausalRelations {
 public:
  // Relations among the elements 0 .. size - 1, all that there are or links only.
  CausalRelations(int64_t size, std::span<const Relation> relations);

  int64_t size() const { return static_cast<int64_t>(successors_.size()); }
  const std::vector<int64_t>& successors(int64_t element) const { return successors_[static_cast<size_t>(element)]; }
  const std::vector<int64_t>& predecessors(int64_t element) const {
    return predecessors_[static_cast<size_t>(element)];
  }

  // Each element behind all that precede it; nothing where there is a cycle, which no causal set has.
  std::optional<std::vector<int64_t>> order() const;

  // For each element the relations in the longest chain that begins (ends) there. `order`: what order() gave.
  std::vector<int64_t> longest_future(std::span<const int64_t> order) const;
  std::vector<int64_t> longest_past(std::span<const int64_t> order) const;

  // The links: relations with nothing between their ends, by their later and then their earlier end. The relations must
  // be all that there are (transitive).
  std::vector<Relation> links(std::span<const int64_t> order) const;
  // All relations that follow from those there are, in the same order.
  std::vector<Relation> closure(std::span<const int64_t> order) const;

 private:
  std::vector<std::vector<int64_t>> successors_;
  std::vector<std::vector<int64_t>> predecessors_;
};

}  // namespace oarlock
