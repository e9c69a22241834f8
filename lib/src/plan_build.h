/*
 * plan_build.h - the functions from which the kinds of plan are built, grouped by the file that
 * defines them. Each checks what it is given. If one fails, attn_plan_free() frees the plan that is
 * not complete.
 */
#ifndef ATTN_PLAN_BUILD_H
#define ATTN_PLAN_BUILD_H

#include "plan.h"

enum {
    /* The least multiply-adds of one task: about 3 us, more than the time to hand it out. */
    TASK_WORK = 1 << 18,
    /* The most multiply-adds of one task: about 13 ms, because other calls want their turn and a
     * call may be cancelled. */
    TASK_MOST = 1 << 30,
    MOST_TASKS = 1 << 16 /* A phase has more tasks only if its tasks would be too long otherwise. */
};

/* ----------------------------------------------------------------------- in schedule_linear.c */

/* Cuts a plan of linear attention, whose lines are listed, into phases of tasks, lays out its
 * memory, and estimates its cost. With lengths, some results are to be cleared. */
attn_status plan_schedule_linear(attn_plan *plan, bool lengths, attn_error *error);

/* --------------------------------------------------------------------------- in plan_memory.c */

/* Allocates an empty plan. */
attn_status plan_new(attn_plan **plan, attn_error *error);

/* Returns zeroed memory of `count` elements of `size` bytes, whose product fits, or NULL. The plan
 * owns it. */
void *plan_alloc(attn_plan *plan, size_t count, size_t size);

/* Returns `status`. If it is an error, the plan is freed, and becomes NULL. */
attn_status plan_or_free(attn_plan **plan, attn_status status);

/* Checks a number of heads against the most that are possible. */
attn_status plan_check_heads(const attn_plan *plan, size_t heads, attn_error *error);

/* Makes room to bind so many weights and biases of projections. */
attn_status plan_new_weights(attn_plan *plan, size_t count, attn_error *error);

/* Checks plan->heads, and allocates plan->head for as many. */
attn_status plan_new_heads(attn_plan *plan, attn_error *error);

/* ---------------------------------------------------------------------------- in plan_build.c */

/* Completes a plan whose sizes, heads and operands are known: its options, its results, its
 * schedule and its cost. The last two of a call of sequences are left to plan_sequences(). */
attn_status plan_finish(attn_plan *plan, const attn_options *o, attn_error *error);

/* ------------------------------------------------------------------------ in plan_attention.c */

/* Plans attention over given Q, K and V. */
attn_status plan_attention(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                           const attn_tensor *v, const attn_options *o, attn_error *error);

/* Checks Q, K and V of linear attention against each other, and makes them operands of the plan.
 * `heads` are those of packed matrices, or zeros. */
attn_status plan_matrices(attn_plan *plan, const attn_tensor *const qkv[3], const size_t heads[3],
                          attn_error *error);

/* The four sizes of a matrix, whatever its form. */
struct dims {
    size_t batch, heads, rows, columns; /* columns of one head */
};

/* Checks that past_K and past_V are both given, or neither. */
attn_status plan_check_past(const attn_options *o, attn_error *error);

/* Checks past_K and past_V against the sizes of K and V, and makes them operands of the plan. */
attn_status plan_past(attn_plan *plan, const attn_options *o, struct dims k, struct dims v,
                      bool packed, attn_error *error);

/* ------------------------------------------------------------------------ in plan_multihead.c */

/* Plans attention with projections. */
attn_status plan_multihead(attn_plan **plan, const attn_multihead *call, const attn_options *o,
                           attn_error *error);

/* ----------------------------------------------------------------------------- in plan_wide.c */

/* Makes the wide plan of a small call, whose results are known, but not its schedule. */
attn_status plan_wide(attn_plan *plan, attn_error *error);

/* ------------------------------------------------------------------------ in plan_sequences.c */

/* Plans attention over packed sequences. */
attn_status plan_sequences(attn_plan **plan, const attn_tensor *const qkv[3], const attn_options *o,
                           attn_error *error);

/* Checks Q, K and V of sequences, whose axes are (rows, columns), or (rows, heads, columns) if the
 * options have no heads. There may be no rows. */
attn_status plan_check_packed(const attn_tensor *const qkv[3], const char *const names[3],
                              const attn_options *o, attn_error *error);

/* Checks the number of sequences, and that their queries are the rows of a matrix. `stacked`: its
 * heads are an axis. */
attn_status plan_check_sequences(const attn_sequences *s, const char *name, size_t rows,
                                 bool stacked, attn_error *error);

/* Makes (rows,heads*columns) of (rows,heads,columns), which was checked, and such a part again of a
 * part (rows,heads*columns). */
attn_tensor plan_flattened(const attn_tensor *t);
void plan_stack(attn_result_tensor *part, size_t heads);

/* -------------------------------------------------------------------------- in plan_options.c */

/* Finds the number of key heads for so many query heads, and checks that it divides them. */
attn_status plan_kv_heads(const attn_options *o, size_t heads, size_t *kv_heads, attn_error *error);

/* Reads the numbers of alibi and sink, and the positions of rotary embedding, which the caller may
 * have changed since the last run. Fails with ATTN_INVALID_ARGUMENT if a slope or sink is not
 * finite. */
attn_status plan_read_numbers(const attn_plan *plan, const struct bindings *bindings,
                              attn_error *error);

/* Checks that each batch item has a length, or none has, and that no length is above `most`, the
 * number of `what`. */
attn_status plan_check_lengths(const attn_plan *plan, const attn_options *o, size_t most,
                               const char *what, attn_error *error);

/* Returns the axis of a decay that has the keys. Beside packed rows an axis of 1 may follow that of
 * the heads. */
int plan_decay_axis(const attn_plan *plan, const attn_tensor *t);

/* Gives each head its scale. */
attn_status plan_scale(attn_plan *plan, const attn_options *o, attn_error *error);

/* Resolves all options against the sizes and the heads of the plan. */
attn_status plan_options(attn_plan *plan, const attn_options *o, attn_error *error);

/* --------------------------------------------------------------------------- in plan_inputs.c */

/* Binds an input. It may have no numbers, and then it counts as none. */
void plan_bind_input(attn_plan *plan, int which, const void *data);

/* Returns the input that a gradient is about, or NULL if the call lacks it. It is not about weights
 * of Q, K or V. */
const attn_tensor *plan_input_of(const attn_plan *plan, attn_result gradient);

/* Lists all inputs that a run copies: with `exact` those that a compute_dtype does not round, too.
 * */
attn_status plan_copy_inputs(attn_plan *plan, bool exact, struct copies *copies, attn_error *error);

/* --------------------------------------------------------------------------- in plan_narrow.c */

/* Chooses the type of a compute_dtype. */
attn_status plan_compute_dtype(attn_plan *plan, const attn_options *o, attn_error *error);

/* Lets a call with a compute_dtype round its inputs. Its schedule is known. The plans of sequences
 * take rounded rows of the call as a whole, see packed/sequences.c. */
attn_status plan_narrow(attn_plan *plan, attn_error *error);

/* Fails because a number of an input is too large for the type. */
attn_status narrow_fail(const struct narrow_type *type, const char *name, double number,
                        attn_error *error);

/* --------------------------------------------------------------------------- in plan_rotary.c */

/* Checks norm_q, norm_k and rotary. The heads, the sizes and plan_position() are known. */
attn_status plan_rotary(attn_plan *plan, const attn_options *o, attn_error *error);

/* Computes the frequencies of rotary embedding for the positions of a run. */
void plan_frequencies(const attn_plan *plan, const struct bindings *bindings);

/* -------------------------------------------------------------------------- in plan_results.c */

/* Allocates the parts of all wanted results, and gives each its shape and dtype. */
attn_status plan_results(attn_plan *plan, attn_error *error);

/* Gives `part` the shape and the dtype of a result that does not have the form of Q, K or V. */
void plan_shape(const attn_plan *plan, attn_result which, attn_result_tensor *part);

/* Returns the numbers of a row of a result of sequences. A row of lse or entropy is a query of one
 * head. */
size_t plan_row_numbers(const attn_plan *plan, attn_result which);

/* Adds the bytes of a part to those of a buffer for all results. Returns false if the part alone is
 * larger than any buffer. */
bool plan_add_bytes(attn_plan *plan, const attn_result_tensor *part);

/* Binds all parts to one buffer, see attn_plan_bind_all. */
void plan_bind_results(const attn_plan *plan, char *buffer, struct bindings *bindings);

/* ------------------------------------------------------------------------------ in schedule.c */

/* Returns the columns of a panel of the right operands of this dtype, see kernels.h; 0 if OpenBLAS
 * computes the products. */
size_t plan_panel(attn_dtype dtype);

/* Cuts the work into phases of tasks, lays out the memory of a run, and estimates its cost. */
attn_status plan_schedule(attn_plan *plan, attn_error *error);

/* Is a call so small that it is computed in double? */
bool plan_is_small(const attn_plan *plan);

/* -------------------------------------------------------------------------- in plan_gradients.c */

/* Checks whether a call has what the wanted gradients need. */
attn_status plan_check_gradients(attn_plan *plan, const attn_options *o, attn_error *error);

/* Checks the gradient of a result, if it is given, against the shape of that result, and binds
 * it. */
attn_status plan_bind_upstream(attn_plan *plan, const attn_tensor *given, const char *name,
                               const attn_result_tensor *result, int which, attn_error *error);

/* Checks and binds the given gradients of results. */
attn_status plan_upstream(attn_plan *plan, const attn_options *o, attn_error *error);

/* Cuts the computation of the gradients. The widest row has d numbers. */
void plan_cut_gradients(attn_plan *plan, size_t d);

/* ---------------------------------------------------------------------------- in plan_empty.c */

/* Checks that the results of a call with an empty axis exist. */
attn_status plan_check_empty(const attn_plan *plan, attn_error *error);

/* Counts the tasks that fill the results of a call with an empty axis. They are PHASE_ATTEND. */
size_t plan_count_fills(const attn_plan *plan);

/* The cost of these tasks. */
double plan_cost_of_fills(const attn_plan *plan);

/* Runs one of these tasks. */
attn_status plan_fill(const attn_plan *plan, const struct bindings *bindings, size_t task,
                      attn_error *error);

/* ---------------------------------------------------------------------------- in memory_map.c */

/* These functions lay out the workspace, and a scratch for heads whose widest d and d_v are given.
 * The size of a scratch has a bound for all calls, because rows that would be too large are long
 * rows. Both return false if the memory cannot be addressed. */
bool memory_map_workspace(attn_plan *plan);
bool memory_map_scratch(attn_plan *plan, size_t d, size_t d_v);

/* ---------------------------------------------------------------------------------- in cost.c */

/* The costs of the parts of a run. Each function reads only those fields of the schedule that are
 * known when it is called. */
double cost_of_row(const attn_plan *plan);                          /* one query of one head */
double cost_of_attending(const attn_plan *plan);                    /* PHASE_ATTEND */
double cost_of_preparing(const attn_plan *plan, enum prepare what); /* one row */
double cost_of_packing(const attn_plan *plan);
double cost_of_copying(double numbers, double rows); /* the matrix of a head */
double cost_of_merging(const attn_plan *plan);
double cost_of_ranking(const attn_plan *plan);
double cost_of_projecting(const struct projection *p, size_t rows, size_t columns);
double cost_of_plan(const attn_plan *plan);
double cost_of_narrowing(const attn_plan *plan); /* PHASE_NARROW and its memory */
double cost_of_softmax(const attn_plan *plan);

/* Cuts units, which cost `cost` together, into tasks. */
struct cut plan_cut(size_t units, double cost);

#endif
