/*
 * json.h - JSON for the tests: reading files, looking into answers, and comparing nested arrays of
 * numbers with a stated allowance. It is the only place of the tests that knows cJSON; others pass
 * pointers to struct cJSON and never look into it. It knows nothing of HTTP, cases or Criterion.
 */
#ifndef SUPPORT_JSON_H
#define SUPPORT_JSON_H

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* Reads a file, and appends a NUL. Returns owned: free(). Returns NULL if the file cannot be
 * read. */
char *json_read_file(const char *path, size_t *size);

/* Parses one JSON value with nothing but white space around it. Returns owned: json_free(). Returns
 * NULL for any other text. */
struct cJSON *json_parse(const char *text, size_t size);
void json_free(struct cJSON *value); /* accepts NULL */

/* Prints the value without spaces. Returns owned: free(). Returns NULL if there is no memory. */
char *json_print(const struct cJSON *value);

/* The functions below return parts that belong to the value, and accept NULL for a missing
 * value. */
bool json_is_array(const struct cJSON *value);
bool json_is_object(const struct cJSON *value);
const struct cJSON *json_get(const struct cJSON *object, const char *name); /* NULL if none */
const struct cJSON *json_first(const struct cJSON *container);              /* NULL if empty */
const struct cJSON *json_next(const struct cJSON *child); /* NULL after the last */
const char *json_name(const struct cJSON *member);        /* NULL if it has none */
size_t json_size(const struct cJSON *container);
bool json_number(const struct cJSON *value, double *number); /* false if it is no number */
const char *json_text(const struct cJSON *value);            /* NULL if it is no text */

/* The place where two values differ most, and how many numbers were compared. */
struct json_difference {
    char pointer[128]; /* RFC 6901, relative to the compared value */
    char message[192]; /* what is wrong there */
    size_t numbers;    /* how many numbers were compared */
};

/*
 * Compares got with expect: same nesting, same lengths, same member names, and each number within
 *     absolute + relative * (the largest |expected number| of its innermost array).
 * An expected 0 must be exactly 0 if `absolute` is 0 or its innermost array has only zeros, because
 * weights of forbidden keys and outputs of queries without keys are exact zeros. null, true, false
 * and texts must be equal. If the values differ, returns false and fills `difference` (which may be
 * NULL) with the number furthest beyond its allowance, or with the first place where the structures
 * differ.
 */
bool json_near(const struct cJSON *got, const struct cJSON *expect, double absolute,
               double relative, struct json_difference *difference);

/* Returns the text of an object in which the member has this value, in JSON, whether the object had
 * it or not. Returns owned: free(). */
char *json_with(const char *object, const char *name, const char *value);

/* Makes {FRONT,"X":[[0],[1],...]} with this many rows. Returns owned: free(). */
char *json_rows(const char *front, size_t rows, size_t *size);

/* Makes a text from `format`, in which "#3x4" stands for a matrix of numbers, and "*9(TEXT)" for
 * nine times TEXT. Returns owned: free(). */
char *json_body(const char *format, size_t *size);

#endif
