/*
 * field_readers.c - reads counts, and the options of a call whose values have a form of their own
 * or depend on another option.
 */
#include "api/call/field.h"

#include <string.h>

enum {
    /* Numbers. A longer list of lengths is refused before it is read, if no call can have so many
     * batch items. */
    LONG_LIST = 4096,
    MOST_HEADS = 65536 /* the library takes no more */
};

bool field_count(const struct codec_document *document, const struct codec_value *value,
                 size_t *count, struct codec_error *error) {
    int64_t number;
    if (!codec_as_integer(document, value, 1, INT64_MAX, &number, error)) {
        return false;
    }
    *count = (size_t)number;
    return true;
}

/* Refuses a result that other endpoints have. */
static bool refuse_result(const struct codec_document *document, const struct field *field,
                          const struct codec_value *item, size_t which, struct codec_error *error) {
    const char *rule = "a result of calls with projections only, such as /self-attention";
    if (answer_at[which] == FIELDS_AT_LINEAR) {
        rule = "a result of /linear-attention only";
    } else if (field->at == FIELDS_AT_LINEAR && (answer_at[which] & FIELDS_AT_ATTENTION) != 0) {
        rule = which == ANSWER_GRAD_X ? "no result here: it is the sum of grad_Q, grad_K and grad_V"
                                      : "a result of /attention, which has a list of keys";
    } else if (field->at == FIELDS_AT_LAYER) {
        rule = "the gradient of stored weights, which this service does not compute";
    }
    return codec_fail(document, item, error, "%s is %s", answer_names[which], rule);
}

/* Says which result has the name that other programs have for it. The error is set. */
static bool refuse_foreign(const struct codec_document *document, const struct field *field,
                           const struct codec_value *item, struct codec_error *error) {
    const struct codec_foreign *row = fields_foreign_results;
    const char *text = "";
    struct codec_error unused;
    if (field->choice_count == 1 || !codec_as_text(document, item, &text, &unused)) {
        return false;
    }
    for (size_t i = 0; i < fields_foreign_results_count; i++, row++) {
        if ((row->where & FIELDS_IN_RETURN) != 0 && strcmp(text, row->name) == 0) {
            return codec_fail(document, item, error, "there is no result \"%s\"; %s", text,
                              row->hint);
        }
    }
    return false;
}

/* Reads the name of a result. *which is its index in answer_names. */
static bool read_result(const struct codec_document *document, const struct field *field,
                        const struct codec_value *item, size_t *which, struct codec_error *error) {
    struct codec_error unused;
    size_t choice;
    const bool known = codec_as_choice(document, item, answer_names, ANSWER_COUNT, which, &unused);
    if (codec_as_choice(document, item, field->choices, field->choice_count, &choice, error)) {
        return true;
    }
    return known ? refuse_result(document, field, item, *which, error)
                 : refuse_foreign(document, field, item, error);
}

bool field_return(struct call *call, struct codec_document *document, const struct field *field,
                  const struct codec_value *value, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_ARRAY || codec_size(value) == 0) {
        return codec_refuse(document, value, "an array of names such as [\"output\", \"weights\"]",
                            error);
    }
    call->return_count = 0;
    call->options.results = 0;
    for (const struct codec_value *item = codec_at(value, 0); item != NULL;
         item = codec_next(item)) {
        size_t which;
        if (!read_result(document, field, item, &which, error)) {
            return false;
        }
        for (size_t i = 0; i < call->return_count; i++) {
            if (call->returned[i] == (enum answer_name)which) {
                return codec_fail(document, item, error, "return names \"%s\" twice",
                                  answer_names[which]);
            }
        }
        call->returned[call->return_count++] = (enum answer_name)which;
        call->options.results |= answer_bits[which];
    }
    return true;
}

bool field_mean_over_heads(struct call *call, struct codec_document *document,
                           const struct field *field, const struct codec_value *value,
                           struct codec_error *error) {
    bool mean = false;
    (void)field;
    if (!codec_as_bool(document, value, &mean, error)) {
        return false;
    }
    if (mean && (call->options.results & ATTN_WANT(WEIGHTS)) == 0) {
        return codec_fail(document, value, error,
                          "mean_over_heads is true but return does not name \"weights\"");
    }
    call->options.flags |= mean ? ATTN_FLAG_MEAN_OVER_HEADS : 0u;
    return true;
}

bool field_top_k(struct call *call, struct codec_document *document, const struct field *field,
                 const struct codec_value *value, struct codec_error *error) {
    (void)field;
    if ((call->options.results & ATTN_WANT(TOP_K_INDICES)) == 0) {
        return codec_fail(document, value, error,
                          "top_k is given but return does not name \"top_k\"");
    }
    return field_count(document, value, &call->options.top_k, error);
}

bool field_causal(struct call *call, struct codec_document *document, const struct field *field,
                  const struct codec_value *value, struct codec_error *error) {
    attn_options *o = &call->options;
    const char *text = "";
    (void)field;
    if (codec_kind_of(value) == CODEC_TEXT && codec_as_text(document, value, &text, error) &&
        strcmp(text, "bottom_right") == 0) {
        o->causal = true;
        o->flags |= ATTN_FLAG_BOTTOM_RIGHT;
        return true;
    }
    if (codec_kind_of(value) != CODEC_BOOL) {
        return codec_refuse(document, value, "true, false or \"bottom_right\"", error);
    }
    return codec_as_bool(document, value, &o->causal, error);
}

/* A state holds what came before, so linear attention is always causal. */
bool field_always_causal(struct call *call, struct codec_document *document,
                         const struct field *field, const struct codec_value *value,
                         struct codec_error *error) {
    const char *text = "";
    bool causal = false;
    (void)call;
    (void)field;
    if (codec_kind_of(value) == CODEC_TEXT && codec_as_text(document, value, &text, error) &&
        strcmp(text, "bottom_right") == 0) {
        return codec_fail(document, value, error,
                          "causal is \"bottom_right\", but in linear attention each query stands "
                          "at the key of the same position: leave it out");
    }
    if (codec_kind_of(value) != CODEC_BOOL) {
        return codec_refuse(document, value, "true", error);
    }
    return (codec_as_bool(document, value, &causal, error) && causal) ||
           codec_fail(document, value, error,
                      "causal is false, but linear attention is always causal: its state holds "
                      "only what came before");
}

/* Decay and beta say which update it is if this key is not given. */
bool field_update(struct call *call, struct codec_document *document, const struct field *field,
                  const struct codec_value *value, struct codec_error *error) {
    size_t which;
    if (!codec_as_choice(document, value, field->choices, field->choice_count, &which, error)) {
        return false;
    }
    call->linear.update = (attn_update)(ATTN_LINEAR + which);
    return true;
}

/* The first choice is the first type to which anything is rounded. */
bool field_compute_dtype(struct call *call, struct codec_document *document,
                         const struct field *field, const struct codec_value *value,
                         struct codec_error *error) {
    size_t which;
    if (!codec_as_choice(document, value, field->choices, field->choice_count, &which, error)) {
        return false;
    }
    call->options.compute_dtype = (attn_compute_dtype)(ATTN_COMPUTE_FLOAT16 + which);
    return true;
}

/* "alignment" says where the queries stand, with causal or without it. */
bool field_alignment(struct call *call, struct codec_document *document, const struct field *field,
                     const struct codec_value *value, struct codec_error *error) {
    attn_options *o = &call->options;
    size_t which;
    if (!codec_as_choice(document, value, field->choices, field->choice_count, &which, error)) {
        return false;
    }
    if (which == FIELD_BOTTOM_RIGHT) {
        o->flags |= ATTN_FLAG_BOTTOM_RIGHT;
    } else if (o->causal && (o->flags & ATTN_FLAG_BOTTOM_RIGHT) != 0) {
        return codec_fail(document, value, error,
                          "alignment is \"top_left\", but causal is \"bottom_right\"");
    }
    return true;
}

bool field_window(struct call *call, struct codec_document *document, const struct field *field,
                  const struct codec_value *value, struct codec_error *error) {
    int64_t sides[2];
    size_t count;
    (void)field;
    if (!codec_as_integers(document, value, -1, INT32_MAX, sides, 2, &count, error)) {
        return false;
    }
    if (count != 2) {
        return codec_fail(document, value, error,
                          "window must be two numbers, [left, right], but it has %zu", count);
    }
    call->options.flags |= ATTN_FLAG_WINDOW;
    call->options.window[0] = sides[0];
    call->options.window[1] = sides[1];
    return true;
}

/* A number is the scale of all heads. The scale of a stored layer counts no longer. */
bool field_scale(struct call *call, struct codec_document *document, const struct field *field,
                 const struct codec_value *value, struct codec_error *error) {
    attn_options *o = &call->options;
    (void)field;
    if (codec_kind_of(value) == CODEC_NUMBER) {
        o->flags |= ATTN_FLAG_SCALE;
        return codec_as_number(document, value, &o->scale, error);
    }
    if (codec_kind_of(value) != CODEC_TENSOR && codec_kind_of(value) != CODEC_ARRAY) {
        return codec_refuse(document, value, "a number, or an array with one for each head", error);
    }
    o->flags &= ~(unsigned)ATTN_FLAG_SCALE;
    return codec_as_numbers(document, value, MOST_HEADS, &o->scales, &o->scales_count, error);
}

/* "alibi": true stands for the slopes of the ALiBi paper. */
bool field_alibi(struct call *call, struct codec_document *document, const struct field *field,
                 const struct codec_value *value, struct codec_error *error) {
    bool on = false;
    if (codec_kind_of(value) == CODEC_BOOL) {
        codec_as_bool(document, value, &on, error);
        call->options.flags |= on ? ATTN_FLAG_ALIBI : 0u;
        return true;
    }
    if (codec_kind_of(value) != CODEC_TENSOR) {
        return codec_refuse(document, value, "true, false or an array with one slope for each head",
                            error);
    }
    call->options.alibi_slopes = &call->tensors.alibi_slopes;
    return codec_as_reals(document, value, field->least, field->most, &call->tensors.alibi_slopes,
                          error);
}

/* A sink is one logit for each head. A plain number is the sink of one head. */
bool field_sink(struct call *call, struct codec_document *document, const struct field *field,
                const struct codec_value *value, struct codec_error *error) {
    attn_tensor *sink = &call->tensors.sink;
    call->options.sink = sink;
    if (codec_kind_of(value) != CODEC_NUMBER) {
        return codec_as_reals(document, value, field->least, field->most, sink, error);
    }
    return codec_as_real(document, value, &call->scalar, sink, error);
}

/* Returns the most batch items that the call can have, by the axes of its X, Q, K and V. */
static size_t most_items(const struct call *call) {
    enum {
        INPUTS = 4
    };
    const attn_tensor *const inputs[INPUTS] = {call->multihead.x, call->q, call->k, call->v};
    size_t most = 1;
    for (int i = 0; i < INPUTS; i++) {
        const int axes = inputs[i] != NULL ? inputs[i]->rank - 2 : 0;
        const size_t items = axes > 0 ? codec_count(axes, inputs[i]->shape) : 1;
        most = items > most ? items : most;
    }
    return most;
}

bool field_lengths(struct call *call, struct codec_document *document, const struct field *field,
                   const struct codec_value *value, struct codec_error *error) {
    size_t count;
    int64_t length;
    (void)field;
    if (!codec_as_integers(document, value, 0, INT32_MAX, &length, 1, &count, error)) {
        return false;
    }
    if (count > LONG_LIST && count > most_items(call)) { /* the library refuses shorter lists */
        return codec_fail(document, value, error,
                          "lengths has %zu numbers; it must have one for each batch item", count);
    }
    size_t *lengths = account_alloc(codec_document_account(document), count * sizeof *lengths);
    if (lengths == NULL) {
        return codec_no_memory(error);
    }
    call->options.lengths = lengths;
    call->options.lengths_count = count;
    return codec_as_integers(document, value, 0, INT32_MAX, (int64_t *)lengths, count, &count,
                             error);
}

/* Reads lists of whole numbers for Q and K, or one for both, into memory of the account. With
 * `offsets` a list has one number more than there are sequences. */
static bool read_lists(const struct codec_document *document, const struct codec_value *value,
                       bool offsets, struct codec_integers *lists, struct codec_error *error) {
    int64_t first;
    size_t shape[ATTN_MAX_RANK];
    *lists = (struct codec_integers){.numbers = &first, .most = 1, .lists = 1};
    if (codec_shape(value, shape) == 1) {
        return codec_fail(document, value, error,
                          "%s must be an array of one list for Q and K, such as [[%s]], or of one "
                          "for each",
                          codec_name(value), offsets ? "0, 5, 8" : "5, 3");
    }
    if (!codec_as_integer_lists(document, value, 0, INT32_MAX, lists, error)) {
        return false;
    }
    const size_t each = lists->count / lists->lists;
    if (lists->lists > 2) {
        return codec_fail(document, value, error,
                          "%s has %zu lists; it must have one list for Q and K, or one for each",
                          codec_name(value), lists->lists);
    }
    if (each > ATTN_MAX_SEQUENCES + (size_t)offsets) {
        return codec_fail(document, value, error,
                          "%s has %zu numbers; at most %d sequences are possible",
                          codec_name(value), each, ATTN_MAX_SEQUENCES);
    }
    lists->most = lists->count;
    lists->numbers =
        account_alloc(codec_document_account(document), lists->count * sizeof(int64_t));
    return lists->numbers == NULL
               ? codec_no_memory(error)
               : codec_as_integer_lists(document, value, 0, INT32_MAX, lists, error);
}

/* Gives the call `count` lengths, which are the first numbers of each list. */
static void keep_sequences(struct call *call, const struct codec_integers *lists, size_t count) {
    const size_t *lengths = (const size_t *)lists->numbers;
    call->sequences = (attn_sequences){.count = count, .queries = lengths};
    call->sequences.keys = lists->lists == 2 ? lengths + lists->count / 2 : NULL;
    call->options.sequences = &call->sequences;
}

bool field_sequences(struct call *call, struct codec_document *document, const struct field *field,
                     const struct codec_value *value, struct codec_error *error) {
    struct codec_integers lists;
    (void)field;
    if (!read_lists(document, value, false, &lists, error)) {
        return false;
    }
    keep_sequences(call, &lists, lists.count / lists.lists);
    return true;
}

/* Replaces the offsets of a list by lengths, which are one fewer. */
static bool make_lengths(const struct codec_document *document, const struct codec_value *value,
                         int64_t *offsets, size_t count, struct codec_error *error) {
    if (count < 2 || offsets[0] != 0) {
        return codec_fail(document, value, error,
                          "sequence_offsets must begin with 0 and end with the number of rows, as "
                          "in [[0, 5, 8]] for sequences of 5 and 3 rows");
    }
    for (size_t i = 1; i < count; i++) {
        if (offsets[i] < offsets[i - 1]) {
            return codec_fail(document, value, error,
                              "sequence_offsets has %lld after %lld; each must be at least the one "
                              "before",
                              (long long)offsets[i], (long long)offsets[i - 1]);
        }
        offsets[i - 1] = offsets[i] - offsets[i - 1];
    }
    return true;
}

bool field_sequence_offsets(struct call *call, struct codec_document *document,
                            const struct field *field, const struct codec_value *value,
                            struct codec_error *error) {
    struct codec_integers lists;
    (void)field;
    if (call->options.sequences != NULL) {
        return codec_fail(document, value, error,
                          "sequence_offsets and sequences say the same: give one of them");
    }
    if (!read_lists(document, value, true, &lists, error)) {
        return false;
    }
    const size_t each = lists.count / lists.lists;
    for (size_t list = 0; list < lists.lists; list++) {
        if (!make_lengths(document, value, lists.numbers + list * each, each, error)) {
            return false;
        }
    }
    keep_sequences(call, &lists, each - 1);
    return true;
}
