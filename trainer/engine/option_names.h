// The names of options in error messages.
#pragma once

#include "common/error.h"

namespace oarlock {

// The errors of oarlock::ddp name the options of its API. Returns `error` with the corresponding keys of the trainer's
// configuration. Pure.
Error with_configuration_keys(Error error);

}  // namespace oarlock
