// Owner of the precompiled header; other targets reuse it.
#include "trainer/torch_pch.h"
