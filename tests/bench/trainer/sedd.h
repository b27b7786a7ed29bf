// The transformer of protein_diffusion for scripts/bench, with the dimensions of tests/bench/rival/sedd.py.
#pragma once

#include <memory>

#include "tests/bench/trainer/models.h"

namespace oarlock::bench {

constexpr int64_t kSeddTokens = 25;
constexpr int64_t kSeddLength = 128;

// Takes uniform numbers [n, 1 + length], of which the first is the time and the others noise tokens, and tokens
// [n, length].
std::shared_ptr<Model> make_sedd();

}  // namespace oarlock::bench
