#include "workloads/gears/generator.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "workloads/formats/hdf5/writer.h"

namespace oarlock::gears {

namespace {

using Vector = std::vector<double>;

// Distributions with fixed algorithms: those of the standard library are implementation-defined.
class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}

  double uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * M_PI * uniform()); }  // Box, Muller
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }
  int64_t poisson(double rate) {  // Knuth
    const double limit = std::exp(-rate);
    int64_t count = 0;
    for (double product = uniform(); product > limit; product *= uniform()) ++count;
    return count;
  }

 private:
  std::mt19937_64 generator_;
};

std::string name_of(int64_t gene) { return (gene < 10 ? "G0" : "G") + std::to_string(gene); }

Vector normals(Random& random, int64_t size, double deviation) {
  Vector out;
  for (int64_t i = 0; i < size; ++i) out.push_back(deviation * random.normal());
  return out;
}

Vector sum(const Vector& a, const Vector& b) {
  Vector out = a;
  for (size_t i = 0; i < out.size(); ++i) out[i] += b[i];
  return out;
}

struct Cells {
  std::vector<int32_t> condition;
  std::vector<float> values;
  std::vector<int32_t> columns;
  std::vector<int64_t> begin{0};

  void add(int32_t number, const Vector& expression) {
    for (size_t gene = 0; gene < expression.size(); ++gene) {
      if (expression[gene] <= 0) continue;
      values.push_back(static_cast<float>(expression[gene]));
      columns.push_back(static_cast<int32_t>(gene));
    }
    begin.push_back(std::ssize(values));
    condition.push_back(number);
  }
};

void write_h5ad(const std::filesystem::path& path, const Planted& planted, const Cells& cells) {
  Hdf5Writer file(path);
  file.attribute("/", "encoding-type", "anndata");
  file.attribute("/", "encoding-version", "0.1.0");
  file.group("X");
  file.attribute("X", "encoding-type", "csr_matrix");
  file.attribute("X", "encoding-version", "0.1.0");
  file.attribute("X", "shape", std::vector<int64_t>{std::ssize(cells.condition), std::ssize(planted.genes)});
  file.numbers("X/data", cells.values, {cells.values.size()}, 4096);
  file.numbers("X/indices", cells.columns, {cells.columns.size()}, 4096);
  file.numbers("X/indptr", cells.begin, {cells.begin.size()});
  for (const char* table : {"obs", "var"}) {
    file.group(table);
    file.attribute(table, "encoding-type", "dataframe");
    file.attribute(table, "encoding-version", "0.2.0");
    file.attribute(table, "_index", "_index");
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < cells.condition.size(); ++i) names.push_back("cell" + std::to_string(i));
  file.attribute("obs", "column-order", std::vector<std::string>{"condition", "cell_type"});
  file.attribute("var", "column-order", std::vector<std::string>{"gene_name"});
  const auto strings = [&](const std::string& dataset, const std::vector<std::string>& values) {
    file.strings(dataset, values);
    file.attribute(dataset, "encoding-type", "string-array");
    file.attribute(dataset, "encoding-version", "0.2.0");
  };
  strings("obs/_index", names);
  strings("obs/cell_type", std::vector<std::string>(names.size(), "planted"));
  file.group("obs/condition");
  file.attribute("obs/condition", "encoding-type", "categorical");
  file.attribute("obs/condition", "encoding-version", "0.2.0");
  file.attribute("obs/condition", "ordered", std::vector<int64_t>{0});
  strings("obs/condition/categories", planted.conditions);
  file.numbers("obs/condition/codes", cells.condition, {cells.condition.size()});
  strings("var/_index", planted.genes);
  strings("var/gene_name", planted.genes);
}

}  // namespace

Planted write_planted_cells(const std::filesystem::path& directory, const PlantedOptions& options) {
  Random random(options.seed);
  Planted planted;
  Vector rates;
  for (int64_t gene = 0; gene < options.genes; ++gene) {
    planted.genes.push_back(name_of(gene));
    rates.push_back(4 + 12 * random.uniform());
  }
  const int64_t perturbed = options.clusters * options.perturbed_per_cluster;
  nlohmann::json terms;
  std::vector<Vector> effects;
  for (int64_t cluster = 0; cluster < options.clusters; ++cluster) {
    const Vector common = normals(random, options.genes, 0.5);
    for (int64_t k = 0; k < options.perturbed_per_cluster; ++k) {
      const std::string gene = name_of(std::ssize(effects));
      effects.push_back(sum(common, normals(random, options.genes, options.own_effect)));
      for (int64_t term = 0; term < 4; ++term) {
        terms[gene].push_back("GO:" + std::to_string(cluster) + std::to_string(term));
      }
      terms[gene].push_back("GO:9" + std::to_string(std::ssize(effects)));
    }
  }
  planted.conditions.emplace_back("ctrl");
  planted.effect.emplace_back(options.genes, 0.0);
  for (int64_t gene = 0; gene < perturbed; ++gene) {
    planted.conditions.push_back(name_of(gene) + "+ctrl");
    planted.effect.push_back(effects[static_cast<size_t>(gene)]);
  }
  while (std::ssize(planted.conditions) < 1 + perturbed + options.pairs) {
    const int64_t a = random.below(perturbed);
    const int64_t b = random.below(perturbed);
    const std::string pair = name_of(a) + "+" + name_of(b);
    if (a >= b || std::find(planted.conditions.begin(), planted.conditions.end(), pair) != planted.conditions.end())
      continue;
    planted.conditions.push_back(pair);
    planted.effect.push_back(sum(effects[static_cast<size_t>(a)], effects[static_cast<size_t>(b)]));
  }
  Cells cells;
  for (size_t number = 0; number < planted.conditions.size(); ++number) {
    for (int64_t i = 0; i < (number == 0 ? options.control_cells : options.cells); ++i) {
      Vector expression = planted.effect[number];
      for (size_t gene = 0; gene < expression.size(); ++gene) {
        expression[gene] += std::log1p(static_cast<double>(random.poisson(rates[gene])));
        if (number > 0) expression[gene] += options.noise * random.normal();
      }
      cells.add(static_cast<int32_t>(number), expression);
    }
  }
  write_h5ad(directory / "cells.h5ad", planted, cells);
  std::ofstream(directory / "gene2go.json") << terms.dump(1);
  return planted;
}

}  // namespace oarlock::gears
