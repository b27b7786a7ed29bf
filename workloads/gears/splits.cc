#include "workloads/gears/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "common/status_macros.h"
#include "common/text.h"
#include "workloads/gears/string_lists.h"

namespace oarlock::gears {

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

NameList sorted_unique(NameList names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

NameList without(const NameList& names, const NameList& others) {
  const NameSet excluded = set_of(others);
  return sorted_unique(filter(names, [&](const std::string& name) { return !excluded.contains(name); }));
}

namespace {

constexpr double kValSize = 0.1;        // split_data()'s default
constexpr double kValTrainShare = 0.9;  // of a simulated split's training set, which is split again for validation

template <typename Simulate>
Split simulated(const SplitConfig& config, const NameList& perturbations, Simulate simulate) {
  const auto seed = static_cast<uint32_t>(config.seed);
  SimulationSplit outer =
      simulate(perturbations, SimulationOptions{config.train_gene_set_size, config.combo_seen2_train_frac, seed,
                                                config.test_perts, config.only_test_set_perts});
  SimulationSplit inner =
      simulate(outer.train, SimulationOptions{kValTrainShare, kValTrainShare, seed, {}, /*only_test_set_perts=*/false});
  return {.train = std::move(inner.train),
          .val = std::move(inner.test),
          .test = std::move(outer.test),
          .test_subgroups = std::move(outer.subgroups),
          .val_subgroups = std::move(inner.subgroups)};
}

Split listed(const SplitConfig& config, const NameList& perturbations) {
  NumpyRandom random(static_cast<uint32_t>(config.seed));
  if (config.kind == SplitKind::kNoTest) {
    ListSplit split = list_split(config.kind, perturbations, kValSize, {}, {}, random);
    return {.train = std::move(split.train),
            .val = std::move(split.test),
            .test = {},
            .test_subgroups = {},
            .val_subgroups = {}};
  }
  ListSplit outer = list_split(config.kind, perturbations, config.combo_single_split_test_set_fraction,
                               config.test_pert_genes, config.test_perts, random);
  ListSplit inner = list_split(config.kind, outer.train, kValSize, {}, {}, random);
  return {.train = std::move(inner.train),
          .val = std::move(inner.test),
          .test = std::move(outer.test),
          .test_subgroups = {},
          .val_subgroups = {}};
}

constexpr size_t kMaxSplitBytes = size_t{256} << 20;

Result<Split> custom(const std::string& path) {
  constexpr char kExpected[] = R"(; expected {"train": [conditions], "val": [...], "test": [...]})";
  const Result<nlohmann::json> read = read_string_lists(path, kMaxSplitBytes);
  if (!read) return fail(read.error().code, read.error().message + kExpected);
  const nlohmann::json& json = *read;
  Split split;
  for (const auto& [set, names] :
       {std::pair{"train", &split.train}, std::pair{"val", &split.val}, std::pair{"test", &split.test}}) {
    if (!json.contains(set)) continue;
    const nlohmann::json& list = json[set];
    const auto is_string = [](const nlohmann::json& item) { return item.is_string(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_string)) {
      return fail(ExitCode::kDataErr, fmt::format("{}: \"{}\" is not a list of conditions{}", path, set, kExpected));
    }
    *names = list.get<NameList>();
  }
  return split;
}

Result<void> check_known(const SplitConfig& config, const Split& split, const NameList& conditions) {
  const NameSet known = set_of(conditions);
  for (const NameList* names : {&split.train, &split.val, &split.test}) {
    for (const std::string& name : *names) {
      if (!known.contains(name)) {
        return fail(ExitCode::kDataErr,
                    fmt::format("{}: no cell has the condition {}", config.split_dict_path, shortened(name)));
      }
    }
  }
  return {};
}

}  // namespace

Result<Split> make_split(const SplitConfig& config, const NameList& conditions) {
  const NameList perturbations = filter(conditions, [](const std::string& c) { return !genes_of(c).empty(); });
  Split split;
  switch (config.kind) {
    case SplitKind::kSimulation:
      split = simulated(config, perturbations, simulation_split);
      break;
    case SplitKind::kSimulationSingle:
      split = simulated(config, filter(perturbations, is_single), simulation_split_single);
      break;
    case SplitKind::kNoSplit:
      split.test = conditions;
      return split;
    case SplitKind::kCustom: {
      Result<Split> read = custom(config.split_dict_path);
      if (!read) return read;
      RETURN_IF_ERROR(check_known(config, *read, conditions));
      split = std::move(*read);
      break;
    }
    default:
      split = listed(config, perturbations);
  }
  if (config.kind != SplitKind::kCustom) split.train.emplace_back(kControl);
  for (NameList* names : {&split.train, &split.val, &split.test}) {
    const NameSet chosen = set_of(*names);
    *names = filter(conditions, [&](const std::string& c) { return chosen.contains(c); });
  }
  return split;
}

uint32_t NumpyRandom::interval(uint32_t max) {
  if (max == 0) return 0;
  const uint32_t mask = UINT32_MAX >> std::countl_zero(max);
  while (true) {
    const auto value = static_cast<uint32_t>(generator_()) & mask;
    if (value <= max) return value;
  }
}

std::vector<std::string> NumpyRandom::choice(const std::vector<std::string>& from, int64_t size) {
  std::vector<std::string> shuffled = from;
  for (size_t i = shuffled.size(); i-- > 1;) std::swap(shuffled[i], shuffled[interval(static_cast<uint32_t>(i))]);
  shuffled.resize(static_cast<size_t>(size));
  return shuffled;
}

std::vector<std::string> NumpyRandom::choice_with_replacement(const std::vector<std::string>& from, int64_t size) {
  std::vector<std::string> chosen;
  for (int64_t i = 0; i < size; ++i) chosen.push_back(from[interval(static_cast<uint32_t>(from.size() - 1))]);
  return chosen;
}

namespace {

int64_t count_in(const std::string& condition, const NameSet& genes) {
  const NameList own = genes_of(condition);
  return std::count_if(own.begin(), own.end(), [&](const std::string& gene) { return genes.contains(gene); });
}

// As Python's int(len(names) * share).
int64_t share_of(const NameList& names, double share) {
  return static_cast<int64_t>(static_cast<double>(names.size()) * share);
}

// Tests the conditions that contain a test gene. Combinations with more than `max_seen` other genes are in neither set,
// so that the test set has no such combinations and the training set does not contain the test gene.
ListSplit split_by_genes(const NameList& conditions, const NameList& test_gene_list, int64_t max_seen) {
  const NameSet test_genes = set_of(test_gene_list);
  const auto single = [&](const std::string& c) { return is_single(c) && count_in(c, test_genes) > 0; };
  const auto combination = [&](const std::string& c) { return is_combination(c) && count_in(c, test_genes) > 0; };
  const auto held_out = [&](const std::string& c) {
    return combination(c) && static_cast<int64_t>(genes_of(c).size()) - count_in(c, test_genes) > max_seen;
  };
  const auto tested = [&](const std::string& c) { return single(c) || (combination(c) && !held_out(c)); };
  return {.train = filter(conditions, [&](const std::string& c) { return !tested(c) && !held_out(c); }),
          .test = filter(conditions, tested)};
}

ListSplit split_by_conditions(const NameList& conditions, const NameList& tested) {
  return {
      .train = filter(conditions, [excluded = set_of(tested)](const std::string& c) { return !excluded.contains(c); }),
      .test = tested};
}

}  // namespace

ListSplit list_split(SplitKind kind, const NameList& conditions, double test_size, const NameList& test_pert_genes,
                     const NameList& test_perts, NumpyRandom& random) {
  const NameList singles = filter(conditions, is_single);
  const NameList combinations = filter(conditions, is_combination);
  const NameList genes = test_pert_genes.empty()
                             ? random.choice_with_replacement(genes_of_all(conditions), share_of(singles, test_size))
                             : test_pert_genes;
  switch (kind) {
    case SplitKind::kSingle:
      return split_by_genes(conditions, genes, -1);  // no combination is tested
    case SplitKind::kComboSeen0:
      return split_by_genes(conditions, genes, 0);
    case SplitKind::kComboSeen1:
      return split_by_genes(conditions, genes, 1);
    case SplitKind::kComboSeen2:
      return split_by_conditions(conditions, test_perts.empty() ? random.choice_with_replacement(
                                                                      combinations, share_of(combinations, test_size))
                                                                : test_perts);
    case SplitKind::kNoTest:
      return split_by_conditions(
          conditions, test_perts.empty() ? random.choice_with_replacement(conditions, share_of(conditions, test_size))
                                         : test_perts);
    default:
      throw std::logic_error("this split is not drawn from a list");
  }
}

namespace {

NameList singles_with(const NameSet& genes, const NameList& conditions) {
  return filter(conditions, [&](const std::string& c) { return is_single(c) && count_in(c, genes) > 0; });
}

NameList combinations_with(const NameSet& genes, const NameList& conditions) {
  return filter(conditions, [&](const std::string& c) { return is_combination(c) && count_in(c, genes) > 0; });
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
    // The genes to test are removed from the training genes and replaced by as many others.
    const auto wanted = [tested = set_of(options.test_perts)](const std::string& gene) {
      return tested.contains(gene);
    };
    const auto overlap = std::count_if(train.begin(), train.end(), wanted);
    train = filter(train, [&](const std::string& gene) { return !wanted(gene); });
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
  const NameSet train_genes = set_of(genes.train);
  const NameSet held_out_genes = set_of(genes.held_out);

  const NameList combinations = combinations_with(train_genes, conditions);
  const NameList seen1 = filter(combinations, [&](const std::string& c) { return count_in(c, train_genes) == 1; });
  const NameList both_seen = without(combinations, seen1);
  NumpyRandom again(options.seed);
  const NameList combinations_to_train = again.choice(both_seen, share_of(both_seen, options.combo_seen2_train_frac));
  const NameList seen2 = without(both_seen, combinations_to_train);
  const NameList unseen = singles_with(held_out_genes, conditions);
  const NameList seen0 = filter(combinations_with(held_out_genes, conditions),
                                [&](const std::string& c) { return count_in(c, train_genes) == 0; });

  SimulationSplit split{
      .train = singles_with(train_genes, conditions),
      .test = seen1,
      .subgroups = {{kSubgroups[0], seen0}, {kSubgroups[1], seen1}, {kSubgroups[2], seen2}, {kSubgroups[3], unseen}}};
  append(split.train, combinations_to_train);
  for (const NameList* names : {&seen2, &unseen, &seen0}) append(split.test, *names);
  return split;
}

SimulationSplit simulation_split_single(const NameList& singles, const SimulationOptions& options) {
  NumpyRandom random(options.seed);
  const GeneSets genes = draw_genes(genes_of_all(singles), options, random);
  const NameList unseen = singles_with(set_of(genes.held_out), singles);
  return {.train = singles_with(set_of(genes.train), singles), .test = unseen, .subgroups = {{kSubgroups[3], unseen}}};
}

}  // namespace oarlock::gears
