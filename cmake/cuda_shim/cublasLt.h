#pragma once

struct cublasLtContext;
using cublasLtHandle_t = cublasLtContext*;
