// What was done to a cell: "ctrl", one gene perturbed ("AHR+ctrl" or "ctrl+AHR"), or two ("AHR+FEV").
#pragma once

#include <string>
#include <vector>

namespace oarlock {

inline constexpr char kControl[] = "ctrl";

using NameList = std::vector<std::string>;

// The perturbed genes of a condition, in its order.
NameList genes_of(const std::string& condition);

inline bool is_single(const std::string& condition) { return genes_of(condition).size() == 1; }
inline bool is_combination(const std::string& condition) { return genes_of(condition).size() > 1; }

// The genes of all of them, sorted, each once: get_genes_from_perts().
NameList genes_of_all(const NameList& conditions);

bool contains(const NameList& names, const std::string& name);
// Those of `names` for which it holds, in order.
template <typename Predicate>
NameList where(const NameList& names, Predicate holds) {
  NameList out;
  for (const std::string& name : names) {
    if (holds(name)) out.push_back(name);
  }
  return out;
}
// Sorted, each once, as numpy.unique and numpy.setdiff1d.
NameList sorted_unique(NameList names);
NameList without(const NameList& names, const NameList& others);

}  // namespace oarlock
