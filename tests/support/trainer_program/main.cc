// oarlock-trainer with the tests' task.
#include "tests/support/trainer_program/file_channel.h"
#include "tests/support/trainer_program/tiny_task.h"
#include "trainer/engine/command_line.h"

int main(int argc, char** argv) {
  return oarlock::trainer_main(argc, argv, {{"tiny", oarlock::test::make_tiny}}, oarlock::test::open_file_channel);
}
