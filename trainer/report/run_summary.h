// The text that a user reads on the terminal at the beginning and at the end of a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace oarlock {

struct RunHeader {
  std::string task;
  int world_size = 1;
  std::string device;     // "cpu", or the name of the GPU
  std::string precision;  // "fp32", "bf16" or "fp16"
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t train_samples = 0;
  int64_t eval_samples = 0;
  int64_t effective_batch = 0;  // samples of a step over all ranks
  int64_t batch_per_rank = 0;   // of one forward pass
  int64_t accumulation_steps = 1;
  int64_t first_step = 0;  // above 0 after a resume
  int64_t target_steps = 0;
  int64_t epochs = 0;  // 0 if the length of the run is given in steps
  double learning_rate = 0;
  std::string checkpoints;  // directory; empty: nothing is saved
};

// Returns the lines of the header, without newlines. Pure.
std::vector<std::string> header_lines(const RunHeader& header);

struct BestEvaluation {
  std::string metric;
  double value = 0;
  int64_t step = 0;
};

struct RunSummary {
  int64_t step = 0;
  bool was_complete = false;  // by an earlier process; this one has only evaluated the checkpoint
  std::string stopped_early;  // the reason; may be empty
  std::map<std::string, double> metrics;
  std::string monitor;  // the metric that is listed first; may be empty
  std::optional<BestEvaluation> best;
  double seconds = 0;                                        // of this process
  std::vector<std::pair<std::string, double>> phase_shares;  // of `seconds`, from 0 to 1
  double samples_per_second = 0;
  int64_t recoveries = 0;  // from the loss of a rank, without a checkpoint
  int world_size = 1;
  bool parameters_equal = false;  // bitwise on all ranks
  std::string checkpoint;         // empty: none
};

// Returns the lines of the table, without newlines. At most ten metrics are listed. Pure.
std::vector<std::string> summary_lines(const RunSummary& summary);

// "206,922". Pure.
std::string grouped_digits(int64_t number);

}  // namespace oarlock
