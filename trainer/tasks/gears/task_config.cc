#include "trainer/tasks/gears/task_config.h"

namespace oarlock {
namespace {

void describe(GearsTestConfig& config, Fields& fields) {
  fields.field("file", config.file, "CSV with the metrics of each condition, beside the mean baseline's");
  fields.field("predictions_file", config.predictions_file, "CSV with the mean expression predicted of each condition");
}

void describe(GearsPredictConfig& config, Fields& fields) {
  fields.field("perturbations", config.perturbations, "genes, or pairs such as AHR+FEV, to predict at the end");
  fields.field("file", config.file, "CSV with the mean expression predicted of each");
  if (!config.perturbations.empty()) fields.require("file");
  fields.field("control_cells", config.control_cells, at_least(1), "cells that each prediction is the mean of");
  fields.field("interactions", config.interactions, "pairs whose genetic interaction is scored at the end");
  fields.field("interactions_file", config.interactions_file, "CSV with the scores");
  if (!config.interactions.empty()) fields.require("interactions_file");
  fields.field("interaction_genes", config.interaction_genes, "genes to score by, one per line; empty: all");
}

}  // namespace

void describe(GearsTaskConfig& config, Fields& root) {
  root.section("data", [&](Fields& fields) { describe(config.data, fields); }, "perturbed cells, as AnnData");
  root.section(
      "model",
      [&](Fields& fields) {
        describe(config.model, fields);
        describe(config.graphs, fields);
        describe(config.loss, config.model.uncertainty, fields);
      },
      "graph networks over co-expressed genes and the gene ontology (GEARS)");
  root.section(
      "test", [&](Fields& fields) { describe(config.test, fields); },
      "the test set, with the best checkpoint's weights");
  root.section("predict", [&](Fields& fields) { describe(config.predict, fields); }, "perturbations nobody has tried");
}

}  // namespace oarlock
