/* What the C part of a binding (such as libtch) has: tensors of double as at::Tensor*, and a backward pass. */
#ifndef OARLOCK_TEST_BINDING_H
#define OARLOCK_TEST_BINDING_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void* tensor; /* NOLINT(readability-identifier-naming) */

tensor binding_zeros(int64_t rows, int64_t columns, int requires_grad);
void binding_free(tensor of);
double* binding_data(tensor of);
double* binding_gradient(tensor of); /* NULL if there is none */
int64_t binding_size(tensor of);

/* tanh(input x first) x second */
tensor binding_forward(tensor input, tensor first, tensor second);
/* The mean of (output - 1)^2, and its backward pass. */
double binding_backward(tensor output);
/* parameter -= rate * gradient; then discards the gradient. */
void binding_step(tensor parameter, double rate);

#ifdef __cplusplus
}
#endif
#endif
