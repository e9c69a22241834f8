/*
 * number.h - decimal text <-> binary numbers, exact and independent of the locale. Knows nothing of
 * JSON: the callers check the grammar before they read, and that a number is finite before they
 * write. number.c has the quick paths of writing (those of reading are in lift.c); number.cc, the
 * only C++ of the project, decides the rest with libstdc++'s <charconv>.
 */
#ifndef CODEC_NUMBER_H
#define CODEC_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* number_write_*() use up to this many bytes of `out`, more than they return (24 at most). */
enum {
    NUMBER_SIZE = 40
};

/* Reads text[0..size), a number by the grammar of RFC 8259, rounded to nearest, ties to even.
 * Numbers too small become a denormal or a zero of their sign; too large: false, and an infinity
 * of their sign. */
bool number_read_float(const char *text, size_t size, float *out);
bool number_read_double(const char *text, size_t size, double *out);

/* Each writes a finite number as a JSON number, without NUL, and returns its length. _float and
 * _double take the fewest digits that read back as the same value; _rounded takes at most 1..17
 * significant digits, rounded as printf rounds, but without zeros at the end, and down where up
 * would lead out of the range of double. */
size_t number_write_float(char *out, float value);
size_t number_write_double(char *out, double value);
size_t number_write_rounded(char *out, double value, int digits);
size_t number_write_int64(char *out, int64_t value);

/* For number.c: the digits as a whole number and its power of ten. `value` is positive. */
struct number_digits {
    uint64_t digits;
    int power;
};
void number_exact_float(float value, struct number_digits *out);
void number_exact_double(double value, struct number_digits *out);
void number_exact_rounded(double value, int digits, struct number_digits *out);

#ifdef __cplusplus
}
#endif

#endif
