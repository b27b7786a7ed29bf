// The precompiled header of the tests that have no LibTorch: that of other code without LibTorch, and GoogleTest.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/pch.h"
