// oarlock-trainer with the benchmark task of scripts/bench.
#include "tests/bench/trainer/task.h"
#include "trainer/engine/command_line.h"

int main(int argc, char** argv) {
  return oarlock::trainer_main(argc, argv, {{"bench", oarlock::bench::make_bench_task}});
}
