#include "trainer/tasks/gears/splits/condition.h"

#include <algorithm>

namespace oarlock {

NameList genes_of(const std::string& condition) {
  NameList genes;
  for (size_t begin = 0; begin <= condition.size();) {
    const size_t end = std::min(condition.find('+', begin), condition.size());
    const std::string gene = condition.substr(begin, end - begin);
    if (gene != kControl) genes.push_back(gene);
    begin = end + 1;
  }
  return genes;
}

NameList genes_of_all(const NameList& conditions) {
  NameList genes;
  for (const std::string& condition : conditions) {
    for (std::string& gene : genes_of(condition)) genes.push_back(std::move(gene));
  }
  return sorted_unique(std::move(genes));
}

bool contains(const NameList& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

NameList sorted_unique(NameList names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

NameList without(const NameList& names, const NameList& others) {
  return sorted_unique(where(names, [&](const std::string& name) { return !contains(others, name); }));
}

}  // namespace oarlock
