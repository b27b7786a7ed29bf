// The target of this file builds the precompiled header; other targets reuse it.
#include "tests/support/test_pch.h"
