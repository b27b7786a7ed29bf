// The options of sbatch and srun, and notes and errors about lines of a job script.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace oarlock::convert {

// The notes and the errors about the lines of one job script. Not thread-safe.
class ScriptReport {
 public:
  // `file` is the name in messages.
  explicit ScriptReport(std::string file) : file_(std::move(file)) {}

  // Adds a note; those after the first Report::kMaxNotes are left out.
  void note(int line, const std::string& what, const std::string& message);
  void error(int line, const std::string& message);

  const std::string& file() const { return file_; }
  std::vector<std::string>& notes() { return notes_; }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  std::string file_;
  std::vector<std::string> notes_;
  std::vector<std::string> errors_;
};

// The requests of a Slurm job. Empty and absent members were not given, or are not valid.
struct SlurmRequest {
  std::string name;
  std::optional<int64_t> nodes, tasks, tasks_per_node, cpus_per_task;
  std::optional<int64_t> gpus, gpus_per_node, gpus_per_task;
  std::string memory;          // of a node, a quantity of Kubernetes
  std::string memory_per_cpu;  // likewise
  std::optional<int64_t> time_seconds;
  std::optional<bool> requeue;
  std::string image;
  std::string directory;  // the working directory
};

struct SlurmOption;  // of the table in slurm_options.cc

// Reads options into a SlurmRequest. Later ones take precedence. Not thread-safe; `request` and `report` must outlive
// the reader.
class SlurmOptions {
 public:
  SlurmOptions(SlurmRequest& request, ScriptReport& report) : request_(request), report_(report) {}

  // Reads the options at the beginning of `words`, and returns the index of the first other word. Adds an error for an
  // option that a job cannot satisfy or that has no valid value, and a note for one without a counterpart. `program` is
  // "#SBATCH" or "srun".
  size_t read(const std::vector<std::string>& words, int line, const std::string& program);

 private:
  void apply(const SlurmOption& option, const std::string& shown, const std::string& value, int line);
  void node_count(const std::string& shown, const std::string& value, int line);
  void generic_resource(const std::string& shown, const std::string& value, int line);
  void memory(std::string& target, const std::string& shown, const std::string& value, int line);
  void time_limit(const std::string& shown, const std::string& value, int line);
  void container_image(const std::string& shown, const std::string& value, int line);
  void number(std::optional<int64_t>& target, const std::string& shown, const std::string& value, int line);
  // Parses "4" and "a100:4".
  void gpu_number(std::optional<int64_t>& target, const std::string& shown, const std::string& value, int line);

  SlurmRequest& request_;
  ScriptReport& report_;
};

}  // namespace oarlock::convert
