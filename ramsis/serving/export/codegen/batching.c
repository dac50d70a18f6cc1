/* Batching by size inside Triton Inference Server: the five functions of a custom batching library.
 *
 * Written by `ramsis export triton --batching` (@version@); do not edit. Compile it as a shared
 * library, without Triton's headers, and name that in config.pbtxt as TRITON_BATCH_STRATEGY_PATH.
 *
 * Triton offers the requests of its queue in turn. One joins the batch while the batch then takes
 * at most @limit_ms@ ms, and no longer than without it and the request alone one after the other.
 * What is refused begins the next batch.
 */
@tables@
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MS @limit_ms@
#define SIZE_INPUT @input@ /* whose shape has the size, or "" */
#define SIZE_AXIS @axis@
#define SIZE_PARAMETER @parameter@ /* of a request that has the size, or "" */

/* ---- Of libtritonserver.so ---------------------------------------------------------------- */

typedef void error; /* NULL is success */

extern void TRITONSERVER_ErrorDelete(error *problem);
extern error *TRITONBACKEND_RequestInputByIndex(void *request, uint32_t index, void **input);
extern error *TRITONBACKEND_RequestInput(void *request, const char *name, void **input);
extern error *TRITONBACKEND_InputProperties(void *input, const char **name, int *datatype,
                                            const int64_t **shape, uint32_t *dimensions,
                                            uint64_t *bytes, uint32_t *buffers);
extern error *TRITONBACKEND_RequestParameterCount(void *request, uint32_t *count);
extern error *TRITONBACKEND_RequestParameter(void *request, uint32_t index, const char **name,
                                             int *type, const void **value);
enum { TYPE_INT = 1 };

/* ---- The batch ---------------------------------------------------------------------------- */

/* Triton forms one batch at a time for a model, whose state is here. */
typedef struct {
    void **slot; /* where Triton keeps our pointer: another place for another batch */
    int64_t count;
    int64_t size; /* longest or total */
    double time_ms;
} state;

static bool succeeds(error *problem)
{
    if (problem != NULL)
        TRITONSERVER_ErrorDelete(problem);
    return problem == NULL;
}

/* Read queries and size of a request; a size that is not there is larger than any. */
static void read_request(void *request, int64_t *queries, int64_t *size)
{
    const char *const input_name = SIZE_INPUT, *const parameter = SIZE_PARAMETER;
    const bool by_shape = input_name[0] != 0;
    void *input = NULL;
    const int64_t *shape = NULL;
    uint32_t dimensions = 0, count = 0, k;
    *queries = 1;
    *size = INT64_MAX / 2;
    if (succeeds(by_shape ? TRITONBACKEND_RequestInput(request, input_name, &input)
                          : TRITONBACKEND_RequestInputByIndex(request, 0, &input))
        && succeeds(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &dimensions, NULL,
                                                  NULL))
        && dimensions > 0) {
        *queries = shape[0];
        if (by_shape && dimensions > SIZE_AXIS)
            *size = shape[SIZE_AXIS];
    }
    if (by_shape || !succeeds(TRITONBACKEND_RequestParameterCount(request, &count)))
        return;
    for (k = 0; k < count; k++) {
        const char *name = NULL;
        const void *value = NULL;
        int type = 0;
        if (succeeds(TRITONBACKEND_RequestParameter(request, k, &name, &type, &value))
            && type == TYPE_INT && strcmp(name, parameter) == 0)
            *size = *(const int64_t *)value;
    }
}

static double batch_ms(int64_t count, int64_t size)
{
    const ramsis_sized *policy = ramsis_sized_policies;
    const int64_t largest = policy->padded ? policy->edges[policy->classes - 1]
                                           : policy->sizes[policy->places - 1];
    const bool known = count >= 1 && count <= policy->counts && size >= 1 && size <= largest;
    return known ? ramsis_batch_ms_(policy, 0, count, (double)size) : HUGE_VAL;
}

static bool joins(state *batch, int64_t queries, int64_t size)
{
    const bool padded = ramsis_sized_policies->padded;
    const int64_t request = padded || size > INT64_MAX / 4 / queries ? size : queries * size;
    const int64_t count = batch->count + queries;
    int64_t together = padded && batch->size > request ? batch->size : request;
    const double alone_ms = batch_ms(queries, request);
    double time_ms;
    if (!padded)
        together += batch->size;
    time_ms = batch_ms(count, together);
    if (batch->count > 0
        && !(time_ms <= LIMIT_MS && time_ms <= batch->time_ms + alone_ms))
        return false;
    batch->count = count;
    batch->size = together;
    batch->time_ms = time_ms;
    return true;
}

/* ---- What Triton calls --------------------------------------------------------------------- */

error *TRITONBACKEND_ModelBatcherInitialize(void **batcher, void *model)
{
    (void)model;
    *batcher = calloc(1, sizeof(state));
    return NULL;
}

error *TRITONBACKEND_ModelBatcherFinalize(void *batcher)
{
    free(batcher);
    return NULL;
}

/* Called again for a batch that waits for an instance, before more requests are offered. */
error *TRITONBACKEND_ModelBatchInitialize(const void *batcher, void **slot)
{
    state *batch = (state *)(uintptr_t)batcher;
    if (batch != NULL && batch->slot != slot) {
        const state empty = {slot, 0, 0, 0};
        *batch = empty;
    }
    *slot = batch;
    return NULL;
}

error *TRITONBACKEND_ModelBatchIncludeRequest(void *request, void *batch, bool *should_include)
{
    int64_t queries, size;
    read_request(request, &queries, &size);
    *should_include = batch != NULL && joins((state *)batch, queries < 1 ? 1 : queries, size);
    return NULL;
}

error *TRITONBACKEND_ModelBatchFinalize(void *batch)
{
    (void)batch;
    return NULL;
}
