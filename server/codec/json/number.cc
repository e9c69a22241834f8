/*
 * number.cc - std::from_chars and std::to_chars behind the C functions of number.h. They are exact,
 * write the shortest text and do not depend on the locale. This is the one C++ file. Nothing here
 * allocates or throws.
 */
#include "codec/json/number.h"

#include <charconv>
#include <limits>

namespace {

/* Is a number huge that from_chars calls "out of range", and not tiny? Its first significant digit
 * then stands before the point once the exponent is applied. */
bool is_huge(const char *text, const char *end) {
    long point = 0; /* decimal exponent of the first significant digit, plus one */
    bool found = false, fraction = false;
    for (; text != end && *text != 'e' && *text != 'E'; ++text) {
        if (*text == '.') {
            fraction = true;
        } else if (*text != '-') {
            found = found || *text != '0';
            if (found && !fraction) {
                ++point;
            }
            if (!found && fraction) {
                --point;
            }
        }
    }
    if (!found) {
        return false;
    }
    if (text != end) {
        ++text;
        bool negative = *text == '-';
        if (*text == '+' || *text == '-') {
            ++text;
        }
        long exponent = 0; /* stops at 10^8, which is more than the digits of any text */
        for (; text != end; ++text) {
            exponent = exponent < 100000000 ? exponent * 10 + (*text - '0') : exponent;
        }
        point += negative ? -exponent : exponent;
    }
    return point > 0;
}

template <typename T> bool read(const char *text, size_t size, T *out) {
    const char *end = text + size;
    T value = 0;
    bool fits = true;
    if (std::from_chars(text, end, value).ec == std::errc::result_out_of_range) {
        fits = !is_huge(text, end);
        value = fits ? T(0) : std::numeric_limits<T>::infinity();
        if (*text == '-') {
            value = -value;
        }
    }
    *out = value;
    return fits;
}

/* Reads "d.ddde-XX" as digits and a power. */
void parse_scientific(const char *text, const char *end, number_digits *out) {
    out->digits = 0;
    out->power = 0;
    bool fraction = false;
    for (; *text != 'e'; ++text) {
        if (*text == '.') {
            fraction = true;
        } else {
            out->digits = out->digits * 10 + uint64_t(*text - '0');
            out->power -= fraction;
        }
    }
    bool negative = text[1] == '-';
    int exponent = 0;
    std::from_chars(text + 2, end, exponent);
    out->power += negative ? -exponent : exponent;
}

template <typename T> void exact(T value, number_digits *out) {
    char text[NUMBER_SIZE];
    auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
    parse_scientific(text, end, out);
}

} // namespace

bool number_read_float(const char *text, size_t size, float *out) {
    return read(text, size, out);
}

bool number_read_double(const char *text, size_t size, double *out) {
    return read(text, size, out);
}

void number_exact_float(float value, number_digits *out) {
    exact(value, out);
}

void number_exact_double(double value, number_digits *out) {
    exact(value, out);
}

void number_exact_rounded(double value, int digits, number_digits *out) {
    char text[NUMBER_SIZE];
    auto end =
        std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, digits - 1);
    parse_scientific(text, end.ptr, out);
}
