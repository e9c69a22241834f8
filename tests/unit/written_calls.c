/* written_calls.c - reads calls of the library, and makes them. */
#include "written_calls.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/plans.h"

/* ------------------------------------------------------------------------------------ the table */

enum kind {
    TENSOR,
    NUMBER,   /* a double */
    SIZE,     /* a size_t */
    INTEGERS, /* one int64_t after the other */
    YES,      /* a bool: 1 or 0 */
    NAME,     /* an enum: a name, whose place in `names` is the value, or a number */
    BITS,     /* an unsigned: names, whose places in `names` are bits */
    RESULTS,  /* the bits of results */
    NUMBERS,  /* a list of doubles, and their number */
    SIZES     /* a list of sizes, and their number */
};

struct field {
    const char *name;
    enum kind kind;
    size_t at, count_at; /* in a written_call; count_at is 0 if nothing counts a list */
    const char *names;   /* each with a '|' behind it */
};

#define AT(member) offsetof(struct written_call, member)
#define FIELD(name, kind, member)                                                                  \
    { name, kind, AT(member), 0, NULL }
#define OPTION(name, kind, member) FIELD(name, kind, options.member)
#define LIST(name, kind, member, count)                                                            \
    { name, kind, AT(member), AT(count), NULL }
#define NAMED(name, kind, member, names)                                                           \
    { name, kind, AT(member), 0, names }
#define HEAD(h)                                                                                    \
    FIELD("heads/" #h "/W_Q", TENSOR, heads[h].w_q),                                               \
        FIELD("heads/" #h "/W_K", TENSOR, heads[h].w_k),                                           \
        FIELD("heads/" #h "/W_V", TENSOR, heads[h].w_v),                                           \
        FIELD("heads/" #h "/b_Q", TENSOR, heads[h].b_q),                                           \
        FIELD("heads/" #h "/b_K", TENSOR, heads[h].b_k),                                           \
        FIELD("heads/" #h "/b_V", TENSOR, heads[h].b_v)

enum {
    RESERVED = sizeof((attn_options *)0)->reserved / sizeof(uint64_t)
};

static const struct field fields[] = {
    FIELD("Q", TENSOR, linear.q),
    FIELD("K", TENSOR, linear.k),
    FIELD("V", TENSOR, linear.v),
    FIELD("beta", TENSOR, linear.beta),
    FIELD("past_state", TENSOR, linear.past_state),
    NAMED("update", NAME, linear.update, "as_given|linear|gated|delta|gated_delta|"),
    FIELD("X", TENSOR, multihead.x),
    FIELD("context", TENSOR, multihead.context),
    FIELD("value_context", TENSOR, multihead.value_context),
    HEAD(0),
    HEAD(1),
    FIELD("count", SIZE, multihead.count),
    FIELD("per_head", YES, multihead.per_head),
    NAMED("layout", NAME, multihead.layout, "in_out|out_in|prepacked|"),
    FIELD("W_O", TENSOR, multihead.w_o),
    FIELD("b_O", TENSOR, multihead.b_o),
    FIELD("bias_K", TENSOR, multihead.bias_k),
    FIELD("bias_V", TENSOR, multihead.bias_v),
    FIELD("zero_key", YES, multihead.zero_key),
    NAMED("flags", BITS, options.flags, "scale|window|alibi|mean_over_heads|bottom_right|"),
    OPTION("results", RESULTS, results),
    OPTION("causal", YES, causal),
    NAMED("normalization", NAME, options.normalization, "softmax|none|sigmoid|stick_breaking|"),
    OPTION("scale", NUMBER, scale),
    LIST("scales", NUMBERS, options.scales, options.scales_count),
    OPTION("softcap", NUMBER, softcap),
    OPTION("sigmoid_bias", NUMBER, sigmoid_bias),
    OPTION("window", INTEGERS, window),
    OPTION("heads", SIZE, heads),
    OPTION("kv_heads", SIZE, kv_heads),
    OPTION("top_k", SIZE, top_k),
    OPTION("mask", TENSOR, mask),
    OPTION("bias", TENSOR, bias),
    OPTION("decay", TENSOR, decay),
    OPTION("alibi", TENSOR, alibi_slopes),
    OPTION("sink", TENSOR, sink),
    LIST("lengths", SIZES, options.lengths, options.lengths_count),
    OPTION("key_padding", TENSOR, key_padding),
    OPTION("past_K", TENSOR, past_k),
    OPTION("past_V", TENSOR, past_v),
    OPTION("b_Q", TENSOR, b_q),
    OPTION("b_K", TENSOR, b_k),
    OPTION("b_V", TENSOR, b_v),
    OPTION("norm_Q", TENSOR, norm_q),
    OPTION("norm_K", TENSOR, norm_k),
    OPTION("norm_V", TENSOR, norm_v),
    OPTION("norm_epsilon", NUMBER, norm_epsilon),
    NAMED("compute_dtype", NAME, options.compute_dtype, "as_given|float16|bfloat16|"),
    OPTION("gate", TENSOR, gate),
    OPTION("W_G", TENSOR, w_g),
    OPTION("b_G", TENSOR, b_g),
    OPTION("reserved/0", INTEGERS, reserved[0]),
    OPTION("reserved/last", INTEGERS, reserved[RESERVED - 1]),
    FIELD("rotary", YES, has_rotary),
    FIELD("rotary_columns", SIZE, rotary.columns),
    FIELD("offset", INTEGERS, rotary.offset),
    FIELD("base", NUMBER, rotary.base),
    FIELD("positions", TENSOR, rotary.positions),
    FIELD("rotary_cos", TENSOR, rotary.cos),
    FIELD("rotary_sin", TENSOR, rotary.sin),
    NAMED("scaling", NAME, rotary.scaling,
          "unscaled|linear|dynamic|yarn|longrope|llama3|"
          "proportional|"),
    FIELD("factor", NUMBER, rotary.factor),
    FIELD("original_positions", NUMBER, rotary.original_positions),
    FIELD("attention_factor", NUMBER, rotary.attention_factor),
    FIELD("low_factor", NUMBER, rotary.low_factor),
    FIELD("partial_factor", NUMBER, rotary.partial_factor),
    FIELD("high_factor", NUMBER, rotary.high_factor),
    FIELD("beta_fast", NUMBER, rotary.beta_fast),
    FIELD("beta_slow", NUMBER, rotary.beta_slow),
    FIELD("mscale_all", NUMBER, rotary.mscale_all),
    LIST("short_factors", NUMBERS, rotary.short_factors, rotary.short_count),
    LIST("long_factors", NUMBERS, rotary.long_factors, rotary.long_count),
    FIELD("short_count", SIZE, rotary.short_count),
    FIELD("upstream", YES, has_upstream),
    FIELD("grad_output", TENSOR, upstream.output),
    FIELD("grad_lse", TENSOR, upstream.lse),
    FIELD("grad_weights", TENSOR, upstream.weights),
    FIELD("grad_present_state", TENSOR, upstream.state),
    LIST("queries", SIZES, sequences.queries, sequences.count),
    FIELD("keys", SIZES, sequences.keys),
    FIELD("sequences", SIZE, sequences.count),
    FIELD("weights", TENSOR, weights),
    FIELD("buffer", INTEGERS, buffer),
    FIELD("row", SIZE, row),
    FIELD("rows", SIZE, rows),
    FIELD("column", SIZE, column),
    FIELD("columns", SIZE, columns),
    FIELD("axis", INTEGERS, axis),
};

enum {
    COUNT = sizeof fields / sizeof *fields
};
_Static_assert(COUNT <= (int)WRITTEN_FIELDS, "every field has a value");
_Static_assert(sizeof(attn_normalization) == sizeof(unsigned), "an enum is an unsigned");

static size_t find(const char *name) {
    size_t f = 0;
    while (f < COUNT && strcmp(fields[f].name, name) != 0) {
        f++;
    }
    cr_assert_lt(f, COUNT, "there is no field \"%s\"", name);
    return f;
}

/* --------------------------------------------------------------------------------------- values */

static void *place(struct written_call *call, size_t at) {
    return (char *)call + at;
}

static double read_number(const char **text) {
    char *end;
    const double x = strtod(*text, &end);
    cr_assert(end != *text, "no number: %s", *text);
    *text = end + (*end == ',');
    return x;
}

static uint64_t read_whole(const char **text) {
    char *end;
    const uint64_t x = strtoull(*text, &end, 0);
    cr_assert(end != *text, "no whole number: %s", *text);
    *text = end + (*end == ',');
    return x;
}

/* Reads a name of a list in which each name has a '|' behind it, or a number. */
static uint64_t read_name(const char **text, const char *names) {
    const size_t size = strcspn(*text, ",");
    uint64_t at = 0;
    if (isdigit((unsigned char)**text)) {
        return read_whole(text);
    }
    while (strncmp(names, *text, size) != 0 || names[size] != '|') {
        names = strchr(names, '|');
        cr_assert(names != NULL && names[1] != '\0', "no such name: %s", *text);
        names++;
        at++;
    }
    *text += size + ((*text)[size] == ',');
    return at;
}

/* A name stands for its bit; a number is the bits. */
static uint64_t read_bits(const char *text, const char *names) {
    uint64_t bits = 0;
    while (*text != '\0') {
        const bool number = isdigit((unsigned char)*text) != 0;
        const uint64_t value = read_name(&text, names);
        bits |= number ? value : UINT64_C(1) << value;
    }
    return bits;
}

/* Writes the number behind an '@' to one element of a tensor. */
static void change_element(struct written_call *call, attn_tensor *t, const char *text) {
    size_t count;
    cr_assert(call->numbers == NULL && attn_tensor_count(t, &count) && count <= WRITTEN_NUMBERS);
    call->numbers = calloc(WRITTEN_NUMBERS, sizeof *call->numbers);
    const uint64_t at = read_whole(&text);
    cr_assert(*text == ':' && at < count && call->numbers != NULL, "%s", text);
    text++;
    set_number(call->numbers, t->dtype, at, read_number(&text));
    t->data = call->numbers;
}

static const attn_tensor *read_tensor(struct written_call *call, attn_tensor *t, const char *text) {
    static const double zeros[WRITTEN_NUMBERS];
    static const char dtypes[] = "float32|float64|bool|int64|nodata|";
    if (isupper((unsigned char)*text)) {
        return *(const attn_tensor **)place(call, fields[find(text)].at);
    }
    if (strcmp(text, "-") == 0) {
        return NULL;
    }
    *t = (attn_tensor){.data = zeros, .dtype = ATTN_FLOAT64};
    if (islower((unsigned char)*text)) {
        char name[16];
        int size = 0;
        cr_assert(sscanf(text, "%15[a-z0-9]:%n", name, &size) == 1 && size > 0, "%s", text);
        const char *end = name;
        const uint64_t dtype = read_name(&end, dtypes);
        t->data = dtype == 4 ? NULL : zeros;
        t->dtype = dtype == 4 ? ATTN_FLOAT64 : (attn_dtype)dtype;
        text += size;
    }
    while (*text != '\0' && *text != '@') {
        cr_assert_lt(t->rank, ATTN_MAX_RANK);
        t->shape[t->rank++] = read_whole(&text);
    }
    if (*text == '@') {
        change_element(call, t, text + 1);
    }
    return t;
}

static void read_list(struct written_call *call, size_t f, const char *text) {
    size_t count = 0;
    for (; *text != '\0'; count++) {
        cr_assert_lt(count, WRITTEN_LIST);
        if (fields[f].kind == NUMBERS) {
            call->values[f].numbers[count] = read_number(&text);
        } else {
            call->values[f].sizes[count] = read_whole(&text);
        }
    }
    const void *list = &call->values[f];
    memcpy(place(call, fields[f].at), &list, sizeof list);
    if (fields[f].count_at != 0) {
        memcpy(place(call, fields[f].count_at), &count, sizeof count);
    }
}

#define RESULT_NAME(name, text) text "|"
static const char result_names[] = ATTN_RESULT_MAP(RESULT_NAME);

static void read_field(struct written_call *call, size_t f, const char *text) {
    void *to = place(call, fields[f].at);
    const attn_tensor *tensor;
    switch (fields[f].kind) {
    case TENSOR:
        tensor = read_tensor(call, &call->values[f].tensor, text);
        memcpy(to, &tensor, sizeof(const attn_tensor *));
        break;
    case NUMBER:
        *(double *)to = read_number(&text);
        break;
    case SIZE:
        *(size_t *)to = read_whole(&text);
        break;
    case INTEGERS:
        for (int64_t *x = to; *text != '\0'; x++) {
            *x = (int64_t)read_whole(&text);
        }
        break;
    case YES:
        *(bool *)to = read_whole(&text) != 0;
        break;
    case NAME:
        *(unsigned *)to = (unsigned)read_name(&text, fields[f].names);
        break;
    case BITS:
        *(unsigned *)to = (unsigned)read_bits(text, fields[f].names);
        break;
    case RESULTS:
        *(uint64_t *)to = read_bits(text, result_names);
        break;
    case NUMBERS:
    case SIZES:
        read_list(call, f, text);
    }
}

/* A field of a struct that a call may lack brings the struct along. */
static void note_struct(struct written_call *call, size_t at) {
    call->has_rotary |= at >= AT(rotary) && at < AT(rotary) + sizeof call->rotary;
    call->has_upstream |= at >= AT(upstream) && at < AT(upstream) + sizeof call->upstream;
    call->has_sequences |= at >= AT(sequences) && at < AT(sequences) + sizeof call->sequences;
}

void read_written(struct written_call *call, const char *text) {
    char name[32], value[160];
    int size = 0;
    *call = (struct written_call){.buffer = -1, .multihead.count = 1};
    call->runs = strncmp(text, "run ", 4) == 0;
    text += call->runs ? 4 : 0;
    cr_assert_eq(sscanf(text, "%15s%n", call->function, &size), 1);
    for (text += size; sscanf(text, " %31[^= ]=%159s%n", name, value, &size) == 2; text += size) {
        const size_t f = find(name);
        read_field(call, f, value);
        note_struct(call, fields[f].at);
    }
    cr_assert_eq(strspn(text, " "), strlen(text), "no field: %s", text);
}

void free_written(struct written_call *call) {
    free(call->numbers);
}

attn_tensor *written_tensor(struct written_call *call, const char *name) {
    const size_t f = find(name);
    const bool given = *(const attn_tensor **)place(call, fields[f].at) != NULL;
    return given ? &call->values[f].tensor : NULL;
}

/* ---------------------------------------------------------------------------------------- calls */

static attn_status make_prepacked(struct written_call *call, attn_error *error) {
    static _Alignas(ATTN_ALIGNMENT) char buffer[WRITTEN_NUMBERS];
    void *to = call->buffer < 0 ? NULL : buffer + call->buffer;
    const attn_layout layout = call->multihead.layout;
    attn_tensor packed;
    size_t bytes;
    if (strcmp(call->function, "prepack_bytes") == 0) {
        return attn_prepack_bytes(call->weights, layout, &bytes, error);
    }
    if (strcmp(call->function, "prepack_part") == 0) {
        return attn_prepack_part(call->weights, layout, call->row, call->rows, call->column,
                                 call->columns, to, error);
    }
    cr_assert_str_eq(call->function, "prepack");
    return attn_prepack(call->weights, layout, to, &packed, error);
}

attn_status make_written(attn_plan **plan, struct written_call *call, attn_error *error) {
    attn_options *options = &call->options;
    *plan = (attn_plan *)call; /* the functions write NULL to it, or a plan */
    options->upstream = call->has_upstream ? &call->upstream : NULL;
    options->rotary = call->has_rotary ? &call->rotary : NULL;
    options->sequences = call->has_sequences ? &call->sequences : NULL;
    call->multihead.projections = call->heads;
    if (strcmp(call->function, "attention") == 0) {
        return attn_plan_attention(plan, call->linear.q, call->linear.k, call->linear.v, options,
                                   error);
    }
    if (strcmp(call->function, "linear") == 0) {
        return attn_plan_linear(plan, &call->linear, options, error);
    }
    if (strcmp(call->function, "multihead") == 0) {
        return attn_plan_multihead(plan, &call->multihead, options, error);
    }
    if (strcmp(call->function, "softmax") == 0) {
        return attn_plan_softmax(plan, call->multihead.x, (int)call->axis, error);
    }
    *plan = NULL;
    return make_prepacked(call, error);
}
