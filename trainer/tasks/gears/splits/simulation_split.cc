#include "trainer/tasks/gears/splits/simulation_split.h"

#include <algorithm>
#include <iterator>

#include "trainer/tasks/gears/splits/numpy_random.h"

namespace oarlock {
namespace {

// As Python's int(len(names) * share).
int64_t share_of(const NameList& names, double share) {
  return static_cast<int64_t>(static_cast<double>(names.size()) * share);
}

bool touches(const std::string& condition, const NameList& genes) {
  const NameList own = genes_of(condition);
  return std::any_of(own.begin(), own.end(), [&](const std::string& gene) { return contains(genes, gene); });
}

int64_t count_in(const std::string& condition, const NameList& genes) {
  const NameList own = genes_of(condition);
  return std::count_if(own.begin(), own.end(), [&](const std::string& gene) { return contains(genes, gene); });
}

NameList singles_with(const NameList& genes, const NameList& conditions) {
  return where(conditions, [&](const std::string& c) { return is_single(c) && touches(c, genes); });
}

NameList combinations_with(const NameList& genes, const NameList& conditions) {
  return where(conditions, [&](const std::string& c) { return is_combination(c) && touches(c, genes); });
}

struct GeneSets {
  NameList train;
  NameList held_out;
};

GeneSets draw_genes(const NameList& genes, const SimulationOptions& options, NumpyRandom& random) {
  if (options.only_test_set_perts && !options.test_perts.empty()) {
    return {.train = without(genes, options.test_perts), .held_out = options.test_perts};
  }
  NameList train = random.choice(genes, share_of(genes, options.train_gene_set_size));
  if (!options.test_perts.empty()) {
    // What must be tested leaves the training genes, and as many others come in.
    const auto wanted = [&](const std::string& gene) { return contains(options.test_perts, gene); };
    const auto overlap = std::count_if(train.begin(), train.end(), wanted);
    train = where(train, [&](const std::string& gene) { return !wanted(gene); });
    const NameList candidates = without(without(genes, train), options.test_perts);
    const NameList added = random.choice(candidates, std::min<int64_t>(overlap, std::ssize(candidates)));
    train.insert(train.end(), added.begin(), added.end());
  }
  NameList held_out = without(genes, train);
  return {.train = std::move(train), .held_out = std::move(held_out)};
}

void append(NameList& to, const NameList& names) { to.insert(to.end(), names.begin(), names.end()); }

}  // namespace

SimulationSplit simulation_split(const NameList& conditions, const SimulationOptions& options) {
  NumpyRandom random(options.seed);
  const GeneSets genes = draw_genes(genes_of_all(conditions), options, random);

  const NameList combinations = combinations_with(genes.train, conditions);
  const NameList seen1 = where(combinations, [&](const std::string& c) { return count_in(c, genes.train) == 1; });
  const NameList both_seen = without(combinations, seen1);
  NumpyRandom again(options.seed);
  const NameList combinations_to_train = again.choice(both_seen, share_of(both_seen, options.combo_seen2_train_frac));
  const NameList seen2 = without(both_seen, combinations_to_train);
  const NameList unseen = singles_with(genes.held_out, conditions);
  const NameList seen0 = where(combinations_with(genes.held_out, conditions),
                               [&](const std::string& c) { return count_in(c, genes.train) == 0; });

  SimulationSplit split{
      .train = singles_with(genes.train, conditions),
      .test = seen1,
      .subgroups = {{"combo_seen0", seen0}, {"combo_seen1", seen1}, {"combo_seen2", seen2}, {"unseen_single", unseen}}};
  append(split.train, combinations_to_train);
  for (const NameList* names : {&seen2, &unseen, &seen0}) append(split.test, *names);
  return split;
}

SimulationSplit simulation_split_single(const NameList& singles, const SimulationOptions& options) {
  NumpyRandom random(options.seed);
  const GeneSets genes = draw_genes(genes_of_all(singles), options, random);
  const NameList unseen = singles_with(genes.held_out, singles);
  return {.train = singles_with(genes.train, singles), .test = unseen, .subgroups = {{"unseen_single", unseen}}};
}

}  // namespace oarlock
