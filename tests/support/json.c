/*
 * json.c - JSON for the tests. The comparison walks through both values side by side and keeps the
 * number that is furthest beyond its allowance, so that a failure names the place to look at first.
 */
#include "support/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

char *json_read_file(const char *path, size_t *size) {
    char *bytes = NULL;
    bool ok = false;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        goto done;
    long length = ftell(file);
    if (length < 0 || fseek(file, 0, SEEK_SET) != 0)
        goto done;
    *size = (size_t)length;
    bytes = malloc(*size + 1);
    if (bytes == NULL || fread(bytes, 1, *size, file) != *size)
        goto done;
    bytes[*size] = '\0';
    ok = true;
done:
    if (file != NULL)
        fclose(file);
    if (ok)
        return bytes;
    free(bytes);
    return NULL;
}

struct cJSON *json_parse(const char *text, size_t size) {
    const char *end = NULL;
    cJSON *value = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (value == NULL)
        return NULL;
    for (; end < text + size; end++) {
        if (strchr(" \t\r\n", *end) == NULL || *end == '\0') {
            cJSON_Delete(value);
            return NULL;
        }
    }
    return value;
}

void json_free(struct cJSON *value) {
    cJSON_Delete(value);
}

char *json_print(const struct cJSON *value) {
    /* The text comes from malloc(), because no test installs hooks of cJSON. */
    return cJSON_PrintUnformatted(value);
}

char *json_with(const char *object, const char *name, const char *value) {
    cJSON *parsed = cJSON_Parse(object);
    cJSON_DeleteItemFromObjectCaseSensitive(parsed, name);
    cJSON_AddRawToObject(parsed, name, value);
    char *text = json_print(parsed);
    json_free(parsed);
    return text;
}

bool json_is_array(const struct cJSON *value) {
    return cJSON_IsArray(value);
}

bool json_is_object(const struct cJSON *value) {
    return cJSON_IsObject(value);
}

const struct cJSON *json_get(const struct cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

const struct cJSON *json_first(const struct cJSON *container) {
    return container == NULL ? NULL : container->child;
}

const struct cJSON *json_next(const struct cJSON *child) {
    return child == NULL ? NULL : child->next;
}

const char *json_name(const struct cJSON *member) {
    return member == NULL ? NULL : member->string;
}

size_t json_size(const struct cJSON *container) {
    return container == NULL ? 0 : (size_t)cJSON_GetArraySize(container);
}

bool json_number(const struct cJSON *value, double *number) {
    if (!cJSON_IsNumber(value))
        return false;
    *number = value->valuedouble;
    return true;
}

const char *json_text(const struct cJSON *value) {
    return cJSON_IsString(value) ? value->valuestring : NULL;
}

/* ---------------------------------------------------------------------------------- comparison */

struct walk {
    double absolute, relative;
    double worst; /* largest |got - expect| / allowance so far; over 1 is a failure */
    bool broken;  /* the structures differ, so nothing more is compared */
    char pointer[128];
    size_t length;
    struct json_difference *difference;
};

static const char *kind_of(const cJSON *value) {
    if (value == NULL || cJSON_IsInvalid(value))
        return "nothing";
    if (cJSON_IsNumber(value))
        return "a number";
    if (cJSON_IsArray(value))
        return "an array";
    if (cJSON_IsObject(value))
        return "an object";
    if (cJSON_IsString(value))
        return "a text";
    return cJSON_IsNull(value) ? "null" : cJSON_IsTrue(value) ? "true" : "false";
}

static void note_place(struct walk *walk) {
    memcpy(walk->difference->pointer, walk->pointer, walk->length + 1);
}

static void break_off(struct walk *walk, const char *what, const char *got, const char *expect) {
    if (walk->broken)
        return;
    walk->broken = true;
    note_place(walk);
    snprintf(walk->difference->message, sizeof walk->difference->message, "%s%s, expected %s", what,
             got, expect);
}

static void compare_values(struct walk *walk, const cJSON *got, const cJSON *expect, double scale);

static void compare_child(struct walk *walk, const cJSON *got, const cJSON *expect,
                          const char *token, double scale) {
    size_t length = walk->length;
    size_t room = sizeof walk->pointer - length;
    int added = snprintf(walk->pointer + length, room, "/%s", token);
    if (added > 0)
        walk->length += (size_t)added < room ? (size_t)added : room - 1;
    compare_values(walk, got, expect, scale);
    walk->length = length;
    walk->pointer[length] = '\0';
}

static void compare_numbers(struct walk *walk, double got, double expect, double scale) {
    double allowed = walk->absolute + walk->relative * scale;
    if (expect == 0 && (walk->absolute <= 0 || scale <= 0))
        allowed = 0;
    double off = fabs(got - expect);
    double ratio = off <= 0 ? 0 : allowed > 0 ? off / allowed : INFINITY;
    walk->difference->numbers++;
    if (ratio <= walk->worst)
        return;
    walk->worst = ratio;
    note_place(walk);
    snprintf(walk->difference->message, sizeof walk->difference->message,
             "got %.17g, expected %.17g, off by %.3g where %.3g is allowed", got, expect, off,
             allowed);
}

static void compare_arrays(struct walk *walk, const cJSON *got, const cJSON *expect) {
    char token[24], sizes[2][32];
    int got_size = cJSON_GetArraySize(got), expect_size = cJSON_GetArraySize(expect);
    if (got_size != expect_size) {
        snprintf(sizes[0], sizeof sizes[0], "%d elements", got_size);
        snprintf(sizes[1], sizeof sizes[1], "%d", expect_size);
        break_off(walk, "has ", sizes[0], sizes[1]);
        return;
    }
    double scale = 0;
    const cJSON *e = NULL;
    cJSON_ArrayForEach(e, expect) {
        if (cJSON_IsNumber(e))
            scale = fmax(scale, fabs(e->valuedouble));
    }
    const cJSON *g = got->child;
    size_t index = 0;
    cJSON_ArrayForEach(e, expect) {
        snprintf(token, sizeof token, "%zu", index++);
        compare_child(walk, g, e, token, scale);
        g = g->next;
    }
}

static void compare_objects(struct walk *walk, const cJSON *got, const cJSON *expect) {
    const cJSON *member = NULL;
    cJSON_ArrayForEach(member, expect) {
        const cJSON *g = cJSON_GetObjectItemCaseSensitive(got, member->string);
        double scale = cJSON_IsNumber(member) ? fabs(member->valuedouble) : 0;
        compare_child(walk, g, member, member->string, scale);
    }
    cJSON_ArrayForEach(member, got) {
        if (cJSON_GetObjectItemCaseSensitive(expect, member->string) == NULL)
            break_off(walk, "has the member ", member->string, "no such member");
    }
    /* A member that occurs twice would hide behind its first occurrence. */
    if (cJSON_GetArraySize(got) > cJSON_GetArraySize(expect))
        break_off(walk, "has a member ", "twice", "each once");
}

static void compare_values(struct walk *walk, const cJSON *got, const cJSON *expect, double scale) {
    if (walk->broken)
        return;
    bool same_kind = got != NULL && (got->type & 0xFF) == (expect->type & 0xFF);
    if (!same_kind)
        break_off(walk, "is ", kind_of(got), kind_of(expect));
    else if (cJSON_IsNumber(expect))
        compare_numbers(walk, got->valuedouble, expect->valuedouble, scale);
    else if (cJSON_IsArray(expect))
        compare_arrays(walk, got, expect);
    else if (cJSON_IsObject(expect))
        compare_objects(walk, got, expect);
    else if (cJSON_IsString(expect) && strcmp(got->valuestring, expect->valuestring) != 0)
        break_off(walk, "is ", got->valuestring, expect->valuestring);
}

bool json_near(const struct cJSON *got, const struct cJSON *expect, double absolute,
               double relative, struct json_difference *difference) {
    struct json_difference unused;
    struct walk walk = {.absolute = absolute,
                        .relative = relative,
                        .difference = difference == NULL ? &unused : difference};
    *walk.difference = (struct json_difference){0};
    double scale = cJSON_IsNumber(expect) ? fabs(expect->valuedouble) : 0;
    compare_values(&walk, got, expect, scale);
    return !walk.broken && walk.worst <= 1;
}

char *json_rows(const char *front, size_t rows, size_t *size) {
    char *text = malloc(strlen(front) + rows * 4 + 16);
    if (text == NULL) {
        abort();
    }
    *size = (size_t)sprintf(text, "{%s,\"X\":[[0]", front);
    for (size_t i = 1; i < rows; i++) {
        *size += (size_t)sprintf(text + *size, ",[%zu]", i % 7);
    }
    *size += (size_t)sprintf(text + *size, "]}");
    return text;
}

/* Writes one matrix. */
static void put_matrix(FILE *to, size_t rows, size_t columns) {
    for (size_t i = 0; i < rows * columns; i++) {
        const char *before = i % columns != 0 ? "," : i == 0 ? "[[" : "],[";
        fprintf(to, "%s%zu.%zu", before, i * 7 % 3, i * 31 % 10);
    }
    fputs("]]", to);
}

char *json_body(const char *format, size_t *size) {
    char *body, *end;
    FILE *to = open_memstream(&body, size);
    while (*format != '\0') {
        if (*format != '#' && *format != '*') {
            fputc(*format++, to);
            continue;
        }
        const size_t count = strtoul(format + 1, &end, 10);
        if (*format == '#') {
            put_matrix(to, count, strtoul(end + 1, &end, 10));
            format = end;
            continue;
        }
        const char *text = end + 1;
        format = strchr(text, ')') + 1;
        for (size_t i = 0; i < count; i++) {
            fwrite(text, 1, (size_t)(format - 1 - text), to);
        }
    }
    fclose(to);
    return body;
}
