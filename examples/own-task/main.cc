#include <oarlock/trainer/engine/command_line.h>
#include "task.h"

int main(int argc, char** argv) { return oarlock::trainer_main(argc, argv, {{"kepler", kepler::make_task}}); }
