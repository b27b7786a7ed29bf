#include "trainer/tasks/gears/splits/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "trainer/tasks/gears/splits/list_split.h"
#include "trainer/tasks/gears/splits/simulation_split.h"

namespace oarlock {
namespace {

constexpr double kValSize = 0.1;        // split_data()'s default
constexpr double kValTrainShare = 0.9;  // of a simulated split's training set, from which validation is drawn

const Names<SplitKind> kKinds{
    {"simulation", SplitKind::kSimulation},  {"simulation_single", SplitKind::kSimulationSingle},
    {"combo_seen0", SplitKind::kComboSeen0}, {"combo_seen1", SplitKind::kComboSeen1},
    {"combo_seen2", SplitKind::kComboSeen2}, {"single", SplitKind::kSingle},
    {"no_test", SplitKind::kNoTest},         {"no_split", SplitKind::kNoSplit},
    {"custom", SplitKind::kCustom}};

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
  const Result<std::string> text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto bad = [&](const std::string& what) {
    return fail(ExitCode::kDataErr,
                fmt::format(R"({}: {}; expected {{"train": [conditions], "val": [...], "test": [...]}})", path, what));
  };
  if (!json.is_object()) return bad("is no JSON object");
  Split split;
  for (const auto& [set, names] :
       {std::pair{"train", &split.train}, std::pair{"val", &split.val}, std::pair{"test", &split.test}}) {
    if (!json.contains(set)) continue;
    const nlohmann::json& list = json[set];
    const auto is_string = [](const nlohmann::json& item) { return item.is_string(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_string)) {
      return bad(fmt::format("\"{}\" is no list of conditions", set));
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

std::string_view name_of(SplitKind kind) {
  return std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& entry) { return entry.second == kind; })->first;
}

void describe(SplitConfig& config, Fields& fields) {
  using enum SplitKind;
  const auto is = [&](std::initializer_list<SplitKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), config.kind) != kinds.end();
  };
  fields.choice("split", config.kind, kKinds, "which perturbations are held out, as GEARS' prepare_split()");
  fields.field("seed", config.seed, from_to(0, UINT32_MAX), "of the split, and of the matched control cells");
  fields.field("train_gene_set_size", config.train_gene_set_size, from_to(0, 1),
               "share of the perturbed genes, simulation");
  fields.field("combo_seen2_train_frac", config.combo_seen2_train_frac, from_to(0, 1),
               "share of the combinations of two training genes, simulation");
  fields.field("combo_single_split_test_set_fraction", config.combo_single_split_test_set_fraction, from_to(0, 1),
               "share of genes or combinations that are tested, single and combo_seen0 to 2");
  fields.field("test_perts", config.test_perts, "genes (simulation) or conditions (combo_seen2) to test with");
  fields.only_where("test_perts", is({kSimulation, kSimulationSingle, kComboSeen2}),
                    "belongs to the splits simulation, simulation_single and combo_seen2");
  fields.field("only_test_set_perts", config.only_test_set_perts, "test with test_perts and nothing else");
  fields.only_where("only_test_set_perts", is({kSimulation, kSimulationSingle}), "belongs to simulation");
  fields.field("test_pert_genes", config.test_pert_genes, "genes to test with, instead of drawn ones");
  fields.only_where("test_pert_genes", is({kSingle, kComboSeen0, kComboSeen1}),
                    "belongs to the splits single, combo_seen0 and combo_seen1");
  fields.field("split_dict_path", config.split_dict_path, R"(JSON: {"train": [...], "val": [...], "test": [...]})");
  fields.only_where("split_dict_path", is({kCustom}), "belongs to the split custom");
  if (is({kCustom})) fields.require("split_dict_path");
}

Result<Split> make_split(const SplitConfig& config, const NameList& conditions) {
  const NameList perturbations = where(conditions, [](const std::string& c) { return !genes_of(c).empty(); });
  Split split;
  switch (config.kind) {
    case SplitKind::kSimulation:
      split = simulated(config, perturbations, simulation_split);
      break;
    case SplitKind::kSimulationSingle:
      split = simulated(config, where(perturbations, is_single), simulation_split_single);
      break;
    case SplitKind::kNoSplit:
      split.test = conditions;
      return split;
    case SplitKind::kCustom: {
      Result<Split> read = custom(config.split_dict_path);
      if (!read) return read;
      if (const Result<void> known = check_known(config, *read, conditions); !known)
        return tl::make_unexpected(known.error());
      split = std::move(*read);
      break;
    }
    default:
      split = listed(config, perturbations);
  }
  if (config.kind != SplitKind::kCustom) split.train.emplace_back(kControl);
  for (NameList* names : {&split.train, &split.val, &split.test}) {
    *names = where(conditions, [&](const std::string& c) { return contains(*names, c); });
  }
  return split;
}

}  // namespace oarlock
