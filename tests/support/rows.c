/* rows.c - reads rows, shorthands and escapes. */
#include "support/rows.h"

#include <criterion/criterion.h>
#include <string.h>

void rows_open(struct rows *rows, const char *name) {
    char path[256];
    snprintf(path, sizeof path, TESTS_DIR "/data/%s", name);
    rows->file = fopen(path, "r");
    rows->number = 0;
    rows->count = 0;
    cr_assert_not_null(rows->file, "%s", path);
}

void rows_close(struct rows *rows) {
    fclose(rows->file);
}

/* Reads the escape that begins with the '\\' at `text`. Returns how many characters it has. */
static size_t read_escape(const char *text, char *byte) {
    static const char letters[] = "rnt\\", meant[] = "\r\n\t\\";
    unsigned value;
    const char *letter = strchr(letters, text[1]);
    if (text[1] != '\0' && letter != NULL) {
        *byte = meant[letter - letters];
        return 2;
    }
    cr_assert_eq(sscanf(text, "\\x%2x", &value), 1, "no such escape: %s", text);
    *byte = (char)value;
    return 4;
}

size_t rows_expand(const struct rows *rows, const char *text, char bytes[static ROWS_BYTES]) {
    size_t size = 0;
    char name[80];
    int length;
    while (*text != '\0') {
        if (sscanf(text, "<%79[A-Z]>%n", name, &length) == 1) {
            size_t i = 0;
            while (i < rows->count && strcmp(rows->shorthands[i].name, name) != 0) {
                i++;
            }
            cr_assert(i < rows->count && rows->shorthands[i].size < ROWS_BYTES - size, "%s", text);
            memcpy(bytes + size, rows->shorthands[i].bytes, rows->shorthands[i].size);
            size += rows->shorthands[i].size;
            text += length;
        } else {
            cr_assert_lt(size, ROWS_BYTES - 1);
            bytes[size] = *text;
            text += *text == '\\' ? read_escape(text, &bytes[size]) : 1;
            size++;
        }
    }
    bytes[size] = '\0';
    return size;
}

/* Appends the lines that begin with a space. */
static bool read_rest(struct rows *rows) {
    int c;
    while ((c = fgetc(rows->file)) == ' ') {
        const size_t size = strlen(rows->line);
        cr_assert_lt(size + 1, ROWS_LINE);
        rows->line[size] = ' ';
        rows->line[size + 1] = '\0';
        if (fscanf(rows->file, " ") >= 0 &&
            fgets(rows->line + size + 1, (int)(ROWS_LINE - size - 1), rows->file) != NULL) {
            rows->line[strcspn(rows->line, "\n")] = '\0';
        }
        rows->number++;
    }
    ungetc(c, rows->file);
    return true;
}

bool rows_next(struct rows *rows) {
    char name[80];
    while (fgets(rows->line, sizeof rows->line, rows->file) != NULL) {
        int at = 0; /* where the text of a shorthand begins */
        rows->number++;
        rows->line[strcspn(rows->line, "\n")] = '\0';
        if (rows->line[0] == '#' || rows->line[0] == '\0') {
            continue;
        }
        if (sscanf(rows->line, "%79[A-Z] = %n", name, &at) != 1 || at == 0) {
            return read_rest(rows);
        }
        cr_assert_lt(rows->count, ROWS_SHORTHANDS);
        strcpy(rows->shorthands[rows->count].name, name);
        rows->shorthands[rows->count].size =
            rows_expand(rows, rows->line + at, rows->shorthands[rows->count].bytes);
        rows->count++;
    }
    return false;
}

long rows_grammar(const struct rows *rows, char text[static ROWS_BYTES]) {
    const char *colon = strchr(rows->line, ':');
    long offset = -1;
    cr_assert(colon != NULL &&
                  (strncmp(rows->line, "good:", 5) == 0 || sscanf(rows->line, "%ld", &offset) == 1),
              "line %u", rows->number);
    rows_expand(rows, colon + 1 + (colon[1] == ' '), text);
    return offset;
}
