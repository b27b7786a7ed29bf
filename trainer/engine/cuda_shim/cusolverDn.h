#pragma once

struct cusolverDnContext;
using cusolverDnHandle_t = cusolverDnContext*;
enum cusolverStatus_t : int;
