#pragma once

#include <cusolver_common.h>

struct cusolverDnContext;
using cusolverDnHandle_t = cusolverDnContext*;
