/*
 * print_table.c - prints the routes, the table of request fields, the names of other programs and
 * those of results as JSON, for the checks of documents, the dictionaries of libFuzzer and the
 * search for costs.
 */
#include <stdio.h>

#include "api/call/answer_names.h"
#include "api/call/field.h"
#include "results.h"

static const char *const kinds[] = {
    [FIELD_BY_NAME] = "by name", [FIELD_WORDS] = "words",     [FIELD_MATRIX] = "matrix",
    [FIELD_LOGITS] = "logits",   [FIELD_DECAY] = "decay",     [FIELD_BIAS] = "bias",
    [FIELD_MASK] = "mask",       [FIELD_DTYPE] = "choice",    [FIELD_CHOICE] = "choice",
    [FIELD_INTEGER] = "integer", [FIELD_COUNT] = "count",     [FIELD_NUMBER] = "number",
    [FIELD_BOOL] = "bool",       [FIELD_SECONDS] = "seconds", [FIELD_EXPECTED] = "expected",
    [FIELD_READER] = "reader",
};
static const char *const draws[] = {
    [FIELDS_NOT_DRAWN] = "", [FIELDS_NUMBERS] = "numbers", [FIELDS_MASK] = "mask"};

static void print_string(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    putchar('"');
}

/* Prints the paths of these objects. One head of the list "heads" has the name "heads". */
static void print_at(unsigned at) {
    const char *comma = "";
    fputs("\"at\":[", stdout);
    for (size_t i = 0; i < api_route_count; i++) {
        if ((api_routes[i].fields & at & (API_NO_BODY - 1)) != 0) {
            printf("%s\"%s\"", comma, api_routes[i].path);
            comma = ",";
        }
    }
    printf((at & FIELDS_AT_HEAD) != 0 ? "%s\"heads\"]" : "]", comma);
}

int main(void) {
    const struct field *row;
    fputs("{\"routes\":[", stdout);
    for (size_t i = 0; i < api_route_count; i++) {
        printf("%s\"%s %s\"", i > 0 ? ",\n" : "", api_routes[i].method, api_routes[i].path);
    }
    fputs("],\n\"fields\":[", stdout);
    for (size_t i = 0; (row = fields_row(i)) != NULL; i++) {
        printf("%s{\"key\":\"%s\",\"kind\":\"%s\",\"least\":%d,\"most\":%d,\"drawn\":\"%s\",",
               i > 0 ? ",\n" : "", row->name, kinds[row->kind], row->least, row->most,
               draws[row->draw]);
        print_at(row->at);
        fputs(",\"sample\":", stdout);
        print_string(row->sample != NULL ? row->sample : "");
        fputs(",\"choices\":[", stdout);
        for (size_t k = 0; k < row->choice_count && row->kind != FIELD_EXPECTED; k++) {
            printf("%s\"%s\"", k > 0 ? "," : "", row->choices[k]);
        }
        fputs("]}", stdout);
    }
    fputs("],\n\"foreign\":[", stdout);
    for (size_t i = 0; i < fields_foreign_count; i++) {
        printf("%s{\"name\":\"%s\",", i > 0 ? ",\n" : "", fields_foreign[i].name);
        print_at(fields_foreign[i].where);
        putchar('}');
    }
    fputs("],\n\"results\":[", stdout);
    for (size_t i = 0; i < ANSWER_COUNT; i++) {
        printf("%s{\"name\":\"%s\",\"lowest\":%d,\"softmax\":%d,", i > 0 ? ",\n" : "",
               answer_names[i], (answer_forms[i] & ANSWER_MASKED) != 0,
               (answer_bits[i] & RESULTS_OF(RESULT_SOFTMAX)) != 0);
        print_at(answer_at[i]);
        putchar('}');
    }
    puts("]}");
    return 0;
}
