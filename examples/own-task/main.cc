#include "task.h"
#include "trainer/engine/command_line.h"

int main(int argc, char** argv) { return oarlock::trainer_main(argc, argv, {{"kepler", kepler::make_task}}); }
