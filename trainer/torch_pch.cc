// The target of this file builds the precompiled header; other targets reuse it.
#include "trainer/torch_pch.h"
