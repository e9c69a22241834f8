/* binary.c - makes bodies with binary tensors, reads answers with them, and compares these with
 * answers in JSON. */
#define _GNU_SOURCE /* open_memstream */
#include "support/binary.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/json.h"

/* ------------------------------------------------------------------------------------ the calls */

#define EVERY_RESULT                                                                               \
    "[\"output\",\"weights\",\"scores\",\"scaled_scores\",\"masked_scores\",\"lse\",\"entropy\","  \
    "\"statistics\",\"top_k\"]"

const struct binary_call binary_rich = {"/attention",
                                        "\"top_k\":2,\"window\":[3,1],\"softcap\":3.5",
                                        EVERY_RESULT,
                                        {{"Q", {2, 3, 4}, 0, NULL},
                                         {"K", {2, 5, 4}, 0, NULL},
                                         {"V", {2, 5, 2}, 0, NULL},
                                         {"mask", {3, 5}, 1, NULL},
                                         {"bias", {3, 5}, 0, NULL}}};
const struct binary_call binary_long = {
    "/attention", "", "[\"weights\",\"output\"]", {{"X", {150, 8}, 0, NULL}}};

/* ---------------------------------------------------------------------------------- the numbers */

static size_t rank_of(const struct binary_input *input) {
    size_t rank = 0;
    while (rank < 4 && input->shape[rank] > 0) {
        rank++;
    }
    return rank;
}

static bool is_mask(const struct binary_input *input) {
    return (input->kind & BINARY_MASK) != 0;
}

size_t binary_count(const struct binary_input *input) {
    size_t count = 1;
    for (size_t axis = 0; axis < rank_of(input); axis++) {
        count *= input->shape[axis];
    }
    return count;
}

/* Returns an element of an input. */
static double element_of(const struct binary_input *input, size_t i) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    if (input->numbers != NULL) {
        return input->numbers[i];
    }
    for (const char *c = input->name; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    }
    hash = (hash ^ (uint32_t)i) * 2654435761u;
    hash ^= hash >> 15;
    if (is_mask(input)) {
        return (rank_of(input) == 1 || i >= input->shape[rank_of(input) - 1]) && hash % 4 != 0;
    }
    if ((input->kind & BINARY_SHARE) != 0) {
        return (double)(hash % 17) / 64;
    }
    return ((double)(hash % 129) - ((input->kind & BINARY_DECAY) != 0 ? 128 : 64)) / 16;
}

static bool is_wide(const char *type) {
    return strcmp(type, "FP64") == 0 || strcmp(type, "F64") == 0;
}

static size_t width_of(const char *type) {
    const char *digits = type + strcspn(type, "0123456789");
    return strcmp(type, "BOOL") == 0 ? 1 : strtoul(digits, NULL, 10) / 8; /* of F8_E5M2, 1 */
}

/* Writes a number, NaN, an infinity, or the largest number of the type for a larger one. It is
 * rounded to F32 and BF16. Other types of at most 16 bits have an exponent of 5 bits, and hold it
 * exactly. */
static void put_number(FILE *to, double number, const char *type) {
    const size_t width = width_of(type);
    const bool brain = type[0] == 'B', wide = is_wide(type);
    const double most = width == 1 ? 57344 : brain ? 0x1.fep127 : width == 2 ? 65504 : FLT_MAX;
    if (!wide && isfinite(number) && fabs(number) > most) {
        number = copysign(most, number);
    }
    union {
        float number;
        uint32_t bits;
    } narrow = {.number = (float)number};
    const uint32_t exponent = narrow.bits >> 23 & 0xFF, fraction = narrow.bits >> 13 & 0x3FF;
    const uint16_t half = (uint16_t)((narrow.bits >> 16 & 0x8000) |
                                     (exponent == 0      ? 0
                                      : exponent == 0xFF ? 0x7C00 | fraction
                                                         : (exponent - 112) << 10 | fraction)),
                   upper = (uint16_t)((narrow.bits + 0x7FFF + (narrow.bits >> 16 & 1)) >> 16);
    const uint16_t two = brain ? upper : half;
    const uint8_t byte = strcmp(type, "BOOL") == 0 ? number != 0 : (uint8_t)(half >> 8);
    fwrite(wide         ? (const void *)&number
           : width == 4 ? (const void *)&narrow
           : width == 2 ? (const void *)&two
                        : &byte,
           width, 1, to);
}

/* Returns the type of an input in safetensors. */
static const char *own_type(const struct binary_input *input, const char *type) {
    return is_mask(input)              ? "BOOL"
           : input->kind & BINARY_F32  ? "F32"
           : input->kind & BINARY_F64  ? "F64"
           : input->kind & BINARY_BF16 ? "BF16"
                                       : type;
}

static void put_bytes(FILE *to, const struct binary_input *input, const char *type) {
    for (size_t i = 0; i < binary_count(input); i++) {
        put_number(to, element_of(input, i), own_type(input, type));
    }
}

/* Writes the numbers as JSON, nested from this axis on. */
static void put_nested(FILE *to, const struct binary_input *input, size_t axis, size_t *next) {
    if (axis == rank_of(input)) {
        const double number = element_of(input, (*next)++);
        if (number == -INFINITY || ((input->kind & BINARY_HOLES) != 0 && *next % 4 == 0)) {
            fputs(*next % 8 == 0 ? "null" : "-Infinity", to);
            return;
        }
        fprintf(to, is_mask(input) ? number != 0 ? "true" : "false" : "%.17g", number);
        return;
    }
    for (size_t i = 0; i < input->shape[axis]; i++) {
        fputc(i > 0 ? ',' : '[', to);
        put_nested(to, input, axis + 1, next);
    }
    fputc(']', to);
}

static void put_shape(FILE *to, const struct binary_input *input) {
    for (size_t axis = 0; axis < rank_of(input); axis++) {
        fprintf(to, "%c%zu", axis > 0 ? ',' : '[', input->shape[axis]);
    }
    fputc(']', to);
}

void binary_put(FILE *to, const struct binary_input *input) {
    const char *dot = strchr(input->name, '.');
    size_t next = 0;
    if (dot != NULL) {
        fprintf(to, "\"%.*s\":{\"%s\":", (int)(dot - input->name), input->name, dot + 1);
        put_nested(to, input, 0, &next);
        fputc('}', to);
        return;
    }
    fprintf(to, "\"%s\":", input->name);
    if ((input->kind & BINARY_DRAWN) == 0) {
        put_nested(to, input, 0, &next);
        return;
    }
    fputs((input->kind & BINARY_DECAY) != 0
              ? "{\"random\":\"uniform\",\"low\":-2,\"high\":0,\"shape\":"
          : is_mask(input)
              ? "{\"random\":\"randint\",\"high\":2,\"shape\":"
              : "{\"random\":\"randn\",\"discard\":[{\"random\":\"rand\",\"shape\":3}],\"shape\":",
          to);
    put_shape(to, input);
    fputc('}', to);
}

/* Writes a text as a string of JSON. */
static void put_string(FILE *to, const char *text) {
    fputc('"', to);
    for (; *text != '\0'; text++) {
        fprintf(to, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('"', to);
}

/* Writes the options and the names of the results as members, each with a comma before it. Values
 * that are no texts become texts if `all` is set, and arrays and objects become texts in any
 * case. */
static void put_options(FILE *to, const struct binary_call *call, bool all) {
    char *text = NULL;
    size_t size = 0;
    FILE *object = open_memstream(&text, &size);
    fprintf(object, "{%s%s%s%s}", call->options,
            call->options[0] != '\0' && call->returned != NULL ? "," : "",
            call->returned != NULL ? "\"return\":" : "",
            call->returned != NULL ? call->returned : "");
    fclose(object);
    struct cJSON *options = json_parse(text, size);
    const struct cJSON *option = json_first(options);
    for (const char *comma = ""; option != NULL; option = json_next(option), comma = ",") {
        char *value = json_print(option);
        fprintf(to, "%s\"%s\":", comma, json_name(option));
        if (value[0] != '"' && (all || value[0] == '[' || value[0] == '{')) {
            put_string(to, value);
        } else {
            fputs(value, to);
        }
        free(value);
    }
    json_free(options);
    free(text);
}

/* --------------------------------------------------------------------------------------- bodies */

struct binary_call binary_with(const struct binary_call *call, const char *option,
                               char options[2048]) {
    struct binary_call with = *call;
    snprintf(options, 2048, "%s%s%s", call->options, call->options[0] != '\0' ? "," : "", option);
    with.options = options;
    return with;
}

char *binary_json(const struct binary_call *call, const char *dtype, size_t *size) {
    char *body = NULL;
    FILE *to = open_memstream(&body, size);
    fprintf(to, "{\"dtype\":\"%s\"", dtype);
    for (const struct binary_input *input = call->inputs; input->name != NULL; input++) {
        fputc(',', to);
        binary_put(to, input);
    }
    fprintf(to, "%s%s", call->options[0] != '\0' ? "," : "", call->options);
    if (call->returned != NULL) {
        fprintf(to, ",\"return\":%s", call->returned);
    }
    fputc('}', to);
    fclose(to);
    return body;
}

char *binary_inference(const struct binary_call *call, const char *type, unsigned binary,
                       const char *more, size_t *header, size_t *size) {
    char *body = NULL;
    FILE *to = open_memstream(&body, size);
    fprintf(to, "{%s\"inputs\":[", more);
    for (size_t i = 0; call->inputs[i].name != NULL; i++) {
        const struct binary_input *input = &call->inputs[i];
        const char *own = is_mask(input) ? "BOOL" : type;
        size_t next = 0;
        fprintf(to, "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":", i > 0 ? "," : "",
                input->name, own);
        put_shape(to, input);
        if ((binary >> i & 1) != 0) {
            fprintf(to, ",\"parameters\":{\"binary_data_size\":%zu}}",
                    binary_count(input) * width_of(own));
            continue;
        }
        fputs(",\"data\":", to);
        if (i % 2 == 0) { /* nested and flat data are both allowed */
            put_nested(to, input, 0, &next);
        } else {
            for (size_t k = 0; k < binary_count(input); k++) {
                fprintf(to, "%c%.17g", k > 0 ? ',' : '[', element_of(input, k));
            }
            fputc(']', to);
        }
        fputc('}', to);
    }
    fputs("],\"parameters\":{", to);
    put_options(to, call, false);
    fputs("}}", to);
    fflush(to);
    *header = *size;
    for (size_t i = 0; call->inputs[i].name != NULL; i++) {
        if ((binary >> i & 1) != 0) {
            put_bytes(to, &call->inputs[i], type);
        }
    }
    fclose(to);
    return body;
}

char *binary_file(const char *header, const void *bytes, size_t count, size_t *size) {
    const uint64_t length = strlen(header); /* the machine is little-endian */
    char *body = malloc(sizeof length + length + count + 1);
    memcpy(body, &length, sizeof length);
    memcpy(body + sizeof length, header, length);
    if (count > 0) {
        memcpy(body + sizeof length + length, bytes, count);
    }
    *size = sizeof length + length + count;
    return body;
}

char *binary_safetensors(const struct binary_call *call, const char *type, size_t *size) {
    char *header = NULL, *bytes = NULL;
    size_t header_size = 0, count = 0;
    FILE *to = open_memstream(&header, &header_size), *data = open_memstream(&bytes, &count);
    fputs("{\"__metadata__\":{", to);
    put_options(to, call, true);
    fputc('}', to);
    for (const struct binary_input *input = call->inputs; input->name != NULL; input++) {
        fflush(data);
        const size_t begin = count;
        put_bytes(data, input, type);
        fflush(data);
        fprintf(to, ",\"%s\":{\"dtype\":\"%s\",\"shape\":", input->name, own_type(input, type));
        put_shape(to, input);
        fprintf(to, ",\"data_offsets\":[%zu,%zu]}", begin, count);
    }
    fputs("}   ", to); /* spaces may follow */
    fclose(to);
    fclose(data);
    char *body = binary_file(header, bytes, count, size);
    free(header);
    free(bytes);
    return body;
}

/* -------------------------------------------------------------------------------------- answers */

#define REFUSE(...) return snprintf(message, 256, __VA_ARGS__), false

void binary_free(struct binary_answer *answer) {
    json_free(answer->head);
    answer->head = NULL;
}

const struct binary_result *binary_find(const struct binary_answer *answer, const char *name) {
    for (size_t i = 0; i < answer->count; i++) {
        if (strcmp(answer->list[i].name, name) == 0) {
            return &answer->list[i];
        }
    }
    return NULL;
}

/* Reads the name, the type and the shape of a result. Returns its elements; 0 if something is
 * wrong. */
static size_t read_form(struct binary_result *result, const char *name, const struct cJSON *type,
                        const struct cJSON *shape) {
    size_t elements = 1;
    result->name = name;
    result->type = json_text(type);
    if (name == NULL || result->type == NULL || !json_is_array(shape) || json_size(shape) > 8) {
        return 0;
    }
    for (const struct cJSON *axis = json_first(shape); axis != NULL; axis = json_next(axis)) {
        double number = 0;
        json_number(axis, &number);
        elements *= (size_t)number;
        result->shape[result->rank++] = (size_t)number;
    }
    return elements;
}

static bool read_output(struct binary_answer *answer, const struct cJSON *output, const char *bytes,
                        size_t left, size_t *used, char message[256]) {
    struct binary_result *result = &answer->list[answer->count];
    double size = 0;
    const char *name = json_text(json_get(output, "name"));
    const size_t elements =
        read_form(result, name, json_get(output, "datatype"), json_get(output, "shape"));
    *used = 0;
    if (elements == 0 || binary_find(answer, name) != NULL) {
        REFUSE("the output %s has no form, or it is there twice", name);
    }
    answer->count++;
    result->data = json_get(output, "data");
    const struct cJSON *parameters = json_get(output, "parameters");
    if ((result->data == NULL) == (parameters == NULL)) {
        REFUSE("%s must have data or parameters", name);
    }
    if (result->data != NULL) {
        if (!json_is_array(result->data) || json_size(result->data) != elements) {
            REFUSE("%s has %zu elements instead of %zu", name, json_size(result->data), elements);
        }
        return true;
    }
    json_number(json_get(parameters, "binary_data_size"), &size);
    result->bytes = bytes;
    result->size = *used = (size_t)size;
    if (*used > left || *used != elements * width_of(result->type)) {
        REFUSE("%s has %zu bytes, %zu elements, and %zu bytes are left", name, *used, elements,
               left);
    }
    return true;
}

bool binary_read_inference(struct binary_answer *answer, const char *bytes, size_t size,
                           size_t header, char message[256]) {
    *answer = (struct binary_answer){0};
    if (header > size) {
        REFUSE("a header of %zu bytes in an answer of %zu", header, size);
    }
    size_t at = header > 0 ? header : size;
    answer->head = json_parse(bytes, at);
    const struct cJSON *outputs = json_get(answer->head, "outputs");
    if (!json_is_array(outputs) || json_size(outputs) > BINARY_MOST) {
        REFUSE("no outputs: %.200s", bytes);
    }
    for (const struct cJSON *output = json_first(outputs); output != NULL;
         output = json_next(output)) {
        size_t used;
        if (!read_output(answer, output, bytes + at, size - at, &used, message)) {
            return false;
        }
        at += used;
    }
    if (at != size) {
        REFUSE("%zu bytes, but %zu are described", size, at);
    }
    return true;
}

bool binary_read_safetensors(struct binary_answer *answer, const char *bytes, size_t size,
                             char message[256]) {
    uint64_t length = 0;
    size_t end = 0;
    *answer = (struct binary_answer){0};
    if (size >= sizeof length) {
        memcpy(&length, bytes, sizeof length);
    }
    const size_t before = sizeof length + (size_t)length;
    if (length == 0 || length > size - sizeof length || before % 8 != 0 || bytes[8] != '{') {
        REFUSE("%zu bytes with a header of %llu", size, (unsigned long long)length);
    }
    answer->head = json_parse(bytes + sizeof length, (size_t)length);
    const struct cJSON *member = json_first(answer->head);
    for (; member != NULL; member = json_next(member)) {
        struct binary_result *result = &answer->list[answer->count];
        const struct cJSON *offsets = json_get(member, "data_offsets");
        double begin = -1, stop = -1;
        if (strcmp(json_name(member), "__metadata__") == 0) {
            continue;
        }
        if (answer->count == BINARY_MOST) {
            REFUSE("too many tensors");
        }
        const size_t elements = read_form(result, json_name(member), json_get(member, "dtype"),
                                          json_get(member, "shape"));
        json_number(json_first(offsets), &begin);
        json_number(json_next(json_first(offsets)), &stop);
        result->size = elements * width_of(result->type);
        result->bytes = bytes + before + end;
        if (elements == 0 || json_size(member) != 3 || json_size(offsets) != 2 ||
            (size_t)begin != end || (size_t)stop != end + result->size ||
            (before + end) % width_of(result->type) != 0 || binary_find(answer, result->name)) {
            REFUSE("%s has %zu elements and lies at %g to %g, after %zu", json_name(member),
                   elements, begin, stop, end);
        }
        answer->count++;
        end += result->size;
    }
    if ((answer->count == 0 && json_get(answer->head, "__metadata__") == NULL) ||
        before + end != size) {
        REFUSE("%zu bytes, but %zu are described", size, before + end);
    }
    return true;
}

/* ----------------------------------------------------------------------------------- comparison */

/* Returns the part of an answer under a dotted name: "top_k.indices" or "Q.0". */
static const struct cJSON *part_named(const struct cJSON *json, const char *name) {
    char key[64];
    while (json != NULL && *name != '\0') {
        const size_t size = strcspn(name, ".");
        snprintf(key, sizeof key, "%.*s", (int)size, name);
        if (json_is_array(json)) {
            const struct cJSON *child = json_first(json);
            for (size_t i = strtoul(key, NULL, 10); i > 0; i--) {
                child = json_next(child);
            }
            json = child;
        } else {
            json = json_get(json, key);
        }
        name += size + (name[size] == '.');
    }
    return json;
}

/* Compares element `i` of a result. `data` is this element if the result is not binary. */
static bool is_element(const struct binary_result *result, size_t i, const struct cJSON *data,
                       const struct cJSON *json) {
    double number = -(double)INFINITY, wide = 0;
    float narrow = 0;
    int64_t whole = 0;
    json_number(json, &number); /* null stays minus infinity */
    if (result->data != NULL) {
        if (strcmp(result->type, "BYTES") == 0) {
            const char *got = json_text(data), *word = json_text(json);
            return got != NULL && word != NULL && strcmp(got, word) == 0;
        }
        wide = -(double)INFINITY;
        json_number(data, &wide);
        return data != NULL && wide == number && signbit(wide) == signbit(number);
    }
    if (strcmp(result->type, "INT64") == 0 || strcmp(result->type, "I64") == 0) {
        memcpy(&whole, result->bytes + i * sizeof whole, sizeof whole);
        return (double)whole == number;
    }
    if (is_wide(result->type)) {
        memcpy(&wide, result->bytes + i * sizeof wide, sizeof wide);
        return memcmp(&wide, &number, sizeof wide) == 0;
    }
    const float expected = (float)number;
    memcpy(&narrow, result->bytes + i * sizeof narrow, sizeof narrow);
    return width_of(result->type) == 4 && memcmp(&narrow, &expected, sizeof narrow) == 0;
}

/* Compares a result from this axis on. *next is the next element, and *data as in is_element(). */
static bool is_part(const struct binary_result *result, size_t axis, size_t *next,
                    const struct cJSON **data, const struct cJSON *json) {
    if (axis == result->rank) {
        const struct cJSON *element = *data;
        *data = element != NULL ? json_next(element) : NULL;
        return is_element(result, (*next)++, element, json);
    }
    if (!json_is_array(json) || json_size(json) != result->shape[axis]) {
        return false;
    }
    for (const struct cJSON *child = json_first(json); child != NULL; child = json_next(child)) {
        if (!is_part(result, axis + 1, next, data, child)) {
            return false;
        }
    }
    return true;
}

/* Counts the numbers, nulls and words in an answer. */
static size_t leaves_in(const struct cJSON *json) {
    size_t count = 0;
    if (!json_is_array(json) && !json_is_object(json)) {
        return 1;
    }
    for (const struct cJSON *child = json_first(json); child != NULL; child = json_next(child)) {
        count += leaves_in(child);
    }
    return count;
}

/* Returns the JSON of a comparison, which is a text in an answer that is not in JSON. */
static const char *comparison_of(const struct binary_answer *answer) {
    const struct binary_result *output = binary_find(answer, "comparison");
    return json_text(output != NULL
                         ? json_first(output->data)
                         : json_get(json_get(answer->head, "__metadata__"), "comparison"));
}

/* Returns the largest absolute error of the first result of a comparison, as text; free(). The
 * tolerance and the bound depend on the type of the expected tensor. */
static char *error_of(const struct cJSON *comparison) {
    const struct cJSON *first = json_first(json_get(comparison, "results"));
    return json_print(json_get(first, "absolute_error"));
}

/* Compares a comparison in a text with one in JSON. */
static bool is_same_comparison(const char *text, const struct cJSON *json) {
    struct cJSON *parsed = text != NULL ? json_parse(text, strlen(text)) : NULL;
    char *own = error_of(parsed), *other = error_of(json);
    const bool same = own != NULL && other != NULL && strcmp(own, other) == 0;
    free(own);
    free(other);
    json_free(parsed);
    return same;
}

bool binary_equal_json(const struct binary_answer *answer, const struct cJSON *json,
                       char message[256]) {
    const struct cJSON *comparison = json_get(json, "comparison");
    size_t all = comparison != NULL ? leaves_in(comparison) : 0;
    if (comparison != NULL && !is_same_comparison(comparison_of(answer), comparison)) {
        REFUSE("the comparison is not that of the JSON answer: %.150s", comparison_of(answer));
    }
    for (size_t i = 0; i < answer->count; i++) {
        const struct binary_result *result = &answer->list[i];
        size_t next = 0;
        if (strcmp(result->name, "comparison") == 0) {
            continue;
        }
        const struct cJSON *part = part_named(json, result->name), *data = json_first(result->data);
        if (part == NULL || !is_part(result, 0, &next, &data, part)) {
            REFUSE("%s is not that of the JSON answer, at element %zu", result->name, next);
        }
        all += next;
    }
    if (all != leaves_in(json)) {
        REFUSE("the JSON answer has %zu elements, not %zu", leaves_in(json), all);
    }
    return true;
}
