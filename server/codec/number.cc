/*
 * number.cc - the one C++ file: number.h over std::from_chars and std::to_chars, which are exact, shortest
 * and know no locale. Nothing here allocates or throws.
 */
#include "codec/number.h"

#include <charconv>
#include <limits>

namespace {

/* from_chars says "out of range" of both the huge and the tiny. True if the number is huge: its first
 * significant digit stands left of the point once the exponent is applied. */
bool is_huge(const char *text, const char *end)
{
    long point = 0; /* decimal exponent of the first significant digit, plus one */
    bool found = false, fraction = false;
    for (; text != end && *text != 'e' && *text != 'E'; ++text) {
        if (*text == '.') {
            fraction = true;
        } else if (*text != '-') {
            found = found || *text != '0';
            if (found && !fraction)
                ++point;
            if (!found && fraction)
                --point;
        }
    }
    if (!found)
        return false;
    if (text != end) {
        ++text;
        bool negative = *text == '-';
        if (*text == '+' || *text == '-')
            ++text;
        long exponent = 0; /* capped: it only has to outweigh the digits, which fit in memory */
        for (; text != end; ++text)
            exponent = exponent < 100000000 ? exponent * 10 + (*text - '0') : exponent;
        point += negative ? -exponent : exponent;
    }
    return point > 0;
}

template <typename T> bool read(const char *text, size_t size, T *out)
{
    const char *end = text + size;
    T value = 0;
    bool fits = true;
    if (std::from_chars(text, end, value).ec == std::errc::result_out_of_range) {
        fits = !is_huge(text, end);
        value = fits ? T(0) : std::numeric_limits<T>::infinity();
        if (*text == '-')
            value = -value;
    }
    *out = value;
    return fits;
}

/* Whole numbers below ten million by hand: quicker, and 100000 instead of 1e+05. */
size_t write_small(char *out, int32_t value)
{
    char digits[8];
    size_t count = 0, size = 0;
    uint32_t rest = value < 0 ? uint32_t(-value) : uint32_t(value);
    if (value < 0)
        out[size++] = '-';
    do {
        digits[count++] = char('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    while (count > 0)
        out[size++] = digits[--count];
    return size;
}

const int32_t SMALL = 10000000;

template <typename T> bool is_small(T value)
{
    if (!(value > T(-SMALL) && value < T(SMALL)) || T(int32_t(value)) != value)
        return false;
    return value != 0 || !__builtin_signbit(value);
}

template <typename T> size_t write(char *out, T value)
{
    if (is_small(value))
        return write_small(out, int32_t(value));
    return size_t(std::to_chars(out, out + NUMBER_SIZE, value).ptr - out);
}

} // namespace

bool number_read_float(const char *text, size_t size, float *out)
{
    return read(text, size, out);
}

bool number_read_double(const char *text, size_t size, double *out)
{
    return read(text, size, out);
}

size_t number_write_float(char *out, float value)
{
    return write(out, value);
}

size_t number_write_double(char *out, double value)
{
    return write(out, value);
}

size_t number_write_rounded(char *out, double value, int digits)
{
    char *end = out + NUMBER_SIZE;
    return size_t(std::to_chars(out, end, value, std::chars_format::general, digits).ptr - out);
}

size_t number_write_int64(char *out, int64_t value)
{
    return size_t(std::to_chars(out, out + NUMBER_SIZE, value).ptr - out);
}
