#include "trainer/config/reference.h"

#include <fmt/format.h>

#include "trainer/config/fields_reference.h"

namespace oarlock {
namespace {

constexpr char kHead[] = R"(# The trainer's configuration

Made by `oarlock-trainer --print-reference` from the descriptions that also read and print a configuration; do not edit.

A configuration is a YAML or JSON file (`oarlock-trainer --config FILE`), or `spec.trainer` of a TrainingJob. On top of
it, words of the command line set single keys; values are YAML:

```sh
oarlock-trainer --config trainer.yaml optimizer.lr=4e-3 batch.size=128 'optimizer.betas=[0.9, 0.95]'
oarlock-trainer task=image_classification epochs=3             # no file at all
oarlock run -f trainingjob.yaml epochs=3                       # the same for all ranks of a TrainingJob
oarlock-trainer --config trainer.yaml epochs=3 --print-config  # everything that is in effect, defaults included
```

All problems are reported at once, each with its place (`file:line:column: key: ...`, or `command line: key: ...`), and
the exit code is 78. A key that is there without a value means its default.

## From Python's command lines

| there | here |
|---|---|
| `--config FILE` | `--config FILE` |
| `--work_dir DIR`, `--output_dir DIR`, `--save-dir DIR` | `--checkpoint-dir DIR` or `checkpoint.dir=DIR` |
| `--datafile FILE`, `--data_path DIR` | `data.path=...` (of most tasks) |
| `--epochs N`, `--n_epochs N` | `epochs=N` |
| `--batch-size N` | `batch.size=N`, of each device; `batch.per=global` for all together |
| `--lr X`, `--learning_rate X` | `optimizer.lr=X` |
| `--use-amp` | `amp.enabled=true`, and `amp.dtype=fp16` or `bf16` |
| `--use-ema` | `ema.enabled=true` |
| `--patience N` | `early_stopping.patience=N` |
| `--backend gloo` | `distributed.backend=gloo` |
| `--seed N`, `--random_seed N` | `seed=N` |
| `--num_workers N` | `loader.threads=N` |
| `--distributed --world-size N` | `oarlock launch --nproc N oarlock-trainer ...`, or `nodes` and `processesPerNode` of a TrainingJob |
| `--experiment-name NAME` | `metadata.name` of a TrainingJob |

)";

}  // namespace

std::string reference_page(const TaskNames& tasks) {
  std::string out = kHead;
  TrainerConfig config;
  FieldsReference root("");
  describe(config, root, tasks);
  out += "## All keys but the task's own\n\n" + root.markdown(3);
  for (const std::string& name : tasks.names) {
    FieldsReference own("");
    tasks.describe_sections(name, own);
    out += fmt::format("## The task `{}`\n\n{}", name, own.markdown(3));
  }
  out.pop_back();  // one newline ends the page
  return out;
}

}  // namespace oarlock
