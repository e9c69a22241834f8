/*
 * number.h - decimal text <-> binary numbers, exact and independent of the locale. A C face for
 * libstdc++'s <charconv>; the only C++ of the project is behind it. Knows nothing of JSON: the
 * callers check the grammar before they read, and that a number is finite before they write.
 */
#ifndef CODEC_NUMBER_H
#define CODEC_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* No number_write_*() writes more bytes than this (the longest is -1.2345678901234567e-308). */
enum { NUMBER_SIZE = 32 };

/* Reads text[0..size), a number by the grammar of RFC 8259, rounded to nearest, ties to even. Numbers
 * too small become a denormal or a zero of their sign; too large: false, and an infinity of their sign. */
bool number_read_float(const char *text, size_t size, float *out);
bool number_read_double(const char *text, size_t size, double *out);

/* Each writes a finite number as a JSON number, without NUL, and returns its length. _float and _double take
 * the fewest digits that read back as the same value; _rounded takes 1..17 significant digits like printf's %g. */
size_t number_write_float(char *out, float value);
size_t number_write_double(char *out, double value);
size_t number_write_rounded(char *out, double value, int digits);
size_t number_write_int64(char *out, int64_t value);

#ifdef __cplusplus
}
#endif

#endif
