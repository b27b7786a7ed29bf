// oarlock-trainer: each process is one rank.
#include "trainer/engine/command_line.h"
#include "workloads/registry.h"

int main(int argc, char** argv) { return oarlock::trainer_main(argc, argv, oarlock::builtin_tasks()); }
