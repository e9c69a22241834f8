/* scaled.c - see scaled.h. */
#include "api/call/scaled.h"

#include <stdio.h>
#include <string.h>

#include "api/call/call.h"
#include "api/call/field.h"

enum {
    CHUNK_NUMBERS = 1 << 20, /* numbers that one task multiplies */
    COST_OF_NUMBER = 100     /* multiply-adds that take as long as multiplying a number */
};

/* Writes a shape as "(2, 3)". */
static void put_shape(char *out, size_t size, const attn_tensor *t) {
    size_t used = 0;
    for (int axis = 0; axis < t->rank; axis++) {
        used += (size_t)snprintf(out + used, size - used, "%s%zu", axis == 0 ? "(" : ", ",
                                 t->shape[axis]);
    }
    snprintf(out + used, size - used, ")");
}

/* Refuses a scale whose axes do not divide those of its matrix, and gives one that is a single
 * number as many axes as the matrix. */
static bool check_blocks(const struct codec_document *document, const struct codec_value *value,
                         const char *name, const attn_tensor *t, attn_tensor *scale,
                         struct codec_error *error) {
    char shape[192], own[192];
    bool fits = scale->rank == t->rank;
    put_shape(shape, sizeof shape, t);
    put_shape(own, sizeof own, scale);
    if (codec_count(scale->rank, scale->shape) == 1) {
        scale->rank = t->rank;
        for (int axis = 0; axis < t->rank; axis++) {
            scale->shape[axis] = 1;
        }
        return true;
    }
    for (int axis = 0; fits && axis < t->rank; axis++) {
        const size_t blocks = scale->shape[axis], all = t->shape[axis];
        fits = blocks == all || (blocks > 0 && all % blocks == 0);
    }
    return fits || codec_fail(document, value, error,
                              "%s has the shape %s, which does not divide %s of %s: each axis of "
                              "%s is a whole number of blocks of one size (fill up a block with "
                              "zeros if it is not)",
                              codec_name(value), own, shape, name, name);
}

/* Reads a scale. The row says where the call has the matrix. Only the blocks of excluded rows may
 * have a scale that is not finite. */
bool field_scaled(struct call *call, struct codec_document *document, const struct field *field,
                  const struct codec_value *value, struct codec_error *error) {
    const attn_tensor *t = *(const attn_tensor *const *)((const char *)call + field->pointer);
    const size_t size = strlen(field->name) - strlen("_scale");
    size_t special = SIZE_MAX;
    char name[16];
    snprintf(name, sizeof name, "%.*s", (int)size, field->name);
    if (t == NULL) {
        return codec_fail(document, value, error, "%s is given without %s", field->name, name);
    }
    if (call->scaled == NULL) {
        call->scaled = account_alloc(codec_document_account(document), sizeof *call->scaled);
        if (call->scaled == NULL) {
            return codec_no_memory(error);
        }
        *call->scaled = (struct scaled){0};
    }
    struct scaled_tensor *own = &call->scaled->list[call->scaled->count++];
    own->value = codec_get(codec_root(document), name);
    own->count = codec_count(t->rank, t->shape);
    own->tasks = (own->count + CHUNK_NUMBERS - 1) / CHUNK_NUMBERS;
    const bool good = codec_kind_of(value) == CODEC_NUMBER
                          ? codec_as_real(document, value, &own->number, &own->scale, error)
                          : codec_as_rows(document, value, field->least, field->most, &own->scale,
                                          &special, error);
    return good && check_blocks(document, value, name, t, &own->scale, error) &&
           excluded_note(call, document, own->value, t, SIZE_MAX, error);
}

/* -------------------------------------------------------------------------------------- the job */

static size_t scaled_tasks(const void *call, size_t phase) {
    const struct scaled *s = ((const struct call *)call)->scaled;
    size_t tasks = 0;
    (void)phase;
    for (size_t i = 0; i < s->count; i++) {
        tasks += s->list[i].tasks;
    }
    return tasks;
}

static bool scaled_run(void *call, const struct jobs_task *task) {
    const struct scaled_tensor *t = ((const struct call *)call)->scaled->list;
    size_t index = task->index;
    for (; index >= t->tasks; t++) {
        index -= t->tasks;
    }
    const size_t first = index * CHUNK_NUMBERS, left = t->count - first;
    codec_scale(t->value, &t->scale, first, first + (left < CHUNK_NUMBERS ? left : CHUNK_NUMBERS));
    return true;
}

double scaled_cost(const struct call *call) {
    double cost = 0;
    for (size_t i = 0; call->scaled != NULL && i < call->scaled->count; i++) {
        cost += (double)call->scaled->list[i].count * COST_OF_NUMBER;
    }
    return cost;
}

struct job_phases **scaled_add_phases(struct call *call, struct job_phases **end) {
    struct scaled *s = call->scaled;
    if (s == NULL) {
        return end;
    }
    s->phases = (struct job_phases){NULL, 1, scaled_tasks, scaled_run, call};
    *end = &s->phases;
    return &s->phases.next;
}
