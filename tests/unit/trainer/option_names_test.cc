// The errors of oarlock::ddp, which name its options, as the trainer reports them.
#include "trainer/engine/option_names.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ddp/library_errors.h"

namespace oarlock {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(OptionNames, LibraryErrorsGetConfigurationKeys) {
  const Error timeout = peer_timeout_error("not finished after 1.5 s");
  EXPECT_THAT(timeout.message, Not(HasSubstr("distributed.")));
  EXPECT_THAT(with_configuration_keys(timeout).message, HasSubstr("or raise distributed.timeout_seconds"));
  const Error memory = to_error(std::make_exception_ptr(c10::OutOfMemoryError({}, "CUDA out of memory")));
  EXPECT_THAT(memory.message, Not(HasSubstr("cuda.")));
  EXPECT_THAT(with_configuration_keys(memory).message, HasSubstr("or raise cuda.memory_fraction if it is below 1"));
  EXPECT_EQ(with_configuration_keys({ExitCode::kConfig, "not averaged; set find_unused_parameters to true"}),
            (Error{ExitCode::kConfig, "not averaged; set ddp.find_unused_parameters to true"}));
}

TEST(OptionNames, OtherErrorsAreUnchanged) {
  const Error own{ExitCode::kConfig, "cuda.graphs: remove it, or ddp.find_unused_parameters"};
  EXPECT_EQ(with_configuration_keys(own), own);
}

}  // namespace
}  // namespace oarlock
