/* The C ABI of oarlock::ddp, for bindings of LibTorch in other languages (docs/guides/ddp.md): process groups,
 * collectives, DistributedDataParallel, and the indices of DistributedSampler. C99. The library is liboarlock_ddp_c.so.
 *
 * Errors: a function that can fail returns one of the codes below and writes it to *error together with a message of
 * one line, unless error is NULL. No C++ exception leaves the library. Output parameters are unchanged after an error.
 *
 * Ownership: the caller owns all memory and tensors that it passes, and frees the handles that *_create() returns. The
 * library copies strings, sizes and options, and shares the storage of tensors while a call or a model uses it.
 *
 * Threads: a group and its models must be used by one thread at a time. Different groups, and all functions without a
 * group, may be used by several threads. All ranks must call the same functions of a group in the same order.
 *
 * Tensors are those of the LibTorch of this process: its version must be oarlock_ddp_torch_version(). */
#ifndef OARLOCK_DDP_H
#define OARLOCK_DDP_H

/* NOLINTBEGIN(readability-identifier-naming): the names of C */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a program that was compiled with an older header no longer works. It is the suffix of the library.
 */
#define OARLOCK_DDP_ABI_VERSION 1

#define OARLOCK_DDP_API __attribute__((visibility("default")))

/* Codes of errors: the exit codes of sysexits(3) where they fit (docs/exit-codes.md). */
enum {
  OARLOCK_DDP_OK = 0,
  OARLOCK_DDP_FAILURE = 1,       /* a failure that no other code describes */
  OARLOCK_DDP_DATA = 65,         /* a dataset without samples */
  OARLOCK_DDP_UNAVAILABLE = 69,  /* the port or the backend is not available */
  OARLOCK_DDP_SOFTWARE = 70,     /* an exception of LibTorch, or parameters that differ between the ranks */
  OARLOCK_DDP_OS = 71,           /* out of memory */
  OARLOCK_DDP_TEMPORARY = 75,    /* not all ranks have connected in time */
  OARLOCK_DDP_PEER_LOST = 76,    /* another rank has exited, or did not reach a collective in time */
  OARLOCK_DDP_CONFIG = 78,       /* an invalid argument or environment, or an unused parameter */
  OARLOCK_DDP_DEVICE_FAILED = 79 /* the device of this rank has failed */
};

typedef struct oarlock_ddp_error {
  int32_t code;
  char message[1020]; /* UTF-8, terminated by 0; a longer one is truncated */
} oarlock_ddp_error;

/* The ABI version and the version of LibTorch, such as "2.11.0", for which the library was compiled. */
OARLOCK_DDP_API int32_t oarlock_ddp_abi_version(void);
OARLOCK_DDP_API const char* oarlock_ddp_torch_version(void);

/* ---- process group ---- */

typedef struct oarlock_ddp_group oarlock_ddp_group;

/* Set by oarlock_ddp_group_options_init(). */
typedef struct oarlock_ddp_group_options {
  uint32_t struct_size;           /* sizeof(oarlock_ddp_group_options); later versions append members */
  int32_t rank;                   /* -1: rank, world_size and address are read from the environment */
  int32_t world_size;             /* number of ranks */
  int32_t master_port;            /* a free TCP port of rank 0's host */
  const char* master_addr;        /* rank 0's host; unused with one rank */
  int32_t cuda_device;            /* -1: the CPU and Gloo; otherwise the index of a CUDA device, and NCCL */
  double timeout_seconds;         /* of one collective; 600 */
  double connect_timeout_seconds; /* until all ranks are connected; 300 */
} oarlock_ddp_group_options;

OARLOCK_DDP_API void oarlock_ddp_group_options_init(oarlock_ddp_group_options* options);

/* The rank of this process among those of its host, from the environment: the index of its CUDA device. */
OARLOCK_DDP_API int32_t oarlock_ddp_local_rank(int32_t* local_rank, oarlock_ddp_error* error);

/* Connects the ranks, and blocks until all of them have called it. The variables of the environment are those of
 * oarlock launch, MPI launchers or Slurm; without any of them there is one rank, whose collectives are the identity.
 * NULL for `options` are the values of init(). Errors: CONFIG, TEMPORARY with the ranks that are missing, UNAVAILABLE,
 * PEER_LOST. Ignores SIGPIPE unless the process has a handler. */
OARLOCK_DDP_API int32_t oarlock_ddp_group_create(const oarlock_ddp_group_options* options, oarlock_ddp_group** group,
                                                 oarlock_ddp_error* error);
/* Frees the group after its models. All ranks should call it together. NULL is ignored. */
OARLOCK_DDP_API void oarlock_ddp_group_free(oarlock_ddp_group* group);

OARLOCK_DDP_API int32_t oarlock_ddp_group_rank(const oarlock_ddp_group* group);
OARLOCK_DDP_API int32_t oarlock_ddp_group_world_size(const oarlock_ddp_group* group);

/* ---- collectives ---- */

/* Element types, with the numbers of c10::ScalarType. */
enum {
  OARLOCK_DDP_UINT8 = 0,
  OARLOCK_DDP_INT8 = 1,
  OARLOCK_DDP_INT32 = 3,
  OARLOCK_DDP_INT64 = 4,
  OARLOCK_DDP_FLOAT16 = 5,
  OARLOCK_DDP_FLOAT32 = 6,
  OARLOCK_DDP_FLOAT64 = 7,
  OARLOCK_DDP_BFLOAT16 = 15
};

enum { OARLOCK_DDP_SUM = 0, OARLOCK_DDP_MIN = 1, OARLOCK_DDP_MAX = 2 };

/* A tensor of LibTorch, or plain memory. It must be on the device of the group and contiguous (row-major without gaps).
 */
typedef struct oarlock_ddp_tensor {
  void* at_tensor;      /* at::Tensor*; NULL for memory, which the other members describe */
  void* data;           /* the first element; may be NULL if there are no elements */
  const int64_t* sizes; /* `dimensions` numbers, none negative */
  int32_t dimensions;   /* 0 for a scalar */
  int32_t dtype;
} oarlock_ddp_tensor;

/* These functions return when the result is complete (on a CUDA device: when it is enqueued in the current stream).
 * After an error, the group can only be freed, and the memory of the tensor must exist until then. Reduces element-wise
 * over the ranks, in place; the result has the same bits on all ranks. The shapes must be equal. */
OARLOCK_DDP_API int32_t oarlock_ddp_all_reduce(oarlock_ddp_group* group, const oarlock_ddp_tensor* tensor,
                                               int32_t operation, oarlock_ddp_error* error);
/* Overwrites the tensor with that of the rank `source`. */
OARLOCK_DDP_API int32_t oarlock_ddp_broadcast(oarlock_ddp_group* group, const oarlock_ddp_tensor* tensor,
                                              int32_t source, oarlock_ddp_error* error);
/* Writes the inputs of all ranks to `output`, in the order of the ranks: output [world_size, sizes of input]. */
OARLOCK_DDP_API int32_t oarlock_ddp_all_gather(oarlock_ddp_group* group, const oarlock_ddp_tensor* output,
                                               const oarlock_ddp_tensor* input, oarlock_ddp_error* error);
/* Returns when all ranks have called it. */
OARLOCK_DDP_API int32_t oarlock_ddp_barrier(oarlock_ddp_group* group, oarlock_ddp_error* error);

/* ---- DistributedDataParallel ---- */

/* The parameters of a model whose gradients are averaged over the ranks by LibTorch's Reducer during the backward pass.
 * The forward pass is the binding's own:
 *
 *   oarlock_ddp_model_begin_forward(model, &error);
 *   output = ...;                                        // with the tensors of the model
 *   oarlock_ddp_model_end_forward(model, &output, 1, &error);
 *   ...backward() of any function of the output; the gradients are then the mean over the ranks */
typedef struct oarlock_ddp_model oarlock_ddp_model;

typedef struct oarlock_ddp_model_tensor {
  void* at_tensor;  /* at::Tensor*; the model keeps a reference to the tensor, not to the handle */
  const char* name; /* "layer.weight", as messages show it; NULL: its index. Names must differ. */
} oarlock_ddp_model_tensor;

enum {
  OARLOCK_DDP_HOOK_NONE = 0,
  OARLOCK_DDP_HOOK_FP16 = 1,
  OARLOCK_DDP_HOOK_BF16 = 2,
  OARLOCK_DDP_HOOK_POWER_SGD = 3
};

/* The options of torch.nn.parallel.DistributedDataParallel; ddp/options.h explains each. Equal on all ranks. Set by
 * oarlock_ddp_model_options_init(). */
typedef struct oarlock_ddp_model_options {
  uint32_t struct_size;
  int32_t comm_hook;                 /* NONE */
  double bucket_cap_mb;              /* 25 */
  int32_t gradient_as_bucket_view;   /* 0 */
  int32_t find_unused_parameters;    /* 0 */
  int32_t static_graph;              /* 0 */
  int32_t broadcast_buffers;         /* 1 */
  int32_t shared_memory;             /* 1 */
  int64_t power_sgd_rank;            /* matrix_approximation_rank: 1 */
  int64_t power_sgd_start_iteration; /* 1000 */
} oarlock_ddp_model_options;

OARLOCK_DDP_API void oarlock_ddp_model_options_init(oarlock_ddp_model_options* options);

/* Called by all ranks. Parameters and buffers (running statistics; may be NULL with count 0) get the values of rank 0.
 * Parameters that do not require gradients are only broadcast. The group must outlive the model. Errors: CONFIG on all
 * ranks if a tensor differs from rank 0's in name, shape or type. */
OARLOCK_DDP_API int32_t oarlock_ddp_model_create(oarlock_ddp_group* group, const oarlock_ddp_model_tensor* parameters,
                                                 size_t parameter_count, const oarlock_ddp_model_tensor* buffers,
                                                 size_t buffer_count, const oarlock_ddp_model_options* options,
                                                 oarlock_ddp_model** model, oarlock_ddp_error* error);
/* Frees the model after the backward passes of its outputs. The tensors remain. NULL is ignored. */
OARLOCK_DDP_API void oarlock_ddp_model_free(oarlock_ddp_model* model);

/* begin: broadcasts the buffers if required. CONFIG if the last backward pass did not use all parameters and
 * find_unused_parameters is off; the message names them. */
OARLOCK_DDP_API int32_t oarlock_ddp_model_begin_forward(oarlock_ddp_model* model, oarlock_ddp_error* error);
/* end: `outputs` has `count` handles of type at::Tensor*, which must not be those of the parameters. With
 * find_unused_parameters, and if an output is a leaf, the tensor of a handle is replaced by an equal one
 * (at::Tensor::operator=), from which the loss must be computed. */
OARLOCK_DDP_API int32_t oarlock_ddp_model_end_forward(oarlock_ddp_model* model, void* const* outputs, size_t count,
                                                      oarlock_ddp_error* error);

/* 1: the following forward and backward passes accumulate gradients locally, as no_sync() of Python does; 0 ends it. */
OARLOCK_DDP_API int32_t oarlock_ddp_model_set_no_sync(oarlock_ddp_model* model, int32_t enabled,
                                                      oarlock_ddp_error* error);
/* Discards the gradients. Required with gradient_as_bucket_view. */
OARLOCK_DDP_API int32_t oarlock_ddp_model_zero_grad(oarlock_ddp_model* model, oarlock_ddp_error* error);
/* Broadcasts rank 0's buffers, before an evaluation. */
OARLOCK_DDP_API int32_t oarlock_ddp_model_broadcast_buffers(oarlock_ddp_model* model, oarlock_ddp_error* error);
/* SOFTWARE on all ranks if a parameter does not have the same bits on all of them; the message names the first one. */
OARLOCK_DDP_API int32_t oarlock_ddp_model_check_equal(oarlock_ddp_model* model, oarlock_ddp_error* error);

/* ---- samples ---- */

/* torch.utils.data.DistributedSampler. Set by oarlock_ddp_sampler_options_init(). */
typedef struct oarlock_ddp_sampler_options {
  uint32_t struct_size;
  int32_t rank;       /* 0 */
  int32_t world_size; /* 1 */
  int32_t shuffle;    /* 1 */
  int32_t drop_last;  /* 0 */
  int64_t size;       /* samples in the dataset; required */
  uint64_t seed;      /* 0; equal on all ranks */
} oarlock_ddp_sampler_options;

OARLOCK_DDP_API void oarlock_ddp_sampler_options_init(oarlock_ddp_sampler_options* options);

/* Writes the indices of the rank in `epoch` (from 0) to `indices`, without the first `start` samples that all ranks
 * together have already consumed, and their number, which is equal on all ranks, to *count. `indices` may be NULL to
 * obtain the number only; otherwise CONFIG if `capacity` is less than the number. DATA if the dataset is empty. */
OARLOCK_DDP_API int32_t oarlock_ddp_sampler_indices(const oarlock_ddp_sampler_options* options, int64_t epoch,
                                                    int64_t start, int64_t* indices, size_t capacity, size_t* count,
                                                    oarlock_ddp_error* error);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(readability-identifier-naming) */
#endif
