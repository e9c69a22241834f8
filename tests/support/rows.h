/*
 * rows.h - reads files of tests/data in which each row is a text, such as refusals.txt. A line that
 * begins with # is a comment. A line that begins with a space goes on with the line before it; one
 * space takes the place of the line end. A line NAME = TEXT defines a shorthand, and later lines
 * use it as NAME in angle brackets. The escapes are \r \n \t \\ \xHH. A file that breaks these
 * rules fails the test.
 */
#ifndef SUPPORT_ROWS_H
#define SUPPORT_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    ROWS_LINE = 640,   /* bytes of a line of the file */
    ROWS_BYTES = 2048, /* bytes of what a line describes */
    ROWS_SHORTHANDS = 64
};

struct rows {
    FILE *file;
    unsigned number;      /* of the last line */
    char line[ROWS_LINE]; /* the line that was read last, without its end */
    struct {
        char name[80], bytes[ROWS_BYTES];
        size_t size;
    } shorthands[ROWS_SHORTHANDS];
    size_t count; /* how many shorthands are known */
};

/* Opens a file of tests/data. rows_close() closes it. */
void rows_open(struct rows *rows, const char *name);
void rows_close(struct rows *rows);

/* Reads the next line that is neither empty nor a comment nor a shorthand. Returns false at the end
 * of the file. */
bool rows_next(struct rows *rows);

/* Replaces escapes and shorthands by bytes, and appends a NUL. Returns the number of bytes. */
size_t rows_expand(const struct rows *rows, const char *text, char bytes[static ROWS_BYTES]);

/* Expands the text of a row of grammar.txt. Returns the offset of the byte at fault, or -1 if the
 * text is JSON. */
long rows_grammar(const struct rows *rows, char text[static ROWS_BYTES]);

#endif
