/* Uses each function of oarlock_ddp.h from C99, on the ranks of the environment. Prints "ok", or fails. */
#include <math.h>
#include <oarlock_ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

enum { kInputs = 3, kHidden = 4, kOutputs = 2, kRows = 5, kSteps = 4 };

static oarlock_ddp_error error;

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "line %d: %s: %d %s\n", __LINE__, #condition, error.code, error.message); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == OARLOCK_DDP_OK)
/* The call fails with the code, and the message contains the text. */
#define EXPECT_ERROR(call, expected, text) \
  EXPECT((call) == (expected) && error.code == (expected) && strstr(error.message, text) != NULL)

static oarlock_ddp_tensor memory(void* data, const int64_t* sizes, int32_t dimensions, int32_t dtype) {
  oarlock_ddp_tensor out = {NULL, NULL, NULL, 0, 0};
  out.data = data;
  out.sizes = sizes;
  out.dimensions = dimensions;
  out.dtype = dtype;
  return out;
}

static oarlock_ddp_tensor handle(tensor of) {
  oarlock_ddp_tensor out = {NULL, NULL, NULL, 0, 0};
  out.at_tensor = of;
  return out;
}

static void fill(tensor of, double first) {
  int64_t i;
  for (i = 0; i < binding_size(of); ++i) binding_data(of)[i] = sin(first + (double)i);
}

static double largest_difference(tensor a, tensor b) {
  double out = 0;
  int64_t i;
  for (i = 0; i < binding_size(a); ++i) {
    const double difference = fabs(binding_data(a)[i] - binding_data(b)[i]);
    if (!(difference <= out)) out = difference;
  }
  return out;
}

static void check_collectives(oarlock_ddp_group* group) {
  const int32_t rank = oarlock_ddp_group_rank(group);
  const int32_t ranks = oarlock_ddp_group_world_size(group);
  const int64_t sizes[2] = {2, 3};
  int64_t gathered_sizes[3] = {0, 2, 3};
  float values[6];
  int64_t* gathered = calloc((size_t)ranks * 6, sizeof *gathered);
  int64_t numbers[6];
  oarlock_ddp_tensor of_values = memory(values, sizes, 2, OARLOCK_DDP_FLOAT32);
  oarlock_ddp_tensor of_numbers = memory(numbers, sizes, 2, OARLOCK_DDP_INT64);
  oarlock_ddp_tensor of_gathered = memory(gathered, gathered_sizes, 3, OARLOCK_DDP_INT64);
  tensor own = binding_zeros(1, 2, 0);
  oarlock_ddp_tensor of_own = handle(own);
  int i;
  gathered_sizes[0] = ranks;
  for (i = 0; i < 6; ++i) {
    values[i] = (float)(i + rank);
    numbers[i] = 10 * rank + i;
  }
  EXPECT_OK(oarlock_ddp_all_reduce(group, &of_values, OARLOCK_DDP_SUM, &error));
  for (i = 0; i < 6; ++i) EXPECT(values[i] == (float)(ranks * i + ranks * (ranks - 1) / 2));
  EXPECT_OK(oarlock_ddp_all_gather(group, &of_gathered, &of_numbers, &error));
  for (i = 0; i < 6 * ranks; ++i) EXPECT(gathered[i] == 10 * (i / 6) + i % 6);
  EXPECT_OK(oarlock_ddp_all_reduce(group, &of_numbers, OARLOCK_DDP_MAX, &error));
  EXPECT(numbers[1] == 10 * (ranks - 1) + 1);
  EXPECT_OK(oarlock_ddp_all_reduce(group, &of_numbers, OARLOCK_DDP_MIN, NULL));

  binding_data(own)[1] = rank + 5;
  EXPECT_OK(oarlock_ddp_broadcast(group, &of_own, ranks - 1, &error));
  EXPECT(binding_data(own)[1] == ranks + 4);
  EXPECT_OK(oarlock_ddp_barrier(group, &error));

  EXPECT_ERROR(oarlock_ddp_broadcast(group, &of_own, ranks, &error), OARLOCK_DDP_CONFIG, "source");
  EXPECT_ERROR(oarlock_ddp_all_reduce(group, &of_own, 7, &error), OARLOCK_DDP_CONFIG, "operation 7");
  EXPECT_ERROR(oarlock_ddp_all_reduce(group, NULL, OARLOCK_DDP_SUM, &error), OARLOCK_DDP_CONFIG, "NULL");
  EXPECT_ERROR(oarlock_ddp_all_gather(group, &of_gathered, &of_own, &error), OARLOCK_DDP_CONFIG, "world_size");
  of_values.dtype = 99;
  EXPECT_ERROR(oarlock_ddp_all_reduce(group, &of_values, OARLOCK_DDP_SUM, &error), OARLOCK_DDP_CONFIG, "dtype 99");
  EXPECT(oarlock_ddp_barrier(NULL, NULL) == OARLOCK_DDP_CONFIG);
  binding_free(own);
  free(gathered);
}

/* Trains with the rank's rows, and compares with one process that has the rows of all ranks. The first of every
 * `accumulate` passes are not synchronized. */
static void check_training(oarlock_ddp_group* group, int accumulate, const oarlock_ddp_model_options* options) {
  const int32_t rank = oarlock_ddp_group_rank(group);
  const int32_t ranks = oarlock_ddp_group_world_size(group);
  tensor parameters[2], reference[2];
  tensor joined = binding_zeros((int64_t)ranks * kRows, kInputs, 0);
  tensor own = binding_zeros(kRows, kInputs, 0);
  oarlock_ddp_model_tensor described[2] = {{NULL, "layers.0.weight"}, {NULL, NULL}};
  oarlock_ddp_model* model = NULL;
  int step, i;
  for (i = 0; i < 2; ++i) {
    parameters[i] = binding_zeros(i == 0 ? kInputs : kHidden, i == 0 ? kHidden : kOutputs, 1);
    reference[i] = binding_zeros(i == 0 ? kInputs : kHidden, i == 0 ? kHidden : kOutputs, 1);
    fill(parameters[i], rank); /* the model gets the values of rank 0 */
    fill(reference[i], 0);
    described[i].at_tensor = parameters[i];
  }
  EXPECT_OK(oarlock_ddp_model_create(group, described, 2, NULL, 0, options, &model, &error));
  for (step = 0; step < kSteps * accumulate; ++step) {
    tensor output, expected;
    const int synchronized = (step + 1) % accumulate == 0;
    fill(joined, 10 * step);
    memcpy(binding_data(own), binding_data(joined) + (size_t)rank * kRows * kInputs, kRows * kInputs * sizeof(double));
    EXPECT_OK(oarlock_ddp_model_set_no_sync(model, !synchronized, &error));
    EXPECT_OK(oarlock_ddp_model_begin_forward(model, &error));
    output = binding_forward(own, parameters[0], parameters[1]);
    EXPECT_OK(oarlock_ddp_model_end_forward(model, &output, 1, &error));
    binding_backward(output);
    expected = binding_forward(joined, reference[0], reference[1]);
    binding_backward(expected);
    for (i = 0; synchronized && i < 2; ++i) {
      EXPECT(binding_gradient(parameters[i]) != NULL);
      binding_step(parameters[i], 0.1);
      binding_step(reference[i], 0.1);
    }
    binding_free(output);
    binding_free(expected);
  }
  for (i = 0; i < 2; ++i) EXPECT(largest_difference(parameters[i], reference[i]) < 1e-12);
  EXPECT_OK(oarlock_ddp_model_check_equal(model, &error));
  binding_data(parameters[1])[0] += rank;
  if (ranks > 1) EXPECT_ERROR(oarlock_ddp_model_check_equal(model, &error), OARLOCK_DDP_SOFTWARE, "'parameter1'");
  oarlock_ddp_model_free(model);
  for (i = 0; i < 2; ++i) {
    binding_free(parameters[i]);
    binding_free(reference[i]);
  }
  binding_free(joined);
  binding_free(own);
}

static void check_models(oarlock_ddp_group* group) {
  oarlock_ddp_model_options options;
  tensor weight = binding_zeros(1, 2, 1);
  tensor mean = binding_zeros(1, 2, 0);
  oarlock_ddp_model_tensor parameter = {NULL, "w"};
  oarlock_ddp_model_tensor twice[2];
  oarlock_ddp_model_tensor buffer = {NULL, "norm.mean"};
  oarlock_ddp_model* model = NULL;
  tensor output, one;
  check_training(group, 1, NULL);
  check_training(group, 3, NULL);
  oarlock_ddp_model_options_init(&options);
  options.shared_memory = 0;
  options.static_graph = 1;
  check_training(group, 1, &options);
  options.static_graph = 0;
  options.find_unused_parameters = 1;
  check_training(group, 1, &options);

  EXPECT_ERROR(oarlock_ddp_model_create(group, &parameter, 1, NULL, 0, NULL, &model, &error), OARLOCK_DDP_CONFIG, "w");
  parameter.at_tensor = weight;
  twice[0] = twice[1] = parameter;
  EXPECT_ERROR(oarlock_ddp_model_create(group, twice, 2, NULL, 0, NULL, &model, &error), OARLOCK_DDP_CONFIG, "'w'");
  options.comm_hook = 9;
  EXPECT_ERROR(oarlock_ddp_model_create(group, &parameter, 1, NULL, 0, &options, &model, &error), OARLOCK_DDP_CONFIG,
               "comm_hook 9");
  options.struct_size = 0;
  EXPECT_ERROR(oarlock_ddp_model_create(group, &parameter, 1, NULL, 0, &options, &model, &error), OARLOCK_DDP_CONFIG,
               "oarlock_ddp_model_options_init()");
  EXPECT(model == NULL);

  buffer.at_tensor = mean;
  binding_data(mean)[0] = oarlock_ddp_group_rank(group) + 3;
  oarlock_ddp_model_options_init(&options);
  options.gradient_as_bucket_view = 1;
  EXPECT_OK(oarlock_ddp_model_create(group, &parameter, 1, &buffer, 1, &options, &model, &error));
  EXPECT(binding_data(mean)[0] == 3);
  binding_data(mean)[0] = oarlock_ddp_group_rank(group) + 4;
  EXPECT_OK(oarlock_ddp_model_broadcast_buffers(model, &error));
  EXPECT(binding_data(mean)[0] == 4);
  one = binding_zeros(1, 1, 0);
  binding_data(one)[0] = 1;
  EXPECT_OK(oarlock_ddp_model_begin_forward(model, &error));
  output = binding_forward(one, one, weight);
  EXPECT_OK(oarlock_ddp_model_end_forward(model, &output, 1, &error));
  binding_backward(output);
  EXPECT(binding_gradient(weight)[0] < 0);
  EXPECT_OK(oarlock_ddp_model_zero_grad(model, &error));
  EXPECT(binding_gradient(weight) == NULL || binding_gradient(weight)[0] == 0);
  EXPECT_OK(oarlock_ddp_model_begin_forward(model, &error));
  binding_free(one);
  binding_free(output);
  oarlock_ddp_model_free(model);
  binding_free(weight);
  binding_free(mean);
}

static void check_sampler(void) {
  oarlock_ddp_sampler_options options;
  int64_t indices[6];
  int seen[11] = {0};
  size_t count = 0;
  int rank, i;
  oarlock_ddp_sampler_options_init(&options);
  EXPECT_ERROR(oarlock_ddp_sampler_indices(&options, 0, 0, NULL, 0, &count, &error), OARLOCK_DDP_DATA, "no samples");
  options.size = 11;
  options.world_size = 2;
  for (rank = 0; rank < 2; ++rank) {
    options.rank = rank;
    EXPECT_OK(oarlock_ddp_sampler_indices(&options, 3, 0, NULL, 0, &count, &error));
    EXPECT(count == 6);
    EXPECT_OK(oarlock_ddp_sampler_indices(&options, 3, 0, indices, 6, &count, &error));
    for (i = 0; i < 6; ++i) ++seen[indices[i]];
  }
  for (i = 0; i < 11; ++i) EXPECT(seen[i] >= 1);
  EXPECT_ERROR(oarlock_ddp_sampler_indices(&options, 3, 0, indices, 5, &count, &error), OARLOCK_DDP_CONFIG,
               "capacity 5");
  EXPECT_OK(oarlock_ddp_sampler_indices(&options, 3, 4, indices, 6, &count, &error));
  EXPECT(count == 4);
}

/* Ranks that the program describes: rank 0 of 2, and rank 1 does not exist. */
static void check_missing_rank(const char* port) {
  oarlock_ddp_group_options options;
  oarlock_ddp_group* group = NULL;
  oarlock_ddp_group_options_init(&options);
  options.rank = 0;
  options.world_size = 2;
  options.master_addr = "127.0.0.1";
  options.master_port = atoi(port);
  options.connect_timeout_seconds = 0.5;
  EXPECT_ERROR(oarlock_ddp_group_create(&options, &group, &error), OARLOCK_DDP_TEMPORARY, "1");
  options.rank = 2;
  EXPECT_ERROR(oarlock_ddp_group_create(&options, &group, &error), OARLOCK_DDP_CONFIG, "rank 2");
  EXPECT(group == NULL);
}

int main(int argc, char** argv) {
  oarlock_ddp_group* group = NULL;
  int32_t local_rank = -1;
  EXPECT(oarlock_ddp_abi_version() == OARLOCK_DDP_ABI_VERSION && strchr(oarlock_ddp_torch_version(), '.') != NULL);
  if (argc > 1) {
    check_missing_rank(argv[1]);
  } else {
    EXPECT_OK(oarlock_ddp_local_rank(&local_rank, &error));
    EXPECT(local_rank >= 0);
    EXPECT_OK(oarlock_ddp_group_create(NULL, &group, &error));
    check_collectives(group);
    check_models(group);
    check_sampler();
    oarlock_ddp_group_free(group);
  }
  puts("ok");
  return 0;
}
