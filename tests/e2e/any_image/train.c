// A program that reports its progress with the C library alone.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  FILE* progress = fopen(getenv("OARLOCK_PROGRESS"), "w");
  if (progress == NULL) return 1;
  setlinebuf(progress);
  for (int step = 1; step <= 150; ++step) {
    usleep(100000);
    fprintf(progress, "{\"step\": %d, \"targetSteps\": 150, \"loss\": %g}\n", step, 1.0 / step);
  }
  return 0;
}
