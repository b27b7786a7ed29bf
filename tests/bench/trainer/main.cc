// oarlock-trainer with the task that scripts/bench times.
#include "tests/bench/trainer/task.h"
#include "trainer/engine/command_line.h"

int main(int argc, char** argv) {
  return oarlock::trainer_main(argc, argv, {{"bench", oarlock::bench::make_bench_task}});
}
