// The relations of a causal set, that is, which element precedes which. All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace oarlock::causal_set {

// `from` precedes `to`.
struct Relation {
  int64_t from;
  int64_t to;

  bool operator==(const Relation&) const = default;
};

class CausalRelations {
 public:
  // Relations between the elements 0 .. size - 1: either all of them, or the links only.
  CausalRelations(int64_t size, std::span<const Relation> relations);

  int64_t size() const { return static_cast<int64_t>(successors_.size()); }
  const std::vector<int64_t>& successors(int64_t element) const { return successors_[static_cast<size_t>(element)]; }
  const std::vector<int64_t>& predecessors(int64_t element) const {
    return predecessors_[static_cast<size_t>(element)];
  }

  // Returns a topological order: each element follows all its predecessors. Returns nothing if there is a cycle, which
  // a causal set cannot have.
  std::optional<std::vector<int64_t>> order() const;

  // Returns, for each element, the number of relations in the longest chain that starts (ends) at it. `order` is the
  // result of order().
  std::vector<int64_t> longest_future(std::span<const int64_t> order) const;
  std::vector<int64_t> longest_past(std::span<const int64_t> order) const;

  // Returns the links, that is, the transitive reduction, sorted by their later and then their earlier end. The
  // relations must be transitive.
  std::vector<Relation> links(std::span<const int64_t> order) const;
  // Returns the transitive closure, sorted in the same way.
  std::vector<Relation> closure(std::span<const int64_t> order) const;

 private:
  std::vector<std::vector<int64_t>> successors_;
  std::vector<std::vector<int64_t>> predecessors_;
};

}  // namespace oarlock::causal_set
