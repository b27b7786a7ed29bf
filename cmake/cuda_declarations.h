// The types of cuBLAS, cuSOLVER and cuSPARSE that LibTorch's headers name. cmake/cuda.cmake copies this file to the
// names of their headers, whose wheels hold hundreds of MiB.
#pragma once

struct cublasContext;
using cublasHandle_t = cublasContext*;
enum cublasStatus_t : int;

struct cublasLtContext;
using cublasLtHandle_t = cublasLtContext*;

struct cusolverDnContext;
using cusolverDnHandle_t = cusolverDnContext*;
enum cusolverStatus_t : int;

struct cusparseContext;
using cusparseHandle_t = cusparseContext*;
enum cusparseStatus_t : int;
