// The sections of a gears configuration. The keys have the names of cell-gears: those of GEARS.model_initialize() are
// in "model", those of PertData.prepare_split() in "data".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/fields.h"
#include "trainer/tasks/gears/gears_data.h"
#include "trainer/tasks/gears/model/loss.h"
#include "trainer/tasks/gears/model/model.h"

namespace oarlock {

// The section "test".
struct GearsTestConfig {
  std::string file;              // CSV, a line per condition
  std::string predictions_file;  // CSV, the mean expression that is predicted for each condition
};

// The section "predict".
struct GearsPredictConfig {
  std::vector<std::string> perturbations;  // "AHR", "AHR+FEV"
  std::string file;
  int64_t control_cells = 300;
  std::vector<std::string> interactions;  // "AHR+FEV"
  std::string interactions_file;
  std::string interaction_genes;  // a gene per line; "": all
};

struct GearsTaskConfig {
  GearsDataConfig data;
  GearsConfig model;
  GearsGraphConfig graphs;  // in the section "model"
  GearsLossConfig loss;     // in the section "model"
  GearsTestConfig test;
  GearsPredictConfig predict;
};

void describe(GearsTaskConfig& config, Fields& root);

}  // namespace oarlock
