#include "trainer/tasks/gears/splits.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/tasks/gears/data_splitter.h"

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

bool contains(const NameList& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

NameList sorted_unique(NameList names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

NameList without(const NameList& names, const NameList& others) {
  return sorted_unique(filter(names, [&](const std::string& name) { return !contains(others, name); }));
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

Result<Split> custom(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bad = [&](const std::string& what) {
    return fail(ExitCode::kDataErr,
                fmt::format(R"({}: {}; expected {{"train": [conditions], "val": [...], "test": [...]}})", path, what));
  };
  if (!json.is_object()) return bad("is not a JSON object");
  Split split;
  for (const auto& [set, names] :
       {std::pair{"train", &split.train}, std::pair{"val", &split.val}, std::pair{"test", &split.test}}) {
    if (!json.contains(set)) continue;
    const nlohmann::json& list = json[set];
    const auto is_string = [](const nlohmann::json& item) { return item.is_string(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_string)) {
      return bad(fmt::format("\"{}\" is not a list of conditions", set));
    }
    *names = list.get<NameList>();
  }
  return split;
}

Result<void> check_known(const SplitConfig& config, const Split& split, const NameList& conditions) {
  for (const NameList* names : {&split.train, &split.val, &split.test}) {
    for (const std::string& name : *names) {
      if (!contains(conditions, name)) {
        return fail(ExitCode::kDataErr, fmt::format("{}: no cell has the condition {}", config.split_dict_path, name));
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
    *names = filter(conditions, [&](const std::string& c) { return contains(*names, c); });
  }
  return split;
}

}  // namespace oarlock::gears
