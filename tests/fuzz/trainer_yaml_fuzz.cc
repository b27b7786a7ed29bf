// A trainer configuration. One that is accepted prints as a configuration that is accepted as well and prints the same.
#include "tests/fuzz/input.h"
#include "trainer/config/load.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  const TaskNames tasks{.names = {"image_classification"}, .describe_sections = [](const std::string&, Fields&) {}};
  const Result<TrainerConfig> config = parse_config(text, "trainer.yaml", tasks);
  const Result<std::string> printed = print_parsed_config(text, "trainer.yaml", tasks);
  fuzz::require(config.has_value() == printed.has_value());
  if (!config) {
    fuzz::require(!config.error().message.empty() && config.error().message.size() < 100'000);
    return 0;
  }
  const Result<std::string> again = print_parsed_config(*printed, "printed.yaml", tasks);
  fuzz::require(again.has_value() && *again == *printed);
  return 0;
}
