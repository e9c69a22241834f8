/* plan_memory.c makes and frees plans, and the memory that a plan owns. */
#include "plan_memory.h"

#include <stdlib.h>

#include "base/status.h"
#include "packed/plan_sequences.h"

enum {
    /* Each head takes memory, and a caller can refuse a plan only after it is made. */
    MAX_HEADS = 65536
};

attn_status plan_new(attn_plan **plan, attn_error *error) {
    *plan = calloc(1, sizeof **plan);
    return *plan == NULL ? attn_no_memory(error) : ATTN_OK;
}

/* Memory that a plan owns beside its workspace. */
struct plan_memory {
    struct plan_memory *next;
    double data[]; /* has the alignment of all that plans keep */
};

void *plan_alloc(attn_plan *plan, size_t count, size_t size) {
    const size_t bytes = sizeof(struct plan_memory) + count * size;
    struct plan_memory *memory = calloc(1, bytes);
    if (memory == NULL) {
        return NULL;
    }
    memory->next = plan->memory;
    plan->memory = memory;
    plan->bytes += bytes;
    return memory->data;
}

void attn_plan_free(attn_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (size_t i = 0; plan->sequences != NULL && i < plan->sequences->class_count; i++) {
        attn_plan_free(plan->sequences->classes[i].plan);
    }
    for (struct plan_memory *next; plan->memory != NULL; plan->memory = next) {
        next = plan->memory->next;
        free(plan->memory);
    }
    free(plan->bindings.workspace);
    free(plan);
}

attn_status plan_or_free(attn_plan **plan, attn_status status) {
    if (status != ATTN_OK) {
        attn_plan_free(*plan);
        *plan = NULL;
    }
    return status;
}

attn_status plan_check_heads(const attn_plan *plan, size_t heads, attn_error *error) {
    return heads <= MAX_HEADS
               ? ATTN_OK
               : attn_fail(error, ATTN_TOO_LARGE, plan->form.per_head ? "heads" : "",
                           "there are %zu heads; at most %d are possible", heads, MAX_HEADS);
}

attn_status plan_new_heads(attn_plan *plan, attn_error *error) {
    ATTN_TRY(plan_check_heads(plan, plan->heads, error));
    plan->head =
        plan->heads == 1 ? &plan->one_head : plan_alloc(plan, plan->heads, sizeof *plan->head);
    return plan->head == NULL ? attn_no_memory(error) : ATTN_OK;
}

attn_status plan_new_weights(attn_plan *plan, size_t count, attn_error *error) {
    plan->weights = count;
    plan->bindings.weights = plan_alloc(plan, count, sizeof *plan->bindings.weights);
    return plan->bindings.weights == NULL ? attn_no_memory(error) : ATTN_OK;
}
